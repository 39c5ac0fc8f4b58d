//! A mapped dataset may hold bytes that nobody checked: whatever they are, a sampler answers or refuses, and never panics.

use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Direction, EdgeTypeName};
use graphmill_sample::{Budget, Config, Expand, Fanouts, Hops, Negatives, Ppr, Supervision, Task};
use graphmill_testing::{Assignment, files, sample as sample_graph, tempdir, write};

use crate::support::{sample, sample_pairs};

#[test]
fn damaged_arrays_never_panic() {
    let graph = sample_graph();
    for parts in [1, 3] {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        let layouts = [Direction::In, Direction::Out];
        write(&graph, &path, &layouts, &Assignment::assigned(&graph, parts, |_, id| (id % u64::from(parts)) as u16))
            .unwrap();
        let random = Stream::new(u64::from(parts), &[]);
        let arrays: Vec<_> = files(&path).into_iter().filter(|file| !file.ends_with("manifest.json")).collect();
        for (place, file) in arrays.iter().enumerate() {
            let sound = std::fs::read(file).unwrap();
            for round in 0..sound.len().min(10) as u64 {
                let mut bytes = sound.clone();
                let at = random.below(1000 * place as u64 + round, sound.len() as u64) as usize;
                bytes[at] = random.at(1_000_000 + 1000 * place as u64 + round) as u8;
                std::fs::write(file, &bytes).unwrap();
                if let Ok(dataset) = Dataset::open(&path) {
                    sample_everything(&dataset);
                }
            }
            std::fs::write(file, &sound).unwrap();
        }
    }
}

fn sample_everything(dataset: &Dataset) {
    let hops = |replace, weighted| Hops { fanouts: Fanouts::Same(vec![1, 2]), replace, weighted };
    let ppr = Ppr { eps: 0.1, max_nodes: Budget::Each(9), neighbors_per_hop: 2, ..Ppr::default() };
    let expansions = [
        Expand::Neighbors(hops(false, false)),
        Expand::Neighbors(hops(false, true)),
        Expand::Neighbors(hops(true, true)),
        Expand::Neighbors(Hops { fanouts: Fanouts::Same(vec![-1, -1]), weighted: true, ..Hops::default() }),
        Expand::Induced(hops(true, false)),
        Expand::Ppr(ppr),
    ];
    let likes = EdgeTypeName::new("author", "likes", "paper");
    let negatives = Negatives::Triplet { amount: 2, strict: true, weighted: true };
    for expand in expansions {
        for direction in [Direction::In, Direction::Out] {
            let config = |task| Config {
                task,
                expand: expand.clone(),
                direction: Some(direction),
                features: vec!["x".to_owned()],
                labels: true,
                max_edges: 1000,
                ..Config::default()
            };
            let _ = sample(dataset, &config(Task::Nodes { node_type: Some("paper".to_owned()) }), &[0, 4]);
            let supervision = vec![Supervision { positive: likes.clone(), negative: None }];
            let _ = sample(dataset, &config(Task::Anchors { supervision, max_labels: None }), &[0, 2]);
            let task = Task::Links { edge_type: Some(likes.clone()), negatives: Some(negatives.clone()) };
            let _ = sample_pairs(dataset, &config(task), &[(0, 2), (2, 1)]);
        }
    }
}
