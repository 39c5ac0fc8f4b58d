//! The object store for programs that do not block.

use std::time::Duration;

use super::Servers;
use crate::connector::{LONGEST_WAIT, PutOptions};
use crate::{Config, Error, Key, Location, Object, Result, life};

/// A way to an object server whose calls are futures: they go on in the runtime of tokio that awaits them, in which the
/// connector was opened, too. What it does is what [`Connector`](crate::Connector) does; it holds a lease as well. Any number of
/// tasks may use one. Each has a connection for the time of its call, so whoever makes thousands of calls at once should
/// bound them: a server takes 4,096 connections of all its clients. Redis has clients of its own for this.
///
/// Bytes are copied where they are put, which takes some milliseconds for tens of megabytes. A future that is dropped before its end
/// leaves open whether its call was made, and its connection ends.
#[derive(Debug)]
pub struct AsyncConnector {
    servers: Servers,
}

impl AsyncConnector {
    /// Finds the server of a configuration, or starts it if there is none and the configuration says how. Returns when it
    /// answers.
    ///
    /// # Errors
    /// When nobody answers, or not as expected, or the configuration cannot be right.
    ///
    /// # Panics
    /// Outside of a runtime of tokio, or in one without its drivers for input, output and time; all calls do.
    pub async fn open(config: Config) -> Result<Self> {
        // Starting a process takes locks and reads files and pipes, which blocks.
        let finding = tokio::task::spawn_blocking(move || {
            let location = config.location()?;
            if let Location::Redis { .. } = location {
                return Err(Error::config("an asynchronous connector is for object servers; use a client of Redis"));
            }
            let servers = Servers::new(&config, location)?;
            life::find_or_spawn(&config, &servers)?;
            Ok(servers)
        });
        let servers = match finding.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(found) => found?,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => return Err(Error::Interrupted { doing: "connect" }),
        };
        let own = &servers.state().own;
        own.find_in_task(servers.deadline).await?;
        // There is another lease now.
        own.close_blocking();
        Ok(Self { servers })
    }

    /// Stores all parts, one after the other, as one object under a new key.
    ///
    /// # Errors
    /// When there is no room, it is too large, or the server does not answer.
    pub async fn put(&self, parts: &[&[u8]], options: PutOptions) -> Result<Key> {
        self.servers.put_call(parts, options.ttl, &|_| {}).in_task().await
    }

    /// A key for an object that will be [`set`](Self::set) later.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn new_key(&self) -> Result<Key> {
        let own = &self.servers.state().own;
        // A forked child knows nothing of it yet.
        if own.generation().is_none() {
            own.find_in_task(self.servers.deadline).await?;
        }
        Ok(self.servers.key(self.servers.new_id(), None, own.generation().unwrap_or_default()))
    }

    /// Stores all parts, one after the other, under a key that was made before. If there is an object already it is replaced,
    /// at once and as a whole.
    ///
    /// # Errors
    /// As for [`Self::put`], and when the key is of an earlier start of its server.
    pub async fn set(&self, key: &Key, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.servers.set_call(key, parts, options.ttl)?.in_task().await
    }

    /// The bytes of an object, for which it waits so long, a day at most; nothing if it is not there by then.
    ///
    /// # Errors
    /// When the server does not answer, or the key cannot be used.
    pub async fn get(&self, key: &Key, wait: Duration) -> Result<Option<Object>> {
        self.servers.get_call(key, wait.min(LONGEST_WAIT), &|_| {})?.in_task().await
    }

    /// Whether an object is there.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub async fn exists(&self, key: &Key) -> Result<bool> {
        self.servers.has_call(key)?.in_task().await
    }

    /// Forgets an object; whoever has got it keeps it. One that is not there is fine.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub async fn evict(&self, key: &Key) -> Result<()> {
        self.servers.evict_call(key)?.in_task().await
    }
}
