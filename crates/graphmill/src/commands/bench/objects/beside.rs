//! Small objects beside Redis, as its own `redis-benchmark` measures it: the same bytes, the same number of clients, each with a
//! connection of its own and one request at a time, all in one thread.
//!
//! In rounds, in each of which both are measured one right after the other: what else the machine does meets both.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use graphmill_objects::{AsyncConnector, Config, Key};
use tokio::task::JoinSet;

use super::{ONCE, SMALL, Way};
use crate::context::Context;
use crate::terminal::numbers;

const SERVER: &str = "redis-server";
const CLIENT: &str = "redis-benchmark";
/// Rounds, of whose rates the medians count.
const ROUNDS: usize = 3;
/// How long Redis may take to listen.
const LISTENING: Duration = Duration::from_secs(10);
/// Requests that tell how many are to be measured.
const FIRST: u64 = 5000;

/// What both do, in objects a second of all clients.
#[derive(Debug, serde::Serialize)]
pub(super) struct Row {
    pub(super) transport: Way,
    pub(super) clients: usize,
    pub(super) put_per_s: f64,
    pub(super) redis_set_per_s: f64,
    pub(super) put_ratio: f64,
    pub(super) get_per_s: f64,
    pub(super) redis_get_per_s: f64,
    pub(super) get_ratio: f64,
}

/// Measures both over each way, for so long in all; nothing where Redis is not installed.
pub(super) fn redis(
    ways: &[(Way, Config)],
    clients: &[usize],
    time: Duration,
    context: &Context,
) -> anyhow::Result<Option<Vec<Row>>> {
    let Some(redis) = Redis::start()? else { return Ok(None) };
    let mut rows = Vec::new();
    for (transport, config) in ways.iter().filter(|(way, _)| matches!(way, Way::Unix | Way::Tcp)) {
        for &clients in clients {
            context.note(&format!("{transport:?}, {clients} clients, beside {CLIENT}"));
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let part = time / ROUNDS as u32;
                let [put, get] = measure(config, clients, part)?;
                rounds.push([
                    put,
                    redis.rate(*transport, "set", clients, part)?,
                    get,
                    redis.rate(*transport, "get", clients, part)?,
                ]);
            }
            let [put_per_s, redis_set_per_s, get_per_s, redis_get_per_s] =
                [0, 1, 2, 3].map(|place| median(rounds.iter().map(|round| round[place])));
            rows.push(Row {
                transport: *transport,
                clients,
                put_per_s,
                redis_set_per_s,
                put_ratio: median(rounds.iter().map(|round| round[0] / round[1])),
                get_per_s,
                redis_get_per_s,
                get_ratio: median(rounds.iter().map(|round| round[2] / round[3])),
            });
        }
    }
    Ok(Some(rows))
}

/// Objects put and got in a second by some clients that are tasks of one thread.
fn measure(config: &Config, clients: usize, time: Duration) -> anyhow::Result<[f64; 2]> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connectors = Vec::new();
        for _ in 0..clients {
            let connector = AsyncConnector::open(config.clone()).await?;
            connectors.push((connector.new_key().await?, connector));
        }
        let connectors = Arc::new(connectors);
        let object: Arc<[u8]> = (0..SMALL).map(|place| place as u8).collect();
        let put = together(&connectors, time, move |connectors, client| {
            let object = Arc::clone(&object);
            async move {
                let (key, connector) = &connectors[client];
                Ok(connector.set(key, &[&object], ONCE).await?)
            }
        });
        let put = put.await?;
        let get = together(&connectors, time, |connectors, client| async move {
            let (key, connector) = &connectors[client];
            let object = connector.get(key, Duration::ZERO).await?.context("the object is gone")?;
            anyhow::ensure!(object.len() == SMALL && object[SMALL - 1] == (SMALL - 1) as u8, "it is another");
            Ok(())
        });
        let get = get.await?;
        for (key, connector) in &*connectors {
            connector.evict(key).await?;
        }
        Ok([put, get])
    })
}

type Connectors = Arc<Vec<(Key, AsyncConnector)>>;

/// How many calls all clients make in a second, each one after the other.
async fn together<F: Future<Output = anyhow::Result<()>> + Send + 'static>(
    connectors: &Connectors,
    time: Duration,
    call: impl Fn(Connectors, usize) -> F + Clone + Send + 'static,
) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..connectors.len() {
        let (connectors, call) = (Arc::clone(connectors), call.clone());
        clients.spawn(async move {
            let mut calls = 0u64;
            while began.elapsed() < time {
                call(Arc::clone(&connectors), client).await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(client) = clients.join_next().await {
        calls += client??;
    }
    Ok(numbers::rate(calls, began.elapsed()))
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A Redis server, which ends with this.
struct Redis {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Redis {
    /// Starts one, if it is installed with its benchmark.
    fn start() -> anyhow::Result<Option<Self>> {
        let is_here = |program| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_here(SERVER) || !is_here(CLIENT) {
            return Ok(None);
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = tempfile::Builder::new().prefix("graphmill-").tempdir()?;
        let child = Command::new(SERVER)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(folder.path().join("socket"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {SERVER}"))?;
        let mut redis = Self { child, port, folder };
        let deadline = Instant::now() + LISTENING;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = redis.child.try_wait()?;
            anyhow::ensure!(ended.is_none() && Instant::now() < deadline, "{SERVER} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(redis))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Requests of a kind in a second.
    fn rate(&self, way: Way, what: &str, clients: usize, time: Duration) -> anyhow::Result<f64> {
        let first = self.run(way, what, clients, FIRST)?;
        self.run(way, what, clients, (first * time.as_secs_f64()).max(FIRST as f64) as u64)
    }

    fn run(&self, way: Way, what: &str, clients: usize, requests: u64) -> anyhow::Result<f64> {
        let mut command = Command::new(CLIENT);
        match way {
            Way::Unix => command.arg("-s").arg(self.socket()),
            _ => command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]),
        };
        command.args(["-c", &clients.to_string(), "-d", &SMALL.to_string(), "-n", &requests.to_string()]);
        let output = command.args(["-P", "1", "-t", what, "--csv"]).stderr(Stdio::null()).output()?;
        parse(&String::from_utf8_lossy(&output.stdout)).with_context(|| format!("{CLIENT} did not say how many"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rate in what `redis-benchmark --csv` prints about one test: perhaps a line of names, then a line of quoted numbers.
fn parse(printed: &str) -> Option<f64> {
    let fields = printed.lines().last()?.split(',').map(|field| field.trim_matches('"'));
    fields.skip(1).find_map(|field| field.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_old_and_new_benchmarks_print() {
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"84745.77\",\"0.100\"\n";
        assert_eq!(parse(new), Some(84745.77));
        assert_eq!(parse("\"GET\",\"71942.45\"\n"), Some(71942.45));
        assert_eq!((parse(""), parse("Could not connect to Redis")), (None, None));
    }

    #[test]
    fn the_middle_one_counts() {
        assert!((median([3.0, 100.0, 1.0].into_iter()) - 3.0).abs() < 1e-9);
    }
}
