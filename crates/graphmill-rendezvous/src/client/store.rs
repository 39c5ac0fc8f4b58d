//! The key-value store of a round, as its participants have it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use graphmill_wire::proto::store_request::Operation as Asked;
use graphmill_wire::proto::{
    StoreAdd, StoreCall, StoreCompareSet, StoreCount, StoreEntry, StoreKeys, StoreRequest, StoreResponse, StoreSet,
};

use super::{Connection, Error};

/// The key-value store of a round.
#[derive(Debug, Clone)]
pub struct Store {
    connection: Connection,
    run: String,
    round: u64,
    answer: Duration,
    calls: Arc<Calls>,
}

/// What tells calls of a store from each other, so that one that is sent again is done once.
#[derive(Debug)]
struct Calls {
    caller: u64,
    made: AtomicU64,
}

impl Store {
    pub(super) fn new(connection: Connection, run: String, round: u64, answer: Duration) -> Self {
        // The keys of hash maps are as random as the system's randomness, and different each time.
        let caller = RandomState::new().build_hasher().finish();
        Self { connection, run, round, answer, calls: Arc::new(Calls { caller, made: AtomicU64::new(0) }) }
    }

    async fn ask(&self, operation: Asked, within: Duration) -> Result<StoreResponse, Error> {
        let call = StoreCall { caller: self.calls.caller, number: self.calls.made.fetch_add(1, Ordering::Relaxed) };
        let request = StoreRequest {
            run: self.run.clone(),
            round: self.round,
            operation: Some(operation),
            timeout_ms: within.as_millis() as u64,
            call: Some(call),
        };
        let asked = self.connection.ask("use the run's store", within + self.answer, |mut service| {
            let request = request.clone();
            async move { service.store(request).await }
        });
        asked.await
    }

    /// Sets keys.
    ///
    /// # Errors
    /// When there is no room, or no coordinator answers.
    pub async fn set(&self, entries: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        self.ask(Asked::Set(StoreSet { entries: to_entries(entries) }), Duration::ZERO).await.map(drop)
    }

    /// Appends to keys.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub async fn append(&self, entries: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        self.ask(Asked::Append(StoreSet { entries: to_entries(entries) }), Duration::ZERO).await.map(drop)
    }

    /// The values of keys, when all are there.
    ///
    /// # Errors
    /// When they do not come in time, or no coordinator answers.
    pub async fn get(&self, keys: Vec<String>, within: Duration) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.ask(Asked::Get(StoreKeys { keys }), within).await?.values)
    }

    /// Waits until all keys are there.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub async fn wait(&self, keys: Vec<String>, within: Duration) -> Result<(), Error> {
        self.ask(Asked::Wait(StoreKeys { keys }), within).await.map(drop)
    }

    /// Whether all keys are there.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn check(&self, keys: Vec<String>) -> Result<bool, Error> {
        Ok(self.ask(Asked::Check(StoreKeys { keys }), Duration::ZERO).await?.yes)
    }

    /// Adds to the number of a key, and tells the sum.
    ///
    /// # Errors
    /// When the value is no number, or no coordinator answers.
    pub async fn add(&self, key: String, amount: i64) -> Result<i64, Error> {
        Ok(self.ask(Asked::Add(StoreAdd { key, amount }), Duration::ZERO).await?.number)
    }

    /// Sets a key if it has the expected value, and tells the value it has now.
    ///
    /// # Errors
    /// When something is expected of a key that is missing, or no coordinator answers.
    pub async fn compare_set(&self, key: String, expected: Vec<u8>, value: Vec<u8>) -> Result<Vec<u8>, Error> {
        let stored = self.ask(Asked::CompareSet(StoreCompareSet { key, expected, value }), Duration::ZERO).await?;
        Ok(stored.values.into_iter().next().unwrap_or_default())
    }

    /// Removes keys, and tells how many were there.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn delete(&self, keys: Vec<String>) -> Result<i64, Error> {
        Ok(self.ask(Asked::Delete(StoreKeys { keys }), Duration::ZERO).await?.number)
    }

    /// How many keys begin so.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn count(&self, prefix: String) -> Result<i64, Error> {
        Ok(self.ask(Asked::Count(StoreCount { prefix }), Duration::ZERO).await?.number)
    }
}

fn to_entries(entries: Vec<(String, Vec<u8>)>) -> Vec<StoreEntry> {
    entries.into_iter().map(|(key, value)| StoreEntry { key, value }).collect()
}
