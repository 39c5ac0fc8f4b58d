//! What clients have made here: backends, channels, and the leases that both live by.

mod backend;
mod channel;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt, Shared};

use crate::Refusal;
use crate::sync::{Arc, Mutex, lock};

pub(crate) use backend::Backend;
pub(crate) use channel::Channel;

/// A client's own name: 16 random bytes.
pub(crate) type ClientId = [u8; 16];

/// The most backends at once: each holds memory.
const BACKENDS: usize = 1024;
/// How many lost channels are remembered, so that their clients are told, and how many clients that left.
const REMEMBERED: usize = 65_536;

/// All backends, channels and clients.
#[derive(Debug)]
pub(crate) struct Registry {
    /// In the upper half of every channel's number, so that another start of this server knows none of them.
    incarnation: u64,
    lease: Duration,
    /// The most channels at once.
    channels: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    backends: HashMap<(String, String), Entry>,
    channels: HashMap<u64, Arc<Channel>>,
    /// Channels that ended with their client's lease.
    lost: BTreeSet<u64>,
    clients: HashMap<ClientId, Instant>,
    /// Clients that took leave, and when. None of them comes back; what one of them asked for may still arrive.
    departed: HashMap<ClientId, Instant>,
    /// When the last of them was there.
    left: Option<Instant>,
    next_backend: u64,
    next_channel: u64,
}

enum Entry {
    Making(Making),
    Made(Arc<Backend>),
}

type Making = Shared<BoxFuture<'static, Result<Arc<Backend>, Refusal>>>;

/// What a number says of a channel.
#[derive(Debug)]
pub(crate) enum Found {
    /// It is open.
    Open(Arc<Channel>),
    /// Its own client closed it.
    Closed,
    /// Its lease ended, or it belongs to another start of the server.
    Lost,
    /// There never was one.
    Never,
}

impl Registry {
    pub(crate) fn new(incarnation: u64, lease: Duration, channels: usize) -> Self {
        Self { incarnation, lease, channels, inner: Mutex::default() }
    }

    /// The backend of a key: the first who asks makes it, everyone else waits and shares it, or the failure.
    pub(crate) async fn backend(
        &self,
        run: &str,
        key: &str,
        config: &serde_json::Value,
        make: impl Future<Output = Result<graphmill_sample::Plan, Refusal>> + Send + 'static,
    ) -> Result<Arc<Backend>, Refusal> {
        let name = (run.to_owned(), key.to_owned());
        let making = {
            let mut inner = lock(&self.inner);
            match inner.backends.get(&name) {
                Some(Entry::Made(backend)) => {
                    let backend = Arc::clone(backend);
                    backend.check_open()?;
                    backend.check(config)?;
                    backend.touch();
                    return Ok(backend);
                }
                Some(Entry::Making(making)) => making.clone(),
                None if inner.backends.len() >= BACKENDS => {
                    return Err(Refusal::busy(format!(
                        "there are {BACKENDS} backends already, as many as may be; try again when others are closed"
                    )));
                }
                None => {
                    inner.next_backend += 1;
                    let (id, name, config) = (inner.next_backend, name.clone(), config.clone());
                    let making = async move {
                        let plan = make.await?;
                        Ok(Arc::new(Backend::new(id, name.0, name.1, config, plan)))
                    };
                    let making = making.boxed().shared();
                    inner.backends.insert((run.to_owned(), key.to_owned()), Entry::Making(making.clone()));
                    making
                }
            }
        };
        let made = making.clone().await;
        let mut inner = lock(&self.inner);
        // Whoever wakes first puts the result in the place of the making, unless it was taken away meanwhile.
        if let Some(Entry::Making(current)) = inner.backends.get(&name)
            && current.ptr_eq(&making)
        {
            match &made {
                Ok(backend) => inner.backends.insert(name, Entry::Made(Arc::clone(backend))),
                Err(_) => inner.backends.remove(&name),
            };
        }
        drop(inner);
        let backend = made?;
        // Others who waited for it may have used it and closed it already.
        backend.check_open()?;
        backend.check(config)?;
        Ok(backend)
    }

    /// A backend by its number.
    pub(crate) fn backend_by_id(&self, id: u64) -> Result<Arc<Backend>, Refusal> {
        let inner = lock(&self.inner);
        let made = inner.backends.values().find_map(|entry| match entry {
            Entry::Made(backend) if backend.id == id => Some(Arc::clone(backend)),
            _ => None,
        });
        let backend = made.ok_or_else(|| Refusal::unavailable(format!("there is no backend {id}; open it again")))?;
        backend.check_open()?;
        // Its seeds may take a while.
        backend.touch();
        Ok(backend)
    }

    /// Enters a channel of a client, made by `make`, which is given its number.
    ///
    /// # Errors
    /// When its backend was closed meanwhile, its client left, or there are too many.
    pub(crate) fn open(
        &self,
        client: ClientId,
        backend: &Arc<Backend>,
        make: impl FnOnce(u64) -> Channel,
    ) -> Result<Arc<Channel>, Refusal> {
        let mut inner = lock(&self.inner);
        if inner.departed.contains_key(&client) {
            return Err(Refusal::invalid("this client has taken leave; connect again"));
        }
        if inner.channels.len() >= self.channels {
            return Err(Refusal::busy(format!(
                "there are {} channels already, as many as may be (--max-channels); try again when others are closed, or \
                 another server",
                self.channels
            )));
        }
        if !backend.add_channel() {
            return Err(Refusal::unavailable(format!("backend {} was closed; open it again", backend.id)));
        }
        inner.next_channel += 1;
        let id = self.incarnation << 32 | inner.next_channel;
        let channel = Arc::new(make(id));
        inner.clients.insert(client, Instant::now());
        inner.channels.insert(id, Arc::clone(&channel));
        Ok(channel)
    }

    /// What a number says.
    pub(crate) fn find(&self, id: u64) -> Found {
        let inner = lock(&self.inner);
        if let Some(channel) = inner.channels.get(&id) {
            return Found::Open(Arc::clone(channel));
        }
        if id >> 32 != self.incarnation & 0xffff_ffff || inner.lost.contains(&id) {
            return Found::Lost;
        }
        if (1..=inner.next_channel).contains(&(id & 0xffff_ffff)) { Found::Closed } else { Found::Never }
    }

    /// Takes a channel out, and its backend with the last of them. Says whether it was there.
    pub(crate) fn close(&self, id: u64) -> Option<Arc<Channel>> {
        let mut inner = lock(&self.inner);
        let channel = inner.channels.remove(&id)?;
        inner.leave_backend(&channel.backend);
        Some(channel)
    }

    /// A batch of a backend ended; a backend that only waited for it is forgotten.
    pub(crate) fn batch_ended(&self, backend: &Arc<Backend>) {
        if backend.batch_ended() {
            lock(&self.inner).forget(backend);
        }
    }

    /// A client gave a sign of life.
    pub(crate) fn renew(&self, client: ClientId) {
        let mut inner = lock(&self.inner);
        if !inner.departed.contains_key(&client) {
            inner.clients.insert(client, Instant::now());
        }
    }

    /// Whether a client has a lease.
    pub(crate) fn knows(&self, client: ClientId) -> bool {
        lock(&self.inner).clients.contains_key(&client)
    }

    /// Ends a client's lease: its channels, which are handed back to be cancelled, are gone.
    pub(crate) fn leave(&self, client: ClientId) -> Vec<Arc<Channel>> {
        let mut inner = lock(&self.inner);
        if inner.clients.remove(&client).is_some() {
            inner.left = Some(Instant::now());
        }
        if inner.departed.len() < REMEMBERED {
            inner.departed.insert(client, Instant::now());
        }
        inner.end(&[client], false)
    }

    /// Ends the leases of all clients that were silent for too long, and backends that nobody has used for as long.
    pub(crate) fn sweep(&self) -> (Vec<ClientId>, Vec<Arc<Channel>>) {
        let mut inner = lock(&self.inner);
        let silent = |seen: &Instant| seen.elapsed() > self.lease;
        let gone: Vec<ClientId> = inner.clients.iter().filter(|(_, seen)| silent(seen)).map(|(id, _)| *id).collect();
        for client in &gone {
            inner.clients.remove(client);
            inner.left = Some(Instant::now());
        }
        inner.departed.retain(|_, left| !silent(left));
        let channels = inner.end(&gone, true);
        inner.backends.retain(|_, entry| match entry {
            Entry::Made(backend) => !backend.close_unused(self.lease),
            // Nobody waits for it any more but this list.
            Entry::Making(making) => making.strong_count().is_some_and(|count| count > 1),
        });
        (gone, channels)
    }

    pub(crate) fn backends(&self) -> Vec<Arc<Backend>> {
        let made = |entry: &Entry| match entry {
            Entry::Made(backend) => Some(Arc::clone(backend)),
            Entry::Making(_) => None,
        };
        let mut backends: Vec<_> = lock(&self.inner).backends.values().filter_map(made).collect();
        backends.sort_by_key(|backend| backend.id);
        backends
    }

    pub(crate) fn channels(&self) -> Vec<Arc<Channel>> {
        let mut channels: Vec<_> = lock(&self.inner).channels.values().cloned().collect();
        channels.sort_by_key(|channel| channel.id);
        channels
    }

    pub(crate) fn clients(&self) -> usize {
        lock(&self.inner).clients.len()
    }

    /// For how long there were no clients any more; nothing while there are some, or before the first.
    pub(crate) fn deserted(&self) -> Option<Duration> {
        let inner = lock(&self.inner);
        if inner.clients.is_empty() { inner.left.map(|left| left.elapsed()) } else { None }
    }
}

impl Inner {
    fn end(&mut self, clients: &[ClientId], lost: bool) -> Vec<Arc<Channel>> {
        let theirs = |channel: &&Arc<Channel>| clients.contains(&channel.client);
        let ended: Vec<Arc<Channel>> = self.channels.values().filter(theirs).cloned().collect();
        for channel in &ended {
            self.channels.remove(&channel.id);
            self.leave_backend(&channel.backend);
            if lost {
                self.lost.insert(channel.id);
            }
        }
        while self.lost.len() > REMEMBERED {
            self.lost.pop_first();
        }
        ended
    }

    fn leave_backend(&mut self, backend: &Arc<Backend>) {
        if backend.remove_channel() {
            self.forget(backend);
        }
    }

    fn forget(&mut self, backend: &Arc<Backend>) {
        let name = (backend.run.clone(), backend.key.clone());
        if let Some(Entry::Made(current)) = self.backends.get(&name)
            && Arc::ptr_eq(current, backend)
        {
            self.backends.remove(&name);
            tracing::info!(backend = backend.id, key = backend.key, "backend closed");
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Making(_) => f.write_str("Making"),
            Self::Made(backend) => backend.fmt(f),
        }
    }
}
