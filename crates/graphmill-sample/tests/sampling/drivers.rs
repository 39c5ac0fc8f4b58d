//! A batch is the same whoever answers: mapped or loaded, whole or in parts, from one view or from the owners of the nodes.

use std::sync::Arc;

use graphmill_graph::{Dataset, Direction, OpenOptions, Storage};
use graphmill_sample::{
    Answer, AnswerScratch, Ask, Batch, Budget, Config, Expand, Fanouts, Hops, IdVec, Machine, Need, Plan, Pool, Ppr,
    Result, Seeds, Step, Task, View,
};
use graphmill_testing::{Assignment, assignments, tempdir, write};
use proptest::prelude::*;

use crate::neighbors::seeded_graphs;
use crate::support::{ID, placed, sample};

fn expansions() -> impl Strategy<Value = Expand> {
    let fanouts = proptest::collection::vec(-1i64..4, 0..3);
    let hops = (fanouts, any::<bool>(), any::<bool>()).prop_map(|(fanouts, replace, weighted)| Hops {
        fanouts: Fanouts::Same(fanouts),
        replace,
        weighted,
    });
    let ppr = Ppr { eps: 0.01, max_nodes: Budget::Each(5), neighbors_per_hop: 3, ..Ppr::default() };
    prop_oneof![hops.clone().prop_map(Expand::Neighbors), hops.prop_map(Expand::Induced), Just(Expand::Ppr(ppr))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts_and_storage_change_nothing(
        ((graph, node_type, seeds), assignment) in seeded_graphs().prop_flat_map(|seeded| {
            let assignment = assignments(&seeded.0);
            (Just(seeded), assignment)
        }),
        expand in expansions(),
    ) {
        let features = graph.nodes[&node_type].features.keys().cloned().collect();
        let task = Task::Nodes { node_type: Some(node_type) };
        let config = Config { task, expand, features, direction: Some(Direction::In), ..Config::default() };
        let layouts = [Direction::In, Direction::Out];
        let whole = placed(&graph, &layouts, &Assignment::whole(&graph), Storage::Ram);
        let expected = sample(&whole, &config, &seeds)?;
        for (layouts, storage) in [(&layouts[..], Storage::Ram), (&[Direction::In][..], Storage::Mmap)] {
            let parted = placed(&graph, layouts, &assignment, storage);
            let found = sample(&parted, &config, &seeds)?;
            prop_assert_eq!(found.layout().entries(), expected.layout().entries());
            prop_assert_eq!(found.bytes(), expected.bytes());
        }
    }

    #[test]
    fn owners_answer_like_the_whole(
        ((graph, node_type, seeds), assignment) in seeded_graphs().prop_flat_map(|seeded| {
            let assignment = assignments(&seeded.0);
            (Just(seeded), assignment)
        }),
        expand in expansions(),
    ) {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        write(&graph, &path, &[Direction::In], &assignment)?;
        let part = |part: u32| OpenOptions { storage: Storage::Mmap, partitions: Some(vec![part]) };
        let owners: Vec<Dataset> =
            (0..assignment.parts()).map(|owner| Dataset::open_with(&path, &part(owner))).collect::<std::result::Result<_, _>>()?;
        let whole = Dataset::open(&path)?;
        let task = Task::Nodes { node_type: Some(node_type) };
        let config = Config { task, expand, direction: Some(Direction::In), ..Config::default() };

        let plan = Arc::new(Plan::new(config.clone(), &whole)?);
        let views: Vec<View> = owners.iter().map(View::new).collect();
        let mut machine = Machine::new(&plan);
        machine.begin(&plan, Seeds::Nodes(&seeds), ID)?;
        while machine.step(&plan)? == Step::Need {
            for (need, answer) in machine.needs() {
                ask_owners(&whole, &views, &need, answer)?;
            }
        }
        let found = Batch::assemble(&plan, &machine, &Pool::new(1), |_, _| Ok(()))?;
        let expected = sample(&whole, &config, &seeds)?;
        prop_assert_eq!(found.layout().entries(), expected.layout().entries());
        prop_assert_eq!(found.bytes(), expected.bytes());
    }
}

/// Splits a question by owner, has each share answered where its nodes are, and merges the answers in the order asked.
fn ask_owners(whole: &Dataset, views: &[View], need: &Need<'_>, answer: &mut Answer) -> Result<()> {
    let info = &whole.edge_types()[need.edge_type];
    let owner_type = whole.manifest().node_type(info.name.list_owner(need.direction))?;
    let owner = |id: u64| whole.node_book(owner_type).owner(id).unwrap() as usize;
    answer.clear();
    let mut shares: Vec<(Answer, usize, usize)> = Vec::new();
    for (place, view) in views.iter().enumerate() {
        let mine = |index: &usize| owner(need.ids[*index]) == place;
        let picked: Vec<usize> = (0..need.ids.len()).filter(mine).collect();
        let ids: Vec<u64> = picked.iter().map(|&index| need.ids[index]).collect();
        let others = match need.ask {
            Ask::Contains => picked.iter().map(|&index| need.others[index]).collect(),
            _ => need.others.to_vec(),
        };
        let mut share = Answer::default();
        view.answer(&Need { ids: &ids, others: &others, ..*need }, &mut share, &mut AnswerScratch::default())?;
        shares.push((share, 0, 0));
    }
    let mut neighbors = Vec::new();
    for &id in need.ids {
        let (share, next, edge) = &mut shares[owner(id)];
        if let Ask::Degrees = need.ask {
            answer.degrees.push(share.degrees[*next]);
        } else {
            let count = share.counts[*next];
            answer.counts.push(count);
            if !matches!(need.ask, Ask::Contains) {
                neighbors.extend((*edge..*edge + count as usize).filter_map(|place| share.neighbors.get(place)));
                *edge += count as usize;
            }
        }
        *next += 1;
    }
    answer.neighbors = IdVec::U64(neighbors);
    Ok(())
}
