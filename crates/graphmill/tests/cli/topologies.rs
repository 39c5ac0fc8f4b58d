//! Every number of servers and ranks, as processes: each rank reads the bytes of the embedded loader, and all ranks together
//! meet every batch and every seed of every epoch.

use std::fmt::Write as _;
use std::process::{Child, Stdio};

use graphmill_client::{Loader, Options, SeedList};
use graphmill_graph::{Dataset, EdgeTypeName, Split};
use graphmill_sample::{
    Batch, BatchId, Budget, Config, Expand, Fanouts, Field, Hops, Negatives, Ppr, Supervision, Task,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::servers::cluster;
use crate::support::Workplace;

const TOPOLOGIES: [(usize, u32); 5] = [(1, 1), (1, 4), (2, 1), (2, 2), (4, 3)];
const EPOCHS: u64 = 3;

/// What a loader pulls.
struct Case {
    name: &'static str,
    config: Config,
    /// As `rank` is told, and the same here.
    seeds: Value,
    batch_size: usize,
    shuffle: bool,
    drop_last: bool,
    /// Batches after which every epoch is left.
    most: Option<usize>,
}

impl Case {
    /// A case whose seeds are the train split; neither 100 nor the number of ranks divides it.
    fn new(name: &'static str, config: Config) -> Self {
        let seeds = json!({"split": "train"});
        Self { name, config, seeds, batch_size: 100, shuffle: true, drop_last: false, most: None }
    }

    fn order(&self) -> Value {
        json!({
            "config": self.config, "seeds": self.seeds, "batch_size": self.batch_size, "prefetch": 2,
            "shuffle": self.shuffle, "drop_last": self.drop_last, "most": self.most,
        })
    }

    fn list(&self, dataset: &Dataset) -> SeedList {
        match &self.config.task {
            Task::Links { edge_type, .. } => SeedList::edges(dataset, edge_type.as_ref()),
            Task::Nodes { node_type } => SeedList::split(dataset, node_type.as_deref(), Split::Train),
            Task::Anchors { supervision, .. } => {
                SeedList::split(dataset, Some(&supervision[0].positive.src), Split::Train)
            }
        }
        .unwrap()
    }

    /// What an epoch goes over, as batches name it: nodes, or the places of pairs in their list.
    fn seeds(&self, dataset: &Dataset) -> Vec<i64> {
        match self.list(dataset) {
            SeedList::Nodes(ids) => ids.into_iter().map(|id| id as i64).collect(),
            list => (0..list.len() as i64).collect(),
        }
    }

    fn embedded(&self, dataset: &Dataset, rank: u32, world_size: u32) -> Loader {
        let &Self { batch_size, shuffle, drop_last, .. } = self;
        let options = Options { batch_size, shuffle, drop_last, rank, world_size, ..Options::default() };
        Loader::new(dataset, self.config.clone(), self.list(dataset), options).unwrap()
    }
}

fn hops(fanouts: &[i64], replace: bool, weighted: bool) -> Expand {
    Expand::Neighbors(Hops { fanouts: Fanouts::Same(fanouts.to_vec()), replace, weighted })
}

fn ppr() -> Expand {
    Expand::Ppr(Ppr { eps: 1e-3, max_nodes: Budget::Each(10), neighbors_per_hop: 20, ..Ppr::default() })
}

/// One node type, with weights.
fn homogeneous() -> Vec<Case> {
    let base = Config { features: vec!["x".to_owned()], labels: true, ..Config::neighbors(&[5, 3]) };
    let expanded = |expand| Config { expand, ..base.clone() };
    let negatives = Negatives::Triplet { amount: 2, strict: true, weighted: false };
    let links = Config {
        task: Task::Links { edge_type: None, negatives: Some(negatives) },
        ..expanded(hops(&[2], false, false))
    };
    vec![
        Case::new("uniform", base.clone()),
        Case { shuffle: false, ..Case::new("in the list's order", base.clone()) },
        Case { drop_last: true, ..Case::new("without the short batch", base.clone()) },
        Case { most: Some(2), ..Case::new("left early", base.clone()) },
        Case::new("weighted", expanded(hops(&[4, 2], false, true))),
        Case::new("weighted with replacement", expanded(hops(&[4], true, true))),
        Case::new("PageRank", expanded(ppr())),
        Case { seeds: json!("edges"), batch_size: 2999, ..Case::new("links", links) },
    ]
}

/// Users and items, weights on some edges, labels on others.
fn heterogeneous() -> Vec<Case> {
    let users = |expand| Config {
        task: Task::Nodes { node_type: Some("user".to_owned()) },
        expand,
        features: vec!["x".to_owned()],
        ..Config::default()
    };
    let likes = EdgeTypeName::new("user", "likes", "item");
    let supervision = vec![Supervision { positive: likes, negative: None }];
    let anchors = |expand| Config {
        task: Task::Anchors { supervision: supervision.clone(), max_labels: Some(3) },
        ..users(expand)
    };
    vec![
        Case::new("uniform", users(hops(&[4, 3], false, false))),
        Case::new("some types weighted", users(hops(&[3, 3], false, true))),
        Case::new("PageRank", users(ppr())),
        Case { batch_size: 37, ..Case::new("anchors", anchors(hops(&[3, 2], false, false))) },
        Case { drop_last: true, ..Case::new("PageRank of anchors", anchors(ppr())) },
        Case { most: Some(1), ..Case::new("left at once", users(hops(&[2], false, false))) },
    ]
}

#[test]
fn every_topology_reads_a_graph_of_one_node_type_like_the_embedded_loader() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --weights --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
    run(&place, "g4", &homogeneous());
}

#[test]
fn every_topology_reads_a_graph_of_several_node_types_like_the_embedded_loader() {
    let place = Workplace::new();
    shop(&place);
    place.succeed("ingest shop.toml --out g");
    place.succeed("partition g --parts 4 --method hash --out g4");
    run(&place, "g4", &heterogeneous());
}

const SHOP: &str = r#"
[[nodes]]
type = "user"
features.x = { files = "users.csv" }
splits = { by = "fraction", train = 0.5, val = 0.2, test = 0.1 }

[[nodes]]
type = "item"
features.x = { files = "items.csv" }

[[edges]]
type = "user:clicks:item"
files = "clicks.csv"
weight = "weight"

[[edges]]
type = "item:clicked by:user"
files = "clicks.csv"
src = "dst"
dst = "src"

[[edges]]
type = "user:likes:item"
files = "likes.csv"
role = "label"
"#;

/// A shop's files: 701 users, 300 items, clicks of which some have no weight, and what users like.
fn shop(place: &Workplace) {
    let table = |rows: u64| (0..rows).fold("a,b\n".to_owned(), |text, row| text + &format!("{row},{}\n", row * row));
    place.write("shop.toml", SHOP);
    place.write("users.csv", &table(701));
    place.write("items.csv", &table(300));
    let (mut clicks, mut likes) = ("src,dst,weight\n".to_owned(), "src,dst\n".to_owned());
    for click in 0..6000u64 {
        writeln!(clicks, "{},{},{}", click * 7919 % 701, click * 104_729 % 300, click % 4).unwrap();
    }
    for like in 0..900u64 {
        writeln!(likes, "{},{}", like * 31 % 701, like * 17 % 300).unwrap();
    }
    place.write("clicks.csv", &clicks);
    place.write("likes.csv", &likes);
}

/// Which batch: of which loader and epoch, which `g`, and whether it only fills up the last round.
type Id = (usize, u64, u64, bool);

/// Runs all cases at once on every topology.
fn run(place: &Workplace, dataset: &str, cases: &[Case]) {
    let whole = Dataset::open(place.path(dataset)).unwrap();
    for (servers, ranks) in TOPOLOGIES {
        let (served, addresses) = cluster(place, dataset, servers);
        let children: Vec<Child> = (0..ranks).map(|rank| start(place, &addresses, cases, rank, ranks)).collect();
        let told: Vec<_> = children.into_iter().map(finish).collect();
        for (number, case) in cases.iter().enumerate() {
            let context = format!("{}, {servers} x {ranks}", case.name);
            let told = told.iter().map(|told| told.iter().filter(|(id, _)| id.0 == number).copied().collect());
            check(case, number, &whole, &told.collect::<Vec<_>>(), &context);
        }
        for server in served {
            assert_eq!(server.stop(Signal::TERM), Some(0), "{servers} x {ranks}");
        }
    }
    let left: Vec<String> = place.names().into_iter().filter(|name| name.starts_with("graphmill-")).collect();
    assert_eq!(left, [""; 0]);
}

fn start(place: &Workplace, addresses: &[String], cases: &[Case], rank: u32, ranks: u32) -> Child {
    let transport = ["tcp", "uds", "shm"][rank as usize % 3];
    let order = json!({
        "servers": addresses, "transport": transport, "rank": rank, "world_size": ranks, "epochs": EPOCHS,
        "seconds": null, "each": true, "loaders": cases.iter().map(Case::order).collect::<Vec<_>>(),
    });
    place.command("rank").arg(order.to_string()).stdin(Stdio::piped()).spawn().unwrap()
}

/// Waits for a rank; its batches with their digests, as they came.
fn finish(mut child: Child) -> Vec<(Id, u64)> {
    // Open until the end, or the rank would end with it.
    let stdin = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    drop(stdin);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let lines = String::from_utf8(ended.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |told: &Value, key: &str| told[key].as_u64().unwrap();
    lines
        .filter(|told| told.get("digest").is_some())
        .map(|told| {
            let repeated = told["repeated"].as_bool().unwrap();
            let id = (number(&told, "loader") as usize, number(&told, "epoch"), number(&told, "g"), repeated);
            (id, number(&told, "digest"))
        })
        .collect()
}

/// What ranks told of a case is what the embedded loader of each gives, and together it is each epoch.
fn check(case: &Case, number: usize, whole: &Dataset, told: &[Vec<(Id, u64)>], context: &str) {
    let ranks = told.len() as u32;
    // The batches of each epoch that all ranks together have, and their seeds.
    let mut epochs = vec![(Vec::new(), Vec::new()); EPOCHS as usize];
    for (rank, told) in (0..ranks).zip(told) {
        let loader = case.embedded(whole, rank, ranks);
        let most = case.most.unwrap_or(usize::MAX);
        let batches = (0..EPOCHS).flat_map(|epoch| loader.epoch(epoch).take(most));
        let expected: Vec<Batch> = batches.map(Result::unwrap).collect();
        let name = |batch: &Batch| {
            let BatchId { epoch, g, repeated } = batch.id();
            ((number, epoch, g, repeated), xxh3_64(batch.bytes()))
        };
        assert_eq!(*told, expected.iter().map(name).collect::<Vec<_>>(), "rank {rank}, {context}");
        for batch in expected.iter().filter(|batch| !batch.id().repeated) {
            let (numbers, seeds) = &mut epochs[batch.id().epoch as usize];
            numbers.push(batch.id().g);
            seeds.extend_from_slice(batch.ints(Field::Seed));
        }
    }
    let mut seeds = case.seeds(whole);
    seeds.sort_unstable();
    let full = seeds.len() / case.batch_size;
    let there = match (case.most, case.drop_last) {
        (Some(most), _) => most * ranks as usize,
        (None, true) => full - full % ranks as usize,
        (None, false) => seeds.len().div_ceil(case.batch_size),
    };
    for (epoch, (mut numbers, mut met)) in epochs.into_iter().enumerate() {
        numbers.sort_unstable();
        assert_eq!(numbers, (0..there as u64).collect::<Vec<_>>(), "epoch {epoch}, {context}");
        met.sort_unstable();
        if there == seeds.len().div_ceil(case.batch_size) {
            assert_eq!(met, seeds, "epoch {epoch}, {context}");
        } else {
            assert_eq!(met.len(), there * case.batch_size, "epoch {epoch}, {context}");
            assert!(met.windows(2).all(|pair| pair[0] < pair[1]), "no seed twice: epoch {epoch}, {context}");
            assert!(met.iter().all(|seed| seeds.binary_search(seed).is_ok()), "epoch {epoch}, {context}");
        }
    }
}
