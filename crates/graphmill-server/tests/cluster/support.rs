//! Datasets, clusters of servers in this process, and clients that speak the wire by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_client::{Batches, ConnectOptions, Loader, Remote, SeedList, Transport};
use graphmill_graph::random::Stream as Random;
use graphmill_graph::{DType, Dataset, Direction, EdgeRole, EdgeTypeName, LabelKind, OpenOptions, Storage};
use graphmill_net::{ClientTls, Endpoint, FrameReader, FrameWriter, Incoming, Plane};
use graphmill_sample::{Config, law};
use graphmill_server::{Leftovers, Options, Server, StartError};
use graphmill_testing::{
    Assignment, ModelEdge, ModelEdges, ModelGraph, ModelLabel, ModelNodes, ModelTensor, tempdir, write,
};
use graphmill_wire::proto::sampling_service_client::SamplingServiceClient;
use graphmill_wire::proto::{
    self, ChannelStatus, DescribeChannelRequest, ListedNodes, OpenBackendRequest, OpenChannel, OpenChannelRequest,
    Role, SeedChunk, StatusRequest, StatusResponse, open_channel, open_channel_request,
};
use graphmill_wire::{Header, Kind, Limits, Message};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Long enough for a machine that is busy with something else. Nothing waits so long unless it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The nodes of the homogeneous graph; the last ten have no edges.
pub(crate) const NODES: u64 = 203;
const LINKED: u64 = NODES - 10;
const EDGES: u64 = 1500;

/// Polls until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A dataset on disk.
pub(crate) struct Store {
    _folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) graph: ModelGraph,
}

impl Store {
    pub(crate) fn new(graph: ModelGraph, parts: u32) -> Self {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        let assignment = Assignment::assigned(&graph, parts, |_, id| (id * 7 % u64::from(parts)) as u16);
        write(&graph, &path, &[Direction::In, Direction::Out], &assignment).unwrap();
        Self { _folder: folder, path, graph }
    }

    /// One node type, with features, labels, splits and weights.
    pub(crate) fn homogeneous(parts: u32) -> Self {
        Self::new(homogeneous(), parts)
    }

    /// Users, items, what users click, and what they like: the last is for labels.
    pub(crate) fn heterogeneous(parts: u32) -> Self {
        Self::new(heterogeneous(), parts)
    }

    /// All of it, for loaders of this process.
    pub(crate) fn open(&self) -> Dataset {
        Dataset::open(&self.path).unwrap()
    }
}

fn rows(count: u64, width: usize) -> ModelTensor {
    let rows = (0..count).map(|node| (node as f32 + 0.5).to_le_bytes().repeat(width)).collect();
    ModelTensor { dtype: DType::F32, shape: vec![width as u64], rows }
}

fn edges(role: EdgeRole, edges: impl Iterator<Item = (u64, u64)>) -> ModelEdges {
    let weight = |id: usize| Some((id as f32 % 5.0).to_bits());
    let edge = |(id, (src, dst)): (usize, (u64, u64))| ModelEdge {
        src,
        dst,
        id: Some(id as u64),
        weight: weight(id),
        timestamp: None,
    };
    let mut edges: Vec<ModelEdge> = edges.enumerate().map(edge).collect();
    edges.sort_unstable();
    let id_count = edges.len() as u64;
    ModelEdges { role, edges, edge_ids: true, id_count, weights: true, timestamps: false, features: BTreeMap::new() }
}

fn homogeneous() -> ModelGraph {
    let random = Random::new(5, &[]);
    let label = ModelLabel {
        kind: LabelKind::Single,
        dtype: DType::I64,
        width: 1,
        rows: (0..NODES).map(|node| (node as i64 % 7).to_le_bytes().to_vec()).collect(),
    };
    let split = |rest: u64| Some((0..NODES).filter(|node| node % 3 == rest).collect::<BTreeSet<u64>>());
    let nodes = ModelNodes {
        count: NODES,
        features: [("x".to_owned(), rows(NODES, 16))].into(),
        label: Some(label),
        splits: [split(0), split(1), None],
        ..ModelNodes::default()
    };
    let pairs = (0..EDGES).map(|id| (random.below(2 * id, LINKED), random.below(2 * id + 1, LINKED)));
    ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), nodes)].into(),
        edges: [(EdgeTypeName::new("node", "to", "node"), edges(EdgeRole::Message, pairs))].into(),
    }
}

fn heterogeneous() -> ModelGraph {
    let random = Random::new(9, &[]);
    let (users, items) = (90, 60);
    let kind = |count| ModelNodes {
        count,
        features: [("x".to_owned(), rows(count, 8))].into(),
        splits: [Some((0..count).filter(|node| node % 2 == 0).collect()), None, None],
        ..ModelNodes::default()
    };
    let pair = move |id: u64| (random.below(2 * id, users), random.below(2 * id + 1, items));
    let clicks: Vec<(u64, u64)> = (0..700).map(pair).collect();
    let back = clicks.iter().map(|&(user, item)| (item, user)).collect::<Vec<_>>();
    let likes: Vec<(u64, u64)> = (1000..1200).map(pair).collect();
    let mut liked = edges(EdgeRole::Label, likes.into_iter());
    // Labels need neither ids nor weights.
    (liked.edge_ids, liked.id_count, liked.weights) = (false, 0, false);
    for edge in &mut liked.edges {
        (edge.id, edge.weight) = (None, None);
    }
    liked.edges.sort_unstable();
    ModelGraph {
        homogeneous: false,
        edge_dir: Direction::In,
        nodes: [("user".to_owned(), kind(users)), ("item".to_owned(), kind(items))].into(),
        edges: [
            (EdgeTypeName::new("user", "clicks", "item"), edges(EdgeRole::Message, clicks.into_iter())),
            (EdgeTypeName::new("item", "clicked", "user"), edges(EdgeRole::Message, back.into_iter())),
            (EdgeTypeName::new("user", "likes", "item"), liked),
        ]
        .into(),
    }
}

/// Two hops with features: what most tests sample.
pub(crate) fn config() -> Config {
    Config { features: vec!["x".to_owned()], labels: true, edge_ids: true, seed: 3, ..Config::neighbors(&[4, 3]) }
}

/// No hops: a batch is its seeds and their features, so all full batches are equally large.
pub(crate) fn flat() -> Config {
    Config { features: vec!["x".to_owned()], ..Config::neighbors(&[]) }
}

pub(crate) fn loading(batch_size: usize) -> graphmill_client::Options {
    graphmill_client::Options { batch_size, shuffle: true, ..graphmill_client::Options::default() }
}

/// Batches by number, with their bytes.
pub(crate) fn bytes(batches: Batches) -> Vec<(u64, Vec<u8>)> {
    batches.map(Result::unwrap).map(|batch| (batch.id().g, batch.bytes().to_vec())).collect()
}

/// The same batches, sampled here.
pub(crate) fn expected(
    store: &Store,
    config: &Config,
    seeds: SeedList,
    options: &graphmill_client::Options,
    epoch: u64,
) -> Vec<(u64, Vec<u8>)> {
    let options = graphmill_client::Options { threads: 0, ..options.clone() };
    bytes(Loader::new(&store.open(), config.clone(), seeds, options).unwrap().epoch(epoch))
}

type Change = Box<dyn Fn(Options) -> Options>;

/// Some servers of one dataset, each with some of its partitions, and the folder of their sockets.
pub(crate) struct Cluster {
    runtime: Runtime,
    servers: Vec<Option<Server>>,
    /// Where servers listen over TCP, once they were started.
    tcp: Vec<Endpoint>,
    dataset: PathBuf,
    change: Change,
    /// Whether each has all partitions.
    replicas: bool,
    /// The partitions of each, where that was said.
    placed: Vec<Vec<u32>>,
    /// Ports that are kept for servers which find each other over TCP: bound, so that nobody else is given them, and not
    /// listened on.
    ports: Vec<TcpSocket>,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// So many servers; partition `i` is with server `i mod servers`.
    pub(crate) fn start(dataset: &Path, servers: usize) -> Self {
        Self::start_with(dataset, servers, |options| options)
    }

    pub(crate) fn start_with(dataset: &Path, servers: usize, change: impl Fn(Options) -> Options + 'static) -> Self {
        let mut cluster = Self::prepare(dataset, servers, change);
        (0..servers).for_each(|server| cluster.start_one(server));
        cluster
    }

    /// Servers that have everything, each of them.
    pub(crate) fn replicas(dataset: &Path, servers: usize) -> Self {
        let mut cluster = Self::prepare(dataset, servers, |options| options);
        cluster.replicas = true;
        (0..servers).for_each(|server| cluster.start_one(server));
        cluster
    }

    /// Servers that are each other's peers over TCP.
    pub(crate) fn over_tcp(dataset: &Path, servers: usize, change: impl Fn(Options) -> Options + 'static) -> Self {
        let mut cluster = Self::prepare(dataset, servers, change);
        let port = || {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
            socket
        };
        cluster.ports = (0..servers).map(|_| port()).collect();
        for (endpoint, socket) in cluster.tcp.iter_mut().zip(&cluster.ports) {
            let port = socket.local_addr().unwrap().port();
            *endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port };
        }
        (0..servers).for_each(|server| cluster.start_one(server));
        cluster
    }

    /// Servers that are to be started one by one.
    pub(crate) fn prepare(dataset: &Path, servers: usize, change: impl Fn(Options) -> Options + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempdir();
        let tcp = vec![Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 0 }; servers];
        let (servers, dataset, change) = ((0..servers).map(|_| None).collect(), dataset.to_owned(), Box::new(change));
        Self { runtime, servers, tcp, dataset, change, replicas: false, placed: Vec::new(), ports: Vec::new(), folder }
    }

    /// Says which partitions each server has, before it is started.
    pub(crate) fn place(&mut self, placed: &[&[u32]]) {
        self.placed = placed.iter().map(|partitions| partitions.to_vec()).collect();
    }

    /// Says how servers are run that are started from now on.
    pub(crate) fn change(&mut self, change: impl Fn(Options) -> Options + 'static) {
        self.change = Box::new(change);
    }

    /// Starts a server, where it was before if it was stopped.
    pub(crate) fn start_one(&mut self, server: usize) {
        let count = self.servers.len();
        let parts = Dataset::open(&self.dataset).unwrap().parts();
        let partitions =
            (0..parts).filter(|part| self.replicas || *part as usize % count == server).collect::<Vec<u32>>();
        let partitions = self.placed.get(server).cloned().unwrap_or(partitions);
        let opening = OpenOptions { storage: Storage::Mmap, partitions: Some(partitions) };
        let others = (0..count).filter(|other| *other != server && !self.replicas);
        let options = (self.change)(Options {
            listen: vec![self.tcp[server].clone(), self.socket(server)],
            peers: others
                .map(|other| if self.ports.is_empty() { self.socket(other) } else { self.tcp[other].clone() })
                .collect(),
            threads: 2,
            ..Options::default()
        });
        // Where a server was stopped just now, the listening tasks end in a moment.
        let mut started = None;
        eventually("the address is free", || {
            let opened = Dataset::open_with(&self.dataset, &opening).unwrap();
            match self.runtime.block_on(Server::start(opened, options.clone())) {
                Ok(server) => started = Some(server),
                Err(StartError::Listen(_)) => {}
                Err(error) => panic!("{error}"),
            }
            started.is_some()
        });
        self.tcp[server] = started.as_ref().unwrap().endpoints()[0].clone();
        self.servers[server] = started;
    }

    /// Stops a server, whatever is left.
    pub(crate) fn stop_one(&mut self, server: usize) -> Leftovers {
        let server = self.servers[server].take().expect("it runs");
        self.runtime.block_on(server.stop(Duration::from_secs(5)))
    }

    /// A server's own address for health and metrics.
    pub(crate) fn watch_endpoint(&self, server: usize) -> Endpoint {
        self.servers[server].as_ref().and_then(Server::watch_endpoint).expect("it has one").clone()
    }

    /// The servers' addresses over TCP.
    pub(crate) fn addresses(&self) -> Vec<Endpoint> {
        self.tcp.clone()
    }

    /// A server's Unix socket, which nobody else takes while the server is away.
    pub(crate) fn socket(&self, server: usize) -> Endpoint {
        Endpoint::Unix(self.folder.path().join(format!("{server}.sock")))
    }

    pub(crate) fn sockets(&self) -> Vec<Endpoint> {
        (0..self.servers.len()).map(|server| self.socket(server)).collect()
    }

    pub(crate) fn connect(&self, transport: Transport) -> Arc<Remote> {
        let options = ConnectOptions { transport, deadline: PATIENCE, ..ConnectOptions::default() };
        Remote::connect(&self.addresses(), options).unwrap()
    }

    /// Connects over Unix sockets, so that a server may go and come back.
    pub(crate) fn connect_within(&self, deadline: Duration) -> Arc<Remote> {
        let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
        Remote::connect(&self.sockets(), options).unwrap()
    }

    /// Runs something that waits.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an end in time") })
    }

    /// Runs something beside the test.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(future)
    }

    /// The control plane of a server, with nothing between.
    pub(crate) fn control(&self, server: usize) -> SamplingServiceClient<tonic::transport::Channel> {
        SamplingServiceClient::new(self.grpc(self.socket(server), None))
    }

    /// What requests to an address travel over.
    pub(crate) fn grpc(&self, endpoint: Endpoint, tls: Option<ClientTls>) -> tonic::transport::Channel {
        let connector = tower::service_fn(move |_| {
            let (endpoint, tls) = (endpoint.clone(), tls.clone());
            async move { graphmill_net::dial(&endpoint, tls.as_ref(), Plane::Control, PATIENCE).await.map(TokioIo::new) }
        });
        let _inside = self.runtime.enter();
        tonic::transport::Endpoint::from_static("http://graphmill").connect_with_connector_lazy(connector)
    }

    pub(crate) fn status(&self, server: usize) -> StatusResponse {
        let mut control = self.control(server);
        self.run(async move { control.status(StatusRequest {}).await.unwrap().into_inner() })
    }

    pub(crate) fn describe(&self, server: usize, channel: u64) -> ChannelStatus {
        let mut control = self.control(server);
        self.run(
            async move { control.describe_channel(DescribeChannelRequest { channel }).await.unwrap().into_inner() },
        )
    }

    /// A greeted data connection.
    pub(crate) fn wire(&self, server: usize, client: [u8; 16]) -> Wire {
        self.wire_with(server, proto::Hello { client: client.to_vec(), ..hello() })
    }

    /// A data connection with a greeting that must be accepted.
    pub(crate) fn wire_with(&self, server: usize, hello: proto::Hello) -> Wire {
        let endpoint = self.socket(server);
        self.run(async {
            let (wire, answer) = Wire::greet(&endpoint, hello).await;
            assert!(matches!(answer, Some(Message::Welcome(_))), "{answer:?}");
            wire
        })
    }

    /// Opens a backend and a channel over the first nodes.
    pub(crate) fn open(&self, server: usize, opening: Opening) -> u64 {
        let mut control = self.control(server);
        self.run(async move {
            loop {
                match open_backend(&mut control, "", &opening.config).await {
                    Ok(backend) => return open_channel(&mut control, backend, opening).await.unwrap(),
                    // The last channel of the one before has just closed.
                    Err(status) if status.code() == tonic::Code::Unavailable => {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err(status) => panic!("{status}"),
                }
            }
        })
    }

    /// A proxy before a server.
    pub(crate) fn proxy(&self, server: usize) -> Proxy {
        let target = self.folder.path().join(format!("{server}.sock"));
        self.run(Proxy::start(target))
    }

    /// Stops all servers, and says whether nothing was left.
    pub(crate) fn stop(self) -> bool {
        let Self { runtime, servers, folder, .. } = self;
        let clean = servers.into_iter().flatten().all(|server| {
            let left = runtime.block_on(server.stop(Duration::from_secs(5)));
            left == Leftovers::default()
        });
        drop(folder);
        clean
    }
}

pub(crate) type Control = SamplingServiceClient<tonic::transport::Channel>;

/// What a channel is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    pub(crate) config: Config,
    pub(crate) nodes: u64,
    pub(crate) batch_size: u64,
    pub(crate) client: [u8; 16],
    pub(crate) max_credits: u64,
    pub(crate) max_bytes: u64,
}

impl Default for Opening {
    fn default() -> Self {
        Self { config: config(), nodes: NODES, batch_size: 8, client: [1; 16], max_credits: 0, max_bytes: 0 }
    }
}

pub(crate) fn json(config: &Config) -> String {
    serde_json::to_string(config).unwrap()
}

/// Opens a backend under a key, or one of its own.
pub(crate) async fn open_backend(control: &mut Control, key: &str, config: &Config) -> Result<u64, tonic::Status> {
    let request = OpenBackendRequest { run: "test".to_owned(), key: key.to_owned(), config: json(config) };
    Ok(control.open_backend(request).await?.into_inner().backend)
}

pub(crate) async fn open_channel(control: &mut Control, backend: u64, opening: Opening) -> Result<u64, tonic::Status> {
    let Opening { config, nodes, batch_size, client, max_credits, max_bytes } = opening;
    let open = OpenChannel {
        backend,
        client: client.to_vec(),
        config: json(&config),
        batch_size,
        shuffle: false,
        drop_last: false,
        seeds: Some(open_channel::Seeds::Nodes(ListedNodes { count: nodes })),
        max_credits,
        max_bytes,
        worker: String::new(),
        seed_order: proto::SeedOrder::Global.into(),
    };
    let ids = (0..nodes).flat_map(u64::to_le_bytes).collect();
    let parts = [
        open_channel_request::Part::Open(open),
        open_channel_request::Part::Seeds(SeedChunk { ids, ..SeedChunk::default() }),
    ];
    let parts = parts.map(|part| OpenChannelRequest { part: Some(part) });
    Ok(control.open_channel(tokio_stream::iter(parts)).await?.into_inner().channel)
}

/// A greeting that a server without a token accepts.
pub(crate) fn hello() -> proto::Hello {
    proto::Hello {
        oldest_wire: graphmill_wire::OLDEST.into(),
        newest_wire: graphmill_wire::VERSION.into(),
        law: law::VERSION,
        fingerprint: String::new(),
        token: String::new(),
        client: vec![1; 16],
        role: Role::Client.into(),
        slots: false,
    }
}

/// A data connection, frame by frame.
pub(crate) struct Wire {
    pub(crate) reader: FrameReader,
    pub(crate) writer: FrameWriter,
}

impl Wire {
    pub(crate) async fn connect(endpoint: &Endpoint) -> Self {
        let stream = graphmill_net::connect_data(endpoint, None, PATIENCE).await.unwrap();
        let (reader, writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::CLIENT);
        Self { reader, writer }
    }

    /// Connects and greets; what the server says to that.
    pub(crate) async fn greet(endpoint: &Endpoint, hello: proto::Hello) -> (Self, Option<Message>) {
        let mut wire = Self::connect(endpoint).await;
        wire.send(Header::new(Kind::Hello), Message::Hello(hello)).await;
        let answer = wire.next().await.map(|frame| frame.message);
        (wire, answer)
    }

    pub(crate) async fn send(&mut self, header: Header, message: Message) {
        self.writer.write(header, &message, &[]).await.unwrap();
    }

    pub(crate) async fn credit(&mut self, channel: u64, epoch: u64, g: &[u64]) {
        let header = Header { channel, epoch, ..Header::new(Kind::Credit) };
        self.send(header, Message::Credit(proto::Credit { g: g.to_vec() })).await;
    }

    /// Asks for a sign of life: what was sent before has been read when it comes.
    pub(crate) async fn ping(&mut self) {
        self.send(Header::new(Kind::Ping), Message::Ping(proto::Ping {})).await;
    }

    /// The next frame, without its body; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        tokio::time::timeout(PATIENCE, self.reader.next()).await.expect("a frame in time").unwrap()
    }

    /// The next batch: its epoch and number.
    pub(crate) async fn batch(&mut self) -> (u64, u64) {
        let frame = self.next().await.expect("a batch, not the end");
        assert_eq!(frame.header.kind, Kind::Batch, "{:?}", frame.message);
        (frame.header.epoch, frame.header.g)
    }

    /// Frames up to the answer to a ping.
    pub(crate) async fn until_pong(&mut self) -> Vec<Incoming> {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Some(frame) if frame.header.kind == Kind::Pong => return frames,
                Some(frame) => frames.push(frame),
                None => panic!("the server hung up after {frames:?}"),
            }
        }
    }

    /// Why the server ends the connection, which it must.
    pub(crate) async fn refusal(&mut self) -> proto::Refused {
        let refused = loop {
            match self.next().await.expect("a reason, not the end alone").message {
                Message::Refused(refused) => break refused,
                Message::Batch(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(self.next().await.is_none(), "the connection ends after a refusal");
        refused
    }
}

/// A way to a server that can be held up, as a bad network does.
pub(crate) struct Proxy {
    pub(crate) endpoint: Endpoint,
    open: watch::Sender<bool>,
}

impl Proxy {
    async fn start(target: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (open, gate) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = UnixStream::connect(&target).await else { continue };
                let gate = gate.clone();
                tokio::spawn(carry(near, far, gate));
            }
        });
        Self { endpoint: Endpoint::Tcp { host: "127.0.0.1".to_owned(), port }, open }
    }

    /// Nothing passes any more, and nobody is told.
    pub(crate) fn freeze(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn thaw(&self) {
        self.open.send_replace(true);
    }
}

async fn carry(near: TcpStream, far: UnixStream, gate: watch::Receiver<bool>) {
    async fn one_way(
        mut from: impl tokio::io::AsyncRead + Unpin,
        mut to: impl tokio::io::AsyncWrite + Unpin,
        mut gate: watch::Receiver<bool>,
    ) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
            if gate.wait_for(|open| *open).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    }
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = one_way(near_read, far_write, gate.clone()) => {}
        () = one_way(far_read, near_write, gate) => {}
    }
}
