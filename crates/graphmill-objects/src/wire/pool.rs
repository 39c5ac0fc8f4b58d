//! The connections of a process to one server. A call takes one, or opens another, and puts it back; the last one that is kept
//! is the process's lease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_net::forks;

use super::calls::{Io, Step};
use super::connection::{Connection, Dialing};
use super::lock;
use super::requests::Request;
use crate::interrupt::block_on;
use crate::key::Location;
use crate::{Error, Result, ServerInfo};

/// The most connections that are kept for later.
const KEPT: usize = 32;
/// How long it may take to tell the server that memory is not mapped any more.
const RETURN: Duration = Duration::from_secs(1);

/// Connections to a server.
#[derive(Debug)]
pub(crate) struct Pool {
    location: Location,
    dialing: Dialing,
    process: u32,
    idle: Mutex<Idle>,
    /// The server's generation when it was last connected to; 0 before.
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct Idle {
    /// The one that was used last is used next.
    connections: Vec<Connection>,
    /// Those that belong to somebody's runtime.
    in_runtime: Vec<Io>,
    /// Memory that the server is still to be told about.
    returns: Vec<Back>,
    /// Whether a thread is telling it.
    telling: bool,
}

/// Memory that is not mapped any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Back {
    /// The connection that lent it.
    pub(super) lender: u64,
    pub(super) slot: u32,
    /// Whether somebody else may still have it, and it must not be written again.
    pub(super) retired: bool,
}

impl Pool {
    pub(super) fn new(location: Location, dialing: Dialing) -> Arc<Self> {
        Arc::new(Self {
            location,
            // Its own: a forked child has none of its parent's trays.
            dialing: Dialing { tray_room: Arc::default(), ..dialing },
            process: std::process::id(),
            idle: Mutex::default(),
            generation: AtomicU64::new(0),
        })
    }

    /// The server's generation, if it was connected to.
    pub(super) fn generation(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::Relaxed)).filter(|&generation| generation != 0)
    }

    /// Makes a call over some connection, within a time. It is made a second time if a connection that was kept turns out to
    /// be dead; so it must do no harm to make it twice.
    pub(super) fn run<T>(
        &self,
        doing: &'static str,
        within: Duration,
        mut call: impl AsyncFnMut(&mut Io) -> Step<Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            let kept = lock(&self.idle).connections.pop();
            let is_kept = kept.is_some();
            let left = within.saturating_sub(began.elapsed());
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.open(&self.dialing, left, left)?,
            };
            let left = within.saturating_sub(began.elapsed());
            let Connection { runtime, io } = &mut connection;
            let calling = async { tokio::time::timeout(left, call(io)).await };
            let Some(called) = block_on(runtime, self.dialing.interrupt.as_ref(), calling) else {
                return Err(Error::Interrupted { doing });
            };
            match called {
                Ok(Ok(answer)) => {
                    self.put_back(connection, RETURN);
                    return answer;
                }
                // An answer may still come, for nobody: the connection cannot be used again.
                Err(_) => return Err(self.late(doing, within)),
                Ok(Err(error)) => self.broken(doing, is_kept, &error)?,
            }
        }
    }

    /// The same as a part of the runtime that awaits it, over a connection that belongs to that runtime.
    pub(super) async fn run_in_task<R: Request>(
        &self,
        doing: &'static str,
        within: Duration,
        request: &R,
    ) -> Result<R::Answer> {
        let calling = async {
            loop {
                let kept = lock(&self.idle).in_runtime.pop();
                let is_kept = kept.is_some();
                let mut io = match kept {
                    Some(io) => io,
                    None => self.dial(within).await?,
                };
                match request.make(&mut io).await {
                    Ok(answer) => return Ok((answer, io)),
                    Err(error) => self.broken(doing, is_kept, &error)?,
                }
            }
        };
        let called = tokio::time::timeout(within, calling).await;
        let (answer, io) = called.unwrap_or_else(|_| Err(self.late(doing, within)))?;
        self.keep(io).await;
        answer
    }

    /// Connects as a part of the runtime that awaits it, and keeps the connection.
    pub(super) async fn find_in_task(&self, within: Duration) -> Result<()> {
        let dialed = tokio::time::timeout(within, self.dial(within)).await;
        let io = dialed.unwrap_or_else(|_| Err(self.late("connect", within)))?;
        self.keep(io).await;
        Ok(())
    }

    async fn dial(&self, within: Duration) -> Result<Io> {
        let io = self.dialing.dial(&self.location, within).await?;
        self.generation.store(io.generation(), Ordering::Relaxed);
        Ok(io)
    }

    /// Keeps a connection for later, after it told what is to be told.
    async fn keep(&self, mut io: Io) {
        loop {
            let untold = {
                let mut idle = lock(&self.idle);
                if idle.returns.is_empty() {
                    if idle.in_runtime.len() < KEPT {
                        idle.in_runtime.push(io);
                    }
                    return;
                }
                Untold { pool: self, returns: std::mem::take(&mut idle.returns) }
            };
            if !matches!(tokio::time::timeout(RETURN, io.give_back(&untold.returns)).await, Ok(Ok(()))) {
                return;
            }
            untold.told();
        }
    }

    fn late(&self, doing: &'static str, within: Duration) -> Error {
        Error::Timeout { doing, at: self.location.to_string(), within }
    }

    /// Fails with what broke a connection, unless it was kept and only turned out to be dead.
    fn broken(&self, doing: &'static str, is_kept: bool, error: &graphmill_net::Error) -> Result<()> {
        match Error::from_net(doing, &self.location.to_string(), error) {
            Error::Unreachable { .. } if is_kept => Ok(()),
            broken => Err(broken),
        }
    }

    /// Connects; the server must take the connection within a time, and answer within another.
    pub(super) fn find(&self, taken: Duration, answered: Duration) -> Result<ServerInfo> {
        let connection = self.open(&self.dialing, taken, answered)?;
        let info = connection.io.info();
        self.put_back(connection, RETURN);
        Ok(info)
    }

    /// Closes all connections that are not in use.
    pub(super) fn close(&self) {
        self.close_blocking();
        let closed = std::mem::take(&mut lock(&self.idle).in_runtime);
        drop(closed);
    }

    /// Closes those whose calls block.
    pub(super) fn close_blocking(&self) {
        let closed = std::mem::take(&mut lock(&self.idle).connections);
        drop(closed);
    }

    fn open(&self, dialing: &Dialing, taken: Duration, answered: Duration) -> Result<Connection> {
        let connection = Connection::open(&self.location, dialing, taken, answered)?;
        self.generation.store(connection.io.generation(), Ordering::Relaxed);
        Ok(connection)
    }

    /// Keeps a connection for later, after it told what is to be told; says no if it could not within a time.
    fn put_back(&self, mut connection: Connection, within: Duration) -> bool {
        loop {
            let untold = {
                let mut idle = lock(&self.idle);
                if idle.returns.is_empty() {
                    if idle.connections.len() < KEPT {
                        idle.connections.push(connection);
                    }
                    return true;
                }
                Untold { pool: self, returns: std::mem::take(&mut idle.returns) }
            };
            let Connection { runtime, io } = &mut connection;
            let told = runtime.block_on(async { tokio::time::timeout(within, io.give_back(&untold.returns)).await });
            if !matches!(told, Ok(Ok(()))) {
                return false;
            }
            untold.told();
        }
    }

    /// Memory that a connection lent is not mapped any more. The server is told at once, over whichever connection is not in
    /// use: the lender may be waiting for something. Whoever drops an object is not kept waiting for that: what cannot be
    /// sent at once another thread sends.
    fn give_back(self: &Arc<Self>, back: Back) {
        lock(&self.idle).returns.push(back);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // A thread of somebody's runtime cannot run another one.
            let idle = lock(&self.idle).in_runtime.pop();
            if let Some(io) = idle {
                let pool = Arc::clone(self);
                runtime.spawn(async move { pool.keep(io).await });
                return;
            }
        } else {
            let idle = lock(&self.idle).connections.pop();
            if idle.is_some_and(|connection| self.put_back(connection, Duration::ZERO)) {
                return;
            }
        }
        if std::mem::replace(&mut lock(&self.idle).telling, true) {
            return;
        }
        let pool = Arc::clone(self);
        if std::thread::Builder::new().spawn(move || pool.tell_returns()).is_err() {
            // The next call tells it.
            lock(&self.idle).telling = false;
        }
    }

    /// Tells the server all that is to be told, if it listens. What is left is told by the next call, or the next thread.
    fn tell_returns(&self) {
        // Whom an interrupt asks may be gone by now.
        let dialing = Dialing { interrupt: None, ..self.dialing.clone() };
        loop {
            let idle = {
                let mut idle = lock(&self.idle);
                if idle.returns.is_empty() {
                    idle.telling = false;
                    return;
                }
                idle.connections.pop()
            };
            let connection = idle.or_else(|| self.open(&dialing, RETURN, RETURN).ok());
            if !connection.is_some_and(|connection| self.put_back(connection, RETURN)) {
                lock(&self.idle).telling = false;
                return;
            }
        }
    }
}

/// What the server is being told. Half a frame may be on its way when that fails or is given up: the connection is over then, and
/// whoever has the next one tells it. Twice is no harm.
struct Untold<'a> {
    pool: &'a Pool,
    returns: Vec<Back>,
}

impl Untold<'_> {
    fn told(mut self) {
        self.returns.clear();
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if !self.returns.is_empty() {
            lock(&self.pool.idle).returns.append(&mut self.returns);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The parent's: closing them here would disturb it.
            std::mem::forget(std::mem::take(&mut self.idle));
        }
    }
}

/// Memory that a server lent; it is told when this is dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    pool: Arc<Pool>,
    lender: u64,
    /// Taken when it is given back.
    slot: Option<u32>,
    /// How often this process had forked when it was lent, before it was mapped.
    forks: Option<u64>,
}

impl Lent {
    pub(super) fn new(pool: &Arc<Pool>, lender: u64, slot: u32) -> Self {
        Self { pool: Arc::clone(pool), lender, slot: Some(slot), forks: forks() }
    }

    /// Has the server told with the end of the call that is under way. It was never mapped.
    pub(super) fn give_back_with_the_call(mut self) {
        let back = self.slot.take().map(|slot| Back { lender: self.lender, slot, retired: false });
        lock(&self.pool.idle).returns.extend(back);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.filter(|_| self.pool.process == std::process::id()) {
            // After it was unmapped: a fork that comes now has nothing of it.
            let retired = self.forks.is_none() || self.forks != forks();
            self.pool.give_back(Back { lender: self.lender, slot, retired });
        }
    }
}
