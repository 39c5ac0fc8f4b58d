//! What models are made of: a server without sockets, and the orders that it is tried in.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use graphmill_graph::{Dataset, Direction};
use graphmill_sample::{Config, Cutting, Plan, SeedCuts, SeedList, Task};
use graphmill_testing::{Assignment, sample, tempdir, write};
use graphmill_wire::{Header, Kind, Message, proto};
use serde_json::json;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::Refusal;
use crate::budget::Budget;
use crate::cluster::Cluster;
use crate::core::Core;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::outlet::{Out, Outlet};
use crate::queue::Queue;
use crate::registry::{Backend, Channel, ClientId, Registry};
use crate::scheduler::Bounds;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, thread};
use crate::work::Work;
use crate::{credits, job};

/// A model, and in how many orders it is tried.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    pub(crate) orders: usize,
}

/// A list of models by their names.
macro_rules! models {
    ($($orders:literal $name:ident),* $(,)?) => {
        pub(crate) const MODELS: &[$crate::support::Model] =
            &[$($crate::support::Model { name: stringify!($name), run: $name, orders: $orders }),*];
    };
}
pub(crate) use models;

/// The batches of an epoch.
pub(crate) const BATCHES: u64 = 3;
/// Long enough for everything.
pub(crate) const AN_HOUR: Duration = Duration::from_secs(3600);
/// Memory for everything.
pub(crate) const MUCH: u64 = 256 << 20;
/// Who reads.
pub(crate) const READER: ClientId = [7; 16];

/// Tries a model in so many orders: half of them all random, half of them with few changes from one thread to another, which
/// finds what needs one of them to sleep for long.
pub(crate) fn check(model: fn(), orders: usize) {
    let times: usize = std::env::var("MODEL_ORDERS").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config.failure_persistence = shuttle::FailurePersistence::None;
        // It takes every order of memory for the strictest; what weaker ones allow is not found here.
        config.silence_warnings = true;
        config
    };
    // Before there is a model that it could be a part of.
    LazyLock::force(&DATASET);
    shuttle::Runner::new(RandomScheduler::new(orders * times), config()).run(model);
    shuttle::Runner::new(PctScheduler::new(3, orders * times), config()).run(model);
}

/// Few nodes, with edges and features.
static DATASET: LazyLock<Arc<Dataset>> = LazyLock::new(|| {
    let (graph, folder) = (sample(), tempdir());
    let path = folder.path().join("graph");
    write(&graph, &path, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    Arc::new(Dataset::open(&path).unwrap())
});

/// What is sampled: some neighbours of papers.
pub(crate) fn plan() -> Plan {
    let task = Task::Nodes { node_type: Some("paper".to_owned()) };
    Plan::new(Config { task, features: vec!["x".to_owned()], ..Config::neighbors(&[2]) }, &DATASET).unwrap()
}

/// A server without sockets.
pub(crate) struct World {
    pub(crate) core: Arc<Core>,
    workers: Vec<JoinHandle<()>>,
}

impl World {
    /// A server with so many workers.
    pub(crate) fn new(workers: usize, lease: Duration, memory: u64) -> Self {
        let budget = Budget::new(memory);
        let core = Arc::new(Core {
            cluster: Cluster::new(Arc::clone(&DATASET), Vec::new(), 0).unwrap(),
            registry: Registry::new(1, lease, 100),
            work: Arc::new(Work::new(workers, Arc::clone(&budget))),
            metrics: Metrics::new(),
            budget,
            limits: Limits { connections: 1, channels: 100, memory, row_cache: 0 },
            connections: AtomicUsize::new(0),
            incarnation: 1,
            threads: workers,
            peer_wait: AN_HOUR,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            unsent: Arc::default(),
        });
        let begin = {
            let core = Arc::downgrade(&core);
            move |turn, memory: &mut crate::work::Memory| {
                if let Some(core) = core.upgrade() {
                    job::begin(&core, turn, memory);
                }
            }
        };
        let workers = if workers == 0 { Vec::new() } else { core.work.start(workers, begin).unwrap() };
        Self { core, workers }
    }

    /// Ends the workers. By then everybody has left, and nothing may be left behind.
    pub(crate) fn end(self) {
        self.core.work.stop();
        for worker in self.workers {
            worker.join().unwrap();
        }
        let core = &self.core;
        assert_eq!(core.work.scheduler(|scheduler| scheduler.running()), 0, "batches are under way");
        assert!(core.registry.channels().is_empty(), "channels are open");
        assert!(core.registry.backends().is_empty(), "backends are open");
        assert_eq!(core.unsent.load(Ordering::Acquire), 0, "frames count as unsent");
        assert_eq!(core.budget.used(), 0, "memory is charged");
    }
}

/// The backend that models share.
pub(crate) fn backend(core: &Core) -> Result<Arc<Backend>, Refusal> {
    block_on(core.registry.backend("run", "key", &json!({}), async { Ok(plan()) }))
}

/// A channel over it, in bounds of some bytes.
pub(crate) fn open(core: &Core, client: ClientId, bytes: u64) -> Result<Arc<Channel>, Refusal> {
    let backend = backend(core)?;
    let seeds = SeedList::all(&DATASET, Some("paper")).unwrap();
    let cutting = Cutting { batch_size: 2, shuffle: true, drop_last: false };
    let cuts = SeedCuts::global(cutting, seeds.len() as u64);
    core.open(client, &backend, Bounds { credits: 8, bytes }, |id| {
        Channel::new(id, Arc::clone(&backend), client, "worker".to_owned(), (Arc::new(seeds), None), cuts)
    })
}

/// The same, by somebody who tries again while a backend is torn down.
pub(crate) fn open_at_last(core: &Core, client: ClientId, bytes: u64) -> Arc<Channel> {
    loop {
        match open(core, client, bytes) {
            Ok(channel) => return channel,
            Err(refusal) if refusal.code == proto::Code::Unavailable => thread::yield_now(),
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

/// A connection of a client.
pub(crate) struct Connection {
    pub(crate) core: Arc<Core>,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) waiting: UnboundedReceiver<Out>,
}

/// What came over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    Batch { epoch: u64, g: u64 },
    Lost,
}

impl Connection {
    pub(crate) fn new(core: &Arc<Core>, slots: bool) -> Self {
        let (outlet, waiting) = Outlet::new(slots, Arc::clone(&core.budget), Arc::clone(&core.unsent));
        Self { core: Arc::clone(core), outlet, waiting }
    }

    /// Asks for batches of an epoch.
    pub(crate) fn ask(&self, channel: u64, epoch: u64, batches: &[u64]) {
        let header = Header { channel, epoch, ..Header::new(Kind::Credit) };
        credits::take(&self.core, &self.outlet, READER, &header, &proto::Credit { g: batches.to_vec() }).unwrap();
    }

    /// Takes what comes, while it is wanted; then the connection ends.
    pub(crate) fn read(self, mut on: impl FnMut(Came) -> bool) {
        let Self { core, outlet, waiting } = self;
        let mut queue = Queue::new(&core, &outlet, waiting);
        loop {
            let out = block_on(queue.next()).unwrap();
            let (epoch, g) = (out.header.epoch, out.header.g);
            let came = match &out.message {
                Message::Batch(_) => Came::Batch { epoch, g },
                Message::Lost(_) => Came::Lost,
                other => panic!("{other:?}"),
            };
            queue.gone();
            if !on(came) {
                return;
            }
        }
    }

    /// The connection ends.
    pub(crate) fn close(self) {
        drop(Queue::new(&self.core, &self.outlet, self.waiting));
    }
}
