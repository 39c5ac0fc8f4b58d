//! A bad network: a TCP proxy that does to connections what networks do to them.
//!
//! ```text
//! client --- Proxy --- server
//!     Way::Up ->  <- Way::Down
//! ```
//! A test makes [`Fault`]s happen one by one, or lets a [`Storm`] of them pass over, the same for the same seed. Every buffer is
//! bounded: where bytes are held up, whoever sends them is held up too.

mod carry;
mod storm;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

pub use storm::Storm;

/// The most connections at a time; others are dropped as they come.
const CONNECTIONS: usize = 1024;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

/// What happens to a network, to the connections that there are and to those that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Bytes take so long.
    Latency(Way, Duration),
    /// Bytes are held, in order, until it is mended: what loss looks like above TCP.
    Stall(Way),
    /// Both directions are held, and nobody new gets through.
    Partition,
    /// All connections end at once, with a reset.
    Reset,
    /// One direction of all connections ends, in good order; the other goes on.
    HalfClose(Way),
    /// A bit of about one in so many bytes is wrong.
    Corrupt(Way, u32),
    /// Everything is well again, with the connections that are left.
    Heal,
}

/// What holds for one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Rules {
    latency: Duration,
    stalled: bool,
    /// One byte in so many is wrong; none if it is 0.
    corrupt: u32,
    /// Counts the half-closes.
    ended: u64,
}

/// What holds for all connections.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    up: Rules,
    down: Rules,
    partitioned: bool,
    /// Counts the resets.
    resets: u64,
}

impl Weather {
    fn way(&self, way: Way) -> &Rules {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    fn way_mut(&mut self, way: Way) -> &mut Rules {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    fn holds(&self, way: Way) -> bool {
        self.partitioned || self.way(way).stalled
    }

    fn change(&mut self, fault: Fault) {
        match fault {
            Fault::Latency(way, latency) => self.way_mut(way).latency = latency,
            Fault::Stall(way) => self.way_mut(way).stalled = true,
            Fault::Partition => self.partitioned = true,
            Fault::Reset => self.resets += 1,
            Fault::HalfClose(way) => self.way_mut(way).ended += 1,
            Fault::Corrupt(way, one_in) => self.way_mut(way).corrupt = one_in,
            Fault::Heal => {
                self.partitioned = false;
                for way in [Way::Up, Way::Down] {
                    *self.way_mut(way) = Rules { ended: self.way(way).ended, ..Rules::default() };
                }
            }
        }
    }
}

/// A proxy in front of a server, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    open: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy on a free port of loopback; which bytes are corrupted depends on the seed.
    ///
    /// # Errors
    /// When there is no port or no thread left.
    pub fn start(server: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (weather, rules) = watch::channel(Weather::default());
        let (stop, stopped) = oneshot::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let count = Arc::clone(&open);
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, server, seed, rules, &count) => {}
                }
            });
        })?;
        Ok(Self { address, weather, open, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes something happen.
    pub fn apply(&self, fault: Fault) {
        self.weather.send_modify(|weather| weather.change(fault));
    }

    /// How many connections are carried now.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Lets a storm pass over, on the caller's thread, and mends everything at its end.
    pub fn weather(&self, storm: Storm, lasts: Duration) {
        let end = std::time::Instant::now() + lasts;
        for (fault, pause) in storm {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            self.apply(fault);
            std::thread::sleep(pause.min(left));
        }
        self.apply(Fault::Heal);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    seed: u64,
    weather: watch::Receiver<Weather>,
    open: &Arc<AtomicUsize>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut carried = JoinSet::new();
    let mut number = 0u64;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    // Out of descriptors, most likely; some are given back in a moment.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                if carried.len() >= CONNECTIONS {
                    continue;
                }
                number += 1;
                let (weather, open) = (weather.clone(), Arc::clone(open));
                let seed = storm::mix(seed ^ number);
                carried.spawn(async move {
                    open.fetch_add(1, Ordering::Relaxed);
                    let _ = connect(client, server, seed, weather).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Some(_) = carried.join_next() => {}
        }
    }
}

/// Carries a connection until it ends or is reset.
async fn connect(
    mut client: TcpStream,
    server: SocketAddr,
    seed: u64,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let resets = weather.borrow().resets;
    let mut reset = weather.clone();
    let mut reset = std::pin::pin!(reset.wait_for(|weather| weather.resets != resets));
    // Whoever connects during a partition hears nothing until it is over.
    let reached = async {
        let _ = weather.wait_for(|weather| !weather.partitioned).await;
        TcpStream::connect(server).await
    };
    let mut server = tokio::select! {
        reached = reached => reached?,
        _ = &mut reset => return client.set_zero_linger(),
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let both = async {
            tokio::join!(
                carry::carry(client_reads, server_writes, Way::Up, seed, weather.clone()),
                carry::carry(server_reads, client_writes, Way::Down, !seed, weather.clone()),
            )
        };
        tokio::select! {
            _ = both => return Ok(()),
            _ = reset => {}
        }
    }
    client.set_zero_linger()?;
    server.set_zero_linger()
}

impl FromStr for Fault {
    type Err = String;

    /// `partition`, `stall up`, `latency down 50`, `corrupt up 1000`, ..., `heal`: for programs in other languages.
    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let unknown = || format!("`{line}` is no fault");
        let mut way = || match words.next() {
            Some("up") => Ok(Way::Up),
            Some("down") => Ok(Way::Down),
            _ => Err(unknown()),
        };
        let fault = match name {
            "partition" => Self::Partition,
            "reset" => Self::Reset,
            "heal" => Self::Heal,
            "stall" => Self::Stall(way()?),
            "half-close" => Self::HalfClose(way()?),
            "latency" | "corrupt" => {
                let way = way()?;
                let number = words.next().and_then(|word| word.parse::<u32>().ok()).ok_or_else(unknown)?;
                match name {
                    "latency" => Self::Latency(way, Duration::from_millis(number.into())),
                    _ => Self::Corrupt(way, number),
                }
            }
            _ => return Err(unknown()),
        };
        if words.next().is_some() { Err(unknown()) } else { Ok(fault) }
    }
}
