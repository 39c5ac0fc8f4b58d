//! A process's way to the objects of a server.

use std::time::Duration;

use graphmill_net::Watch;

use crate::backend::Backend;
use crate::key::Location;
use crate::redis::Redis;
use crate::wire::Servers;
use crate::{Config, Entry, Interrupt, Key, Object, ObjectId, Result, Stat, life};

/// The longest that a get waits.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// How an object is put.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutOptions {
    /// How long it lives; as long as the server says if left open.
    pub ttl: Option<Duration>,
}

/// A way to an object server, or to Redis. Any number of threads may use one; calls block the thread that makes them, and each
/// has a deadline. A forked child uses connections of its own.
///
/// While it lives it holds a lease: a server that was started by a connector stays.
#[derive(Debug)]
pub struct Connector {
    config: Config,
    backend: Box<dyn Backend>,
}

impl Connector {
    /// Finds the server of a configuration, or starts it if there is none and the configuration says how. Returns when it
    /// answers.
    ///
    /// # Errors
    /// When nobody answers, or not as expected, or the configuration cannot be right.
    pub fn open(config: Config) -> Result<Self> {
        Self::open_with(config, None)
    }

    /// The same, and whoever waits asks now and then whether to give up. A call to Redis that waits for no object asks when a
    /// signal comes.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(config: Config, interrupt: Option<Interrupt>) -> Result<Self> {
        let backend: Box<dyn Backend> = match config.location()? {
            location @ Location::Redis { .. } => Box::new(Redis::open(&config, location, interrupt)?),
            location => {
                let servers = Servers::new(&config, location)?.interrupted_by(interrupt);
                life::find_or_spawn(&config, &servers)?;
                Box::new(servers)
            }
        };
        Ok(Self { config, backend })
    }

    /// What it was opened with; another process opens the same with it.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Stores bytes under a new key.
    ///
    /// # Errors
    /// When there is no room, it is too large, or the server does not answer.
    pub fn put(&self, object: &[u8]) -> Result<Key> {
        self.put_with(&[object], PutOptions::default())
    }

    /// Stores all parts, one after the other, as one object under a new key.
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn put_with(&self, parts: &[&[u8]], options: PutOptions) -> Result<Key> {
        self.put_watched(parts, options, &|_| {})
    }

    /// The same, telling step by step how many bytes have gone; a few more than the object has, and all at once where they
    /// are not sent in steps.
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn put_watched(&self, parts: &[&[u8]], options: PutOptions, watch: Watch<'_>) -> Result<Key> {
        self.backend.put(parts, options.ttl, watch)
    }

    /// Stores many objects, without waiting for one before sending the next. There is a result for each, in their order.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn put_batch(&self, objects: &[&[u8]], options: PutOptions) -> Result<Vec<Result<Key>>> {
        self.backend.put_batch(objects, options.ttl)
    }

    /// The bytes of an object; nothing if it is not there.
    ///
    /// # Errors
    /// When the server does not answer, or the key cannot be used.
    pub fn get(&self, key: &Key) -> Result<Option<Object>> {
        self.get_waiting(key, Duration::ZERO)
    }

    /// The bytes of an object, for which it waits so long, a day at most; the server sends it when it is set. Nothing if it was not.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub fn get_waiting(&self, key: &Key, wait: Duration) -> Result<Option<Object>> {
        self.get_watched(key, wait, &|_| {})
    }

    /// The same, telling step by step how many bytes have come.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub fn get_watched(&self, key: &Key, wait: Duration, watch: Watch<'_>) -> Result<Option<Object>> {
        self.backend.get(key, wait.min(LONGEST_WAIT), watch)
    }

    /// Many objects, for all of which it waits so long. There is a result for each, in their order.
    ///
    /// # Errors
    /// When a server does not answer.
    pub fn get_batch(&self, keys: &[&Key], wait: Duration) -> Result<Vec<Result<Option<Object>>>> {
        self.backend.get_batch(keys, wait.min(LONGEST_WAIT))
    }

    /// Whether an object is there.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub fn exists(&self, key: &Key) -> Result<bool> {
        self.backend.exists(key)
    }

    /// Forgets an object; whoever has got it keeps it. One that is not there is fine.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub fn evict(&self, key: &Key) -> Result<()> {
        self.backend.evict(key)
    }

    /// A key for an object that will be [`set`](Self::set) later.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn new_key(&self) -> Result<Key> {
        self.backend.new_key(None)
    }

    /// Stores all parts, one after the other, under a key that was made before. If there is an object already it is replaced,
    /// at once and as a whole.
    ///
    /// # Errors
    /// As for [`Self::put`], and when the key is of an earlier start of its server.
    pub fn set(&self, key: &Key, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.backend.set(key, parts, options.ttl)
    }

    /// What the server holds and has done.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn stat(&self) -> Result<Stat> {
        self.backend.stat()
    }

    /// Objects of the server in the order of their ids, up to so many; from the beginning, or after one.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<Entry>> {
        self.backend.list(after, limit)
    }

    /// The key of an object that was listed.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn key_of(&self, entry: &Entry) -> Result<Key> {
        Ok(Key { id: entry.id, ..self.backend.new_key(Some(entry.bytes))? })
    }

    /// Ends the lease, and with `kill_server` also the server, if a connector started it. Connections that a call has under way
    /// end with the call. Calls after this connect again.
    ///
    /// # Errors
    /// When the server should end and does not answer, or was not started by a connector.
    pub fn close(&self, kill_server: bool) -> Result<()> {
        let stopped = if kill_server { self.backend.stop() } else { Ok(()) };
        self.backend.close();
        stopped
    }
}
