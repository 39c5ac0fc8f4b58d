//! A run under way: the task that owns it.
//!
//! Everything that has come in is applied at once, then kept with one write, and only then answered: a thousand members that
//! join together cost a few writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

use crate::calls::Call;
use crate::coordinator::Refused;
use crate::etcd::Leader;
use crate::keeper::{KeepError, Keeper, Token, Written};
use crate::machine::{Effect, Event, Outcome, Run};
use crate::records::{self, Changes, Kept};
use crate::state::State;
use crate::stores::{Operation, Stored, Stores};
use crate::{Node, Settings};

/// The most members of a run.
const MEMBERS: usize = 65_536;
/// The most commands that are kept with one write, so that those who keep asking do not hold it up.
pub(crate) const AT_ONCE: usize = 1_024;
/// The longest wait that anybody can ask for.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refused>>;

/// What a run is asked.
pub(crate) enum Command {
    Join {
        member: Arc<Node>,
        settings: Settings,
        within: Duration,
        again: Option<Again>,
        ticket: u64,
        reply: Reply<Outcome>,
    },
    Abandon {
        member: Arc<Node>,
        ticket: u64,
    },
    KeepAlive {
        member: Arc<Node>,
        reply: Reply<bool>,
    },
    Leave {
        member: Arc<Node>,
        reply: Reply<()>,
    },
    Close {
        reply: Reply<()>,
    },
    Status {
        reply: Reply<Status>,
    },
    Glance {
        member: Node,
        reply: Reply<Glance>,
    },
    Store {
        round: u64,
        operation: Operation,
        call: Option<Call>,
        reply: Reply<Stored>,
    },
}

/// That a member has asked to join before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again {
    /// The last round that it was told of.
    pub(crate) told: Option<u64>,
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

/// Where a run stands for a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Glance {
    pub(crate) closed: bool,
    /// How many wait for the next round.
    pub(crate) waiting: usize,
    /// Whether the member is on any list.
    pub(crate) known: bool,
}

/// How long a run that nobody needs is remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// One without members.
    pub(crate) left: Duration,
    /// One that was closed.
    pub(crate) closed: Duration,
}

/// A run while it is under way.
pub(crate) struct Task {
    name: String,
    run: Run,
    stores: Stores,
    keeper: Keeper,
    token: Option<Token>,
    memory: Memory,
    began: Instant,
    changed: watch::Sender<u64>,
    /// Who waits for the outcome of a join.
    joining: HashMap<Arc<Node>, (u64, Reply<Outcome>)>,
    /// What is to be kept before anyone is answered.
    pending: Changes,
    /// Whether who is where has changed.
    moved: bool,
    answers: Vec<Answer>,
}

/// Gives an answer, or says why it cannot be kept.
pub(crate) type Answer = Box<dyn FnOnce(Option<&str>) + Send>;

impl Task {
    pub(crate) fn new(
        name: String,
        kept: Kept,
        keeper: Keeper,
        token: Option<Token>,
        memory: Memory,
        changed: watch::Sender<u64>,
    ) -> Self {
        Self {
            name,
            run: Run::restored(kept.settings, kept.state, Duration::ZERO),
            stores: Stores::new(kept.values, kept.calls),
            keeper,
            token,
            memory,
            began: Instant::now(),
            changed,
            joining: HashMap::new(),
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
            let idle = if self.run.state().closed { self.memory.closed } else { self.memory.left };
            let forget = last_used + idle;
            let tick = self.run.next_tick().map(|time| self.began + time);
            let wake = [Some(forget), tick, self.stores.earliest()].into_iter().flatten().min().unwrap_or(forget);
            tokio::select! {
                command = queue.recv() => {
                    let Some(command) = command else { return };
                    self.take(command);
                    for _ in 1..AT_ONCE {
                        let Ok(command) = queue.try_recv() else { break };
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
            for (reply, stored) in self.stores.serve() {
                self.answer(reply, stored);
            }
            if let Err(reason) = self.keep().await {
                tracing::error!(run = self.name, reason, "a run cannot be kept; it begins again from what was kept");
                return;
            }
            let is_used =
                self.run.state().members().next().is_some() || self.run.is_awaited() || self.stores.is_awaited();
            if is_used {
                last_used = Instant::now();
            } else if Instant::now() >= forget {
                if let Err(error) = self.keeper.forget(self.token).await {
                    tracing::warn!(run = self.name, %error, "a run that is over was not removed");
                }
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
                // Who was told of this round wants the next one, whatever became of the first request.
                let lost = again.is_some_and(|again| again.told != Some(self.run.state().round));
                self.happens(if lost { Event::JoinAgain(member, within) } else { Event::Join(member, within) });
            }
            Command::Abandon { member, ticket } => {
                if self.joining.get(&member).is_some_and(|(waits, _)| *waits == ticket) {
                    self.joining.remove(&member);
                    self.happens(Event::Abandon(member));
                }
            }
            Command::KeepAlive { member, reply } => {
                self.happens(Event::KeepAlive(Arc::clone(&member)));
                // When the dead are buried: nobody is to take a lease for renewed that has ended.
                let _ = reply.send(Ok(self.run.state().knows(&member)));
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
                let status = self.status();
                self.answer(reply, status);
            }
            Command::Glance { member, reply } => {
                let state = self.run.state();
                let (closed, waiting, known) = (state.closed, state.waiting.len(), state.knows(&member));
                self.answer(reply, Glance { closed, waiting, known });
            }
            Command::Store { round, operation, call, reply } => self.store(round, operation, call, reply),
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
            // Values are there until the round after the next begins.
            self.stores.forget_before(self.run.state().round.saturating_sub(1), &mut self.pending);
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

    fn status(&self) -> Status {
        let (now, state) = (self.began.elapsed(), self.run.state());
        let age = |node: &Arc<Node>| now.saturating_sub(state.heard(node).unwrap_or(now));
        Status {
            settings: self.run.settings().clone(),
            state: state.clone(),
            ages: state.members().map(|node| (Arc::clone(node), age(node))).collect(),
            last_call: state.last_call.map(|end| end.saturating_sub(now)),
            values: self.stores.size(state.round),
        }
    }

    fn store(&mut self, round: u64, operation: Operation, call: Option<Call>, reply: Reply<Stored>) {
        let current = self.run.state().round;
        if round > current || round + 1 < current {
            let refused = format!("round {round} has no store; the round is {current}");
            let refused = if round < current { Refused::Over(refused) } else { Refused::Invalid(refused) };
            let _ = reply.send(Err(refused));
            return;
        }
        if let Some((reply, stored)) = self.stores.ask(round, operation, call, reply, &mut self.pending) {
            self.answer(reply, stored);
        }
    }
}

/// Ends when this coordinator leads no more, if that is a question at all.
pub(crate) async fn dethroned(leader: Option<&mut watch::Receiver<Leader>>) {
    let Some(leader) = leader else { return std::future::pending().await };
    let _ = leader.wait_for(|leader| !matches!(leader, Leader::Here(_))).await;
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
