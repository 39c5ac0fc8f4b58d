//! A run under way: the task that owns it.
//!
//! Everything that has come in is applied at once, then kept with one write, and only then answered: a thousand members that
//! join together cost a few writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

use crate::coordinator::Refused;
use crate::keeper::{KeepError, Keeper, Leader, Token, Written};
use crate::machine::{Effect, Event, Outcome, Run};
use crate::records::{self, Changes, Kept};
use crate::state::State;
use crate::values::{ValueError, Values};
use crate::{Node, Settings};

/// The most members of a run.
const MEMBERS: usize = 65_536;
/// The most calls that wait for values of a run.
const WAITERS: usize = 16_384;
/// The longest wait that anybody can ask for.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a run without members is remembered, and one that was closed.
const IDLE: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refused>>;

/// What a run is asked.
pub(crate) enum Command {
    Join { member: Arc<Node>, settings: Settings, within: Duration, again: bool, ticket: u64, reply: Reply<Outcome> },
    Abandon { member: Arc<Node>, ticket: u64 },
    KeepAlive { member: Arc<Node>, reply: Reply<bool> },
    Leave { member: Arc<Node>, reply: Reply<()> },
    Close { reply: Reply<()> },
    Status { reply: Reply<Status> },
    Store { round: u64, operation: Operation, reply: Reply<Stored> },
}

/// What is asked of a round's store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Set these.
    Set(Vec<(String, Vec<u8>)>),
    /// The values of these, when all are there.
    Get(Vec<String>, Duration),
    /// Tell when all of these are there.
    Wait(Vec<String>, Duration),
    /// Tell whether all of these are there.
    Check(Vec<String>),
    /// Add to this.
    Add(String, i64),
    /// Set this if it has a value.
    CompareSet(String, Vec<u8>, Vec<u8>),
    /// Remove these.
    Delete(Vec<String>),
    /// Append to these.
    Append(Vec<(String, Vec<u8>)>),
    /// Count those that begin so.
    Count(String),
}

/// What a store answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Values, in the order of their keys.
    pub values: Vec<Vec<u8>>,
    /// A sum, or a count.
    pub number: i64,
    /// Whether it is so.
    pub yes: bool,
}

/// Where a run stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// How its rounds are formed.
    pub settings: Settings,
    /// Who is where.
    pub state: State,
    /// How long ago each member was heard of.
    pub ages: BTreeMap<Arc<Node>, Duration>,
    /// Until the last call ends.
    pub last_call: Option<Duration>,
    /// Values of the round, and their bytes.
    pub values: (usize, usize),
}

/// A run while it is under way.
pub(crate) struct Task {
    name: String,
    run: Run,
    values: BTreeMap<u64, Values>,
    keeper: Keeper,
    token: Option<Token>,
    began: Instant,
    changed: watch::Sender<u64>,
    /// Who waits for the outcome of a join.
    joining: HashMap<Arc<Node>, (u64, Reply<Outcome>)>,
    /// Who waits for values.
    waiters: Vec<Waiter>,
    /// When the first of them has waited long enough, and whether one may have been served already.
    earliest: Option<Instant>,
    unserved: bool,
    /// What is to be kept before anyone is answered.
    pending: Changes,
    /// Whether who is where has changed.
    moved: bool,
    answers: Vec<Answer>,
}

/// Gives an answer, or says why it cannot be kept.
type Answer = Box<dyn FnOnce(Option<&str>) + Send>;

/// Somebody who waits for values.
struct Waiter {
    round: u64,
    keys: Vec<String>,
    /// Whether the values themselves are wanted.
    values: bool,
    until: Instant,
    reply: Reply<Stored>,
}

impl Task {
    pub(crate) fn new(
        name: String,
        kept: Kept,
        keeper: Keeper,
        token: Option<Token>,
        changed: watch::Sender<u64>,
    ) -> Self {
        Self {
            name,
            run: Run::restored(kept.settings, kept.state, Duration::ZERO),
            values: kept.values,
            keeper,
            token,
            began: Instant::now(),
            changed,
            joining: HashMap::new(),
            waiters: Vec::new(),
            earliest: None,
            unserved: false,
            pending: Vec::new(),
            moved: false,
            answers: Vec::new(),
        }
    }

    /// Serves the run until nobody needs it any more, or it cannot be kept.
    pub(crate) async fn work(
        mut self,
        mut queue: mpsc::Receiver<Command>,
        mut leader: Option<watch::Receiver<Leader>>,
    ) {
        let mut dethroned = std::pin::pin!(dethroned(leader.as_mut()));
        let mut last_used = Instant::now();
        loop {
            let idle = if self.run.state().closed { IDLE.1 } else { IDLE.0 };
            let forget = last_used + idle;
            let tick = self.run.next_tick().map(|time| self.began + time);
            let wake = [Some(forget), tick, self.earliest].into_iter().flatten().min().unwrap_or(forget);
            tokio::select! {
                command = queue.recv() => {
                    let Some(command) = command else { return };
                    self.take(command);
                    while let Ok(command) = queue.try_recv() {
                        self.take(command);
                    }
                }
                // Whoever waits is told to ask again, and finds the new leader.
                () = &mut dethroned => return,
                () = tokio::time::sleep_until(wake.into()) => {
                    let effects = self.run.handle(Event::Tick, self.began.elapsed());
                    self.follow(effects);
                }
            }
            self.serve_waiters();
            if let Err(reason) = self.keep().await {
                tracing::error!(run = self.name, reason, "a run cannot be kept; it begins again from what was kept");
                return;
            }
            let is_used =
                self.run.state().members().next().is_some() || self.run.is_awaited() || !self.waiters.is_empty();
            if is_used {
                last_used = Instant::now();
            } else if Instant::now() >= forget {
                return;
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Join { member, settings, within, again, ticket, reply } => {
                if let Some(difference) = difference(self.run.settings(), &settings) {
                    let refused = format!("run `{}` has other settings: {difference}", self.name);
                    let _ = reply.send(Err(Refused::Invalid(refused)));
                    return;
                }
                if self.run.state().len() >= MEMBERS && !self.run.state().knows(&member) {
                    let refused = format!("run `{}` has {MEMBERS} members, the most there can be", self.name);
                    let _ = reply.send(Err(Refused::Exhausted(refused)));
                    return;
                }
                // Whoever asked before, on a connection that is gone, is not answered.
                self.joining.insert(Arc::clone(&member), (ticket, reply));
                self.happens(if again { Event::JoinAgain(member, within) } else { Event::Join(member, within) });
            }
            Command::Abandon { member, ticket } => {
                if self.joining.get(&member).is_some_and(|(waits, _)| *waits == ticket) {
                    self.joining.remove(&member);
                    self.happens(Event::Abandon(member));
                }
            }
            Command::KeepAlive { member, reply } => {
                let known = self.run.state().knows(&member);
                self.happens(Event::KeepAlive(member));
                let _ = reply.send(Ok(known));
            }
            Command::Leave { member, reply } => {
                self.happens(Event::Leave(member));
                self.answer(reply, ());
            }
            Command::Close { reply } => {
                self.happens(Event::Close);
                self.answer(reply, ());
            }
            Command::Status { reply } => {
                let _ = reply.send(Ok(self.status()));
            }
            Command::Store { round, operation, reply } => self.store(round, operation, reply),
        }
    }

    fn happens(&mut self, event: Event) {
        let effects = self.run.handle(event, self.began.elapsed());
        self.follow(effects);
    }

    fn follow(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Changed => self.moved = true,
                Effect::Answer(member, outcome) => {
                    if let Some((_, reply)) = self.joining.remove(&member) {
                        self.answer(reply, outcome);
                    }
                }
            }
        }
    }

    /// Answers when everything is kept.
    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: T) {
        self.answers.push(Box::new(move |unkept| {
            let _ = reply.send(match unkept {
                None => Ok(answer),
                Some(reason) => Err(Refused::Unkept(reason.to_owned())),
            });
        }));
    }

    /// Keeps what has changed, then answers.
    async fn keep(&mut self) -> Result<(), String> {
        let moved = std::mem::take(&mut self.moved);
        if moved {
            for member in self.run.take_touched() {
                self.pending.push(records::member_change(self.run.state(), &member));
            }
            self.pending.push(records::run_change(self.run.settings(), self.run.state()));
            self.forget_rounds();
        }
        let mut unkept = None;
        if !self.pending.is_empty() {
            match self.keeper.write(std::mem::take(&mut self.pending), self.token).await {
                Ok(Written::Set(token)) => self.token = Some(token),
                Ok(Written::Stale(_)) => unkept = Some(KeepError::Stale.to_string()),
                Err(error) => unkept = Some(error.to_string()),
            }
        }
        for answer in self.answers.drain(..) {
            answer(unkept.as_deref());
        }
        if moved {
            self.changed.send_modify(|changes| *changes += 1);
        }
        unkept.map_or(Ok(()), Err)
    }

    /// Values are there until the round after the next begins.
    fn forget_rounds(&mut self) {
        let oldest = self.run.state().round.saturating_sub(1);
        while let Some(entry) = self.values.first_entry()
            && *entry.key() < oldest
        {
            let (round, values) = entry.remove_entry();
            self.pending.extend(values.keys().map(|key| records::value_change(round, key, None)));
        }
    }

    fn status(&self) -> Status {
        let (now, state) = (self.began.elapsed(), self.run.state());
        let age = |node: &Arc<Node>| now.saturating_sub(state.heard(node).unwrap_or(now));
        let values = self.values.get(&state.round);
        Status {
            settings: self.run.settings().clone(),
            state: state.clone(),
            ages: state.members().map(|node| (Arc::clone(node), age(node))).collect(),
            last_call: state.last_call.map(|end| end.saturating_sub(now)),
            values: values.map_or((0, 0), |values| (values.len(), values.bytes())),
        }
    }

    fn store(&mut self, round: u64, operation: Operation, reply: Reply<Stored>) {
        let current = self.run.state().round;
        if round > current || round + 1 < current {
            let refused = format!("round {round} has no store; the round is {current}");
            let _ = reply.send(Err(Refused::Invalid(refused)));
            return;
        }
        let (keys, values, within) = match operation {
            Operation::Get(keys, within) => (keys, true, within),
            Operation::Wait(keys, within) => (keys, false, within),
            operation => {
                match self.change_values(round, operation) {
                    Ok(stored) => self.answer(reply, stored),
                    Err(error) => drop(reply.send(Err(error.into()))),
                }
                return;
            }
        };
        if self.waiters.len() >= WAITERS {
            let refused = format!("{WAITERS} calls wait for values of run `{}`, the most there can be", self.name);
            let _ = reply.send(Err(Refused::Exhausted(refused)));
            return;
        }
        let until = Instant::now() + within.min(LONGEST_WAIT);
        self.waiters.push(Waiter { round, keys, values, until, reply });
        self.unserved = true;
    }

    fn change_values(&mut self, round: u64, operation: Operation) -> Result<Stored, ValueError> {
        let values = self.values.entry(round).or_default();
        let mut changed = Vec::new();
        let stored = change(values, operation, &mut changed);
        for key in &changed {
            self.pending.push(records::value_change(round, key, values.get(key)));
        }
        self.unserved |= !changed.is_empty();
        stored
    }

    /// Answers who waits for values that are there now, or has waited long enough.
    fn serve_waiters(&mut self) {
        let now = Instant::now();
        if !std::mem::take(&mut self.unserved) && self.earliest.is_none_or(|until| now < until) {
            return;
        }
        let empty = Values::default();
        let (mut served, mut index) = (Vec::new(), 0);
        while let Some(waiter) = self.waiters.get(index) {
            let values = self.values.get(&waiter.round).unwrap_or(&empty);
            if waiter.reply.is_closed() || waiter.until <= now || values.has_all(&waiter.keys) {
                served.push(self.waiters.swap_remove(index));
            } else {
                index += 1;
            }
        }
        self.earliest = self.waiters.iter().map(|waiter| waiter.until).min();
        for waiter in served {
            let values = self.values.get(&waiter.round).unwrap_or(&empty);
            let missing: Vec<_> = waiter.keys.iter().filter(|key| values.get(key).is_none()).cloned().collect();
            if !missing.is_empty() {
                let _ = waiter.reply.send(Err(Refused::TimedOut(format!("`{}`", missing.join("`, `")))));
                continue;
            }
            let wanted = waiter.keys.iter().filter(|_| waiter.values);
            let values = wanted.filter_map(|key| values.get(key).map(<[u8]>::to_vec)).collect();
            self.answer(waiter.reply, Stored { values, yes: true, number: 0 });
        }
    }
}

/// Ends when this coordinator leads no more, if that is a question at all.
async fn dethroned(leader: Option<&mut watch::Receiver<Leader>>) {
    let Some(leader) = leader else { return std::future::pending().await };
    let _ = leader.wait_for(|leader| !matches!(leader, Leader::Here(_))).await;
}

/// Does something with values, and notes the keys that it changes, also if it fails half-way.
fn change(values: &mut Values, operation: Operation, changed: &mut Vec<String>) -> Result<Stored, ValueError> {
    let mut stored = Stored::default();
    match operation {
        Operation::Set(entries) => {
            for (key, value) in entries {
                values.set(&key, value)?;
                changed.push(key);
            }
        }
        Operation::Append(entries) => {
            for (key, value) in entries {
                values.append(&key, &value)?;
                changed.push(key);
            }
        }
        Operation::Add(key, amount) => {
            stored.number = values.add(&key, amount)?;
            changed.push(key);
        }
        Operation::CompareSet(key, expected, value) => {
            stored.yes = values.compare_set(&key, &expected, value)?;
            stored.values.push(values.get(&key).unwrap_or_default().to_vec());
            changed.push(key);
        }
        Operation::Delete(keys) => {
            for key in keys {
                stored.number += i64::from(values.delete(&key));
                changed.push(key);
            }
        }
        Operation::Check(keys) => stored.yes = values.has_all(&keys),
        Operation::Count(prefix) => stored.number = values.count(&prefix) as i64,
        Operation::Get(..) | Operation::Wait(..) => {}
    }
    Ok(stored)
}

/// In which setting two differ, in words.
fn difference(ours: &Settings, theirs: &Settings) -> Option<String> {
    let rows = [
        ("the fewest participants", ours.min.to_string(), theirs.min.to_string()),
        ("the most participants", ours.max.to_string(), theirs.max.to_string()),
        ("the last call", format!("{:?}", ours.last_call), format!("{:?}", theirs.last_call)),
        ("the keep-alive interval", format!("{:?}", ours.keep_alive), format!("{:?}", theirs.keep_alive)),
        ("missed keep-alives", ours.missed.to_string(), theirs.missed.to_string()),
        ("stable ranks", ours.stable_ranks.to_string(), theirs.stable_ranks.to_string()),
        ("expected participants", format!("{:?}", ours.expected), format!("{:?}", theirs.expected)),
    ];
    let differing = rows.into_iter().filter(|(_, ours, theirs)| ours != theirs);
    let words: Vec<_> =
        differing.map(|(what, ours, theirs)| format!("{what} are {ours} there, {theirs} here")).collect();
    (!words.is_empty()).then(|| words.join("; "))
}
