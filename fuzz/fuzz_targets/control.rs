//! Whatever the messages of calls to a storage server are, it answers each of them, and goes on: what it makes of them finds
//! or refuses, and never panics.
//!
//! Backends and channels have numbers that no input can know, so that the first one is the last that the input has opened.

#![no_main]

mod calls;
mod corpus;

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use graphmill_graph::{Dataset, Direction};
use graphmill_sample::{Config, Task};
use graphmill_server::{Limits, Options, Server};
use graphmill_testing::{Assignment, sample, tempdir, write};
use graphmill_wire::proto::open_channel_request::Part;
use graphmill_wire::proto::{self, open_channel, original_id, partition_book_request, rows_request};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

/// The calls, by the byte that they begin with.
const METHODS: [&str; 17] = [
    "/graphmill.v1.DatasetService/Describe",
    "/graphmill.v1.DatasetService/NodePartitions",
    "/graphmill.v1.DatasetService/PartitionBook",
    "/graphmill.v1.DatasetService/Rows",
    "/graphmill.v1.DatasetService/EdgeIndex",
    "/graphmill.v1.DatasetService/NodeIds",
    "/graphmill.v1.DatasetService/AnchorLabels",
    "/graphmill.v1.DatasetService/Degrees",
    "/graphmill.v1.DatasetService/OriginalIds",
    "/graphmill.v1.DatasetService/Lookup",
    "/graphmill.v1.SamplingService/OpenBackend",
    "/graphmill.v1.SamplingService/OpenChannel",
    "/graphmill.v1.SamplingService/StartEpoch",
    "/graphmill.v1.SamplingService/CloseChannel",
    "/graphmill.v1.SamplingService/DescribeChannel",
    "/graphmill.v1.SamplingService/Leave",
    "/graphmill.v1.SamplingService/Status",
];
const OPEN_BACKEND: u8 = 10;
const OPEN_CHANNEL: u8 = 11;
/// A further message of the last call, if that opens a channel.
const MORE: u8 = 17;
const CLIENT: [u8; 16] = [7; 16];

/// A server in this process, and a connection to it.
struct Running {
    runtime: Runtime,
    channel: Channel,
    _server: Server,
}

fn running() -> &'static Running {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    RUNNING.get_or_init(|| {
        let (graph, folder) = (sample(), tempdir());
        let path = folder.path().join("dataset");
        let assignment = Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16);
        write(&graph, &path, &[Direction::Out, Direction::In], &assignment).unwrap();
        let dataset = Dataset::open(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = Options {
            threads: 1,
            // What other clients leave behind goes soon.
            lease: Duration::from_millis(500),
            limits: Limits { memory: 64 << 20, ..Limits::default() },
            shared_memory: false,
            ..Options::default()
        };
        let (server, channel) = runtime.block_on(async {
            let server = Server::start(dataset, options).await.unwrap();
            let endpoint = Endpoint::from_shared(format!("http://{}", server.endpoints()[0])).unwrap();
            (server, endpoint.connect().await.unwrap())
        });
        Running { runtime, channel, _server: server }
    })
}

/// The numbers of what an input has opened.
#[derive(Default)]
struct Opened {
    backend: u64,
    channel: u64,
}

impl Opened {
    /// A message with the number of what it is about.
    fn fill(&self, method: u8, message: &[u8]) -> Bytes {
        fn edit<M: Message + Default>(message: &[u8], edit: impl FnOnce(&mut M)) -> Option<Bytes> {
            let mut decoded = M::decode(message).ok()?;
            edit(&mut decoded);
            Some(decoded.encode_to_vec().into())
        }
        let number = |found: &mut u64, opened| *found = if *found == 1 { opened } else { *found };
        let filled = match method {
            OPEN_CHANNEL => edit(message, |open: &mut proto::OpenChannelRequest| {
                if let Some(Part::Open(open)) = &mut open.part {
                    number(&mut open.backend, self.backend);
                }
            }),
            12 => edit(message, |start: &mut proto::StartEpochRequest| number(&mut start.channel, self.channel)),
            13 => edit(message, |close: &mut proto::CloseChannelRequest| number(&mut close.channel, self.channel)),
            14 => edit(message, |asked: &mut proto::DescribeChannelRequest| number(&mut asked.channel, self.channel)),
            _ => None,
        };
        filled.unwrap_or_else(|| Bytes::copy_from_slice(message))
    }

    /// Learns the numbers from an answer.
    fn learn(&mut self, method: u8, answer: Bytes) {
        match method {
            OPEN_BACKEND => self.backend = proto::OpenBackendResponse::decode(answer).unwrap().backend,
            OPEN_CHANNEL => self.channel = proto::OpenChannelResponse::decode(answer).unwrap().channel,
            _ => {}
        }
    }
}

fn run(input: &[u8]) {
    let Running { runtime, channel, .. } = running();
    let mut opened = Opened::default();
    let calls = calls::calls(input);
    let mut calls = calls.iter().peekable();
    while let Some(&(method, message)) = calls.next() {
        let Some(path) = METHODS.get(usize::from(method)) else { continue };
        let mut messages = vec![opened.fill(method, message)];
        while let Some((_, more)) = calls.next_if(|(next, _)| *next == MORE && method == OPEN_CHANNEL) {
            messages.push(Bytes::copy_from_slice(more));
        }
        let within = Duration::from_secs(10);
        let answer = runtime.block_on(async {
            tokio::time::timeout(within, calls::call(channel.clone(), path, messages)).await.expect("an answer in time")
        });
        match answer {
            Ok(answer) => opened.learn(method, answer),
            // An input may have the word in it, and is shown then.
            Err(status) => {
                let panicked = status.code() == tonic::Code::Internal && status.message().contains("panicked");
                assert!(!panicked, "{path}: {status}");
            }
        }
    }
    let leave = proto::LeaveRequest { client: CLIENT.to_vec() }.encode_to_vec();
    runtime.block_on(calls::call(channel.clone(), METHODS[15], vec![leave.into()])).unwrap();
}

/// A call of each kind that is answered, and some that are not.
fn inputs() -> Vec<Vec<u8>> {
    let paper = || Some("paper".to_owned());
    let edge = |src: &str, relation: &str, dst: &str| {
        Some(proto::EdgeType { src: src.to_owned(), relation: relation.to_owned(), dst: dst.to_owned() })
    };
    let cites = || edge("paper", "cites", "paper");
    let likes = || edge("author", "likes", "paper");
    let slice = Some(proto::Slice { start: 1, end: 2, denominator: 2 });
    let rows = |of, ids: &[u64]| proto::RowsRequest { of: Some(of), ids: ids.to_vec() }.encode_to_vec();
    let feature =
        |name: &str| rows_request::Of::NodeFeature(proto::NodeFeature { node_type: paper(), name: name.to_owned() });
    let book = |of| proto::PartitionBookRequest { of: Some(of) }.encode_to_vec();
    let index =
        |layout: &str| proto::EdgeIndexRequest { edge_type: cites(), layout: layout.to_owned() }.encode_to_vec();
    let ids = |split: Option<&str>, partitions: &[u32]| {
        let (split, partitions) = (split.map(str::to_owned), partitions.to_vec());
        proto::NodeIdsRequest { node_type: paper(), split, slice, partitions }.encode_to_vec()
    };
    let degrees = |direction: &str, all| {
        let (direction, ids) = (direction.to_owned(), if all { Vec::new() } else { vec![0, 4] });
        proto::DegreesRequest { edge_type: cites(), direction, ids, all }.encode_to_vec()
    };
    let anchors = |max_labels, negative| {
        let (split, partitions) = (Some("train".to_owned()), vec![0, 1]);
        proto::AnchorLabelsRequest { split, positive: likes(), negative, max_labels, slice, partitions }.encode_to_vec()
    };
    let originals = vec![
        proto::OriginalId { id: Some(original_id::Id::Text("ab".to_owned())) },
        proto::OriginalId { id: Some(original_id::Id::Number(-7)) },
    ];
    let lookup = |node_type, originals: &[proto::OriginalId]| {
        proto::LookupRequest { node_type, originals: originals.to_vec() }.encode_to_vec()
    };
    let reading = [
        (0, Vec::new()),
        (1, proto::NodePartitionsRequest { node_type: paper(), ids: vec![0, 4] }.encode_to_vec()),
        (1, proto::NodePartitionsRequest { node_type: None, ids: vec![5] }.encode_to_vec()),
        (2, book(partition_book_request::Of::NodeType("paper".to_owned()))),
        (2, book(partition_book_request::Of::EdgeType(cites().unwrap()))),
        (3, rows(feature("x"), &[4, 0, 4])),
        (3, rows(feature("y"), &[0])),
        (3, rows(feature("x"), &[u64::MAX])),
        (3, rows(rows_request::Of::NodeLabel(proto::NodeLabel { node_type: paper() }), &[1])),
        (3, rows(rows_request::Of::EdgeFeature(proto::EdgeFeature { edge_type: cites(), name: "x".to_owned() }), &[0])),
        (4, index("coo")),
        (4, index("csr")),
        (4, index("csc")),
        (4, index("dense")),
        (5, ids(Some("train"), &[])),
        (5, ids(None, &[0, 1])),
        (5, ids(None, &[1])),
        (5, ids(Some("all"), &[7])),
        (6, anchors(Some(1), None)),
        (6, anchors(None, likes())),
        (7, degrees("in", true)),
        (7, degrees("out", false)),
        (8, proto::OriginalIdsRequest { node_type: paper(), ids: vec![0, 4] }.encode_to_vec()),
        (8, proto::OriginalIdsRequest { node_type: Some("author".to_owned()), ids: vec![1] }.encode_to_vec()),
        (9, lookup(paper(), &originals[..1])),
        (9, lookup(Some("author".to_owned()), &originals[1..])),
        (9, lookup(paper(), &originals)),
    ];
    let alone = reading.into_iter().map(|call| calls::input([call]));
    alone.chain(sampling_inputs()).collect()
}

/// Channels over all kinds of seeds, from the first call to the last.
fn sampling_inputs() -> Vec<Vec<u8>> {
    let edge_type = "author:writes:paper".parse().ok();
    let nodes = Config { task: Task::Nodes { node_type: Some("paper".to_owned()) }, ..Config::neighbors(&[2]) };
    let links = Config { task: Task::Links { edge_type, negatives: None }, ..nodes.clone() };
    let word = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let chunk = |classes: &[u64]| {
        let (ids, others) = (word(&[0, 1]), if classes.is_empty() { Vec::new() } else { word(&[2, 3]) });
        proto::SeedChunk { ids, others, classes: word(classes) }
    };
    let seeds = [
        (&nodes, open_channel::Seeds::All(proto::AllNodes {}), None),
        (&nodes, open_channel::Seeds::Split("train".to_owned()), None),
        (&nodes, open_channel::Seeds::Nodes(proto::ListedNodes { count: 2 }), Some(chunk(&[]))),
        (&nodes, open_channel::Seeds::Nodes(proto::ListedNodes { count: 9 }), Some(chunk(&[]))),
        (&links, open_channel::Seeds::Pairs(proto::ListedPairs { count: 2, classes: true }), Some(chunk(&[0, 1]))),
        (&links, open_channel::Seeds::Edges(proto::AllEdges {}), None),
    ];
    let input = |(config, seeds, chunk): (&Config, open_channel::Seeds, Option<proto::SeedChunk>)| {
        let text = serde_json::to_string(config).unwrap();
        let open = |seed_order: proto::SeedOrder| {
            let open = proto::OpenChannel {
                backend: 1,
                client: CLIENT.to_vec(),
                config: text.clone(),
                batch_size: 2,
                shuffle: true,
                max_credits: 4,
                max_bytes: 1 << 20,
                worker: "rank 0".to_owned(),
                seed_order: seed_order.into(),
                seeds: Some(seeds.clone()),
                ..proto::OpenChannel::default()
            };
            (OPEN_CHANNEL, proto::OpenChannelRequest { part: Some(Part::Open(open)) }.encode_to_vec())
        };
        let more = chunk.map(|chunk| proto::OpenChannelRequest { part: Some(Part::Seeds(chunk)) }.encode_to_vec());
        let backend = proto::OpenBackendRequest { run: "run".to_owned(), key: String::new(), config: text.clone() };
        let mut calls = vec![(OPEN_BACKEND, backend.encode_to_vec())];
        for order in [proto::SeedOrder::Global, proto::SeedOrder::Partition] {
            calls.push(open(order));
            calls.extend(more.iter().map(|more| (MORE, more.clone())));
        }
        let (channel, client) = (1, CLIENT.to_vec());
        calls.extend([
            (12, proto::StartEpochRequest { channel, epoch: 1, client: client.clone() }.encode_to_vec()),
            (14, proto::DescribeChannelRequest { channel }.encode_to_vec()),
            (16, Vec::new()),
            (13, proto::CloseChannelRequest { channel, client: client.clone() }.encode_to_vec()),
            (12, proto::StartEpochRequest { channel, epoch: 2, client: client.clone() }.encode_to_vec()),
            (14, proto::DescribeChannelRequest { channel }.encode_to_vec()),
            (15, proto::LeaveRequest { client }.encode_to_vec()),
        ]);
        calls::input(calls)
    };
    seeds.into_iter().map(input).collect()
}

fuzz_target!(init: corpus::write_to_corpus(&inputs()), |input: &[u8]| run(input));
