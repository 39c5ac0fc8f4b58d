//! Object servers, as a connector reaches them: over frames, with shared memory where it can be.

mod calls;
mod connection;
mod pool;
mod requests;
mod tasks;
mod tray;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use graphmill_net::{Watch, random};
use graphmill_wire::proto;

use crate::backend::Backend;
use crate::config::seconds;
use crate::key::Location;
use crate::process::PerProcess;
use crate::{Config, Entry, Error, Interrupt, Key, Object, ObjectId, Result, ServerInfo, Stat};

use calls::Io;
use connection::Dialing;
pub(crate) use pool::Lent;
use pool::Pool;
pub use tasks::AsyncConnector;

/// The most servers that a connector follows keys to.
const FOLLOWED: usize = 64;
/// Bytes that a second of a deadline is added for.
const BYTES_PER_SECOND: u64 = 16 << 20;

/// The most that is added to a deadline for bytes.
const LONGEST: Duration = Duration::from_secs(3600);

/// A connector's own server, and those that its keys name.
#[derive(Debug)]
pub(crate) struct Servers {
    dialing: Dialing,
    location: Location,
    deadline: Duration,
    put_wait: Duration,
    state: PerProcess<State>,
}

/// What a forked child must have its own of.
#[derive(Debug)]
struct State {
    own: Arc<Pool>,
    followed: Mutex<HashMap<Location, Arc<Pool>>>,
    /// Ids are two numbers: one that this process drew, and one that counts.
    drawn: u64,
    counted: AtomicU64,
}

impl Servers {
    pub(crate) fn new(config: &Config, location: Location) -> Result<Self> {
        let deadline = config.deadline()?;
        let dialing = Dialing {
            token: config.token()?,
            tls: config.tls()?,
            shared_memory: config.shared_memory,
            interrupt: None,
            tray_room: Arc::default(),
        };
        Ok(Self {
            dialing,
            location,
            deadline,
            // The answer must come before the deadline.
            put_wait: seconds("put_wait", config.put_wait)?.min(deadline.mul_f64(0.8)),
            state: PerProcess::default(),
        })
    }

    pub(crate) fn interrupted_by(mut self, interrupt: Option<Interrupt>) -> Self {
        self.dialing.interrupt = interrupt;
        self
    }

    /// Looks for the own server, which must take the connection within a time and answer within another; the connection is
    /// kept.
    pub(crate) fn find(&self, taken: Duration, answered: Duration) -> Result<ServerInfo> {
        self.state().own.find(taken, answered)
    }

    fn state(&self) -> &State {
        self.state.get(|| State {
            own: Pool::new(self.location.clone(), self.dialing.clone()),
            followed: Mutex::default(),
            drawn: random(),
            counted: AtomicU64::new(random()),
        })
    }

    /// The connections to a key's server.
    fn pool(&self, location: &Location) -> Result<Arc<Pool>> {
        let state = self.state();
        if *location == self.location {
            return Ok(Arc::clone(&state.own));
        }
        let refused = |reason: &str| Err(Error::BadKey { text: location.to_string(), reason: reason.to_owned() });
        match location {
            Location::Redis { .. } => return refused("its object is in Redis, and this connector's are not"),
            Location::Tcp { .. } if self.dialing.tls.is_some() => {
                return refused("it leads to plain TCP, and this connector uses TLS");
            }
            Location::Tls { .. } if self.dialing.tls.is_none() => {
                return refused("it leads to a server that uses TLS; say which authority signed its certificate");
            }
            _ => {}
        }
        let mut followed = lock(&state.followed);
        if followed.len() >= FOLLOWED && !followed.contains_key(location) {
            followed.clear();
        }
        let pool =
            followed.entry(location.clone()).or_insert_with(|| Pool::new(location.clone(), self.dialing.clone()));
        Ok(Arc::clone(pool))
    }

    fn new_id(&self) -> ObjectId {
        let state = self.state();
        ObjectId::from_halves(state.drawn, state.counted.fetch_add(1, Ordering::Relaxed))
    }

    /// The time that a call may take which moves so many bytes. A key can claim any number of them.
    fn deadline(&self, bytes: u64) -> Duration {
        self.deadline + Duration::from_millis(bytes / (BYTES_PER_SECOND / 1000)).min(LONGEST)
    }

    /// What a frame says about keeping an object.
    fn head(&self, ttl: Option<Duration>) -> proto::Put {
        // Zero is the server's own time; less than a millisecond is as good as one.
        let ttl_ms = ttl.map_or(0, |ttl| milliseconds(ttl).max(1));
        proto::Put { ttl_ms, wait_ms: milliseconds(self.put_wait), ..proto::Put::default() }
    }

    fn key(&self, id: ObjectId, size: Option<u64>, generation: u64) -> Key {
        Key { id, size, location: self.location.clone(), generation }
    }
}

impl Backend for Servers {
    fn new_key(&self, size: Option<u64>) -> Result<Key> {
        let own = &self.state().own;
        let generation = match own.generation() {
            Some(generation) => generation,
            None => self.find(self.deadline, self.deadline)?.generation,
        };
        Ok(self.key(self.new_id(), size, generation))
    }

    fn put(&self, parts: &[&[u8]], ttl: Option<Duration>, watch: Watch<'_>) -> Result<Key> {
        self.put_call(parts, ttl, watch).in_thread()
    }

    fn set(&self, key: &Key, parts: &[&[u8]], ttl: Option<Duration>) -> Result<()> {
        self.set_call(key, parts, ttl)?.in_thread()
    }

    fn put_batch(&self, objects: &[&[u8]], ttl: Option<Duration>) -> Result<Vec<Result<Key>>> {
        let head = self.head(ttl);
        let ids: Vec<ObjectId> = objects.iter().map(|_| self.new_id()).collect();
        let own = &self.state().own;
        let (generation, results) = own.run("put objects", self.deadline(length(objects)), async |io: &mut Io| {
            let generation = io.generation();
            Ok(Ok((generation, io.put_batch(&ids, generation, head, objects).await?)))
        })?;
        let key = |((result, id), object): ((Result<()>, ObjectId), &&[u8])| {
            result.map(|()| self.key(id, Some(object.len() as u64), generation))
        };
        Ok(results.into_iter().zip(ids).zip(objects).map(key).collect())
    }

    fn get(&self, key: &Key, wait: Duration, watch: Watch<'_>) -> Result<Option<Object>> {
        self.get_call(key, wait, watch)?.in_thread()
    }

    fn get_batch(&self, keys: &[&Key], wait: Duration) -> Result<Vec<Result<Option<Object>>>> {
        let mut results: Vec<Option<Result<Option<Object>>>> = keys.iter().map(|_| None).collect();
        let began = std::time::Instant::now();
        let mut servers: Vec<&Location> = Vec::new();
        for key in keys {
            if !servers.contains(&&key.location) {
                servers.push(&key.location);
            }
        }
        for location in servers {
            let places: Vec<usize> = (0..keys.len()).filter(|&place| keys[place].location == *location).collect();
            let asked: Vec<&Key> = places.iter().map(|&place| keys[place]).collect();
            let bytes = sizes(&asked);
            let wait = wait.saturating_sub(began.elapsed());
            let got = self.pool(location).and_then(|pool| {
                pool.run("get objects", self.deadline(bytes) + wait, async |io: &mut Io| {
                    Ok(Ok(io.get_batch(&pool, &asked, wait).await?))
                })
            });
            match got {
                Ok(got) => places.into_iter().zip(got).for_each(|(place, result)| results[place] = Some(result)),
                Err(error) => places.into_iter().for_each(|place| results[place] = Some(Err(error.clone()))),
            }
        }
        // Every place was filled by its location's turn.
        Ok(results.into_iter().flatten().collect())
    }

    fn exists(&self, key: &Key) -> Result<bool> {
        self.has_call(key)?.in_thread()
    }

    fn evict(&self, key: &Key) -> Result<()> {
        self.evict_call(key)?.in_thread()
    }

    fn stat(&self) -> Result<Stat> {
        self.state().own.run("ask for the state", self.deadline, async |io: &mut Io| {
            let generation = io.generation();
            Ok(io.list(None, 0).await?.map(|listing| stat(generation, listing.stats.unwrap_or_default())))
        })
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<Entry>> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let listing =
            self.state().own.run("list objects", self.deadline, async |io: &mut Io| io.list(after, limit).await)?;
        Ok(listing.entries.iter().map(entry).collect())
    }

    fn stop(&self) -> Result<()> {
        self.state().own.run("stop the server", self.deadline, async |io: &mut Io| io.stop().await)
    }

    fn close(&self) {
        let state = self.state();
        state.own.close();
        lock(&state.followed).clear();
    }
}

fn entry(entry: &proto::ObjectEntry) -> Entry {
    Entry {
        id: ObjectId::from_halves(entry.high, entry.low),
        bytes: entry.bytes,
        age: Some(Duration::from_millis(entry.age_ms)),
        expires: entry.expires_ms.map(Duration::from_millis),
        readers: Some(entry.readers),
    }
}

fn stat(generation: u64, stats: proto::ObjectStats) -> Stat {
    Stat {
        version: stats.version,
        generation,
        uptime_ms: stats.uptime_ms,
        objects: stats.objects,
        used: stats.used,
        budget: stats.budget,
        object_limit: stats.object_limit,
        connections: stats.connections,
        waiting_gets: stats.waiting_gets,
        waiting_puts: stats.waiting_puts,
        puts: stats.puts,
        gets: stats.gets,
        hits: stats.hits,
        refused: stats.refused,
        evicted: stats.evicted,
        expired: stats.expired,
        spawned: stats.spawned,
    }
}

fn length(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// The bytes of all objects whose keys tell theirs. Keys come from anywhere, and may tell anything.
pub(crate) fn sizes(keys: &[&Key]) -> u64 {
    keys.iter().fold(0, |sum: u64, key| sum.saturating_add(key.size.unwrap_or(0)))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
