//! The dataset, read from servers of which each has a part of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use graphmill_client::{
    ConnectOptions, EdgeIndex, EdgeLayout, Original, Padded, Remote, RemoteDataset, ServerSlice, Shard, Transport,
};
use graphmill_graph::path::{self, EdgeArray, NodeArray};
use graphmill_graph::{
    BookInfo, DType, Dataset, DatasetWriter, Direction, EdgeRole, EdgeTypeInfo, EdgeTypeName, FeatureInfo, Manifest,
    NodeTypeInfo, OpenOptions, OriginalId, Place, Replace, Split,
};
use graphmill_net::Endpoint;
use graphmill_server::{Options, Server};
use graphmill_testing::{Assignment, ModelEdges, ModelGraph, ModelOriginals, placed_graphs, sample, tempdir, write};
use proptest::prelude::*;

/// Some servers in this process, each with some partitions of a dataset.
struct Cluster {
    runtime: tokio::runtime::Runtime,
    servers: Vec<Server>,
    /// Where their sockets are.
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// So many servers; partition `i` is with server `i mod servers`.
    fn start(dataset: &Path, servers: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempdir();
        let socket = |server: usize| Endpoint::Unix(folder.path().join(format!("{server}.sock")));
        let parts = Dataset::open(dataset).unwrap().parts();
        let start = |server: usize| {
            let partitions = (0..parts).filter(|part| *part as usize % servers == server).collect();
            let opening = OpenOptions { partitions: Some(partitions), ..OpenOptions::default() };
            let options = Options {
                listen: vec![Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 0 }, socket(server)],
                peers: (0..servers).filter(|other| *other != server).map(socket).collect(),
                threads: 2,
                ..Options::default()
            };
            runtime.block_on(Server::start(Dataset::open_with(dataset, &opening).unwrap(), options)).unwrap()
        };
        let servers = (0..servers).map(start).collect();
        Self { runtime, servers, _folder: folder }
    }

    fn addresses(&self) -> Vec<Endpoint> {
        self.servers.iter().map(|server| server.endpoints()[0].clone()).collect()
    }

    fn open(&self) -> RemoteDataset {
        open(&self.addresses(), Duration::from_secs(20))
    }

    /// Stops the last server.
    fn stop_one(&mut self) {
        let server = self.servers.pop().unwrap();
        self.runtime.block_on(server.stop(Duration::from_secs(5)));
    }
}

fn open(addresses: &[Endpoint], deadline: Duration) -> RemoteDataset {
    let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
    RemoteDataset::new(Remote::connect(addresses, options).unwrap())
}

/// The neighbours of a node in the order of its list.
fn list(edges: &ModelEdges, direction: Direction, owner: u64) -> Vec<u64> {
    let mut list: Vec<_> = edges.edges.iter().filter(|edge| edge.list_owner(direction) == owner).collect();
    list.sort_by_key(|edge| (edge.timestamp, edge.neighbor(direction), edge.id));
    list.iter().map(|edge| edge.neighbor(direction)).collect()
}

fn picked(rows: &[Vec<u8>], ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| rows[id as usize].clone()).collect()
}

/// Every id once, backwards, and some twice.
fn some_ids(count: u64) -> Vec<u64> {
    (0..count).rev().chain(0..count.min(3)).collect()
}

/// A graph as it was written, and as it is read.
struct World<'a> {
    graph: &'a ModelGraph,
    layouts: &'a [Direction],
    assignment: &'a Assignment,
    remote: RemoteDataset,
}

impl World<'_> {
    fn node_type<'n>(&self, name: &'n str) -> Option<&'n str> {
        (!self.graph.homogeneous).then_some(name)
    }

    fn edge_type<'n>(&self, name: &'n EdgeTypeName) -> Option<&'n EdgeTypeName> {
        (!self.graph.homogeneous).then_some(name)
    }

    fn has(&self, edges: &ModelEdges, direction: Direction) -> bool {
        self.layouts.contains(&direction) || (direction == Direction::Out && edges.role == EdgeRole::Label)
    }

    fn check_nodes(&self) {
        for (name, nodes) in &self.graph.nodes {
            let (node_type, ids) = (self.node_type(name), some_ids(nodes.count));
            for (feature, tensor) in &nodes.features {
                let rows = self.remote.node_feature(node_type, feature, &ids).unwrap();
                assert_eq!((rows.dtype, &rows.bytes), (tensor.dtype, &picked(&tensor.rows, &ids)));
                assert_eq!((rows.shape[0], &rows.shape[1..]), (ids.len() as u64, &tensor.shape[..]));
                assert_eq!(self.remote.tensor_size(node_type, feature).unwrap()[0], nodes.count);
            }
            match &nodes.label {
                Some(label) => {
                    assert_eq!(self.remote.node_label(node_type, &ids).unwrap().bytes, picked(&label.rows, &ids));
                }
                None => assert!(self.remote.node_label(node_type, &ids).is_err()),
            }
            let book = self.assignment.book(name);
            let partitions = self.remote.node_partition_id(node_type, &ids).unwrap();
            assert!(partitions.into_iter().eq(ids.iter().map(|&id| book.owner(id))));
            let found = self.remote.node_partition_book(node_type).unwrap();
            assert!((0..nodes.count).all(|id| found.partition(id) == Some(book.owner(id))));

            let originals = self.remote.original_ids(node_type, &ids).unwrap();
            let expected = |&id: &u64| match &nodes.originals {
                None => Original::Int(id as i64),
                Some(ModelOriginals::Ints(keys)) => Original::Int(keys[id as usize]),
                Some(ModelOriginals::Strings(keys)) => Original::String(keys[id as usize].clone()),
            };
            assert!(originals.iter().cloned().eq(ids.iter().map(expected)));
            let keys: Vec<OriginalId<'_>> =
                originals.iter().map(Original::as_id).chain([OriginalId::String("nobody's name")]).collect();
            let found = self.remote.lookup(node_type, &keys).unwrap();
            assert!(found.into_iter().eq(ids.iter().copied().map(Some).chain([None])));
        }
    }

    fn check_ids(&self, world_size: u32) {
        for (name, nodes) in &self.graph.nodes {
            let ids = |split, shard| self.remote.node_ids(self.node_type(name), split, shard);
            for split in [None, Some(Split::Train), Some(Split::Val), Some(Split::Test)] {
                let members: Option<BTreeSet<u64>> = match split {
                    None => Some((0..nodes.count).collect()),
                    Some(split) => nodes.split(split).cloned(),
                };
                let Some(members) = members else {
                    assert!(ids(split, Shard::Whole).unwrap_err().to_string().contains("there is no split"));
                    continue;
                };
                assert!(ids(split, Shard::Whole).unwrap().into_iter().eq(members.iter().copied()));
                let slice = |start| Shard::Slice(ServerSlice { start, end: start + 1, denominator: 3 });
                let slices = (0..3).flat_map(|start| ids(split, slice(start)).unwrap());
                assert!(slices.eq(members.iter().copied()));
                let shard = |rank| Shard::of_rank(Some(rank), Some(world_size), self.remote.servers()).unwrap();
                let ranks: Vec<u64> = (0..world_size).flat_map(|rank| ids(split, shard(rank)).unwrap()).collect();
                assert_eq!(ranks.len(), members.len());
                assert_eq!(ranks.into_iter().collect::<BTreeSet<_>>(), members);
            }
        }
    }

    fn check_edges(&self) {
        for (name, edges) in &self.graph.edges {
            let edge_type = self.edge_type(name);
            assert_eq!(self.remote.edge_size(edge_type).unwrap(), edges.edges.len() as u64);
            let EdgeIndex::Coo { sources, targets } = self.remote.edge_index(edge_type, EdgeLayout::Coo).unwrap()
            else {
                panic!("asked for coo")
            };
            let mut pairs: Vec<(u64, u64)> = sources.into_iter().zip(targets).collect();
            pairs.sort_unstable();
            assert!(pairs.into_iter().eq(edges.edges.iter().map(|edge| (edge.src, edge.dst))));
            for (layout, direction) in [(EdgeLayout::Csr, Direction::Out), (EdgeLayout::Csc, Direction::In)] {
                let (offsets, lists) = match self.remote.edge_index(edge_type, layout).unwrap() {
                    EdgeIndex::Csr { offsets, targets } if layout == EdgeLayout::Csr => (offsets, targets),
                    EdgeIndex::Csc { offsets, sources } if layout == EdgeLayout::Csc => (offsets, sources),
                    other => panic!("asked for {layout}, found {other:?}"),
                };
                let count = self.graph.nodes[name.list_owner(direction)].count;
                assert_eq!(offsets.len() as u64, count + 1);
                let mut degrees = Vec::new();
                for owner in 0..count {
                    let mut expected = list(edges, direction, owner);
                    if !self.has(edges, direction) {
                        expected.sort_unstable();
                    }
                    degrees.push(expected.len() as u64);
                    let stretch = offsets[owner as usize] as usize..offsets[owner as usize + 1] as usize;
                    assert_eq!(lists[stretch], expected);
                }
                assert_eq!(self.remote.degrees(edge_type, direction, None).unwrap(), degrees);
                let ids = some_ids(count);
                let found = self.remote.degrees(edge_type, direction, Some(&ids)).unwrap();
                assert!(found.into_iter().eq(ids.into_iter().map(|id| degrees[id as usize])));
            }
            let ids = some_ids(edges.id_count);
            for (feature, tensor) in &edges.features {
                let rows = self.remote.edge_feature(edge_type, feature, &ids).unwrap();
                assert_eq!(rows.bytes, picked(&tensor.rows, &ids));
                assert_eq!(self.remote.edge_partition_book(edge_type).unwrap().count(), edges.id_count);
            }
        }
    }

    fn check_labels(&self, most: Option<u32>) {
        for (name, edges) in &self.graph.edges {
            let nodes = &self.graph.nodes[&name.src];
            let split = Split::ALL.into_iter().find(|&split| nodes.split(split).is_some());
            let anchors: Vec<u64> = match split.and_then(|split| nodes.split(split)) {
                Some(members) => members.iter().copied().collect(),
                None => (0..nodes.count).collect(),
            };
            let rows = |edges: &ModelEdges| -> Vec<Vec<i64>> {
                let row = |&anchor: &u64| {
                    let mut labels = list(edges, Direction::Out, anchor);
                    if !self.has(edges, Direction::Out) {
                        labels.sort_unstable();
                    }
                    labels.truncate(most.map_or(usize::MAX, |most| most as usize));
                    labels.into_iter().map(|id| id as i64).collect()
                };
                anchors.iter().map(row).collect()
            };
            let other = self.graph.edges.iter().find(|(other, _)| other.src == name.src && *other != name);
            let found =
                self.remote.anchor_labels(split, self.edge_type(name), other.map(|(name, _)| name), most, Shard::Whole);
            let found = found.unwrap();
            assert_eq!(found.anchors, anchors);
            assert_padded(&found.positives, &rows(edges));
            assert_eq!(found.negatives.is_some(), other.is_some());
            if let (Some(negatives), Some((_, edges))) = (&found.negatives, other) {
                assert_padded(negatives, &rows(edges));
            }
            let shard = |rank| Shard::Rank { rank, world_size: 3, servers: 2 };
            let labels = |rank| self.remote.anchor_labels(split, self.edge_type(name), None, most, shard(rank));
            let ranks: BTreeSet<u64> = (0..3).flat_map(|rank| labels(rank).unwrap().anchors).collect();
            assert!(ranks.into_iter().eq(anchors.iter().copied()));
        }
    }
}

fn assert_padded(found: &Padded, rows: &[Vec<i64>]) {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    assert_eq!((found.rows, found.width), (rows.len(), width));
    for (place, row) in rows.iter().enumerate() {
        let (ids, padding) = found.ids[place * width..][..width].split_at(row.len());
        assert_eq!(ids, row);
        assert!(padding.iter().all(|&id| id == -1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn any_server_answers_for_the_whole_graph(
        (graph, layouts, assignment) in placed_graphs(), servers in 1usize..4, world_size in 1u32..5,
        most in proptest::option::of(0u32..3),
    ) {
        let folder = tempdir();
        let path = folder.path().join("graph");
        let manifest = write(&graph, &path, &layouts, &assignment).unwrap();
        let cluster = Cluster::start(&path, servers.min(assignment.parts() as usize));
        let remote = cluster.open();
        let meta = remote.meta();
        prop_assert_eq!((meta.parts, meta.fingerprint), (assignment.parts(), manifest.fingerprint));
        prop_assert_eq!(meta.edge_dir, graph.edge_dir);
        prop_assert_eq!(meta.node_types, (!graph.homogeneous).then(|| graph.nodes.keys().cloned().collect::<Vec<_>>()));
        let world = World { graph: &graph, layouts: &layouts, assignment: &assignment, remote };
        world.check_nodes();
        world.check_ids(world_size);
        world.check_edges();
        world.check_labels(most);
    }
}

#[test]
fn answers_longer_than_any_bound_arrive_whole() {
    const NODES: u64 = 600_000;
    const HUB: u64 = 1_100_000;
    let folder = tempdir();
    let path = folder.path().join("graph");
    // Node 0 has a list that is longer than a step, every other one a single source.
    let source = |node: u64| node * 7 % NODES;
    write_large(&path, NODES, HUB, source);
    let cluster = Cluster::start(&path, 2);
    let remote = cluster.open();

    let ids: Vec<u64> = (0..NODES).collect();
    assert_eq!(remote.node_ids(None, Some(Split::Train), Shard::Whole).unwrap(), ids);
    let rows = remote.node_feature(None, "x", &ids).unwrap();
    assert!(rows.bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).eq(ids.iter().map(|id| id * 3)));
    let EdgeIndex::Csc { offsets, sources } = remote.edge_index(None, EdgeLayout::Csc).unwrap() else {
        panic!("asked for csc")
    };
    assert_eq!((offsets.len() as u64, offsets[1], sources.len() as u64), (NODES + 1, HUB, HUB + NODES - 1));
    assert!(sources[..HUB as usize].iter().copied().eq((0..HUB).map(|place| place * NODES / HUB)));
    assert!(sources[HUB as usize..].iter().copied().eq((1..NODES).map(source)));
    let degrees = remote.degrees(None, Direction::Out, None).unwrap();
    assert_eq!(degrees.iter().sum::<u64>(), HUB + NODES - 1);
    let labels = remote.anchor_labels(Some(Split::Train), None, None, Some(1), Shard::Whole).unwrap();
    assert_eq!((labels.anchors.len() as u64, labels.positives.width), (NODES, 1));
    assert_eq!(labels.positives.ids.iter().filter(|&&label| label == 0).count(), NODES as usize);
}

/// A homogeneous graph of two partitions with lists `in`, without going through plain collections.
fn write_large(path: &Path, nodes: u64, hub: u64, source: impl Fn(u64) -> u64) {
    let writer = DatasetWriter::create(path, Replace::No).unwrap();
    let bounds = [0, nodes / 2, nodes];
    let mut node = NodeTypeInfo::new("node", nodes);
    node.book = BookInfo::Range { bounds: bounds.to_vec() };
    node.features = vec![FeatureInfo { name: "x".to_owned(), dtype: DType::I64, shape: vec![] }];
    node.splits.set(Split::Train, nodes);
    let name = EdgeTypeName::new("node", "to", "node");
    let mut edges = EdgeTypeInfo::new(name.clone(), hub + nodes - 1, vec![Direction::In]);
    edges.cut = 0;
    let put = |partition: u32, path: &str, bytes: &[u8]| {
        let mut array = writer.array(Place::Part(partition), path).unwrap();
        array.write(bytes).unwrap();
        array.finish().unwrap();
    };
    for (partition, bounds) in (0..).zip(bounds.windows(2)) {
        let ids = || bounds[0]..bounds[1];
        let width = node.id_width();
        let feature = path::node("node", NodeArray::Feature(&node.features[0]));
        put(partition, &feature, &ids().flat_map(|id| (id * 3).to_le_bytes()).collect::<Vec<_>>());
        let split: Vec<u8> = ids().flat_map(|id| (id as u32).to_le_bytes()).collect();
        put(partition, &path::node("node", NodeArray::Split(Split::Train, width)), &split);
        let (mut offsets, mut lists) = (vec![0u8; 4], Vec::new());
        for id in ids() {
            let sources = if id == 0 { hub } else { 1 };
            for place in 0..sources {
                let source = if id == 0 { place * nodes / hub } else { source(id) };
                edges.cut += u64::from(source < bounds[0] || source >= bounds[1]);
                lists.extend((source as u32).to_le_bytes());
            }
            offsets.extend((lists.len() as u32 / 4).to_le_bytes());
        }
        put(partition, &path::edge(&name, EdgeArray::Indptr(Direction::In, edges.indptr_width())), &offsets);
        put(partition, &path::edge(&name, EdgeArray::Neighbors(Direction::In, width)), &lists);
    }
    let mut manifest = Manifest::new(true, Direction::In, vec![node], vec![edges]);
    manifest.parts = 2;
    writer.finish(manifest).unwrap();
}

#[test]
fn another_server_answers_for_one_that_is_gone_and_without_any_all_are_named() {
    let folder = tempdir();
    let path = folder.path().join("graph");
    let graph = sample();
    write(&graph, &path, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    // Two clusters of one server each have everything: replicas.
    let (mut first, mut second) = (Cluster::start(&path, 1), Cluster::start(&path, 1));
    let addresses = [first.addresses(), second.addresses()].concat();
    let remote = open(&addresses, Duration::from_secs(2));
    let papers = || remote.node_ids(Some("paper"), Some(Split::Train), Shard::Whole);
    assert_eq!(papers().unwrap(), [0, 3, 4]);
    first.stop_one();
    for _ in 0..4 {
        assert_eq!(papers().unwrap(), [0, 3, 4]);
    }
    second.stop_one();
    let began = Instant::now();
    let error = papers().unwrap_err().to_string();
    assert!(addresses.iter().all(|address| error.contains(&address.to_string())), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_peer_that_is_missing_is_named_and_the_rest_is_still_read() {
    let folder = tempdir();
    let path = folder.path().join("graph");
    let graph = sample();
    let assignment = Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16);
    write(&graph, &path, &[Direction::In], &assignment).unwrap();
    let mut cluster = Cluster::start(&path, 2);
    let addresses = cluster.addresses();
    // One server alone: its peer is there, until the other one stops.
    let remote = open(&addresses[..1], Duration::from_secs(2));
    assert_eq!(remote.original_ids(Some("paper"), &[1]).unwrap(), [Original::String("a".to_owned())]);
    cluster.stop_one();
    let error = remote.original_ids(Some("paper"), &[1]).unwrap_err().to_string();
    assert!(error.contains(&addresses[0].to_string()) && error.contains("1.sock"), "{error}");
    // What it has itself it still gives.
    assert_eq!(remote.original_ids(Some("paper"), &[2]).unwrap(), [Original::String("ab".to_owned())]);
}

#[test]
fn what_cannot_be_is_refused_with_the_names_there_are() {
    let folder = tempdir();
    let path = folder.path().join("graph");
    let graph = sample();
    write(&graph, &path, &[Direction::In], &Assignment::ranges(&graph, 2)).unwrap();
    let cluster = Cluster::start(&path, 2);
    let remote = cluster.open();
    let refused = |error: graphmill_client::Error, words: &[&str]| {
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    let likes = EdgeTypeName::new("author", "likes", "paper");
    refused(remote.node_ids(None, None, Shard::Whole).unwrap_err(), &["node type", "author, paper, venue/press"]);
    refused(
        remote.node_ids(Some("author"), Some(Split::Train), Shard::Whole).unwrap_err(),
        &["server", "split `train`"],
    );
    refused(remote.node_feature(Some("paper"), "y", &[]).unwrap_err(), &["feature `y`", "bytes, halves, x"]);
    refused(remote.node_feature(Some("paper"), "x", &[9]).unwrap_err(), &["server", "node id 9", "there are 5"]);
    refused(remote.edge_index(None, EdgeLayout::Coo).unwrap_err(), &["edge type", "author:likes:paper"]);
    refused(remote.degrees(Some(&likes), Direction::Out, Some(&[3])).unwrap_err(), &["node id 3", "author"]);
    refused(remote.lookup(Some("x"), &[]).unwrap_err(), &["node type `x`"]);
    refused(remote.edge_partition_book(Some(&likes)).unwrap_err(), &["no book"]);
    let slice = Shard::Slice(ServerSlice { start: 1, end: 0, denominator: 1 });
    refused(remote.node_ids(Some("paper"), None, slice).unwrap_err(), &["from 1 to 0 of 1"]);
}

#[test]
fn many_readers_at_once_do_not_wait_for_ever() {
    let folder = tempdir();
    let path = folder.path().join("graph");
    let graph = sample();
    write(&graph, &path, &[Direction::In], &Assignment::ranges(&graph, 3)).unwrap();
    let cluster = Cluster::start(&path, 3);
    let remote = cluster.open();
    let cites = EdgeTypeName::new("paper", "cites", "paper");
    std::thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| {
                assert_eq!(remote.node_ids(Some("paper"), Some(Split::Train), Shard::Whole).unwrap(), [0, 3, 4]);
                assert_eq!(remote.degrees(Some(&cites), Direction::Out, None).unwrap(), [2, 1, 0, 0, 2]);
            });
        }
    });
}
