//! Servers of a dataset that are broken, or mean harm: whoever reads from them gets an error, in time and in bounds.

use std::pin::Pin;
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, EdgeLayout, Error, Remote, RemoteDataset, Shard, Transport};
use graphmill_graph::{Dataset, Direction, EdgeTypeName};
use graphmill_net::Endpoint;
use graphmill_sample::law;
use graphmill_server::{HttpServer, Options, Server};
use graphmill_testing::{Assignment, sample, tempdir, write};
use graphmill_wire::proto::dataset_service_server::{DatasetService, DatasetServiceServer};
use graphmill_wire::proto::original_id::Id;
use graphmill_wire::proto::{
    AnchorLabelsRequest, AnchorLabelsResponse, DegreesRequest, DegreesResponse, DescribeRequest, DescribeResponse,
    EdgeIndexRequest, EdgeIndexResponse, LookupRequest, LookupResponse, NodeIdsRequest, NodeIdsResponse,
    NodePartitionsRequest, NodePartitionsResponse, OriginalId, OriginalIdsRequest, OriginalIdsResponse,
    PartitionBookRequest, PartitionBookResponse, RowsRequest, RowsResponse,
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

type Parts<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Answer<T> = Result<Response<Parts<T>>, Status>;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// With parts that never end.
    Flood,
    /// With empty parts that never end.
    Drip,
    /// Not at all.
    Silence,
}

/// A server that says what the dataset is, and then does not behave.
struct Stranger {
    manner: Manner,
    described: DescribeResponse,
}

impl Stranger {
    async fn parts<T: Clone + Default + Send + 'static>(&self, part: T) -> Answer<T> {
        let endless = move |part: T| tokio_stream::iter(std::iter::repeat_with(move || Ok(part.clone())));
        Ok(Response::new(match self.manner {
            Manner::Flood => Box::pin(endless(part)),
            Manner::Drip => Box::pin(endless(T::default()).then(async |part| {
                tokio::time::sleep(Duration::from_millis(20)).await;
                part
            })),
            Manner::Silence => std::future::pending().await,
        }))
    }
}

#[tonic::async_trait]
impl DatasetService for Stranger {
    type PartitionBookStream = Parts<PartitionBookResponse>;
    type RowsStream = Parts<RowsResponse>;
    type EdgeIndexStream = Parts<EdgeIndexResponse>;
    type NodeIdsStream = Parts<NodeIdsResponse>;
    type AnchorLabelsStream = Parts<AnchorLabelsResponse>;
    type DegreesStream = Parts<DegreesResponse>;
    type OriginalIdsStream = Parts<OriginalIdsResponse>;

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(self.described.clone()))
    }

    async fn node_partitions(
        &self,
        _: Request<NodePartitionsRequest>,
    ) -> Result<Response<NodePartitionsResponse>, Status> {
        std::future::pending().await
    }

    async fn partition_book(&self, _: Request<PartitionBookRequest>) -> Answer<PartitionBookResponse> {
        self.parts(PartitionBookResponse { partitions: vec![0, 1], lengths: vec![1, 1] }).await
    }

    async fn rows(&self, _: Request<RowsRequest>) -> Answer<RowsResponse> {
        self.parts(RowsResponse { rows: vec![1; 1 << 20], ..RowsResponse::default() }).await
    }

    async fn edge_index(&self, _: Request<EdgeIndexRequest>) -> Answer<EdgeIndexResponse> {
        self.parts(EdgeIndexResponse { first: vec![1; 1 << 16], ..EdgeIndexResponse::default() }).await
    }

    async fn node_ids(&self, _: Request<NodeIdsRequest>) -> Answer<NodeIdsResponse> {
        self.parts(NodeIdsResponse { ids: vec![1; 1 << 16] }).await
    }

    async fn anchor_labels(&self, _: Request<AnchorLabelsRequest>) -> Answer<AnchorLabelsResponse> {
        self.parts(AnchorLabelsResponse { positives: vec![1; 1 << 16], ..AnchorLabelsResponse::default() }).await
    }

    async fn degrees(&self, _: Request<DegreesRequest>) -> Answer<DegreesResponse> {
        self.parts(DegreesResponse { degrees: vec![1; 1 << 16] }).await
    }

    async fn original_ids(&self, _: Request<OriginalIdsRequest>) -> Answer<OriginalIdsResponse> {
        let originals = vec![OriginalId { id: Some(Id::Text("a".repeat(1 << 20))) }; 8];
        self.parts(OriginalIdsResponse { originals }).await
    }

    async fn lookup(&self, _: Request<LookupRequest>) -> Result<Response<LookupResponse>, Status> {
        std::future::pending().await
    }
}

/// A dataset, and a runtime for servers of it.
struct Scene {
    runtime: tokio::runtime::Runtime,
    dataset: Dataset,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempdir();
        let path = folder.path().join("graph");
        write(&sample(), &path, &[Direction::In], &Assignment::whole(&sample())).unwrap();
        Self { runtime, dataset: Dataset::open(path).unwrap(), folder }
    }

    fn stranger(&self, manner: Manner) -> HttpServer {
        let described = DescribeResponse {
            manifest: String::from_utf8(self.dataset.manifest().render()).unwrap(),
            fingerprint: self.dataset.fingerprint().to_string(),
            law: law::VERSION,
            parts: 1,
            partitions: vec![0],
            ..DescribeResponse::default()
        };
        let routes = Routes::new(DatasetServiceServer::new(Stranger { manner, described }));
        let listen: Endpoint = "127.0.0.1:0".parse().unwrap();
        self.runtime.block_on(HttpServer::start(&[listen], None, false, false, routes)).unwrap()
    }

    fn server(&self) -> Server {
        let dataset = Dataset::open(self.folder.path().join("graph")).unwrap();
        self.runtime.block_on(Server::start(dataset, Options::default())).unwrap()
    }
}

fn open(addresses: &[Endpoint], deadline: Duration) -> RemoteDataset {
    let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
    RemoteDataset::new(Remote::connect(addresses, options).unwrap())
}

type Call = (&'static str, Box<dyn Fn(&RemoteDataset) -> Result<(), Error>>);

/// Everything that comes in parts.
fn calls() -> Vec<Call> {
    let cites = EdgeTypeName::new("paper", "cites", "paper");
    let (cited, citing) = (cites.clone(), cites.clone());
    let (paper, half) = (Some("paper"), Shard::Rank { rank: 0, world_size: 2, servers: 1 });
    vec![
        ("ids", Box::new(move |remote| remote.node_ids(paper, None, Shard::Whole).map(drop))),
        ("a share of ids", Box::new(move |remote| remote.node_ids(paper, None, half).map(drop))),
        ("edges", Box::new(move |remote| remote.edge_index(Some(&cites), EdgeLayout::Coo).map(drop))),
        ("lists", Box::new(move |remote| remote.edge_index(Some(&cited), EdgeLayout::Csc).map(drop))),
        ("degrees", Box::new(move |remote| remote.degrees(Some(&citing), Direction::In, None).map(drop))),
        ("rows", Box::new(move |remote| remote.node_feature(paper, "x", &[0, 1]).map(drop))),
        ("a book", Box::new(move |remote| remote.node_partition_book(paper).map(drop))),
        ("original ids", Box::new(move |remote| remote.original_ids(paper, &[0, 1]).map(drop))),
    ]
}

#[test]
fn a_server_that_never_stops_sending_gives_an_error_and_not_an_endless_list() {
    let scene = Scene::new();
    let stranger = scene.stranger(Manner::Flood);
    let remote = open(stranger.endpoints(), Duration::from_secs(20));
    for (what, call) in calls() {
        let error = call(&remote).expect_err(what).to_string();
        assert!(error.contains("sent more than the"), "{what}: {error}");
    }
}

#[test]
fn a_server_that_sends_nothing_of_use_costs_the_deadline_and_no_more() {
    let scene = Scene::new();
    for manner in [Manner::Silence, Manner::Drip] {
        let stranger = scene.stranger(manner);
        let remote = open(stranger.endpoints(), Duration::from_millis(400));
        for (what, call) in calls() {
            let error = call(&remote).expect_err(what);
            assert!(matches!(error, Error::Unavailable { .. }), "{what}, {manner:?}: {error}");
        }
    }
}

#[test]
fn a_server_that_is_silent_leaves_time_to_ask_another() {
    let scene = Scene::new();
    let (stranger, server) = (scene.stranger(Manner::Silence), scene.server());
    let addresses = [stranger.endpoints(), server.endpoints()].concat();
    let deadline = Duration::from_secs(6);
    let remote = open(&addresses, deadline);
    let began = Instant::now();
    // Whoever is asked first, both are asked.
    for _ in 0..2 {
        assert_eq!(remote.node_ids(Some("paper"), None, Shard::Whole).unwrap(), [0, 1, 2, 3, 4]);
    }
    assert!(began.elapsed() < deadline, "{:?}", began.elapsed());
}
