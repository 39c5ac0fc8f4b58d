//! A run as a machine: (state, event, now) in, effects out. It has no clock, no threads and no network.
//!
//! Members say what they want; the machine applies the rules of [`mod@crate::join`] to one after the other. A member that wants
//! to join is asked again whenever something has changed that could matter to it, so nobody polls. What an event costs does
//! not grow with the number of members unless it changes something for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::join::{self, Next};
use crate::state::{Action, State, Time};
use crate::{Node, Settings};

/// The least time after a point in time.
const TICK: Duration = Duration::from_nanos(1);

/// What happens to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A member leaves the round it is in, if any, and wants to take part in one, within a time.
    Join(Arc<Node>, Duration),
    /// The same, said again because the answer was lost: the round is not left.
    JoinAgain(Arc<Node>, Duration),
    /// A member that wanted to join does not wait for an answer any more; where it stands does not change.
    Abandon(Arc<Node>),
    /// A member leaves for good.
    Leave(Arc<Node>),
    /// A member is alive.
    KeepAlive(Arc<Node>),
    /// The run ends.
    Close,
    /// Time has passed.
    Tick,
}

/// What follows from an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A member that wanted to join is told.
    Answer(Arc<Node>, Outcome),
    /// Who is where has changed: it is to be kept, and whoever watches is to be told.
    Changed,
}

/// How a join ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The member takes part.
    Joined {
        /// In this round.
        round: u64,
        /// With this rank.
        rank: u32,
        /// Of so many.
        world_size: u32,
    },
    /// The run has ended; the member was one too many, so that is no fault.
    Exit,
    /// The run has ended.
    Closed,
    /// It took too long.
    TimedOut,
    /// The member is on no list any more: it was not heard of for so long that it counts as dead, or has left.
    Lost,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    settings: Settings,
    state: State,
    /// Who wants to join, until when, and how long that was meant to take.
    joining: BTreeMap<Arc<Node>, (Time, Duration)>,
    /// The same by time.
    deadlines: BTreeSet<(Time, Arc<Node>)>,
    /// Who got a rank in the last complete round.
    ranked: Vec<Arc<Node>>,
    /// Members of whom something has changed.
    touched: BTreeSet<Arc<Node>>,
}

impl Run {
    /// A new run.
    pub fn new(settings: Settings) -> Self {
        Self::restored(settings, State::default(), Duration::ZERO)
    }

    /// A run that was kept somewhere: everyone's lease begins anew, as does a last call.
    pub fn restored(settings: Settings, mut state: State, now: Time) -> Self {
        let members: Vec<_> = state.members().cloned().collect();
        for member in &members {
            state.hear(member, now);
        }
        if state.last_call.is_some() {
            state.last_call = Some(now + settings.last_call);
        }
        let ranked = state.former.keys().cloned().collect();
        Self { settings, state, ranked, joining: BTreeMap::new(), deadlines: BTreeSet::new(), touched: BTreeSet::new() }
    }

    /// How its rounds are formed.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The members of whom something has changed since this was asked last.
    pub fn take_touched(&mut self) -> BTreeSet<Arc<Node>> {
        std::mem::take(&mut self.touched)
    }

    /// Whether anybody wants to join.
    pub fn is_awaited(&self) -> bool {
        !self.joining.is_empty()
    }

    /// When time alone changes something, at the earliest.
    pub fn next_tick(&self) -> Option<Time> {
        let deaths = self.state.next_death(&self.settings);
        let deadlines = self.deadlines.first().map(|(deadline, _)| *deadline);
        [deaths, deadlines, self.state.last_call].into_iter().flatten().min().map(|time| time + TICK)
    }

    /// Lets something happen.
    pub fn handle(&mut self, event: Event, now: Time) -> Vec<Effect> {
        let mut effects = Effects::default();
        // Whatever happens, the dead are buried first.
        self.bury(now, &mut effects);
        match event {
            Event::Join(node, within) => {
                if self.state.participants.contains_key(&node) {
                    self.change(Action::Withdraw, &node, now, &mut effects);
                }
                self.start_joining(&node, within, now);
                self.pursue(&node, now, &mut effects);
            }
            Event::JoinAgain(node, within) => {
                self.start_joining(&node, within, now);
                self.pursue(&node, now, &mut effects);
            }
            Event::Abandon(node) => {
                self.stop_joining(&node);
            }
            Event::Leave(node) => {
                if self.stop_joining(&node) {
                    effects.answer(&node, Outcome::Lost);
                }
                self.remove(&node, &mut effects);
            }
            Event::KeepAlive(node) => {
                if self.state.knows(&node) {
                    self.state.hear(&node, now);
                }
            }
            Event::Close => {
                if !self.state.closed {
                    self.state.closed = true;
                    effects.changed = true;
                    effects.for_all = true;
                }
            }
            Event::Tick => self.tick(now, &mut effects),
        }
        while std::mem::take(&mut effects.for_all) {
            let joining: Vec<_> = self.joining.keys().cloned().collect();
            for node in joining {
                self.pursue(&node, now, &mut effects);
            }
        }
        effects.finish()
    }

    fn bury(&mut self, now: Time, effects: &mut Effects) {
        for node in self.state.bury(&self.settings, now) {
            effects.changed = true;
            effects.for_all = true;
            if self.stop_joining(&node) {
                effects.answer(&node, Outcome::Lost);
            }
            self.touched.insert(node);
        }
    }

    fn tick(&mut self, now: Time, effects: &mut Effects) {
        // The last call is over for everybody.
        effects.for_all |= self.state.last_call.is_some_and(|end| now > end);
        let late = self.deadlines.iter().take_while(|(deadline, _)| *deadline < now);
        let late: Vec<_> = late.map(|(_, node)| Arc::clone(node)).collect();
        for node in late {
            self.pursue(&node, now, effects);
        }
    }

    /// Does what a member that wants to join does next, as far as it gets.
    fn pursue(&mut self, node: &Arc<Node>, now: Time, effects: &mut Effects) {
        let Some(&(deadline, within)) = self.joining.get(node) else { return };
        let outcome = loop {
            match join::join(&self.state, &self.settings, node, deadline, now) {
                // Members keep themselves alive.
                Next::Act(Action::KeepAlive) | Next::Wait => {
                    // Only a spare waits past its deadline.
                    if deadline < now {
                        self.deadlines.remove(&(deadline, Arc::clone(node)));
                    }
                    return;
                }
                Next::Act(action @ (Action::Withdraw | Action::StopWaiting)) => {
                    self.change(action, node, now, effects);
                    break Outcome::TimedOut;
                }
                Next::Act(Action::StopBeingRedundant) => {
                    self.change(Action::StopBeingRedundant, node, now, effects);
                    self.start_joining(node, within, now);
                    return self.pursue(node, now, effects);
                }
                Next::Act(action) => self.change(action, node, now, effects),
                Next::Done => {
                    let rank = self.state.participants.get(node).copied().flatten().unwrap_or_default();
                    let State { round, world_size, .. } = self.state;
                    break Outcome::Joined { round, rank, world_size };
                }
                Next::Exit => break Outcome::Exit,
                Next::Closed => break Outcome::Closed,
                Next::TimedOut => {
                    // However late that is noticed, nobody is to count on it.
                    self.remove(node, effects);
                    break Outcome::TimedOut;
                }
            }
        };
        self.stop_joining(node);
        effects.answer(node, outcome);
    }

    fn change(&mut self, action: Action, node: &Arc<Node>, now: Time, effects: &mut Effects) {
        let before = (self.state.complete, self.state.round);
        self.state.apply(action, node, &self.settings, now);
        if self.state.complete && !before.0 {
            // Everyone has a rank now, and whoever had one may not have it any more.
            let ranked: Vec<_> = self.state.participants.keys().cloned().collect();
            self.touched.extend(std::mem::replace(&mut self.ranked, ranked.clone()));
            self.touched.extend(ranked);
        }
        self.touched.insert(Arc::clone(node));
        effects.changed = true;
        // Who only comes in or waits changes nothing for the others.
        let quiet = matches!(action, Action::TakePart | Action::Wait | Action::BeRedundant | Action::StopWaiting);
        effects.for_all |= !quiet || before != (self.state.complete, self.state.round);
    }

    /// Takes a member off every list.
    fn remove(&mut self, node: &Arc<Node>, effects: &mut Effects) {
        if self.state.remove(node, &self.settings) {
            self.touched.insert(Arc::clone(node));
            effects.changed = true;
            effects.for_all = true;
        }
    }

    fn start_joining(&mut self, node: &Arc<Node>, within: Duration, now: Time) {
        self.stop_joining(node);
        self.joining.insert(Arc::clone(node), (now + within, within));
        self.deadlines.insert((now + within, Arc::clone(node)));
    }

    fn stop_joining(&mut self, node: &Arc<Node>) -> bool {
        let Some((deadline, _)) = self.joining.remove(node) else { return false };
        self.deadlines.remove(&(deadline, Arc::clone(node)));
        true
    }
}

/// The effects of an event while it is handled.
#[derive(Debug, Default)]
struct Effects {
    answers: Vec<Effect>,
    changed: bool,
    /// Whether everyone who wants to join is to be asked again.
    for_all: bool,
}

impl Effects {
    fn answer(&mut self, node: &Arc<Node>, outcome: Outcome) {
        self.answers.push(Effect::Answer(Arc::clone(node), outcome));
    }

    fn finish(mut self) -> Vec<Effect> {
        // Before the answers: what is told must be kept by then.
        if self.changed {
            self.answers.insert(0, Effect::Changed);
        }
        self.answers
    }
}
