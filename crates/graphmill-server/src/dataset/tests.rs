//! The service against graphs in plain collections, with bounds so low that answers have many parts.

use std::collections::BTreeSet;
use std::sync::Arc;

use graphmill_graph::{Dataset, Direction, EdgeRole, EdgeTypeName, LabelKind, Manifest, OpenOptions, Split};
use graphmill_testing::{Assignment, ModelEdges, ModelGraph, ModelOriginals, placed_graphs, sample, tempdir, write};
use graphmill_wire::proto::dataset_service_server::DatasetService;
use graphmill_wire::proto::{
    AnchorLabelsRequest, Code, DegreesRequest, DescribeRequest, EdgeFeature, EdgeIndexRequest, EdgeType, LookupRequest,
    LookupResponse, NodeFeature, NodeIdsRequest, NodeIdsResponse, NodeLabel, NodePartitionsRequest, OriginalId,
    OriginalIdsRequest, OriginalIdsResponse, PartitionBookRequest, Read, RowsRequest, Slice, original_id,
    partition_book_request, rows_request,
};
use graphmill_wire::read::{self, Request as _};
use proptest::prelude::*;
use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status};

use super::{DatasetApi, answer_read, parts::Parts};
use crate::cluster::Cluster;

/// A graph, and a server that has all of it.
struct World {
    graph: ModelGraph,
    layouts: Vec<Direction>,
    assignment: Assignment,
    dataset: Arc<Dataset>,
    api: DatasetApi,
    runtime: tokio::runtime::Runtime,
    /// The dataset's files, while it is open.
    _folder: Box<dyn AsRef<std::path::Path>>,
}

impl World {
    fn new((graph, layouts, assignment): (ModelGraph, Vec<Direction>, Assignment)) -> Self {
        let folder = tempdir();
        let path = folder.path().join("graph");
        write(&graph, &path, &layouts, &assignment).unwrap();
        let dataset = Arc::new(Dataset::open(&path).unwrap());
        let api = DatasetApi::new(Cluster::new(Arc::clone(&dataset), Vec::new(), 0).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { graph, layouts, assignment, dataset, api, runtime, _folder: Box::new(folder) }
    }

    fn sample() -> Self {
        let graph = sample();
        let assignment = Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16);
        Self::new((graph, vec![Direction::In], assignment))
    }

    fn ask<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
        self.runtime.block_on(call).map(Response::into_inner)
    }

    fn read<T>(&self, call: impl Future<Output = Result<Response<Parts<T>>, Status>>) -> Result<Vec<T>, Status> {
        self.runtime.block_on(async { call.await?.into_inner().collect().await })
    }

    fn node_type(&self, name: &str) -> Option<String> {
        (!self.graph.homogeneous).then(|| name.to_owned())
    }

    fn edge_type(&self, name: &EdgeTypeName) -> Option<EdgeType> {
        let EdgeTypeName { src, relation, dst } = name.clone();
        (!self.graph.homogeneous).then_some(EdgeType { src, relation, dst })
    }

    fn has(&self, edges: &ModelEdges, direction: Direction) -> bool {
        self.layouts.contains(&direction) || (direction == Direction::Out && edges.role == EdgeRole::Label)
    }

    fn node_ids(&self, request: NodeIdsRequest) -> Result<Vec<u64>, Status> {
        let parts = self.read(self.api.node_ids(Request::new(request)))?;
        Ok(parts.into_iter().flat_map(|part| part.ids).collect())
    }

    fn rows(&self, of: rows_request::Of, ids: &[u64]) -> Result<(String, Vec<u64>, Vec<u8>), Status> {
        let request = RowsRequest { of: Some(of), ids: ids.to_vec() };
        let parts = self.read(self.api.rows(Request::new(request)))?;
        let (dtype, shape) = (parts[0].dtype.clone(), parts[0].row_shape.clone());
        Ok((dtype, shape, parts.into_iter().flat_map(|part| part.rows).collect()))
    }
}

/// The neighbours of a node in the order of its list.
fn list(edges: &ModelEdges, direction: Direction, owner: u64) -> Vec<u64> {
    let mut list: Vec<_> = edges.edges.iter().filter(|edge| edge.list_owner(direction) == owner).collect();
    list.sort_by_key(|edge| (edge.timestamp, edge.neighbor(direction), edge.id));
    list.iter().map(|edge| edge.neighbor(direction)).collect()
}

/// Every id once, backwards, and some twice.
fn some_ids(count: u64) -> Vec<u64> {
    (0..count).rev().chain(0..count.min(3)).collect()
}

fn picked(rows: &[Vec<u8>], ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| rows[id as usize].clone()).collect()
}

fn slices() -> impl Strategy<Value = Option<(u64, u64, u64)>> {
    let slice = (1u64..6).prop_flat_map(|denominator| {
        (0..=denominator).prop_flat_map(move |end| (0..=end).prop_map(move |start| (start, end, denominator)))
    });
    proptest::option::of(slice)
}

fn sliced(ids: &[u64], slice: Option<(u64, u64, u64)>) -> Vec<u64> {
    let (start, end, denominator) = slice.unwrap_or((0, 1, 1));
    let place = |part: u64| (ids.len() as u64 * part / denominator) as usize;
    ids[place(start)..place(end)].to_vec()
}

fn proto_slice(slice: Option<(u64, u64, u64)>) -> Option<Slice> {
    slice.map(|(start, end, denominator)| Slice { start, end, denominator })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ids_come_ascending_by_split_partition_and_slice(
        placed in placed_graphs(), slice in slices(), chosen in any::<[bool; 6]>(),
    ) {
        let world = World::new(placed);
        let parts = world.assignment.parts();
        let partitions: Vec<u32> = (0..parts).filter(|&partition| chosen[partition as usize]).collect();
        for (name, nodes) in &world.graph.nodes {
            let book = world.assignment.book(name);
            let wanted: Vec<u32> = if partitions.is_empty() { (0..parts).collect() } else { partitions.clone() };
            let owned: BTreeSet<u64> = wanted.iter().flat_map(|&partition| book.ids(partition)).collect();
            for split in [None, Some(Split::Train), Some(Split::Val), Some(Split::Test)] {
                let found = world.node_ids(NodeIdsRequest {
                    node_type: world.node_type(name),
                    split: split.map(|split| split.to_string()),
                    slice: proto_slice(slice),
                    partitions: partitions.clone(),
                });
                let members = match split {
                    None => owned.clone(),
                    Some(split) => {
                        let Some(members) = nodes.split(split) else {
                            prop_assert!(found.unwrap_err().message().contains("there is no split"));
                            continue;
                        };
                        members & &owned
                    }
                };
                prop_assert_eq!(found.unwrap(), sliced(&members.into_iter().collect::<Vec<_>>(), slice));
            }
        }
    }

    #[test]
    fn rows_are_those_of_the_ids(placed in placed_graphs()) {
        let world = World::new(placed);
        for (name, nodes) in &world.graph.nodes {
            let (ids, node_type) = (some_ids(nodes.count), world.node_type(name));
            for (feature, tensor) in &nodes.features {
                let of = NodeFeature { node_type: node_type.clone(), name: feature.clone() };
                let (dtype, shape, rows) = world.rows(rows_request::Of::NodeFeature(of), &ids).unwrap();
                prop_assert_eq!((dtype, shape, rows), (tensor.dtype.to_string(), tensor.shape.clone(), picked(&tensor.rows, &ids)));
            }
            let found = world.rows(rows_request::Of::NodeLabel(NodeLabel { node_type }), &ids);
            match &nodes.label {
                None => prop_assert!(found.unwrap_err().message().contains("no label")),
                Some(label) => {
                    let shape = if label.kind == LabelKind::Single { vec![] } else { vec![label.width] };
                    prop_assert_eq!(found.unwrap(), (label.dtype.to_string(), shape, picked(&label.rows, &ids)));
                }
            }
        }
        for (name, edges) in &world.graph.edges {
            let ids = some_ids(edges.id_count);
            for (feature, tensor) in &edges.features {
                let of = EdgeFeature { edge_type: world.edge_type(name), name: feature.clone() };
                let (_, shape, rows) = world.rows(rows_request::Of::EdgeFeature(of), &ids).unwrap();
                prop_assert_eq!((shape, rows), (tensor.shape.clone(), picked(&tensor.rows, &ids)));
            }
        }
    }

    #[test]
    fn every_layout_has_every_edge(placed in placed_graphs()) {
        let world = World::new(placed);
        for (name, edges) in &world.graph.edges {
            for layout in ["coo", "csr", "csc"] {
                let request = EdgeIndexRequest { edge_type: world.edge_type(name), layout: layout.to_owned() };
                let found = world.read(world.api.edge_index(Request::new(request)));
                let direction = match layout {
                    "coo" => world.layouts[0],
                    "csr" => Direction::Out,
                    _ => Direction::In,
                };
                if !world.has(edges, direction) {
                    prop_assert!(found.unwrap_err().message().contains("has no lists"));
                    continue;
                }
                let found = found.unwrap();
                prop_assert_eq!(found[0].edges, edges.edges.len() as u64);
                prop_assert!(found.iter().all(|part| part.first.len() <= 7 && part.second.len() <= 7));
                let lists_of = world.graph.nodes[name.list_owner(direction)].count;
                let first: Vec<u64> = found.iter().flat_map(|part| part.first.clone()).collect();
                let second: Vec<u64> = found.iter().flat_map(|part| part.second.clone()).collect();
                let lists = (0..lists_of).map(|owner| (owner, list(edges, direction, owner)));
                if layout == "coo" {
                    let pairs = lists.flat_map(|(owner, list)| list.into_iter().map(move |other| match direction {
                        Direction::In => (other, owner),
                        Direction::Out => (owner, other),
                    }));
                    prop_assert_eq!(first.into_iter().zip(second).collect::<Vec<_>>(), pairs.collect::<Vec<_>>());
                } else {
                    prop_assert_eq!(found[0].lists, lists_of);
                    prop_assert_eq!(first.len() as u64, lists_of + 1);
                    for (owner, list) in lists {
                        let (start, end) = (first[owner as usize] as usize, first[owner as usize + 1] as usize);
                        prop_assert_eq!(&second[start..end], &list[..]);
                    }
                }
            }
        }
    }

    #[test]
    fn degrees_are_counted_in_both_directions_whatever_is_stored(placed in placed_graphs()) {
        let world = World::new(placed);
        for (name, edges) in &world.graph.edges {
            for direction in [Direction::In, Direction::Out] {
                let count = world.graph.nodes[name.list_owner(direction)].count;
                let degree = |id: u64| edges.edges.iter().filter(|edge| edge.list_owner(direction) == id).count() as u64;
                for (ids, all) in [(some_ids(count), false), (Vec::new(), true), (Vec::new(), false)] {
                    let asked: Vec<u64> = if all { (0..count).collect() } else { ids.clone() };
                    let edge_type = world.edge_type(name);
                    let request = DegreesRequest { edge_type, direction: direction.to_string(), ids, all };
                    let found = world.read(world.api.degrees(Request::new(request))).unwrap();
                    let found: Vec<u64> = found.into_iter().flat_map(|part| part.degrees).collect();
                    prop_assert_eq!(found, asked.into_iter().map(degree).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn anchors_have_their_first_labels_whichever_way_lists_are_stored(
        placed in placed_graphs(), most in proptest::option::of(0u32..4), slice in slices(),
    ) {
        let world = World::new(placed);
        // A list of labels, which are ascending where they were turned round.
        let labels = |edges: &ModelEdges, anchor: u64| {
            let mut labels = list(edges, Direction::Out, anchor);
            if !world.has(edges, Direction::Out) {
                labels.sort_unstable();
            }
            labels.truncate(most.map_or(usize::MAX, |most| most as usize));
            labels
        };
        for (name, positive) in &world.graph.edges {
            let negative = world.graph.edges.iter().rfind(|(other, _)| other.src == name.src && *other != name);
            let nodes = &world.graph.nodes[&name.src];
            let split = Split::ALL.into_iter().find(|&split| nodes.split(split).is_some());
            let anchors: Vec<u64> = split.and_then(|split| nodes.split(split)).map_or_else(
                || (0..nodes.count).collect(), |members| members.iter().copied().collect());
            let anchors = sliced(&anchors, slice);
            let found = world.read(world.api.anchor_labels(Request::new(AnchorLabelsRequest {
                split: split.map(|split| split.to_string()),
                positive: world.edge_type(name),
                negative: negative.and_then(|(name, _)| world.edge_type(name)),
                max_labels: most,
                slice: proto_slice(slice),
                partitions: Vec::new(),
            }))).unwrap();
            prop_assert_eq!(found[0].has_negatives, negative.is_some());
            prop_assert!(found.iter().flat_map(|part| part.anchors.clone()).eq(anchors.iter().copied()));
            let counts = found.iter().flat_map(|part| part.positive_counts.clone());
            prop_assert!(counts.eq(anchors.iter().map(|&anchor| labels(positive, anchor).len() as u32)));
            let all: Vec<u64> = found.iter().flat_map(|part| part.positives.clone()).collect();
            prop_assert_eq!(all, anchors.iter().flat_map(|&anchor| labels(positive, anchor)).collect::<Vec<_>>());
            let all: Vec<u64> = found.iter().flat_map(|part| part.negatives.clone()).collect();
            let negatives = |(_, edges)| anchors.iter().flat_map(|&anchor| labels(edges, anchor)).collect();
            prop_assert_eq!(all, negative.map_or(Vec::new(), negatives));
            let counts = found.iter().map(|part| part.negative_counts.len()).sum::<usize>();
            prop_assert_eq!(counts, if negative.is_some() { anchors.len() } else { 0 });
        }
    }

    #[test]
    fn original_ids_lead_back_to_their_nodes(placed in placed_graphs()) {
        let world = World::new(placed);
        for (name, nodes) in &world.graph.nodes {
            let (ids, node_type) = (some_ids(nodes.count), world.node_type(name));
            let request = OriginalIdsRequest { node_type: node_type.clone(), ids: ids.clone() };
            let found = world.read(world.api.original_ids(Request::new(request))).unwrap();
            let found: Vec<OriginalId> = found.into_iter().flat_map(|part| part.originals).collect();
            prop_assert_eq!(&found, &ids.iter().map(|&id| original(nodes.originals.as_ref(), id)).collect::<Vec<_>>());
            let strangers = [original_id::Id::Number(i64::MIN), original_id::Id::Text("nobody's name".to_owned())];
            let strangers = strangers.map(|id| OriginalId { id: Some(id) });
            let request = LookupRequest { node_type, originals: found.into_iter().chain(strangers).collect() };
            let found = world.ask(world.api.lookup(Request::new(request))).unwrap().ids;
            prop_assert!(found.into_iter().eq(ids.into_iter().map(|id| id as i64).chain([-1, -1])));
        }
    }

    #[test]
    fn books_say_who_owns_what(placed in placed_graphs()) {
        let world = World::new(placed);
        let read = |of| {
            let request = PartitionBookRequest { of: Some(of) };
            let found = world.read(world.api.partition_book(Request::new(request)))?;
            let runs = found.into_iter().flat_map(|part| part.partitions.into_iter().zip(part.lengths));
            Ok::<_, Status>(runs.flat_map(|(owner, length)| std::iter::repeat_n(owner, length as usize)).collect::<Vec<_>>())
        };
        for (name, nodes) in &world.graph.nodes {
            let book = world.assignment.book(name);
            let ids = some_ids(nodes.count);
            let request = NodePartitionsRequest { node_type: world.node_type(name), ids: ids.clone() };
            let found = world.ask(world.api.node_partitions(Request::new(request))).unwrap().partitions;
            prop_assert!(found.into_iter().eq(ids.into_iter().map(|id| book.owner(id))));
            let found = read(partition_book_request::Of::NodeType(world.node_type(name).unwrap_or_default())).unwrap();
            prop_assert!(found.into_iter().eq((0..nodes.count).map(|id| book.owner(id))));
        }
        for (place, info) in world.dataset.edge_types().iter().enumerate() {
            let found = read(partition_book_request::Of::EdgeType(world.edge_type(&info.name).unwrap_or_default()));
            match world.dataset.edge_book(place) {
                None => prop_assert!(found.unwrap_err().message().contains("no book")),
                Some(book) => prop_assert!(found.unwrap().into_iter().map(Some).eq((0..info.id_count).map(|id| book.owner(id)))),
            }
        }
    }

    #[test]
    fn partitions_answer_their_peers_so_that_nothing_is_missing(placed in placed_graphs(), page in 1u64..9) {
        let world = World::new(placed);
        let open = |partition| {
            let options = OpenOptions { partitions: Some(vec![partition]), ..OpenOptions::default() };
            Dataset::open_with(world.dataset.path(), &options).unwrap()
        };
        for (name, nodes) in &world.graph.nodes {
            let node_type = world.node_type(name);
            for split in Split::ALL.into_iter().filter(|&split| nodes.split(split).is_some()) {
                let mut found = BTreeSet::new();
                for partition in 0..world.assignment.parts() {
                    let (dataset, mut start) = (open(partition), 0);
                    let request = NodeIdsRequest {
                        node_type: node_type.clone(), split: Some(split.to_string()), ..NodeIdsRequest::default()
                    };
                    loop {
                        let head = Read { start, count: page, ..NodeIdsRequest::head(vec![partition]) };
                        let body = answer_read(&dataset, &head, &read::body(&request)).unwrap();
                        let ids = read::decode::<NodeIdsResponse>(&body).unwrap().ids;
                        prop_assert!(ids.len() as u64 <= page);
                        start += ids.len() as u64;
                        if ids.is_empty() {
                            break;
                        }
                        for id in ids {
                            prop_assert!(found.insert(id));
                        }
                    }
                }
                prop_assert_eq!(&found, nodes.split(split).unwrap());
            }
            let Some(originals) = &nodes.originals else { continue };
            for partition in 0..world.assignment.parts() {
                let (dataset, ids) = (open(partition), world.assignment.book(name).ids(partition).collect::<Vec<_>>());
                let request = OriginalIdsRequest { node_type: node_type.clone(), ids: ids.clone() };
                let body = answer_read(&dataset, &OriginalIdsRequest::head(vec![]), &read::body(&request)).unwrap();
                let found = read::decode::<OriginalIdsResponse>(&body).unwrap().originals;
                prop_assert!(found.iter().cloned().eq(ids.iter().map(|&id| original(Some(originals), id))));
                let all = (0..nodes.count).map(|id| original(Some(originals), id)).collect();
                let request = LookupRequest { node_type: node_type.clone(), originals: all };
                let body = answer_read(&dataset, &LookupRequest::head(vec![partition]), &read::body(&request)).unwrap();
                let found = read::decode::<LookupResponse>(&body).unwrap().ids;
                let here = |id: u64| if ids.contains(&id) { id as i64 } else { -1 };
                prop_assert!(found.into_iter().eq((0..nodes.count).map(here)));
            }
        }
    }

    #[test]
    fn no_question_of_a_peer_makes_it_panic(
        method in 0i32..4, partitions in proptest::collection::vec(0u32..4, 0..3), start: u64, count: u64,
        body in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let world = World::sample();
        let _ = answer_read(&world.dataset, &Read { method, partitions, start, count }, &body);
    }
}

fn original(originals: Option<&ModelOriginals>, id: u64) -> OriginalId {
    let id = match originals {
        None => original_id::Id::Number(id as i64),
        Some(ModelOriginals::Ints(keys)) => original_id::Id::Number(keys[id as usize]),
        Some(ModelOriginals::Strings(keys)) => original_id::Id::Text(keys[id as usize].clone()),
    };
    OriginalId { id: Some(id) }
}

#[test]
fn a_description_holds_the_manifest_and_names_types_of_heterogeneous_graphs_only() {
    let world = World::sample();
    let found = world.ask(world.api.describe(Request::new(DescribeRequest {}))).unwrap();
    let manifest = Manifest::parse(found.manifest.as_bytes(), "sent".as_ref()).unwrap();
    assert_eq!(manifest.fingerprint, world.dataset.fingerprint());
    assert_eq!(found.node_types, ["author", "paper", "venue/press"]);
    assert_eq!((found.edge_types.len(), found.parts, found.edge_dir.as_str()), (4, 2, "in"));
    assert_eq!(found.partitions, [0, 1]);

    let mut graph = sample();
    graph.homogeneous = true;
    graph.nodes.retain(|name, _| name == "paper");
    graph.edges.retain(|name, _| name.relation == "cites");
    let assignment = Assignment::whole(&graph);
    let world = World::new((graph, vec![Direction::Out], assignment));
    let found = world.ask(world.api.describe(Request::new(DescribeRequest {}))).unwrap();
    assert_eq!((found.node_types.len(), found.edge_types.len()), (0, 0));
    let named = NodeIdsRequest { node_type: Some("paper".to_owned()), ..NodeIdsRequest::default() };
    assert!(world.node_ids(named).unwrap_err().message().contains("homogeneous"));
    assert_eq!(world.node_ids(NodeIdsRequest::default()).unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let world = World::sample();
    let refused = |found: Result<(), Status>, words: &[&str]| {
        let status = found.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        for word in words {
            assert!(status.message().contains(word), "{status}");
        }
    };
    let papers = NodeIdsRequest { node_type: Some("paper".to_owned()), ..NodeIdsRequest::default() };
    let ids = |request| world.node_ids(request).map(drop);
    refused(ids(NodeIdsRequest::default()), &["node type", "author, paper, venue/press"]);
    refused(ids(NodeIdsRequest { node_type: Some("x".to_owned()), ..papers.clone() }), &["`x`", "author, paper"]);
    refused(ids(NodeIdsRequest { split: Some("dev".to_owned()), ..papers.clone() }), &["`dev`", "train, val, test"]);
    refused(ids(NodeIdsRequest { partitions: vec![7], ..papers.clone() }), &["partition `7`", "0 to 1"]);
    let slice = Some(Slice { start: 2, end: 1, denominator: 3 });
    refused(ids(NodeIdsRequest { slice, ..papers }), &["from 2 to 1 of 3"]);

    let feature = |name: &str| {
        rows_request::Of::NodeFeature(NodeFeature { node_type: Some("paper".to_owned()), name: name.to_owned() })
    };
    refused(world.rows(feature("y"), &[]).map(drop), &["feature `y`", "bytes, halves, x"]);
    refused(world.rows(feature("x"), &[4, 5]).map(drop), &["node id 5", "there are 5", "paper"]);
    let author = rows_request::Of::NodeLabel(NodeLabel { node_type: Some("venue/press".to_owned()) });
    refused(world.rows(author, &[]).map(drop), &["venue/press", "no label"]);

    let cites = EdgeType { src: "paper".to_owned(), relation: "cites".to_owned(), dst: "paper".to_owned() };
    let edges = |edge_type: Option<EdgeType>, layout: &str| {
        let request = EdgeIndexRequest { edge_type, layout: layout.to_owned() };
        world.read(world.api.edge_index(Request::new(request))).map(drop)
    };
    refused(edges(Some(cites.clone()), "ell"), &["`ell`", "coo, csr, csc"]);
    refused(edges(None, "coo"), &["edge type", "author:likes:paper"]);
    let degrees = |direction: &str, ids: Vec<u64>, all| {
        let edge_type = Some(cites.clone());
        let request = DegreesRequest { edge_type, direction: direction.to_owned(), ids, all };
        world.read(world.api.degrees(Request::new(request))).map(drop)
    };
    refused(degrees("up", vec![], true), &["`up`", "in, out"]);
    refused(degrees("in", vec![9], false), &["node id 9"]);
    refused(degrees("in", vec![0], true), &["not both"]);
    let likes = EdgeType { src: "author".to_owned(), relation: "likes".to_owned(), dst: "paper".to_owned() };
    let request =
        AnchorLabelsRequest { positive: Some(cites), negative: Some(likes.clone()), ..AnchorLabelsRequest::default() };
    let labels = world.read(world.api.anchor_labels(Request::new(request))).map(drop);
    refused(labels, &["author:likes:paper", "does not begin at `paper`"]);
    for (split, words) in [("dev", ["`dev`", "train, val, test"]), ("train", ["split `train`", "there are: test"])] {
        let request = AnchorLabelsRequest {
            positive: Some(likes.clone()),
            split: Some(split.to_owned()),
            ..AnchorLabelsRequest::default()
        };
        refused(world.read(world.api.anchor_labels(Request::new(request))).map(drop), &words);
    }
    let nameless = LookupRequest { node_type: Some("paper".to_owned()), originals: vec![OriginalId { id: None }] };
    refused(world.ask(world.api.lookup(Request::new(nameless))).map(drop), &["number or a text"]);
}

#[test]
fn a_peer_that_is_asked_for_what_it_does_not_have_says_that_others_may() {
    let world = World::sample();
    let options = OpenOptions { partitions: Some(vec![0]), ..OpenOptions::default() };
    let dataset = Dataset::open_with(world.dataset.path(), &options).unwrap();
    let request = NodeIdsRequest {
        node_type: Some("paper".to_owned()),
        split: Some("train".to_owned()),
        ..NodeIdsRequest::default()
    };
    let refusal = answer_read(&dataset, &NodeIdsRequest::head(vec![1]), &read::body(&request)).unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.reason.contains("partition 1"), "{refusal}");

    // A server that has half of the graph and no peers says which half is missing.
    let api = DatasetApi::new(Cluster::new(Arc::new(dataset), Vec::new(), 0).unwrap());
    let status = world.read(api.node_ids(Request::new(request))).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains("partition 1 of 2"), "{status}");
}
