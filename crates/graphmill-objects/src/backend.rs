//! What keeps objects, as a connector sees it.

use std::fmt::Debug;
use std::time::Duration;

use graphmill_net::Watch;

use crate::{Entry, Key, Object, ObjectId, Result, Stat};

/// A place for objects. Batches have a result for each item, in their order; the outer error is for all of them.
pub(crate) trait Backend: Debug + Send + Sync {
    /// A key that nothing has yet.
    fn new_key(&self, size: Option<u64>) -> Result<Key>;
    /// Keeps the parts, one after the other, under a new key.
    fn put(&self, parts: &[&[u8]], ttl: Option<Duration>, watch: Watch<'_>) -> Result<Key>;
    /// Keeps the parts, one after the other, under a key.
    fn set(&self, key: &Key, parts: &[&[u8]], ttl: Option<Duration>) -> Result<()>;
    /// Keeps each under a new key.
    fn put_batch(&self, objects: &[&[u8]], ttl: Option<Duration>) -> Result<Vec<Result<Key>>>;
    fn get(&self, key: &Key, wait: Duration, watch: Watch<'_>) -> Result<Option<Object>>;
    fn get_batch(&self, keys: &[&Key], wait: Duration) -> Result<Vec<Result<Option<Object>>>>;
    fn exists(&self, key: &Key) -> Result<bool>;
    fn evict(&self, key: &Key) -> Result<()>;
    fn stat(&self) -> Result<Stat>;
    /// Objects in the order of their ids, after one.
    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<Entry>>;
    fn stop(&self) -> Result<()>;
    /// Lets go of all connections.
    fn close(&self);
}
