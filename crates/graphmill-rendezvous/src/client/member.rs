//! A member of a run, as the member's own process has it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use graphmill_wire::proto::{JoinOutcome, JoinRequest, JoinResponse, MemberRequest, RunGlance};
use tokio::task::JoinHandle;

use super::connection::PAUSE;
use super::master::{Master, free_port};
use super::{Connection, Error, Store};
use crate::lease::Lease;
use crate::service::{member_id, to_wire};
use crate::{InvalidSettings, Node, Settings, check_run};

/// The time in which a member that could not join takes leave.
const FAREWELL: Duration = Duration::from_secs(1);

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

impl Timeouts {
    /// # Errors
    /// When there is no time for something.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let Self { join, close, answer } = *self;
        let least = Duration::from_millis(1);
        for (what, time) in [("join", join), ("close", close), ("answer", answer)] {
            if time < least {
                return Err(InvalidSettings::new(format!("the time to {what} is {time:?}, expected 1 ms or more")));
            }
        }
        Ok(())
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { join: Duration::from_secs(600), close: Duration::from_secs(30), answer: Duration::from_secs(5) }
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
    lease: Arc<Lease>,
    /// Held by the call that is joining.
    joining: tokio::sync::Mutex<()>,
    /// The last round that it was told of.
    told: Mutex<Option<u64>>,
    /// Signs of life that were answered.
    heartbeats: Arc<AtomicU64>,
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
    /// How rank 0 is reached.
    pub master: Master,
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
    ) -> Result<Self, InvalidSettings> {
        // Members of a process are told apart by this.
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        check_run(run)?;
        settings.check()?;
        let node = Node::new(address, std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        timeouts.check()?;
        let lease = Arc::new(Lease::new(settings.lease()));
        Ok(Self {
            connection,
            run: run.to_owned(),
            node,
            settings,
            timeouts,
            lease,
            joining: tokio::sync::Mutex::default(),
            told: Mutex::default(),
            heartbeats: Arc::default(),
            alive: Mutex::default(),
        })
    }

    /// Who it is.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Leaves the round that it is in, and waits until it takes part in the next. If it has rank 0, a port that is free now is told
    /// to all. Whoever gets an error, or drops this, is in no round.
    ///
    /// # Errors
    /// When the run is closed, no round was complete in time, no coordinator answers, or another call is joining.
    pub async fn next_rendezvous(&self) -> Result<Joined, Error> {
        self.next_rendezvous_hosted(self.timeouts.join, || std::future::ready(free_port())).await
    }

    /// The same within a time, and with a port that is asked for when it has rank 0.
    ///
    /// # Errors
    /// As for [`Self::next_rendezvous`], and when there is no port.
    pub async fn next_rendezvous_hosted<F>(
        &self,
        within: Duration,
        host: impl FnMut() -> F + Send,
    ) -> Result<Joined, Error>
    where
        F: Future<Output = Result<u16, Error>> + Send,
    {
        let _joining = self.joining.try_lock().map_err(|_| Error::Joining(self.run.clone()))?;
        self.keep_alive();
        let mut unless_joined = StopKeepingAlive(Some(self));
        let joined = self.join_and_meet(within, host).await;
        if joined.is_ok() {
            unless_joined.0 = None;
            return joined;
        }
        drop(unless_joined);
        // Others are not to count on it until its lease ends; if nobody hears this, they do.
        if let Err(error) = self.say_goodbye(FAREWELL.min(self.timeouts.answer)).await {
            tracing::debug!(run = self.run, %error, "a member that could not join has not taken leave");
        }
        joined
    }

    /// Joins rounds until there is one whose rank 0 says how it is reached.
    async fn join_and_meet<F>(&self, within: Duration, mut host: impl FnMut() -> F + Send) -> Result<Joined, Error>
    where
        F: Future<Output = Result<u16, Error>> + Send,
    {
        let (mut deadline, mut left) = (Instant::now() + within, within);
        loop {
            let (round, rank, world_size) = self.join_until(left).await?;
            // Only a spare takes longer, and has all its time again.
            if deadline <= Instant::now() {
                deadline = Instant::now() + within;
            }
            let store = Store::new(self.connection.clone(), self.run.clone(), round, self.timeouts.answer);
            if rank == 0 {
                Master { address: self.node.address.clone(), port: host().await? }.publish(&store).await?;
            }
            // Who does not hear of rank 0 for so long has lost it, and there will be another round.
            let patience = self.settings.lease() + self.timeouts.answer;
            left = deadline.saturating_duration_since(Instant::now()).max(self.timeouts.answer);
            if let Some(master) = Master::read(&store, patience.min(left)).await? {
                if !self.is_kept_alive() {
                    return Err(Error::Left(self.run.clone()));
                }
                return Ok(Joined { round, rank, world_size, store, master });
            }
            left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::NoMaster { run: self.run.clone(), round });
            }
        }
    }

    /// The round that it takes part in, its rank, and how many do.
    async fn join_until(&self, within: Duration) -> Result<(u64, u32, u32), Error> {
        let began = Instant::now();
        let mut left = within;
        loop {
            let joined = self.join(left).await?;
            match joined.outcome() {
                JoinOutcome::Joined => return Ok((joined.round, joined.rank, joined.world_size)),
                JoinOutcome::Lost if !self.is_kept_alive() => return Err(Error::Left(self.run.clone())),
                // It was cut off for longer than its lease, and is back: the others do not know it any more.
                JoinOutcome::Lost if began.elapsed() + PAUSE < within => {
                    left = within.saturating_sub(began.elapsed());
                }
                JoinOutcome::Lost => return Err(Error::Lost(self.run.clone())),
                JoinOutcome::Exit => return Err(Error::Exit(self.run.clone())),
                JoinOutcome::TimedOut => return Err(Error::TimedOut { run: self.run.clone(), within }),
                JoinOutcome::Closed | JoinOutcome::Unspecified => return Err(Error::Closed(self.run.clone())),
            }
        }
    }

    /// Joins once, within a time; how that ended.
    async fn join(&self, within: Duration) -> Result<JoinResponse, Error> {
        let request = |retry| JoinRequest {
            run: self.run.clone(),
            member: Some(member_id(&self.node)),
            settings: Some(to_wire(&self.settings)),
            timeout_ms: (within.as_millis() as u64).max(1),
            retry,
            told: *self.told.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let asked = Instant::now();
        // A spare waits for as long as it is one, so the coordinator alone says when time is over. Keep-alives tell that it is
        // there.
        let silence = within.max(self.settings.keep_alive + self.timeouts.answer);
        let joined = self.connection.ask_patiently("join the run", within, silence, |mut service, again| {
            let request = request(again);
            async move { service.join(request).await }
        });
        let joined = joined.await?;
        if joined.outcome() == JoinOutcome::Joined {
            self.lease.begin(asked);
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(joined.round);
        } else {
            self.lease.end();
        }
        Ok(joined)
    }

    /// Whether this member must take itself for dead: it has not been heard of for as long as its lease, or was told that nobody
    /// knows it. The round that it was in goes on without it; only joining again helps.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// How many of its signs of life were answered.
    pub fn heartbeats(&self) -> u64 {
        self.heartbeats.load(Ordering::Relaxed)
    }

    /// How many wait for the next round. A member that was taken for dead counts itself: it is in no round, and can only join
    /// the next.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn num_nodes_waiting(&self) -> Result<usize, Error> {
        let RunGlance { waiting, known, .. } = self.glance().await?;
        Ok(waiting as usize + usize::from(self.lease.is_held() && !known))
    }

    /// Whether the run is closed.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn is_closed(&self) -> Result<bool, Error> {
        Ok(self.glance().await?.closed)
    }

    /// Closes the run, for good and for all.
    ///
    /// # Errors
    /// When no coordinator answers.
    pub async fn set_closed(&self) -> Result<(), Error> {
        self.connection.close(&self.run, Some(&self.settings), self.timeouts.close).await
    }

    /// Leaves; the run goes on without this member. A call that is joining ends.
    ///
    /// # Errors
    /// When no coordinator answers; the lease ends all the same.
    pub async fn leave(&self) -> Result<(), Error> {
        self.stop_keeping_alive();
        self.lease.end();
        self.say_goodbye(self.timeouts.answer).await
    }

    async fn say_goodbye(&self, within: Duration) -> Result<(), Error> {
        let request = MemberRequest { run: self.run.clone(), member: Some(member_id(&self.node)) };
        let left = self.connection.ask("leave the run", within, |mut service| {
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

    /// Where the run stands; one that has no member yet is as good as new.
    async fn glance(&self) -> Result<RunGlance, Error> {
        let request = MemberRequest { run: self.run.clone(), member: Some(member_id(&self.node)) };
        let seen = self.connection.ask("look at the run", self.timeouts.answer, |mut service| {
            let request = request.clone();
            async move { service.glance_at_run(request).await }
        });
        match seen.await {
            Err(Error::NoRun { .. }) => Ok(RunGlance::default()),
            seen => seen,
        }
    }

    /// Keeps the lease up in the background, from now on.
    fn keep_alive(&self) {
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (connection, interval, answer) = (self.connection.clone(), self.settings.keep_alive, self.timeouts.answer);
        let (lease, heartbeats) = (Arc::clone(&self.lease), Arc::clone(&self.heartbeats));
        let request = MemberRequest { run: self.run.clone(), member: Some(member_id(&self.node)) };
        *alive = Some(tokio::spawn(async move {
            let mut interval = tokio::time::interval(interval);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            interval.tick().await;
            loop {
                interval.tick().await;
                let asked = lease.ask();
                let kept = connection.ask("keep the lease", answer, |mut service| {
                    let request = request.clone();
                    async move { service.keep_alive(request).await }
                });
                match kept.await {
                    Ok(answer) => {
                        lease.answer(asked, answer.known);
                        heartbeats.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => tracing::warn!(run = request.run, %error, "a lease was not kept up"),
                }
            }
        }));
    }

    fn is_kept_alive(&self) -> bool {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn stop_keeping_alive(&self) {
        if let Some(task) = self.alive.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Keeps the lease of a member up no longer, however a call ends.
struct StopKeepingAlive<'a>(Option<&'a Member>);

impl Drop for StopKeepingAlive<'_> {
    fn drop(&mut self) {
        if let Some(member) = self.0 {
            member.stop_keeping_alive();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop_keeping_alive();
    }
}
