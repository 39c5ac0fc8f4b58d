//! Where the batches of one epoch arrive: what was asked for, what came, what must be asked for again.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use graphmill_net::Endpoint;
use graphmill_sample::{Batch, BatchId, Buffer, Plan};
use graphmill_wire::proto::{self, Code};
use graphmill_wire::{Header, Kind, Message};

use super::member::Member;
use super::source::{ChannelSet, RemoteSource};
use crate::loader::{Order, Rounds};
use crate::{Error, Fault, Result};

/// The pause before a batch that could not be sampled is asked for again, at first; it grows with the time that the batch is
/// in trouble, up to the second.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST_AGAIN: Duration = Duration::from_secs(1);

/// A line of the log after so many batches of an epoch.
const LOGGED: u64 = 1000;

/// A mutex whose holder panicked still holds sound data here: every change is a single step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came for a batch.
pub(crate) enum Arrival {
    Batch(proto::BatchHead, Buffer),
    Failed(proto::Failed),
}

/// The batches of an epoch on their way.
#[derive(Debug)]
pub(crate) struct Inbox {
    plan: Arc<Plan>,
    epoch: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What was asked for, by `g`.
    asked: HashMap<u64, Asked>,
    /// What came, by round.
    arrived: HashMap<u64, Result<Batch>>,
    /// Rounds to ask for again, and when.
    again: Vec<(u64, Instant)>,
    /// When a round first failed for want of a server, and why it failed last.
    troubled: HashMap<u64, (Instant, String)>,
    /// Channels that their server does not know any more.
    lost: Vec<u64>,
    /// Why nothing will come any more.
    fatal: Option<Fatal>,
    /// How it went to open channels, by server.
    opened: Vec<(Arc<Member>, Result<u64>)>,
    /// Nobody reads any more.
    left: bool,
    /// When something last came.
    progress: Option<Instant>,
}

/// Why a server, or this side, will not go on.
#[derive(Debug, Clone)]
struct Fatal {
    server: String,
    reason: String,
    denied: bool,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    round: u64,
    batch: BatchId,
    channel: u64,
}

impl Inbox {
    fn new(plan: Arc<Plan>, epoch: u64) -> Arc<Self> {
        Arc::new(Self { plan, epoch, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Something came from a server. What nobody asked for, or of another epoch, is dropped: each batch is taken once.
    pub(super) fn arrived(&self, server: &Endpoint, channel: u64, epoch: u64, g: u64, arrival: Arrival) {
        let mut state = lock(&self.state);
        let known = state.asked.get(&g).is_some_and(|asked| epoch == self.epoch && asked.channel == channel);
        let Some(asked) = known.then(|| state.asked.remove(&g)).flatten() else { return };
        // A batch that is only asked for again is no progress: it may be so for ever.
        let again = matches!(&arrival, Arrival::Failed(failed) if failed.code() == Code::Unavailable);
        if !again {
            state.progress = Some(Instant::now());
        }
        match arrival {
            Arrival::Batch(head, buffer) => {
                let batch = self.batch(asked.batch, head, buffer).map_err(|reason| Error::Refused {
                    server: server.to_string(),
                    doing: format!("send batch {g} of epoch {epoch}"),
                    reason,
                });
                state.troubled.remove(&asked.round);
                state.arrived.insert(asked.round, batch);
            }
            Arrival::Failed(failed) if again => {
                let reason = format!("server {server}: {}", failed.reason);
                let since = state.troubled.get(&asked.round).map_or_else(Instant::now, |(since, _)| *since);
                state.troubled.insert(asked.round, (since, reason));
                state.again.push((asked.round, Instant::now() + pause(since)));
            }
            Arrival::Failed(failed) => {
                let fault = match failed.code() {
                    Code::Invalid | Code::TooLarge => Fault::Request,
                    Code::OverBudget => Fault::Memory,
                    _ => Fault::Server,
                };
                let error = Error::Batch { server: server.to_string(), epoch, g, fault, reason: failed.reason };
                state.arrived.insert(asked.round, Err(error));
            }
        }
        self.changed.notify_all();
    }

    fn batch(&self, id: BatchId, head: proto::BatchHead, buffer: Buffer) -> std::result::Result<Batch, String> {
        let layout = graphmill_codec::batch::layout(head.tensors, head.bytes).map_err(|error| error.to_string())?;
        Ok(Batch::new(id, head.size as usize, Arc::clone(&self.plan), layout, buffer))
    }

    /// A connection broke: what was asked for over it is asked for again, elsewhere or later.
    pub(super) fn member_down(&self, member: &Member) {
        self.ask_again(|asked| member.has_channel(asked.channel));
    }

    /// A connection is there again.
    pub(super) fn member_up(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// A server does not know a channel.
    pub(super) fn lost(&self, member: &Member, channel: u64, reason: &str) {
        tracing::info!(server = %member.control.endpoint, channel, reason, "channel lost");
        lock(&self.state).lost.push(channel);
        self.ask_again(|asked| asked.channel == channel);
    }

    /// A server refuses this client for good.
    pub(super) fn refused(&self, server: &Endpoint, refused: &proto::Refused) {
        let denied = refused.code() == Code::Denied;
        lock(&self.state).fatal = Some(Fatal { server: server.to_string(), reason: refused.reason.clone(), denied });
        self.changed.notify_all();
    }

    /// A channel was opened on a server, or could not be. Says whether anybody wants to know.
    fn opened(&self, member: Arc<Member>, opened: Result<u64>) -> bool {
        let mut state = lock(&self.state);
        if state.left {
            return false;
        }
        state.opened.push((member, opened));
        self.changed.notify_all();
        true
    }

    fn ask_again(&self, which: impl Fn(&Asked) -> bool) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let State { asked, again, .. } = &mut *state;
        asked.retain(|_, one| {
            let gone = which(one);
            if gone {
                again.push((one.round, now));
            }
            !gone
        });
        drop(state);
        self.changed.notify_all();
    }
}

/// How long to wait before a batch is asked for again that is in trouble since some time.
fn pause(since: Instant) -> Duration {
    (since.elapsed() / 2).clamp(AGAIN, LONGEST_AGAIN)
}

/// The reader's end of an inbox: asks for batches ahead, within a window, and hands them out.
#[derive(Debug)]
pub(crate) struct Receiving {
    source: Arc<RemoteSource>,
    inbox: Arc<Inbox>,
    order: Order,
    /// Rounds that were not asked for yet.
    todo: Rounds,
    channels: ChannelSet,
    /// Servers that a channel is being opened on, with the rounds that are to be asked for over it.
    opening: Vec<(Arc<Member>, Vec<u64>)>,
    /// In partition order, the partitions of the first rounds: only servers with these are asked.
    partitions: Vec<u32>,
    left: usize,
    /// Since when the next batch is waited for.
    waiting: Option<Instant>,
    /// Batches handed out, and how long the reader waited for them.
    received: u64,
    waited: Duration,
}

impl Receiving {
    pub(crate) fn new(source: &Arc<RemoteSource>, plan: &Arc<Plan>, order: Order, todo: Rounds) -> Self {
        source.learn_homes();
        let inbox = Inbox::new(Arc::clone(plan), order.epoch());
        let channels = source.channels(order.epoch());
        let partitions = order.partitions(todo.clone().take(source.window()));
        let mut receiving = Self {
            source: Arc::clone(source),
            inbox,
            order,
            left: todo.len(),
            todo,
            channels,
            opening: Vec::new(),
            partitions,
            waiting: None,
            received: 0,
            waited: Duration::ZERO,
        };
        for (member, channel) in receiving.channels.iter() {
            member.route(*channel, &receiving.inbox);
        }
        receiving.ask();
        receiving
    }

    /// The result of a round, or of whichever comes first; nothing when all were handed out.
    pub(crate) fn next(&mut self, wanted: Option<u64>) -> Option<(u64, Result<Batch>)> {
        if self.left == 0 {
            return None;
        }
        while !self.ready(wanted, self.source.deadline()) {}
        let waited = self.waiting.take().map_or(Duration::ZERO, |began| began.elapsed());
        if let Some(found) = self.take(wanted) {
            self.count(waited);
            self.left -= 1;
            self.ask();
            return Some(found);
        }
        let inbox = Arc::clone(&self.inbox);
        let state = lock(&inbox.state);
        let waiting = state.asked.values().map(|asked| asked.round).chain(state.again.iter().map(|again| again.0));
        let unasked = self.opening.iter().flat_map(|(_, rounds)| rounds).copied().chain(self.todo.peek());
        let round = wanted.or_else(|| waiting.chain(unasked).min())?;
        let error = self.late(&state, round);
        drop(state);
        self.left -= 1;
        self.forget(round);
        Some((round, Err(error)))
    }

    /// Whether a round, or any, has come, or will not come any more. Waits for that, but not longer than this.
    pub(crate) fn ready(&mut self, wanted: Option<u64>, within: Duration) -> bool {
        let there = |state: &State| match wanted {
            Some(round) => state.arrived.contains_key(&round),
            None => !state.arrived.is_empty(),
        };
        if self.left == 0 || there(&lock(&self.inbox.state)) {
            return true;
        }
        let entered = Instant::now();
        let began = *self.waiting.get_or_insert(entered);
        let deadline = self.source.deadline();
        loop {
            self.ask();
            let state = lock(&self.inbox.state);
            let since = state.progress.map_or(began, |progress| progress.max(began));
            let troubled = wanted.and_then(|round| state.troubled.get(&round)).map(|(since, _)| *since);
            let late = since.elapsed() > deadline || troubled.is_some_and(|since| since.elapsed() > deadline);
            if there(&state) || late || state.fatal.is_some() {
                return true;
            }
            let left = within.saturating_sub(entered.elapsed());
            if left.is_zero() {
                return false;
            }
            // Short waits only where something must be asked for again at some time; else an arrival wakes this.
            let pause = if state.again.is_empty() && self.todo.is_empty() { deadline } else { AGAIN };
            let waited = self.inbox.changed.wait_timeout(state, pause.min(left));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn late(&self, state: &State, round: u64) -> Error {
        let BatchId { epoch, g, .. } = self.order.batch(round);
        if let Some(Fatal { server, reason, denied }) = state.fatal.clone() {
            let doing = format!("sample batch {g} of epoch {epoch}");
            return if denied {
                Error::Denied { server, doing, reason }
            } else {
                Error::Refused { server, doing, reason }
            };
        }
        let members = self.source.describe_members();
        let reason = match state.troubled.get(&round) {
            Some((_, reason)) => format!("{reason}; {members}"),
            None => members,
        };
        Error::Late {
            what: format!("batch {g} of epoch {epoch}"),
            seconds: self.source.deadline().as_secs_f64(),
            reason,
        }
    }

    /// Counts a batch that was waited for so long, and says so now and then.
    fn count(&mut self, waited: Duration) {
        self.received += 1;
        self.waited += waited;
        if self.received.is_multiple_of(LOGGED) {
            let (asked, ready) = {
                let state = lock(&self.inbox.state);
                (state.asked.len(), state.arrived.len())
            };
            let traffic = self.source.traffic();
            let (epoch, batches, waited) = (self.order.epoch(), self.received, self.waited / self.received as u32);
            tracing::info!(epoch, batches, ?waited, asked, ready, ?traffic, "received");
        }
    }

    /// A round that failed is not waited for any more.
    fn forget(&mut self, round: u64) {
        let mut state = lock(&self.inbox.state);
        state.asked.retain(|_, asked| asked.round != round);
        state.again.retain(|(again, _)| *again != round);
        self.todo.leave_out(round);
        self.opening.iter_mut().for_each(|(_, rounds)| rounds.retain(|waiting| *waiting != round));
        state.progress = Some(Instant::now());
    }

    fn take(&mut self, wanted: Option<u64>) -> Option<(u64, Result<Batch>)> {
        let mut state = lock(&self.inbox.state);
        let round = wanted.or_else(|| state.arrived.keys().min().copied())?;
        let batch = state.arrived.remove(&round)?;
        Some((round, batch))
    }

    /// Asks for as much as the window allows.
    fn ask(&mut self) {
        self.take_opened();
        let (room, lost) = {
            let mut state = lock(&self.inbox.state);
            let now = Instant::now();
            let mut due: Vec<u64> = Vec::new();
            state.again.retain(|&(round, at)| {
                let is_due = at <= now;
                if is_due {
                    due.push(round);
                }
                !is_due
            });
            due.sort_unstable();
            due.into_iter().rev().for_each(|round| self.todo.put_back(round));
            let unasked: usize = self.opening.iter().map(|(_, rounds)| rounds.len()).sum();
            let under_way = state.asked.len() + state.arrived.len() + unasked;
            // One is always asked for: it may be the very one that is waited for.
            let idle = state.asked.is_empty() && unasked == 0;
            let room = self.window().saturating_sub(under_way).max(usize::from(idle));
            (room, std::mem::take(&mut state.lost))
        };
        for channel in lost {
            self.channels.forget(channel);
        }
        if room == 0 || self.todo.is_empty() {
            return;
        }
        let members = self.source.members();
        let mut credits: HashMap<usize, Vec<u64>> = HashMap::new();
        for _ in 0..room {
            let Some(round) = self.todo.next() else { break };
            let Some(member) = self.member_for(&members, self.order.batch(round).g) else {
                self.todo.put_back(round);
                break;
            };
            credits.entry(member).or_default().push(round);
        }
        for (member, rounds) in credits {
            self.credit(&members[member], rounds);
        }
    }

    /// How many batches may be on their way or wait here; servers may have come, or gone.
    fn window(&self) -> usize {
        if self.partitions.is_empty() { self.source.window() } else { self.source.window_at_homes(&self.partitions) }
    }

    /// The server to ask for a batch: one that has its partition, or else any; by number among them, or the next that can be
    /// reached.
    fn member_for(&self, members: &[Arc<Member>], g: u64) -> Option<usize> {
        let in_turn = |of: &[usize]| {
            let first = (g % of.len().max(1) as u64) as usize;
            let (before, after) = of.split_at(first);
            after.iter().chain(before).copied().find(|&member| members[member].is_up())
        };
        let all: Vec<usize> = (0..members.len()).collect();
        let homes = self.order.partition(g).and_then(|partition| {
            in_turn(&all.iter().copied().filter(|&member| members[member].has_partition(partition)).collect::<Vec<_>>())
        });
        homes.or_else(|| in_turn(&all))
    }

    /// Asks a server for rounds, once there is a channel for that.
    fn credit(&mut self, server: &Arc<Member>, rounds: Vec<u64>) {
        let Some(channel) = self.channels.get(server) else { return self.open(server, rounds) };
        let epoch = self.order.epoch();
        let batches: Vec<BatchId> = rounds.iter().map(|&round| self.order.batch(round)).collect();
        let message = Message::Credit(proto::Credit { g: batches.iter().map(|batch| batch.g).collect() });
        {
            let mut state = lock(&self.inbox.state);
            for (round, batch) in rounds.into_iter().zip(batches) {
                state.asked.insert(batch.g, Asked { round, batch, channel });
            }
        }
        if !server.send(Header { channel, epoch, ..Header::new(Kind::Credit) }, message) {
            self.inbox.member_down(server);
        }
    }

    /// Has a channel opened, on which rounds are asked for then. That may take long where a server is frozen, and whoever
    /// reads must be able to look elsewhere meanwhile.
    fn open(&mut self, server: &Arc<Member>, rounds: Vec<u64>) {
        if let Some((_, waiting)) = self.opening.iter_mut().find(|(member, _)| Arc::ptr_eq(member, server)) {
            return waiting.extend(rounds);
        }
        self.opening.push((Arc::clone(server), rounds));
        let (inbox, member) = (Arc::downgrade(&self.inbox), Arc::clone(server));
        let tell = move |opened| inbox.upgrade().is_some_and(|inbox| inbox.opened(member, opened));
        self.source.open(server, tell);
    }

    /// Takes the channels that were opened, and asks over them.
    fn take_opened(&mut self) {
        let opened = std::mem::take(&mut lock(&self.inbox.state).opened);
        for (server, opened) in opened {
            let place = self.opening.iter().position(|(member, _)| Arc::ptr_eq(member, &server));
            let rounds = place.map(|place| self.opening.swap_remove(place).1).unwrap_or_default();
            match opened {
                Ok(channel) => {
                    self.channels.add(&server, channel);
                    server.route(channel, &self.inbox);
                    self.credit(&server, rounds);
                }
                Err(error) => self.cannot_open(error, &rounds),
            }
        }
    }

    /// A channel could not be opened: if that can change, its batches are tried again, else they fail.
    fn cannot_open(&self, error: Error, rounds: &[u64]) {
        let mut state = lock(&self.inbox.state);
        match error {
            Error::Unavailable { .. } | Error::Late { .. } => {
                let reason = error.to_string();
                for &round in rounds {
                    let since = state.troubled.get(&round).map_or_else(Instant::now, |(since, _)| *since);
                    state.troubled.insert(round, (since, reason.clone()));
                    state.again.push((round, Instant::now() + pause(since)));
                }
            }
            Error::Refused { server, reason, .. } => state.fatal = Some(Fatal { server, reason, denied: false }),
            Error::Denied { server, reason, .. } => state.fatal = Some(Fatal { server, reason, denied: true }),
            other => {
                state.fatal = Some(Fatal { server: "here".to_owned(), reason: other.to_string(), denied: false });
            }
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.source.is_forked() {
            return;
        }
        // What is on its way still counts for its channel, so that another loop over this epoch needs one of its own; the
        // next epoch cancels it.
        let (under_way, opened) = {
            let mut state = lock(&self.inbox.state);
            state.left = true;
            (!state.asked.is_empty(), std::mem::take(&mut state.opened))
        };
        for (member, channel) in opened {
            if let Ok(channel) = channel {
                self.channels.add(&member, channel);
            }
        }
        let epoch = self.order.epoch().saturating_add(under_way.into());
        self.source.give_back(std::mem::take(&mut self.channels), epoch);
    }
}
