//! `graphmill rank`: a process that pulls batches and, unless told otherwise, reads every byte of them. The demo and the benchmarks start it; what
//! it prints, an object a line, is for them.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_client::{Batches, ConnectOptions, Loader, Options, Remote, Seeding, Servers, State, Transport};
use graphmill_graph::Split;
use graphmill_sample::{Batch, BatchId, Config, SeedList, SeedOrder};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::context::Context;
use crate::terminal::output;

/// How often it says how far it is.
const TELLING: Duration = Duration::from_millis(200);

/// Pull batches and read them (started by demo and bench)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to pull, as JSON
    #[arg(value_name = "JSON")]
    order: String,
}

/// What a rank is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) servers: Vec<String>,
    pub(crate) transport: TransportName,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    /// Loaders to pull from, a batch of each in turn.
    pub(crate) loaders: Vec<Loading>,
    /// Epochs to pull, or as many as fit into some seconds.
    pub(crate) epochs: Option<u64>,
    pub(crate) seconds: Option<f64>,
    /// Whether to tell of each batch.
    #[serde(default)]
    pub(crate) each: bool,
    /// Whether to leave batches unread.
    #[serde(default)]
    pub(crate) unread: bool,
}

/// A loader of a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Loading {
    pub(crate) config: Config,
    pub(crate) seeds: SeedsName,
    pub(crate) batch_size: usize,
    pub(crate) prefetch: usize,
    pub(crate) shuffle: bool,
    #[serde(default)]
    pub(crate) drop_last: bool,
    #[serde(default)]
    pub(crate) seed_order: SeedOrder,
    /// Batches after which every epoch is left.
    #[serde(default)]
    pub(crate) most: Option<usize>,
    /// Where another rank stood, to go on from there.
    #[serde(default)]
    pub(crate) state: Option<State>,
}

/// How batches come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TransportName {
    /// Over TCP
    Tcp,
    /// Over a Unix socket
    Uds,
    /// In shared memory
    Shm,
}

/// The seeds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SeedsName {
    All,
    Edges,
    Split(String),
    /// The first so many nodes.
    First(u64),
}

/// A batch that a rank has pulled.
#[derive(Debug, Serialize)]
struct Told {
    loader: usize,
    epoch: u64,
    g: u64,
    repeated: bool,
    /// A hash of its bytes.
    digest: u64,
    /// Where the loader stands with it.
    state: State,
}

/// A loader's epoch under way.
struct Running {
    loader: usize,
    batches: Batches,
    /// Batches until it is left.
    left: usize,
}

impl Running {
    fn next(&mut self) -> Option<graphmill_client::Result<Batch>> {
        self.left = self.left.checked_sub(1)?;
        self.batches.next()
    }
}

/// What a rank has pulled so far.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Pulled {
    /// Seconds since the rank began to measure.
    pub(crate) seconds: f64,
    pub(crate) epochs: u64,
    pub(crate) batches: u64,
    pub(crate) total_batches: u64,
    pub(crate) seeds: u64,
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
    pub(crate) bytes: u64,
    /// Seconds in which the rank waited for a batch.
    pub(crate) waited: f64,
    pub(crate) socket_bytes: u64,
    pub(crate) shared_bytes: u64,
    pub(crate) copied_bytes: u64,
    /// A sum over all words of all batches, so that they were read.
    pub(crate) sum: u64,
    /// Whether that was all.
    pub(crate) done: bool,
}

impl Pulled {
    /// What it took to make: bytes, and as much as 64 of them for each edge.
    pub(crate) fn work(&self) -> u64 {
        self.bytes + 64 * self.edges
    }
}

pub(crate) fn run(args: &Args, _: &Context) -> anyhow::Result<ExitCode> {
    let order: Order = serde_json::from_str(&args.order)?;
    end_with_stdin();
    let transport = match order.transport {
        TransportName::Tcp => Transport::Socket,
        TransportName::Uds => Transport::UnixSocket,
        TransportName::Shm => Transport::SharedMemory,
    };
    let worker = format!("rank {}", order.rank);
    let connecting = ConnectOptions { transport, worker, ..ConnectOptions::default() };
    let remote = Remote::connect_to(&Servers::parse(&order.servers)?, connecting)?;
    let loader = |loading| load(&remote, loading, &order);
    let loaders = order.loaders.iter().map(loader).collect::<anyhow::Result<Vec<Loader>>>()?;
    pull(&loaders, &remote, &order)?;
    Ok(ExitCode::SUCCESS)
}

fn load(remote: &Arc<Remote>, loading: &Loading, order: &Order) -> anyhow::Result<Loader> {
    let seeds = match &loading.seeds {
        SeedsName::All => Seeding::All,
        SeedsName::Edges => Seeding::Edges,
        SeedsName::Split(name) => Seeding::Split(name.parse::<Split>()?),
        SeedsName::First(count) => Seeding::Listed(SeedList::All(*count)),
    };
    let options = Options {
        batch_size: loading.batch_size,
        shuffle: loading.shuffle,
        drop_last: loading.drop_last,
        seed_order: loading.seed_order,
        prefetch: loading.prefetch,
        rank: order.rank,
        world_size: order.world_size,
        ..Options::default()
    };
    Ok(Loader::remote(remote, loading.config.clone(), seeds, options)?)
}

/// Ends this process when its standard input does: whoever started it is gone, or has heard enough.
fn end_with_stdin() {
    std::thread::spawn(|| {
        // However it ends, nobody is there any more.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

fn pull(loaders: &[Loader], remote: &Arc<Remote>, order: &Order) -> anyhow::Result<()> {
    let most = |loading: &Loading| loading.most.unwrap_or(usize::MAX);
    let batches: usize = loaders.iter().zip(&order.loaders).map(|(loader, one)| loader.len().min(most(one))).sum();
    let mut pulled = Pulled { total_batches: batches as u64 * order.epochs.unwrap_or(0), ..Pulled::default() };
    let began = Instant::now();
    let mut told = began;
    let out_of_time = || order.seconds.is_some_and(|seconds| began.elapsed().as_secs_f64() > seconds);
    let states = || order.loaders.iter().filter_map(|loading| loading.state.as_ref());
    let mut epoch = states().map(|state| state.epoch).max().unwrap_or(0);
    while order.epochs.is_none_or(|epochs| epoch < epochs) && !out_of_time() && batches > 0 {
        let begin = |(number, (loader, loading)): (usize, (&Loader, &Loading))| {
            let batches = match loading.state.as_ref().filter(|state| state.epoch == epoch) {
                Some(state) => loader.resume(state)?,
                None => loader.epoch(epoch),
            };
            anyhow::Ok(Running { loader: number, batches, left: most(loading) })
        };
        let begun = loaders.iter().zip(&order.loaders).enumerate().map(begin);
        let mut running: Vec<Running> = begun.collect::<anyhow::Result<_>>()?;
        while !running.is_empty() && !out_of_time() {
            let mut failed = None;
            running.retain_mut(|running| {
                let asked = Instant::now();
                match running.next() {
                    None => return false,
                    Some(Err(error)) => failed = Some(error.into()),
                    Some(Ok(batch)) => {
                        pulled.waited += asked.elapsed().as_secs_f64();
                        count(&mut pulled, &batch);
                        if !order.unread {
                            read(&mut pulled, &batch);
                        }
                        failed = order.each.then(|| tell_of(running, &batch).err()).flatten();
                    }
                }
                failed.is_none()
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if pulled.batches <= loaders.len() as u64 || told.elapsed() > TELLING {
                told = Instant::now();
                tell(&mut pulled, remote, began)?;
            }
        }
        epoch += 1;
        pulled.epochs = epoch;
    }
    pulled.done = true;
    tell(&mut pulled, remote, began)
}

fn tell_of(running: &Running, batch: &Batch) -> anyhow::Result<()> {
    let BatchId { epoch, g, repeated } = batch.id();
    let (digest, state) = (xxh3_64(batch.bytes()), running.batches.state());
    let told = Told { loader: running.loader, epoch, g, repeated, digest, state };
    output::print(&serde_json::to_string(&told)?)?;
    Ok(())
}

fn count(pulled: &mut Pulled, batch: &Batch) {
    pulled.batches += 1;
    pulled.seeds += batch.batch_size() as u64;
    pulled.nodes += batch.num_nodes() as u64;
    pulled.edges += batch.num_edges() as u64;
    pulled.bytes += batch.bytes().len() as u64;
}

fn read(pulled: &mut Pulled, batch: &Batch) {
    // The buffer is a multiple of 64 bytes long.
    let (words, _) = batch.bytes().as_chunks::<8>();
    pulled.sum = words.iter().fold(pulled.sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
}

fn tell(pulled: &mut Pulled, remote: &Remote, began: Instant) -> anyhow::Result<()> {
    let traffic = remote.traffic();
    pulled.seconds = began.elapsed().as_secs_f64();
    pulled.socket_bytes = traffic.socket_bytes;
    pulled.shared_bytes = traffic.shared_bytes;
    pulled.copied_bytes = traffic.copied_bytes;
    output::print(&serde_json::to_string(pulled)?)?;
    Ok(())
}
