//! The coordinator over gRPC.

use std::sync::Arc;
use std::time::Duration;

use graphmill_net::Token;
use graphmill_wire::proto::rendezvous_service_server::{RendezvousService, RendezvousServiceServer};
use graphmill_wire::proto::store_request::Operation as Asked;
use graphmill_wire::proto::{
    CloseRunRequest, CloseRunResponse, JoinOutcome, JoinRequest, JoinResponse, KeepAliveResponse, LeaveRunResponse,
    ListRunsRequest, ListRunsResponse, MemberId, MemberList, MemberRequest, RegisterServerRequest,
    RegisterServerResponse, RemoveServerRequest, RemoveServerResponse, RenewServerRequest, RenewServerResponse,
    RunGlance, RunMember, RunRequest, RunSettings, RunStatus, StorageStatus, StoreCall, StoreEntry, StoreRequest,
    StoreResponse,
};
use tokio_stream::Stream;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status};

use crate::calls::Call;
use crate::machine::Outcome;
use crate::task::Glance;
use crate::values::ValueError;
use crate::{Coordinator, Node, Operation, Refused, Settings, storage};

/// The largest request: a store's worth of values, and their keys.
const LARGEST: usize = 4 << 20;

/// The service of a coordinator; only who has the token may call it.
pub fn service(coordinator: Arc<Coordinator>, token: Option<Token>) -> GuardedService {
    let service = RendezvousServiceServer::new(Service { coordinator }).max_decoding_message_size(LARGEST);
    InterceptedService::new(service, Guard { token })
}

/// The service behind its guard.
pub type GuardedService = InterceptedService<RendezvousServiceServer<Service>, Guard>;

/// Lets in who has the token.
#[derive(Debug, Clone)]
pub struct Guard {
    token: Option<Token>,
}

impl tonic::service::Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(token) = &self.token else { return Ok(request) };
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        if token.matches(given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()) {
            return Ok(request);
        }
        Err(Status::unauthenticated("the token is missing or wrong; give both sides the same one"))
    }
}

/// Answers calls.
#[derive(Debug)]
pub struct Service {
    coordinator: Arc<Coordinator>,
}

#[tonic::async_trait]
impl RendezvousService for Service {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let JoinRequest { run, member, settings, timeout_ms, retry, told } = request.into_inner();
        let settings = settings.ok_or_else(|| Status::invalid_argument("a join needs the run's settings"))?;
        let within = Duration::from_millis(timeout_ms);
        let (member, settings) = (node(member)?, from_wire(&settings));
        let outcome = if retry {
            self.coordinator.join_again(&run, member, settings, within, told).await?
        } else {
            self.coordinator.join(&run, member, settings, within).await?
        };
        let (outcome, round, rank, world_size) = match outcome {
            Outcome::Joined { round, rank, world_size } => (JoinOutcome::Joined, round, rank, world_size),
            Outcome::Exit => (JoinOutcome::Exit, 0, 0, 0),
            Outcome::Closed => (JoinOutcome::Closed, 0, 0, 0),
            Outcome::TimedOut => (JoinOutcome::TimedOut, 0, 0, 0),
            Outcome::Lost => (JoinOutcome::Lost, 0, 0, 0),
        };
        Ok(Response::new(JoinResponse { outcome: outcome.into(), round, rank, world_size }))
    }

    async fn keep_alive(&self, request: Request<MemberRequest>) -> Result<Response<KeepAliveResponse>, Status> {
        let MemberRequest { run, member } = request.into_inner();
        let known = self.coordinator.keep_alive(&run, node(member)?).await?;
        Ok(Response::new(KeepAliveResponse { known }))
    }

    async fn leave_run(&self, request: Request<MemberRequest>) -> Result<Response<LeaveRunResponse>, Status> {
        let MemberRequest { run, member } = request.into_inner();
        self.coordinator.leave(&run, node(member)?).await?;
        Ok(Response::new(LeaveRunResponse {}))
    }

    async fn close_run(&self, request: Request<CloseRunRequest>) -> Result<Response<CloseRunResponse>, Status> {
        let CloseRunRequest { run, settings } = request.into_inner();
        self.coordinator.close(&run, settings.as_ref().map(from_wire)).await?;
        Ok(Response::new(CloseRunResponse {}))
    }

    async fn glance_at_run(&self, request: Request<MemberRequest>) -> Result<Response<RunGlance>, Status> {
        let MemberRequest { run, member } = request.into_inner();
        let Glance { closed, waiting, known } = self.coordinator.glance(&run, node(member)?).await?;
        Ok(Response::new(RunGlance { closed, waiting: waiting as u64, known }))
    }

    async fn describe_run(&self, request: Request<RunRequest>) -> Result<Response<RunStatus>, Status> {
        let run = request.into_inner().run;
        let status = self.coordinator.status(&run).await?;
        Ok(Response::new(to_status(&run, &status)))
    }

    type WatchRunStream = std::pin::Pin<Box<dyn Stream<Item = Result<RunStatus, Status>> + Send>>;

    async fn watch_run(&self, request: Request<RunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let run = request.into_inner().run;
        let changes = self.coordinator.changes(&run).await?;
        let ask = async |coordinator: Arc<Coordinator>, run: String| {
            coordinator.status(&run).await.map(|status| to_status(&run, &status))
        };
        Ok(Response::new(Box::pin(watching(Arc::clone(&self.coordinator), run, changes, ask))))
    }

    async fn list_runs(&self, _: Request<ListRunsRequest>) -> Result<Response<ListRunsResponse>, Status> {
        Ok(Response::new(ListRunsResponse { runs: self.coordinator.runs() }))
    }

    async fn store(&self, request: Request<StoreRequest>) -> Result<Response<StoreResponse>, Status> {
        let StoreRequest { run, round, operation, timeout_ms, call } = request.into_inner();
        let within = Duration::from_millis(timeout_ms);
        let entries = |entries: Vec<StoreEntry>| entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let operation = match operation.ok_or_else(|| Status::invalid_argument("nothing is asked of the store"))? {
            Asked::Set(set) => Operation::Set(entries(set.entries)),
            Asked::Append(set) => Operation::Append(entries(set.entries)),
            Asked::Get(keys) => Operation::Get(keys.keys, within),
            Asked::Wait(keys) => Operation::Wait(keys.keys, within),
            Asked::Check(keys) => Operation::Check(keys.keys),
            Asked::Add(add) => Operation::Add(add.key, add.amount),
            Asked::CompareSet(set) => Operation::CompareSet(set.key, set.expected, set.value),
            Asked::Delete(keys) => Operation::Delete(keys.keys),
            Asked::Count(count) => Operation::Count(count.prefix),
        };
        let stored = match call {
            Some(StoreCall { caller, number }) => {
                self.coordinator.store_once(&run, round, operation, Call { caller, number }).await?
            }
            None => self.coordinator.store(&run, round, operation).await?,
        };
        Ok(Response::new(StoreResponse { values: stored.values, number: stored.number, yes: stored.yes }))
    }

    async fn register_server(
        &self,
        request: Request<RegisterServerRequest>,
    ) -> Result<Response<RegisterServerResponse>, Status> {
        let mut request = request.into_inner();
        let run = std::mem::take(&mut request.run);
        let assigned = self.coordinator.register_server(&run, storage::arrival(request)?).await?;
        Ok(Response::new(RegisterServerResponse { assigned: assigned.into_iter().collect() }))
    }

    async fn renew_server(
        &self,
        request: Request<RenewServerRequest>,
    ) -> Result<Response<RenewServerResponse>, Status> {
        let RenewServerRequest { run, address, incarnation, serving } = request.into_inner();
        let serving = storage::partitions(serving)?;
        let known = self.coordinator.renew_server(&run, address, incarnation, serving).await?;
        Ok(Response::new(RenewServerResponse { known }))
    }

    async fn remove_server(
        &self,
        request: Request<RemoveServerRequest>,
    ) -> Result<Response<RemoveServerResponse>, Status> {
        let RemoveServerRequest { run, address, incarnation } = request.into_inner();
        self.coordinator.remove_server(&run, address, incarnation).await?;
        Ok(Response::new(RemoveServerResponse {}))
    }

    async fn describe_storage(&self, request: Request<RunRequest>) -> Result<Response<StorageStatus>, Status> {
        let run = request.into_inner().run;
        let status = self.coordinator.storage(&run).await?;
        Ok(Response::new(storage::to_status(&run, status)))
    }

    type WatchStorageStream = std::pin::Pin<Box<dyn Stream<Item = Result<StorageStatus, Status>> + Send>>;

    async fn watch_storage(&self, request: Request<RunRequest>) -> Result<Response<Self::WatchStorageStream>, Status> {
        let run = request.into_inner().run;
        let changes = self.coordinator.storage_changes(&run).await?;
        let ask = async |coordinator: Arc<Coordinator>, run: String| {
            coordinator.storage(&run).await.map(|status| storage::to_status(&run, status))
        };
        Ok(Response::new(Box::pin(watching(Arc::clone(&self.coordinator), run, changes, ask))))
    }
}

/// A stream of what a run's task tells: now, and whenever it changes. It ends with the task.
fn watching<T, F>(
    coordinator: Arc<Coordinator>,
    run: String,
    changes: tokio::sync::watch::Receiver<u64>,
    ask: impl Fn(Arc<Coordinator>, String) -> F + Send + 'static,
) -> impl Stream<Item = Result<T, Status>> + Send
where
    F: Future<Output = Result<T, Refused>> + Send,
    T: Send,
{
    let state = (true, changes, run, coordinator, ask);
    futures_util::stream::unfold(state, |(first, mut changes, run, coordinator, ask)| async move {
        if !first {
            changes.changed().await.ok()?;
        }
        let told = ask(Arc::clone(&coordinator), run.clone()).await.map_err(Status::from);
        Some((told, (false, changes, run, coordinator, ask)))
    })
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let reason = refused.to_string();
        match refused {
            Refused::Unknown(_) => Self::not_found(reason),
            Refused::Over(_) => Self::aborted(reason),
            Refused::Exhausted(_) | Refused::Value(ValueError::Full(_)) => Self::resource_exhausted(reason),
            Refused::Value(ValueError::Missing(_)) => Self::failed_precondition(reason),
            Refused::Invalid(_) | Refused::Value(_) => Self::invalid_argument(reason),
            Refused::TimedOut(_) => Self::deadline_exceeded(reason),
            Refused::Standby(_) | Refused::Unkept(_) => Self::unavailable(reason),
        }
    }
}

fn node(member: Option<MemberId>) -> Result<Node, Status> {
    let MemberId { address, process, counter } =
        member.ok_or_else(|| Status::invalid_argument("the member is missing"))?;
    Ok(Node { address, process, counter })
}

fn from_wire(settings: &RunSettings) -> Settings {
    Settings {
        min: settings.min,
        max: settings.max,
        last_call: Duration::from_millis(settings.last_call_ms),
        keep_alive: Duration::from_millis(settings.keep_alive_ms),
        missed: settings.missed,
        stable_ranks: settings.stable_ranks,
        expected: settings.expected,
    }
}

/// Settings as they travel.
pub(crate) fn to_wire(settings: &Settings) -> RunSettings {
    RunSettings {
        min: settings.min,
        max: settings.max,
        last_call_ms: settings.last_call.as_millis() as u64,
        keep_alive_ms: settings.keep_alive.as_millis() as u64,
        missed: settings.missed,
        stable_ranks: settings.stable_ranks,
        expected: settings.expected,
    }
}

/// A member as it travels.
pub(crate) fn member_id(node: &Node) -> MemberId {
    MemberId { address: node.address.clone(), process: node.process, counter: node.counter }
}

fn to_status(run: &str, status: &crate::Status) -> RunStatus {
    let state = &status.state;
    let member = |node: &Arc<Node>, list: MemberList, rank: Option<u32>| RunMember {
        member: Some(member_id(node)),
        list: list.into(),
        rank,
        age_ms: status.ages.get(node).map_or(0, |age| age.as_millis() as u64),
    };
    let participants = state.participants.iter().map(|(node, rank)| member(node, MemberList::Participant, *rank));
    let waiting = state.waiting.iter().map(|node| member(node, MemberList::Waiting, None));
    let spares = state.redundant.iter().map(|node| member(node, MemberList::Spare, None));
    RunStatus {
        run: run.to_owned(),
        settings: Some(to_wire(&status.settings)),
        round: state.round,
        complete: state.complete,
        closed: state.closed,
        last_call_ms: status.last_call.map(|left| left.as_millis() as u64),
        members: participants.chain(waiting).chain(spares).collect(),
        values: status.values.0 as u64,
        value_bytes: status.values.1 as u64,
    }
}
