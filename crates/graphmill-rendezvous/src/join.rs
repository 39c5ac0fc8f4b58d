//! The rules of joining: what a member does next, given where the run stands.

use std::sync::Arc;
use std::time::Duration;

use crate::state::{Action, State, Time};
use crate::{Node, Settings};

/// How long after its time a join may still be taken back in good order.
pub const ROLL_BACK: Duration = Duration::from_secs(5);

/// What a member does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Something changes, then it is asked again.
    Act(Action),
    /// Waits until something changes.
    Wait,
    /// Takes part in a complete round.
    Done,
    /// Was one too many of a run that has ended: not its fault.
    Exit,
    /// The run has ended.
    Closed,
    /// It has waited long enough.
    TimedOut,
}

/// What a member that wants to take part does next; the first rule that fits.
pub fn join(state: &State, settings: &Settings, node: &Arc<Node>, deadline: Time, now: Time) -> Next {
    let count = state.participants.len() as u32;
    let takes_part = state.participants.contains_key(node);
    let waits = state.waiting.contains(node);
    let redundant = state.redundant.contains(node);
    let late = now > deadline;
    let may_roll_back = late && now <= deadline + ROLL_BACK;
    let full = count >= settings.max;
    match () {
        () if state.closed && redundant => Next::Exit,
        () if state.closed => Next::Closed,
        () if redundant && full => keep_alive(state, settings, node, now),
        () if redundant => Next::Act(Action::StopBeingRedundant),
        () if state.complete && takes_part => Next::Done,
        () if may_roll_back && takes_part => Next::Act(Action::Withdraw),
        () if may_roll_back && waits => Next::Act(Action::StopWaiting),
        () if late => Next::TimedOut,
        () if state.complete && !full && !waits => Next::Act(Action::Wait),
        () if state.complete && full && !waits => Next::Act(Action::BeRedundant),
        () if state.complete => keep_alive(state, settings, node, now),
        () if takes_part && count >= settings.min && state.last_call.is_some_and(|end| now > end) => {
            Next::Act(Action::Complete)
        }
        () if !takes_part => Next::Act(Action::TakePart),
        () => keep_alive(state, settings, node, now),
    }
}

/// Whether a member is to be heard of again.
fn keep_alive(state: &State, settings: &Settings, node: &Node, now: Time) -> Next {
    let due = state.heard(node).is_some_and(|heard| now.saturating_sub(heard) >= settings.keep_alive);
    if due { Next::Act(Action::KeepAlive) } else { Next::Wait }
}
