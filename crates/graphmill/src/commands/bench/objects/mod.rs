//! `graphmill bench objects`: the object store, as several clients of one server see it.
//!
//! The server is a process of its own; each client is a thread of this one with a connector of its own. Where Redis is installed
//! small objects are measured beside it, too, by clients that are tasks of one thread.

mod beside;

use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use graphmill_objects::{Config, Connector, Key, PutOptions, ServerConfig, Spawn};

use crate::context::Context;
use crate::local::Process;
use crate::terminal::table::{Column, Sheet};
use crate::terminal::{numbers, output};

/// Bytes of small objects.
const SMALL: usize = 1 << 10;
/// Objects of a batch, each of them small.
const BATCH: usize = 200;
/// The most bytes of an object.
const LARGEST: usize = 100 << 20;
/// What the server may hold: two large objects for each of eight clients, and some more.
const BUDGET: u64 = 2 << 30;
/// Starts that are measured; the median counts.
const STARTS: usize = 7;
/// How the clients put.
const ONCE: PutOptions = PutOptions { ttl: None };

/// Measure the object store
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for each figure
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    seconds: f64,

    /// Numbers of clients
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8")]
    clients: Vec<usize>,

    /// Bytes of objects
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1024,1048576,104857600")]
    sizes: Vec<usize>,

    /// A Redis server to measure too: redis://host:port
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How objects travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    SharedMemory,
    Unix,
    Tcp,
    Redis,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared memory",
            Self::Unix => "Unix socket",
            Self::Tcp => "TCP",
            Self::Redis => "Redis",
        }
    }
}

/// What was measured.
#[derive(Debug, serde::Serialize)]
struct Measured {
    /// From nothing to the first object put, when a server must be started.
    cold_start_s: f64,
    rows: Vec<Row>,
    /// The smallest objects beside what `redis-benchmark` shows; none where that is not installed.
    beside_redis: Option<Vec<beside::Row>>,
}

#[derive(Debug, serde::Serialize)]
struct Row {
    transport: Way,
    clients: usize,
    bytes: usize,
    /// Objects in one call.
    batch: usize,
    /// Objects in a second, of all clients.
    put_per_s: f64,
    get_per_s: f64,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    anyhow::ensure!((0.01..=60.0).contains(&args.seconds), "--seconds is {}, expected 0.01 to 60", args.seconds);
    anyhow::ensure!(
        args.clients.iter().all(|clients| (1..=64).contains(clients)),
        "--clients takes numbers from 1 to 64"
    );
    anyhow::ensure!(
        args.sizes.iter().all(|bytes| (1..=LARGEST).contains(bytes)),
        "--sizes takes numbers from 1 to {LARGEST}"
    );
    context.note("cold start");
    let cold_start_s = cold_start()?;
    let folder = tempfile::Builder::new().prefix("graphmill-").tempdir()?;
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let budget = BUDGET.to_string();
    let arguments =
        ["objects", "serve", "--quiet", "--budget", &budget, "--listen", &socket, "--listen", "127.0.0.1:0"];
    // It ends with its connections, and so with this process.
    let arguments = arguments.into_iter().chain(["--linger", "5"]).map(str::to_owned).collect::<Vec<_>>();
    let mut server = Process::start("the object server", &arguments)?;
    let addresses = server.addresses(2)?;
    let mut ways = vec![
        (Way::SharedMemory, Config::at(&addresses[0])),
        (Way::Unix, Config { shared_memory: false, ..Config::at(&addresses[0]) }),
        (Way::Tcp, Config { shared_memory: false, ..Config::at(&addresses[1]) }),
    ];
    ways.extend(args.redis.iter().map(|address| (Way::Redis, Config::at(address))));
    let mut rows = Vec::new();
    // For as long as it is needed.
    let lease = Connector::open(ways[0].1.clone())?;
    for (transport, config) in &ways {
        for &clients in &args.clients {
            for (bytes, batch) in args.sizes.iter().map(|&bytes| (bytes, 1)).chain([(SMALL, BATCH)]) {
                context.note(&format!("{transport:?}, {clients} clients, {batch} x {}", numbers::bytes(bytes as u64)));
                let time = Duration::from_secs_f64(args.seconds);
                let [put_per_s, get_per_s] = measure(config, clients, bytes, batch, time)?;
                rows.push(Row { transport: *transport, clients, bytes, batch, put_per_s, get_per_s });
            }
        }
    }
    let beside_redis = beside::redis(&ways, &args.clients, Duration::from_secs_f64(args.seconds), context)?;
    if beside_redis.is_none() {
        context.note("redis-server and redis-benchmark are not installed (Debian's package is redis-server)");
    }
    lease.close(true)?;
    server.wait()?;
    let measured = Measured { cold_start_s, rows, beside_redis };
    if args.json {
        output::print_json(&measured)?;
    } else {
        output::print(&render(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The time from nothing to the first object put; the median of several.
fn cold_start() -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let folder = tempfile::Builder::new().prefix("graphmill-").tempdir()?;
        let server = ServerConfig { linger: Some(5.0), ..ServerConfig::default() };
        let config = Config {
            spawn: Some(Spawn { server, ..Spawn::default() }),
            ..Config::at(format!("unix:{}", folder.path().join("socket").display()))
        };
        let began = Instant::now();
        let connector = Connector::open(config)?;
        connector.put(&[0; 1024])?;
        times.push(began.elapsed().as_secs_f64());
        connector.close(true)?;
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[STARTS / 2])
}

/// Objects put and got in a second by some clients, each with its own connector and its own objects.
fn measure(config: &Config, clients: usize, bytes: usize, batch: usize, time: Duration) -> anyhow::Result<[f64; 2]> {
    let together = Barrier::new(clients);
    let client = || -> anyhow::Result<[f64; 2]> {
        let connector = Connector::open(config.clone())?;
        let object: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
        let objects = vec![&object[..]; batch];
        let key = connector.new_key()?;
        let mut keys: Vec<Key> = Vec::new();
        together.wait();
        let put = || -> anyhow::Result<Vec<Key>> {
            if batch == 1 {
                connector.set(&key, &[&object], ONCE)?;
                return Ok(Vec::new());
            }
            Ok(connector.put_batch(&objects, ONCE)?.into_iter().collect::<Result<_, _>>()?)
        };
        let put = rate(time, batch, put, |put: Vec<Key>| {
            for key in std::mem::replace(&mut keys, put) {
                connector.evict(&key)?;
            }
            Ok(())
        });
        // All have put what they get.
        together.wait();
        let wanted: Vec<&Key> = if batch == 1 { vec![&key] } else { keys.iter().collect() };
        let get = || -> anyhow::Result<()> {
            if batch == 1 {
                let object = connector.get(&key)?.context("the object is gone")?;
                anyhow::ensure!(object.len() == bytes && object[bytes - 1] == (bytes - 1) as u8, "it is another");
                return Ok(());
            }
            let objects = connector.get_batch(&wanted, Duration::ZERO)?;
            anyhow::ensure!(objects.iter().all(|object| matches!(object, Ok(Some(_)))), "an object is gone");
            Ok(())
        };
        let get = rate(time, batch, get, Ok);
        together.wait();
        for key in wanted {
            connector.evict(key)?;
        }
        Ok([put?, get?])
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let mut sum = [0.0; 2];
        for one in running {
            let rates = one.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            sum.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        }
        Ok(sum)
    })
}

/// How many objects a second a call moves that moves some at a time. What is done after each is not counted.
fn rate<T>(
    time: Duration,
    objects: usize,
    mut call: impl FnMut() -> anyhow::Result<T>,
    mut after: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    after(call()?)?;
    let (mut spent, mut calls) = (Duration::ZERO, 0u64);
    while spent < time {
        let began = Instant::now();
        let moved = call()?;
        spent += began.elapsed();
        calls += 1;
        after(moved)?;
    }
    Ok(numbers::rate(calls * objects as u64, spent))
}

fn render(measured: &Measured) -> String {
    let mut sheet = Sheet::new([
        Column::Text("transport"),
        Column::Number("clients"),
        Column::Number("objects"),
        Column::Number("put/s"),
        Column::Number("get/s"),
        Column::Number("put"),
        Column::Number("get"),
    ]);
    for row in &measured.rows {
        let volume = |rate: f64| format!("{}/s", numbers::bytes((rate * row.bytes as f64) as u64));
        sheet.add([
            row.transport.name().to_owned(),
            row.clients.to_string(),
            format!("{} x {}", row.batch, numbers::bytes(row.bytes as u64)),
            numbers::approximate(row.put_per_s),
            numbers::approximate(row.get_per_s),
            volume(row.put_per_s),
            volume(row.get_per_s),
        ]);
    }
    let cold = format!("cold start to the first put: {:.1} ms", 1000.0 * measured.cold_start_s);
    let beside = measured.beside_redis.as_deref().map(render_beside);
    [sheet.render(), cold].into_iter().chain(beside).collect::<Vec<_>>().join("\n\n")
}

fn render_beside(rows: &[beside::Row]) -> String {
    let mut sheet = Sheet::new([
        Column::Text("beside redis-benchmark"),
        Column::Number("clients"),
        Column::Number("put/s"),
        Column::Number("SET/s"),
        Column::Number("ratio"),
        Column::Number("get/s"),
        Column::Number("GET/s"),
        Column::Number("ratio"),
    ]);
    for row in rows {
        sheet.add([
            format!("{}, {}", row.transport.name(), numbers::bytes(SMALL as u64)),
            row.clients.to_string(),
            numbers::approximate(row.put_per_s),
            numbers::approximate(row.redis_set_per_s),
            format!("{:.2}x", row.put_ratio),
            numbers::approximate(row.get_per_s),
            numbers::approximate(row.redis_get_per_s),
            format!("{:.2}x", row.get_ratio),
        ]);
    }
    sheet.render()
}
