//! What can be asked of a server in both ways: by a thread that waits, and as a part of somebody's runtime.

use std::sync::Arc;
use std::time::Duration;

use graphmill_net::Watch;
use graphmill_wire::proto;

use super::calls::{Io, Step};
use super::pool::Pool;
use super::{Servers, length, milliseconds};
use crate::{Key, Object, ObjectId, Result};

/// A request, which does no harm if it is made twice.
pub(super) trait Request: Sync {
    type Answer: Send;

    fn make(&self, io: &mut Io) -> impl Future<Output = Step<Result<Self::Answer>>> + Send;
}

/// A request on its way to a server.
pub(super) struct Call<R> {
    pool: Arc<Pool>,
    doing: &'static str,
    within: Duration,
    request: R,
}

impl<R: Request> Call<R> {
    /// Makes it in this thread, which waits.
    pub(super) fn in_thread(self) -> Result<R::Answer> {
        self.pool.run(self.doing, self.within, async |io: &mut Io| self.request.make(io).await)
    }

    /// Makes it as a part of the runtime that awaits it.
    pub(super) async fn in_task(self) -> Result<R::Answer> {
        self.pool.run_in_task(self.doing, self.within, &self.request).await
    }
}

impl Servers {
    pub(super) fn put_call<'a>(
        &'a self,
        parts: &'a [&'a [u8]],
        ttl: Option<Duration>,
        watch: Watch<'a>,
    ) -> Call<Put<'a>> {
        let request = Put { servers: self, id: self.new_id(), head: self.head(ttl), parts, watch };
        let within = self.deadline(length(parts));
        Call { pool: Arc::clone(&self.state().own), doing: "put an object", within, request }
    }

    pub(super) fn set_call<'a>(
        &self,
        key: &'a Key,
        parts: &'a [&'a [u8]],
        ttl: Option<Duration>,
    ) -> Result<Call<Set<'a>>> {
        let request = Set { key, head: self.head(ttl), parts };
        let within = self.deadline(length(parts));
        Ok(Call { pool: self.pool(&key.location)?, doing: "set an object", within, request })
    }

    pub(super) fn get_call<'a>(&self, key: &'a Key, wait: Duration, watch: Watch<'a>) -> Result<Call<Get<'a>>> {
        let pool = self.pool(&key.location)?;
        let request = Get { pool: Arc::clone(&pool), key, wait_ms: milliseconds(wait), watch };
        let within = self.deadline(key.size.unwrap_or(0)) + wait;
        Ok(Call { pool, doing: "get an object", within, request })
    }

    pub(super) fn has_call<'a>(&self, key: &'a Key) -> Result<Call<Has<'a>>> {
        let pool = self.pool(&key.location)?;
        Ok(Call { pool, doing: "look for an object", within: self.deadline, request: Has(key) })
    }

    pub(super) fn evict_call<'a>(&self, key: &'a Key) -> Result<Call<Evict<'a>>> {
        let pool = self.pool(&key.location)?;
        Ok(Call { pool, doing: "evict an object", within: self.deadline, request: Evict(key) })
    }
}

pub(super) struct Put<'a> {
    servers: &'a Servers,
    id: ObjectId,
    head: proto::Put,
    parts: &'a [&'a [u8]],
    watch: Watch<'a>,
}

impl Request for Put<'_> {
    type Answer = Key;

    async fn make(&self, io: &mut Io) -> Step<Result<Key>> {
        let generation = io.generation();
        let put = io.put(self.id, generation, self.head, self.parts, self.watch).await?;
        Ok(put.map(|()| self.servers.key(self.id, Some(length(self.parts)), generation)))
    }
}

pub(super) struct Set<'a> {
    key: &'a Key,
    head: proto::Put,
    parts: &'a [&'a [u8]],
}

impl Request for Set<'_> {
    type Answer = ();

    async fn make(&self, io: &mut Io) -> Step<Result<()>> {
        io.put(self.key.id, self.key.generation, self.head, self.parts, &|_| {}).await
    }
}

pub(super) struct Get<'a> {
    pool: Arc<Pool>,
    key: &'a Key,
    wait_ms: u64,
    watch: Watch<'a>,
}

impl Request for Get<'_> {
    type Answer = Option<Object>;

    async fn make(&self, io: &mut Io) -> Step<Result<Option<Object>>> {
        io.get(&self.pool, self.key, self.wait_ms, self.watch).await
    }
}

pub(super) struct Has<'a>(&'a Key);

impl Request for Has<'_> {
    type Answer = bool;

    async fn make(&self, io: &mut Io) -> Step<Result<bool>> {
        io.has(self.0).await
    }
}

pub(super) struct Evict<'a>(&'a Key);

impl Request for Evict<'_> {
    type Answer = ();

    async fn make(&self, io: &mut Io) -> Step<Result<()>> {
        io.evict(self.0).await
    }
}
