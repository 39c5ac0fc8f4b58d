//! Objects in a Redis server, which keeps them in its own way: `docs/objects.md`, "Transports".

use std::collections::BTreeSet;
use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_net::{Watch, random};
use redis::{
    Client, Cmd, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, Pipeline, RedisError, RedisResult,
};

use crate::backend::Backend;
use crate::key::Location;
use crate::process::PerProcess;
use crate::wire::{lock, sizes};
use crate::{Config, Entry, Error, Interrupt, Key, Object, ObjectId, Result, Stat};

/// What the names of objects begin with.
const PREFIX: &str = "graphmill:";
/// The most bytes that Redis takes for one value, unless it was configured otherwise.
const LIMIT: u64 = 512 << 20;
/// The shortest time that a socket can be told to wait: zero would be for ever.
const SHORTEST: Duration = Duration::from_millis(1);
/// The most connections that are kept for later.
const KEPT: usize = 32;
/// How long it may take until it is noticed that a wait is to end.
const SLICE: Duration = Duration::from_millis(100);
/// Bytes that a second of a deadline is added for.
const BYTES_PER_SECOND: u64 = 16 << 20;

/// Where the objects of a Redis address are. The password, if it has one, is left out.
pub(crate) fn location(address: &str) -> Result<Location> {
    let wrong = |reason: &str| Error::config(format!("the address of Redis cannot be used: {reason}"));
    let info = address.into_connection_info().map_err(|error| wrong(error.category()))?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else { return Err(wrong("give redis://HOST:PORT")) };
    let database = u32::try_from(info.redis_settings().db()).map_err(|_| wrong("there is no such database"))?;
    // A host in brackets is written without them, as in other locations.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Location::Redis { host, port: *port, database })
}

/// A Redis server.
#[derive(Debug)]
pub(crate) struct Redis {
    client: Client,
    location: Location,
    deadline: Duration,
    interrupt: Option<Interrupt>,
    state: PerProcess<State>,
}

/// What a forked child must have its own of.
struct State {
    idle: Mutex<Vec<Connection>>,
    drawn: u64,
    counted: AtomicU64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl Redis {
    pub(crate) fn open(config: &Config, location: Location, interrupt: Option<Interrupt>) -> Result<Self> {
        if config.spawn.is_some() {
            return Err(Error::config("a Redis server is not started by a connector: leave spawn out"));
        }
        let mut info =
            config.address.as_str().into_connection_info().map_err(|error| Error::config(error.category()))?;
        if let Some(token) = config.token()? {
            let settings = info.redis_settings().clone().set_password(token.reveal());
            info = info.set_redis_settings(settings);
        }
        let client = Client::open(info).map_err(|error| Error::config(error.category()))?;
        let redis = Self { client, location, deadline: config.deadline()?, interrupt, state: PerProcess::default() };
        redis.run("connect", 0, |connection| redis::cmd("PING").query::<String>(connection))?;
        Ok(redis)
    }

    /// Makes a call over some connection. It is made again if a connection that was kept turns out to be dead, or a signal came
    /// that is not to end it; so it must do no harm to make it twice.
    fn run<T>(
        &self,
        doing: &'static str,
        bytes: u64,
        mut call: impl FnMut(&mut Connection) -> RedisResult<T>,
    ) -> Result<T> {
        let within = self.deadline + Duration::from_millis(bytes / (BYTES_PER_SECOND / 1000));
        let (state, began) = (self.state(), Instant::now());
        let left = || within.saturating_sub(began.elapsed());
        loop {
            let kept = lock(&state.idle).pop();
            let is_kept = kept.is_some();
            let opened = kept.map_or_else(|| self.client.get_connection_with_timeout(left().max(SHORTEST)), Ok);
            let called = opened.and_then(|mut connection| {
                limit(&connection, left())?;
                let answer = call(&mut connection);
                let sound = answer.as_ref().err().is_none_or(|error| !error.is_io_error());
                if sound {
                    let mut idle = lock(&state.idle);
                    if idle.len() < KEPT {
                        idle.push(connection);
                    }
                }
                answer
            });
            match called {
                Err(error) if is_interrupted(&error) && !left().is_zero() => self.ask(doing)?,
                Err(error) if is_kept && error.is_io_error() && !error.is_timeout() => {}
                called => return called.map_err(|error| self.error(doing, within, &error)),
            }
        }
    }

    /// Fails if the caller's own program wants to end what is being done.
    fn ask(&self, doing: &'static str) -> Result<()> {
        if self.interrupt.as_ref().is_some_and(Interrupt::asks) { Err(Error::Interrupted { doing }) } else { Ok(()) }
    }

    fn error(&self, doing: &'static str, within: Duration, error: &RedisError) -> Error {
        let at = self.location.to_string();
        let reason = error.detail().map_or_else(|| error.category().to_owned(), str::to_owned);
        match (error.kind(), error.code()) {
            (ErrorKind::Io, _) if error.is_timeout() => Error::Timeout { doing, at, within },
            (ErrorKind::Io, _) => Error::Unreachable { doing, at, reason: error.to_string() },
            (_, Some("OOM")) => Error::OverBudget(reason),
            (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
                Error::Denied { doing, at, reason }
            }
            _ => Error::Refused { doing, at, reason },
        }
    }

    fn state(&self) -> &State {
        self.state.get(|| State { idle: Mutex::default(), drawn: random(), counted: AtomicU64::new(random()) })
    }

    fn key(&self, size: Option<u64>) -> Key {
        let state = self.state();
        let id = ObjectId::from_halves(state.drawn, state.counted.fetch_add(1, Ordering::Relaxed));
        Key { id, size, location: self.location.clone(), generation: 0 }
    }

    /// Refuses a key of another place: there is one server that this connector knows how to reach.
    fn check(&self, key: &Key) -> Result<()> {
        if key.location == self.location {
            return Ok(());
        }
        let reason = format!("this connector's objects are at {}", self.location);
        Err(Error::BadKey { text: key.to_string(), reason })
    }

    fn fits(&self, bytes: u64) -> Result<()> {
        if bytes > LIMIT {
            return Err(Error::TooLarge { bytes, limit: LIMIT, at: self.location.to_string() });
        }
        Ok(())
    }

    /// Waits until an object is announced, and gets it.
    fn wait(&self, key: &Key, wait: Duration) -> Result<Option<Object>> {
        const DOING: &str = "wait for an object";
        let until = Instant::now() + wait;
        loop {
            match self.listen(DOING, key, until) {
                Ok(done) => return done,
                Err(error) if is_interrupted(&error) => self.ask(DOING)?,
                Err(error) => return Err(self.error(DOING, self.deadline, &error)),
            }
        }
    }

    /// The outer result says whether the connection could go on.
    fn listen(&self, doing: &'static str, key: &Key, until: Instant) -> RedisResult<Result<Option<Object>>> {
        let began = Instant::now();
        let mut connection = self.client.get_connection_with_timeout(self.deadline)?;
        limit(&connection, self.deadline.saturating_sub(began.elapsed()))?;
        let mut announced = connection.as_pubsub();
        announced.subscribe(name(key.id))?;
        loop {
            // It may have been set before anyone listened.
            match self.get(key, Duration::ZERO, &|_| {}) {
                Ok(None) => {}
                found => return Ok(found),
            }
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Ok(None));
                }
                announced.set_read_timeout(Some(left.clamp(SHORTEST, SLICE)))?;
                match announced.get_message() {
                    Ok(_) => break,
                    Err(error) if error.is_timeout() => {
                        if let Err(interrupted) = self.ask(doing) {
                            return Ok(Err(interrupted));
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

impl Backend for Redis {
    fn new_key(&self, size: Option<u64>) -> Result<Key> {
        Ok(self.key(size))
    }

    fn put(&self, parts: &[&[u8]], ttl: Option<Duration>, watch: Watch<'_>) -> Result<Key> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let key = self.key(Some(bytes));
        self.set(&key, parts, ttl)?;
        watch(bytes);
        Ok(key)
    }

    fn set(&self, key: &Key, parts: &[&[u8]], ttl: Option<Duration>) -> Result<()> {
        const DOING: &str = "put an object";
        self.check(key)?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.fits(bytes)?;
        let joined: Vec<u8>;
        let object = match parts {
            [object] => object,
            parts => {
                joined = parts.concat();
                &joined[..]
            }
        };
        let mut both = Pipeline::new();
        both.add_command(set(key.id, object, ttl));
        both.cmd("PUBLISH").arg(name(key.id)).arg("").ignore();
        both.ignore_errors();
        let answers: Vec<RedisResult<()>> = self.run(DOING, bytes, |connection| both.query(connection))?;
        answers.into_iter().collect::<RedisResult<()>>().map_err(|error| self.error(DOING, self.deadline, &error))
    }

    fn put_batch(&self, objects: &[&[u8]], ttl: Option<Duration>) -> Result<Vec<Result<Key>>> {
        let bytes = objects.iter().map(|object| object.len() as u64).sum();
        let mut all = Pipeline::new();
        let keys: Vec<Result<Key>> = objects
            .iter()
            .map(|object| {
                self.fits(object.len() as u64)?;
                let key = self.key(Some(object.len() as u64));
                all.add_command(set(key.id, object, ttl));
                Ok(key)
            })
            .collect();
        all.ignore_errors();
        let answers: Vec<RedisResult<()>> = if all.is_empty() {
            Vec::new()
        } else {
            self.run("put objects", bytes, |connection| all.query(connection))?
        };
        let mut answers = answers.into_iter();
        let answered = |key: Result<Key>| {
            let key = key?;
            match answers.next() {
                Some(Err(error)) => Err(self.error("put an object", self.deadline, &error)),
                _ => Ok(key),
            }
        };
        Ok(keys.into_iter().map(answered).collect())
    }

    fn get(&self, key: &Key, wait: Duration, watch: Watch<'_>) -> Result<Option<Object>> {
        self.check(key)?;
        let get = Cmd::get(name(key.id));
        let found: Option<Vec<u8>> =
            self.run("get an object", key.size.unwrap_or(0), |connection| get.query(connection))?;
        match found {
            Some(bytes) => {
                watch(bytes.len() as u64);
                Ok(Some(Object::heap(bytes)))
            }
            None if wait.is_zero() => Ok(None),
            None => self.wait(key, wait),
        }
    }

    fn get_batch(&self, keys: &[&Key], wait: Duration) -> Result<Vec<Result<Option<Object>>>> {
        let checked: Vec<Result<()>> = keys.iter().map(|key| self.check(key)).collect();
        let bytes = sizes(keys);
        let mut all = Pipeline::new();
        keys.iter().zip(&checked).filter(|(_, sound)| sound.is_ok()).for_each(|(key, _)| {
            all.get(name(key.id));
        });
        let found: Vec<Option<Vec<u8>>> = if all.is_empty() {
            Vec::new()
        } else {
            self.run("get objects", bytes, |connection| all.query(connection))?
        };
        let (mut found, until) = (found.into_iter(), Instant::now() + wait);
        let mut results = Vec::with_capacity(keys.len());
        for (key, sound) in keys.iter().zip(checked) {
            results.push(match sound.map(|()| found.next().flatten()) {
                Err(error) => Err(error),
                Ok(Some(bytes)) => Ok(Some(Object::heap(bytes))),
                Ok(None) => match until.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => Ok(None),
                    left => self.wait(key, left),
                },
            });
        }
        Ok(results)
    }

    fn exists(&self, key: &Key) -> Result<bool> {
        self.check(key)?;
        self.run("look for an object", 0, |connection| Cmd::exists(name(key.id)).query(connection))
    }

    fn evict(&self, key: &Key) -> Result<()> {
        self.check(key)?;
        self.run("evict an object", 0, |connection| Cmd::del(name(key.id)).exec(connection))
    }

    fn stat(&self) -> Result<Stat> {
        let (info, objects): (String, u64) =
            self.run("ask for the state", 0, |connection| redis::pipe().cmd("INFO").cmd("DBSIZE").query(connection))?;
        let text = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().to_owned()
        };
        let number = |name: &str| text(name).parse().unwrap_or(0);
        Ok(Stat {
            version: format!("redis {}", text("redis_version")),
            uptime_ms: 1000 * number("uptime_in_seconds"),
            objects,
            used: number("used_memory"),
            budget: number("maxmemory"),
            object_limit: LIMIT,
            connections: number("connected_clients"),
            evicted: number("evicted_keys"),
            expired: number("expired_keys"),
            ..Stat::default()
        })
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<Entry>> {
        const DOING: &str = "list objects";
        let mut ids = BTreeSet::new();
        let mut cursor = 0u64;
        loop {
            let (next, names): (u64, Vec<String>) = self.run(DOING, 0, |connection| {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*")).arg("COUNT").arg(1000).query(connection)
            })?;
            let found = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse::<ObjectId>().ok());
            ids.extend(found.filter(|id| after.is_none_or(|after| *id > after)));
            while ids.len() > limit {
                ids.pop_last();
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let mut all = Pipeline::new();
        for id in &ids {
            all.cmd("STRLEN").arg(name(*id)).cmd("PTTL").arg(name(*id));
        }
        let numbers: Vec<i64> = if ids.is_empty() { Vec::new() } else { self.run(DOING, 0, |to| all.query(to))? };
        let entry = |(id, numbers): (&ObjectId, &[i64; 2])| Entry {
            id: *id,
            bytes: u64::try_from(numbers[0]).unwrap_or(0),
            age: None,
            expires: u64::try_from(numbers[1]).ok().map(Duration::from_millis),
            readers: None,
        };
        Ok(ids.iter().zip(numbers.as_chunks::<2>().0).map(entry).collect())
    }

    fn stop(&self) -> Result<()> {
        Err(Error::refused(
            "stop the server",
            &self.location.to_string(),
            "a Redis server is not a connector's to stop",
        ))
    }

    fn close(&self) {
        lock(&self.state().idle).clear();
    }
}

/// What an object is called in Redis, and what is told when it is set.
fn name(id: ObjectId) -> String {
    format!("{PREFIX}{id}")
}

fn set(id: ObjectId, object: &[u8], ttl: Option<Duration>) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(name(id)).arg(object);
    if let Some(ttl) = ttl {
        set.arg("PX").arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2));
    }
    set
}

/// Whether a signal came.
fn is_interrupted(error: &RedisError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::Interrupted)
}

fn limit(connection: &Connection, within: Duration) -> RedisResult<()> {
    let within = Some(within.max(SHORTEST));
    connection.set_read_timeout(within)?;
    connection.set_write_timeout(within)
}
