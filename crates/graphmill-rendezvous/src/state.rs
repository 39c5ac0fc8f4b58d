//! What is known of a run, and the steps that change it.
//!
//! Pure data: time is a number that the caller counts, so that every rule can be tested without waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::{Node, Settings};

/// A point in time, on the one clock that counts: the coordinator's. It only goes forward.
pub type Time = Duration;

/// The membership of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Counts the rounds.
    pub round: u64,
    /// Whether the round is formed, and its participants have ranks.
    pub complete: bool,
    /// How many took part when it was formed; some may have gone since.
    pub world_size: u32,
    /// Whether there will be no further round.
    pub closed: bool,
    /// When the last call ends, if it was made.
    pub last_call: Option<Time>,
    /// Who takes part, in a complete round with a rank.
    pub participants: BTreeMap<Arc<Node>, Option<u32>>,
    /// Who waits for the next round.
    pub waiting: BTreeSet<Arc<Node>>,
    /// Who came when there was no room left.
    pub redundant: BTreeSet<Arc<Node>>,
    /// The ranks of the last complete round, for members that come back.
    pub former: BTreeMap<Arc<Node>, u32>,
    /// When each member was heard of last.
    heard: BTreeMap<Arc<Node>, Time>,
    /// The same by time, so that the dead are found without a look at the living.
    by_time: BTreeSet<(Time, Arc<Node>)>,
}

/// A step that changes who is where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Is alive.
    KeepAlive,
    /// Takes part, from wherever it was.
    TakePart,
    /// Waits for the next round.
    Wait,
    /// Is one too many.
    BeRedundant,
    /// Takes part no more.
    Withdraw,
    /// Waits no more.
    StopWaiting,
    /// Is not one too many any more.
    StopBeingRedundant,
    /// The round is formed.
    Complete,
}

impl State {
    /// Makes a step.
    pub fn apply(&mut self, action: Action, node: &Arc<Node>, settings: &Settings, now: Time) {
        match action {
            Action::KeepAlive => {}
            Action::TakePart => {
                self.waiting.remove(node);
                self.redundant.remove(node);
                self.participants.insert(Arc::clone(node), None);
                self.call(settings, now);
            }
            Action::Wait => {
                self.waiting.insert(Arc::clone(node));
            }
            Action::BeRedundant => {
                self.redundant.insert(Arc::clone(node));
            }
            Action::Withdraw => {
                self.forget(node);
                self.participants.remove(node);
                self.shrink(settings);
                return;
            }
            Action::StopWaiting => {
                self.forget(node);
                self.waiting.remove(node);
                return;
            }
            Action::StopBeingRedundant => {
                self.forget(node);
                self.redundant.remove(node);
                return;
            }
            Action::Complete => self.complete(settings),
        }
        self.hear(node, now);
    }

    /// Takes a member off every list; whether it was on one.
    pub fn remove(&mut self, node: &Arc<Node>, settings: &Settings) -> bool {
        self.forget(node);
        let listed = self.waiting.remove(node) | self.redundant.remove(node);
        if self.participants.remove(node).is_none() {
            return listed;
        }
        self.shrink(settings);
        true
    }

    /// Takes everyone off the lists who was not heard of for longer than a lease.
    pub fn bury(&mut self, settings: &Settings, now: Time) -> Vec<Arc<Node>> {
        let mut dead = Vec::new();
        while let Some((heard, node)) = self.by_time.first()
            && now.saturating_sub(*heard) > settings.lease()
        {
            let node = Arc::clone(node);
            self.forget(&node);
            self.waiting.remove(&node);
            self.redundant.remove(&node);
            self.participants.remove(&node);
            dead.push(node);
        }
        if !dead.is_empty() {
            self.shrink(settings);
        }
        dead
    }

    /// When the next member dies, if it is not heard of before.
    pub fn next_death(&self, settings: &Settings) -> Option<Time> {
        self.by_time.first().map(|(heard, _)| *heard + settings.lease())
    }

    /// When a member was heard of last.
    pub fn heard(&self, node: &Node) -> Option<Time> {
        self.heard.get(node).copied()
    }

    /// Whether a member is on any list.
    pub fn knows(&self, node: &Node) -> bool {
        self.participants.contains_key(node) || self.waiting.contains(node) || self.redundant.contains(node)
    }

    /// All members, each once.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.participants.keys().chain(&self.waiting).chain(&self.redundant)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.participants.len() + self.waiting.len() + self.redundant.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that a member is alive.
    pub fn hear(&mut self, node: &Arc<Node>, now: Time) {
        if let Some(before) = self.heard.insert(Arc::clone(node), now) {
            self.by_time.remove(&(before, Arc::clone(node)));
        }
        self.by_time.insert((now, Arc::clone(node)));
    }

    fn forget(&mut self, node: &Arc<Node>) {
        if let Some(heard) = self.heard.remove(node) {
            self.by_time.remove(&(heard, Arc::clone(node)));
        }
    }

    /// Participants have become more.
    fn call(&mut self, settings: &Settings, now: Time) {
        let count = self.participants.len() as u32;
        if count >= settings.max || settings.expected.is_some_and(|expected| count >= expected) {
            self.complete(settings);
        } else if count >= settings.min && self.last_call.is_none() {
            self.last_call = Some(now + settings.last_call);
        }
    }

    /// Participants have become fewer.
    fn shrink(&mut self, settings: &Settings) {
        if self.complete {
            if self.participants.is_empty() {
                self.complete = false;
                self.round += 1;
            }
        } else if (self.participants.len() as u32) < settings.min {
            self.last_call = None;
        }
    }

    fn complete(&mut self, settings: &Settings) {
        self.complete = true;
        self.world_size = self.participants.len() as u32;
        self.last_call = None;
        let former = std::mem::take(&mut self.former);
        let former = if settings.stable_ranks { former } else { BTreeMap::new() };
        let ranks = ranks(self.participants.keys(), &former);
        for ((node, place), rank) in self.participants.iter_mut().zip(ranks) {
            *place = Some(rank);
            if settings.stable_ranks {
                self.former.insert(Arc::clone(node), rank);
            }
        }
    }
}

/// The ranks of nodes in their order: who had one that still exists keeps it, the others fill the holes in order.
fn ranks<'a>(
    nodes: impl ExactSizeIterator<Item = &'a Arc<Node>> + Clone,
    former: &BTreeMap<Arc<Node>, u32>,
) -> Vec<u32> {
    let count = nodes.len();
    let mut taken = vec![false; count];
    let kept: Vec<Option<u32>> = nodes
        .map(|node| {
            let rank = *former.get(node)?;
            let taken = taken.get_mut(rank as usize)?;
            (!std::mem::replace(taken, true)).then_some(rank)
        })
        .collect();
    let mut holes = (0..count as u32).filter(|&rank| !taken[rank as usize]);
    kept.into_iter().map(|rank| rank.or_else(|| holes.next()).unwrap_or_default()).collect()
}
