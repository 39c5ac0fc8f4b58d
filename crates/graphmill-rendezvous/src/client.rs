//! A member of a run, as the member's own process has it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use graphmill_net::{ClientTls, Endpoint, Plane, Token};
use graphmill_wire::proto::rendezvous_service_client::RendezvousServiceClient;
use graphmill_wire::proto::store_request::Operation as Asked;
use graphmill_wire::proto::{
    JoinOutcome, JoinRequest, ListRunsRequest, MemberList, MemberRequest, RunRequest, RunStatus, StoreAdd,
    StoreCompareSet, StoreCount, StoreEntry, StoreKeys, StoreRequest, StoreResponse, StoreSet,
};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::service::{member_id, to_wire};
use crate::{Node, Settings, check_run};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// How a coordinator is reached.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// What the coordinator wants to know.
    pub token: Option<Token>,
    /// How the coordinator is told from somebody else.
    pub tls: Option<ClientTls>,
}

/// How long a member waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a round to take part in.
    pub join: Duration,
    /// For the run to be closed.
    pub close: Duration,
    /// For any other answer, a keep-alive among them.
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { join: Duration::from_secs(600), close: Duration::from_secs(30), answer: Duration::from_secs(5) }
    }
}

/// Why a member does not get what it wants.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The run is closed.
    #[error("run `{0}` is closed")]
    Closed(String),
    /// The run is closed, and this member was a spare that was never needed.
    #[error("run `{0}` is closed; this member was a spare")]
    Exit(String),
    /// It took too long.
    #[error("no round of run `{run}` was complete within {within:?}")]
    TimedOut {
        /// The run.
        run: String,
        /// The time that it had.
        within: Duration,
    },
    /// The coordinator has not heard of this member for longer than its lease.
    #[error("the coordinator has not heard of this member of run `{0}` for longer than its lease")]
    Lost(String),
    /// The coordinator cannot be reached.
    #[error("cannot {doing}: no coordinator answers at {at}: {reason}")]
    Unavailable {
        /// What was tried.
        doing: &'static str,
        /// Where.
        at: String,
        /// Why not.
        reason: String,
    },
    /// The coordinator refuses.
    #[error("cannot {doing}: {reason}")]
    Refused {
        /// What was asked.
        doing: &'static str,
        /// Why not.
        reason: String,
    },
    /// The token is missing or wrong.
    #[error("cannot {doing}: {reason}")]
    Denied {
        /// What was asked.
        doing: &'static str,
        /// Why not.
        reason: String,
    },
    /// A value did not come in time.
    #[error("{0}")]
    NoValue(String),
    /// A key is missing.
    #[error("{0}")]
    NoKey(String),
}

type Service = RendezvousServiceClient<InterceptedService<Channel, Credentials>>;

/// A coordinator, or several of which one serves.
#[derive(Debug, Clone)]
pub struct Connection {
    members: Arc<Vec<(Endpoint, Service)>>,
    /// The one that answered last.
    current: Arc<AtomicU32>,
}

#[derive(Debug, Clone)]
struct Credentials(Option<Token>);

impl tonic::service::Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            let value = format!("Bearer {}", token.reveal()).parse();
            let mut value: tonic::metadata::MetadataValue<_> =
                value.map_err(|_| Status::invalid_argument("a token has characters that cannot be sent"))?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl Connection {
    /// Coordinators at addresses; connects when it is used. To be made inside a runtime.
    pub fn new(endpoints: &[Endpoint], options: &ConnectOptions) -> Self {
        let service = |endpoint: &Endpoint| {
            let (address, tls) = (endpoint.clone(), options.tls.clone());
            let connector = tower::service_fn(move |_| {
                let (address, tls) = (address.clone(), tls.clone());
                async move {
                    let stream = graphmill_net::dial(&address, tls.as_ref(), Plane::Control, CONNECT).await?;
                    graphmill_net::Result::Ok(TokioIo::new(stream))
                }
            });
            // A coordinator that is gone without a word is noticed by the keep-alive of the connection.
            let channel = tonic::transport::Endpoint::from_static("http://graphmill")
                .connect_timeout(CONNECT)
                .http2_keep_alive_interval(Duration::from_secs(5))
                .keep_alive_timeout(Duration::from_secs(5))
                .keep_alive_while_idle(true)
                .connect_with_connector_lazy(connector);
            RendezvousServiceClient::with_interceptor(channel, Credentials(options.token.clone()))
        };
        let members = endpoints.iter().map(|endpoint| (endpoint.clone(), service(endpoint))).collect();
        Self { members: Arc::new(members), current: Arc::default() }
    }

    /// Asks until one answers, or the time is over.
    async fn ask<T, F>(
        &self,
        doing: &'static str,
        within: Duration,
        mut call: impl FnMut(Service) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let asked = self.ask_patiently(doing, within, |service, _| call(service));
        if let Ok(answered) = tokio::time::timeout(within, asked).await {
            return answered;
        }
        let at = self.members.iter().map(|(endpoint, _)| endpoint.to_string()).collect::<Vec<_>>().join(", ");
        Err(Error::Unavailable { doing, at, reason: format!("no answer within {within:?}") })
    }

    /// Asks until one answers, however long that takes; only when nobody could be reached for some time, it gives up. What
    /// is asked is told whether it was before.
    async fn ask_patiently<T, F>(
        &self,
        doing: &'static str,
        patience: Duration,
        mut call: impl FnMut(Service, bool) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut out_of_reach = Instant::now();
        let mut asked = false;
        loop {
            let place = self.current.load(Ordering::Relaxed) as usize % self.members.len().max(1);
            let Some((endpoint, service)) = self.members.get(place) else {
                return Err(Error::Refused { doing, reason: "no coordinator was named".to_owned() });
            };
            let began = Instant::now();
            let status = match call(service.clone(), asked).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            asked = true;
            if !matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal) {
                return Err(refused(doing, &status));
            }
            // A call that was held open for a while had reached somebody.
            if began.elapsed() > CONNECT {
                out_of_reach = Instant::now();
            }
            if out_of_reach.elapsed() + PAUSE >= patience {
                return Err(Error::Unavailable { doing, at: endpoint.to_string(), reason: causes(&status) });
            }
            self.current.store((place + 1) as u32, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Where a run stands.
    ///
    /// # Errors
    /// When there is no such run, or nobody answers.
    pub async fn status(&self, run: &str, within: Duration) -> Result<RunStatus, Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("describe the run", within, |mut service| {
            let request = request.clone();
            async move { service.describe_run(request).await }
        })
        .await
    }

    /// The status of a run now, and whenever it changes.
    ///
    /// # Errors
    /// When there is no such run, or nobody answers.
    pub async fn watch(&self, run: &str, within: Duration) -> Result<tonic::Streaming<RunStatus>, Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("watch the run", within, |mut service| {
            let request = request.clone();
            async move { service.watch_run(request).await }
        })
        .await
    }

    /// The runs that are under way.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn runs(&self, within: Duration) -> Result<Vec<String>, Error> {
        let listed =
            self.ask("list the runs", within, |mut service| async move { service.list_runs(ListRunsRequest {}).await });
        Ok(listed.await?.runs)
    }

    /// Ends a run for good.
    ///
    /// # Errors
    /// When there is no such run, or nobody answers.
    pub async fn close(&self, run: &str, within: Duration) -> Result<(), Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("close the run", within, |mut service| {
            let request = request.clone();
            async move { service.close_run(request).await }
        })
        .await?;
        Ok(())
    }
}

/// A member of a run.
#[derive(Debug)]
pub struct Member {
    connection: Connection,
    run: String,
    node: Node,
    settings: Settings,
    timeouts: Timeouts,
    /// Keeps the lease up.
    alive: Mutex<Option<JoinHandle<()>>>,
}

/// A round that a member takes part in.
#[derive(Debug, Clone)]
pub struct Joined {
    /// The round.
    pub round: u64,
    /// The member's rank.
    pub rank: u32,
    /// How many take part.
    pub world_size: u32,
    /// The round's key-value store.
    pub store: Store,
}

impl Member {
    /// A member that has not joined yet.
    ///
    /// # Errors
    /// When the settings make no sense.
    pub fn new(
        connection: Connection,
        run: &str,
        address: &str,
        settings: Settings,
        timeouts: Timeouts,
    ) -> Result<Self, crate::InvalidSettings> {
        // Members of a process are told apart by this.
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        check_run(run)?;
        settings.check()?;
        let node = Node::new(address, std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        Ok(Self { connection, run: run.to_owned(), node, settings, timeouts, alive: Mutex::default() })
    }

    /// Who it is.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Leaves the round that it is in, and waits until it takes part in the next.
    ///
    /// # Errors
    /// When the run is closed, no round was complete in time, or no coordinator answers.
    pub async fn next_rendezvous(&self) -> Result<Joined, Error> {
        self.keep_alive();
        let within = self.timeouts.join;
        let request = |retry| JoinRequest {
            run: self.run.clone(),
            member: Some(member_id(&self.node)),
            settings: Some(to_wire(&self.settings)),
            timeout_ms: within.as_millis() as u64,
            retry,
        };
        // A spare waits for as long as it is one, so the coordinator alone says when time is over.
        let joined = self.connection.ask_patiently("join the run", within, |mut service, again| {
            let request = request(again);
            async move { service.join(request).await }
        });
        let joined = joined.await?;
        match joined.outcome() {
            JoinOutcome::Joined => Ok(Joined {
                round: joined.round,
                rank: joined.rank,
                world_size: joined.world_size,
                store: Store {
                    connection: self.connection.clone(),
                    run: self.run.clone(),
                    round: joined.round,
                    answer: self.timeouts.answer,
                },
            }),
            JoinOutcome::Exit => Err(Error::Exit(self.run.clone())),
            JoinOutcome::TimedOut => Err(Error::TimedOut { run: self.run.clone(), within }),
            JoinOutcome::Lost => Err(Error::Lost(self.run.clone())),
            JoinOutcome::Closed | JoinOutcome::Unspecified => Err(Error::Closed(self.run.clone())),
        }
    }

    /// How many wait for the next round.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn num_nodes_waiting(&self) -> Result<usize, Error> {
        let status = self.status().await?;
        Ok(status.members.iter().filter(|member| member.list() == MemberList::Waiting).count())
    }

    /// Whether the run is closed.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn is_closed(&self) -> Result<bool, Error> {
        Ok(self.status().await?.closed)
    }

    /// Closes the run, for good and for all.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn set_closed(&self) -> Result<(), Error> {
        self.connection.close(&self.run, self.timeouts.close).await
    }

    /// Leaves; the run goes on without this member.
    ///
    /// # Errors
    /// When no coordinator answers; the lease ends all the same.
    pub async fn leave(&self) -> Result<(), Error> {
        self.stop_keeping_alive();
        let request = MemberRequest { run: self.run.clone(), member: Some(member_id(&self.node)) };
        let left = self.connection.ask("leave the run", self.timeouts.answer, |mut service| {
            let request = request.clone();
            async move { service.leave_run(request).await }
        });
        left.await.map(drop)
    }

    /// Closes the run and leaves it; whether that worked.
    pub async fn shutdown(&self) -> bool {
        let closed = self.set_closed().await;
        self.stop_keeping_alive();
        match closed {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(run = self.run, %error, "a run was not closed");
                false
            }
        }
    }

    /// Where the run stands; a run that has no member yet is as good as new.
    async fn status(&self) -> Result<RunStatus, Error> {
        match self.connection.status(&self.run, self.timeouts.answer).await {
            Err(Error::Refused { .. }) => Ok(RunStatus::default()),
            status => status,
        }
    }

    /// Keeps the lease up in the background, from now on.
    fn keep_alive(&self) {
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (connection, interval, answer) = (self.connection.clone(), self.settings.keep_alive, self.timeouts.answer);
        let request = MemberRequest { run: self.run.clone(), member: Some(member_id(&self.node)) };
        *alive = Some(tokio::spawn(async move {
            let mut interval = tokio::time::interval(interval);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            interval.tick().await;
            loop {
                interval.tick().await;
                let kept = connection.ask("keep the lease", answer, |mut service| {
                    let request = request.clone();
                    async move { service.keep_alive(request).await }
                });
                if let Err(error) = kept.await {
                    tracing::warn!(run = request.run, %error, "a lease was not kept up");
                }
            }
        }));
    }

    fn stop_keeping_alive(&self) {
        if let Some(task) = self.alive.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop_keeping_alive();
    }
}

/// The key-value store of a round.
#[derive(Debug, Clone)]
pub struct Store {
    connection: Connection,
    run: String,
    round: u64,
    answer: Duration,
}

impl Store {
    async fn ask(&self, operation: Asked, within: Duration) -> Result<StoreResponse, Error> {
        let request = StoreRequest {
            run: self.run.clone(),
            round: self.round,
            operation: Some(operation),
            timeout_ms: within.as_millis() as u64,
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

fn refused(doing: &'static str, status: &Status) -> Error {
    let reason = status.message().to_owned();
    match status.code() {
        Code::DeadlineExceeded => Error::NoValue(reason),
        Code::FailedPrecondition => Error::NoKey(reason),
        Code::Unauthenticated | Code::PermissionDenied => Error::Denied { doing, reason },
        _ => Error::Refused { doing, reason },
    }
}

/// What the transport says of a coordinator that is not there, down to the reason at the end of the chain.
fn causes(status: &Status) -> String {
    let mut reason = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = inner.source();
    }
    reason
}
