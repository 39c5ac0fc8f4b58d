//! The rules of joining, row by row, and the steps that they lead to, on a clock that the test turns.
#![allow(clippy::unchecked_time_subtraction)]

use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::join::{Next, join};
use graphmill_rendezvous::state::{Action, State, Time};
use graphmill_rendezvous::{Node, Settings};

const NOW: Time = Duration::from_secs(1_000);
const SECOND: Duration = Duration::from_secs(1);
const INSTANT: Duration = Duration::from_nanos(1);

fn node(counter: u32) -> Arc<Node> {
    Arc::new(Node::new("host", 1, counter))
}

fn settings() -> Settings {
    Settings::new(2, 3)
}

/// A state in which nodes take part, all heard of just now.
fn with(participants: &[u32]) -> State {
    let mut state = State::default();
    for &counter in participants {
        state.participants.insert(node(counter), None);
        state.hear(&node(counter), NOW);
    }
    state
}

fn complete(participants: &[u32]) -> State {
    let mut state = with(participants);
    state.complete = true;
    state
}

fn waiting(mut state: State, counter: u32) -> State {
    state.waiting.insert(node(counter));
    state.hear(&node(counter), NOW);
    state
}

fn redundant(mut state: State, counter: u32) -> State {
    state.redundant.insert(node(counter));
    state.hear(&node(counter), NOW);
    state
}

fn closed(mut state: State) -> State {
    state.closed = true;
    state
}

fn called(mut state: State, end: Time) -> State {
    state.last_call = Some(end);
    state
}

fn heard(mut state: State, at: Time) -> State {
    state.hear(&node(1), at);
    state
}

#[test]
fn joining_follows_the_first_rule_that_fits() {
    let act = Next::Act;
    let in_time = NOW + SECOND;
    let due = NOW - Duration::from_secs(5);
    let rows: Vec<(&str, State, Time, Next)> = vec![
        ("1 closed, redundant", closed(redundant(complete(&[2, 3, 4]), 1)), in_time, Next::Exit),
        ("2 closed", closed(State::default()), in_time, Next::Closed),
        ("2 closed, takes part", closed(complete(&[1, 2])), in_time, Next::Closed),
        ("3 redundant, full", redundant(complete(&[2, 3, 4]), 1), in_time, Next::Wait),
        (
            "3 redundant, full, heartbeat due",
            heard(redundant(complete(&[2, 3, 4]), 1), due),
            in_time,
            act(Action::KeepAlive),
        ),
        ("3 redundant, full, no time-out", redundant(complete(&[2, 3, 4]), 1), NOW - 60 * SECOND, Next::Wait),
        ("4 redundant, room", redundant(complete(&[2, 3]), 1), in_time, act(Action::StopBeingRedundant)),
        ("4 redundant, room, late", redundant(complete(&[2, 3]), 1), NOW - SECOND, act(Action::StopBeingRedundant)),
        ("5 complete, takes part", complete(&[1, 2]), in_time, Next::Done),
        ("5 complete, takes part, late", complete(&[1, 2]), NOW - SECOND, Next::Done),
        ("6 late, takes part", with(&[1]), NOW - INSTANT, act(Action::Withdraw)),
        ("6 late by all of it, takes part", with(&[1]), NOW - 5 * SECOND, act(Action::Withdraw)),
        ("7 late, waits", waiting(complete(&[2, 3]), 1), NOW - 5 * SECOND, act(Action::StopWaiting)),
        ("8 past rolling back, takes part", with(&[1]), NOW - 5 * SECOND - INSTANT, Next::TimedOut),
        ("8 past rolling back, waits", waiting(complete(&[2, 3]), 1), NOW - 5 * SECOND - INSTANT, Next::TimedOut),
        ("8 late, nowhere", State::default(), NOW - INSTANT, Next::TimedOut),
        ("8 exactly in time", State::default(), NOW, act(Action::TakePart)),
        ("9 complete, room", complete(&[2, 3]), in_time, act(Action::Wait)),
        ("10 complete, full", complete(&[2, 3, 4]), in_time, act(Action::BeRedundant)),
        ("10 complete, full, waits", waiting(complete(&[2, 3, 4]), 1), in_time, Next::Wait),
        ("11 last call over", called(with(&[1, 2]), NOW - INSTANT), in_time, act(Action::Complete)),
        ("11 last call ends now", called(with(&[1, 2]), NOW), in_time, Next::Wait),
        ("12 not complete, not in", with(&[2]), in_time, act(Action::TakePart)),
        ("12 not complete, waits", waiting(with(&[2]), 1), in_time, act(Action::TakePart)),
        ("13 heartbeat due", heard(with(&[1]), due), in_time, act(Action::KeepAlive)),
        ("13 heartbeat past due", heard(with(&[1]), due - SECOND), in_time, act(Action::KeepAlive)),
        ("13 heartbeat due, waits", heard(waiting(complete(&[2, 3]), 1), due), in_time, act(Action::KeepAlive)),
        ("14 in, too few", heard(with(&[1]), due + INSTANT), in_time, Next::Wait),
        ("14 waits", waiting(complete(&[2, 3]), 1), in_time, Next::Wait),
    ];
    for (row, state, deadline, expected) in rows {
        assert_eq!(join(&state, &settings(), &node(1), deadline, NOW), expected, "{row}");
    }
}

/// Steps of nodes in order, each at the same time.
fn after(mut state: State, settings: &Settings, steps: &[(Action, u32)]) -> State {
    for &(action, counter) in steps {
        state.apply(action, &node(counter), settings, NOW);
    }
    state
}

fn ranks(state: &State) -> Vec<(u32, Option<u32>)> {
    state.participants.iter().map(|(node, rank)| (node.counter, *rank)).collect()
}

#[test]
fn steps_do_what_they_say() {
    let settings = settings();
    let one = after(State::default(), &settings, &[(Action::TakePart, 5)]);
    assert_eq!((ranks(&one), one.last_call, one.heard(&node(5))), (vec![(5, None)], None, Some(NOW)));

    let two = after(one.clone(), &settings, &[(Action::TakePart, 3)]);
    assert_eq!(
        (two.complete, two.last_call),
        (false, Some(NOW + 30 * SECOND)),
        "reaching the fewest starts the last call"
    );

    let fewer = after(two.clone(), &settings, &[(Action::Withdraw, 3)]);
    assert_eq!((fewer.last_call, fewer.heard(&node(3))), (None, None), "falling below them ends it");

    let full = after(two.clone(), &settings, &[(Action::TakePart, 4)]);
    assert_eq!((full.complete, full.last_call), (true, None), "reaching the most completes at once");
    assert_eq!(ranks(&full), [(3, Some(0)), (4, Some(1)), (5, Some(2))], "ranks follow the order of nodes");

    let called = after(two, &settings, &[(Action::Complete, 5)]);
    assert_eq!((called.complete, ranks(&called)), (true, vec![(3, Some(0)), (5, Some(1))]));

    let left = after(full.clone(), &settings, &[(Action::Withdraw, 3), (Action::Withdraw, 4)]);
    assert_eq!((left.complete, left.round, left.participants.len()), (true, 0, 1), "the others stay in their round");
    let empty = after(left, &settings, &[(Action::Withdraw, 5)]);
    assert_eq!((empty.complete, empty.round), (false, 1), "the last one out starts the next");

    let waiting = after(full, &settings, &[(Action::Wait, 9)]);
    assert!(waiting.waiting.contains(&node(9)));
    assert!(after(waiting, &settings, &[(Action::StopWaiting, 9)]).waiting.is_empty());
    let moved = after(State::default(), &settings, &[(Action::Wait, 1), (Action::TakePart, 1)]);
    assert!(moved.waiting.is_empty() && moved.participants.contains_key(&node(1)), "taking part ends the wait");
}

#[test]
fn fewest_and_most_may_be_the_same() {
    let settings = Settings::new(2, 2);
    let state = after(State::default(), &settings, &[(Action::TakePart, 2), (Action::TakePart, 1)]);
    assert_eq!((state.complete, ranks(&state)), (true, vec![(1, Some(0)), (2, Some(1))]));
}

#[test]
fn the_last_call_ends_when_everyone_expected_is_there() {
    let settings = Settings { expected: Some(3), ..Settings::new(2, 8) };
    let two = after(State::default(), &settings, &[(Action::TakePart, 1), (Action::TakePart, 2)]);
    assert!(!two.complete && two.last_call.is_some());
    assert!(after(two, &settings, &[(Action::TakePart, 3)]).complete);
}

#[test]
fn members_that_stay_keep_their_ranks_and_holes_fill_in_order() {
    for (stable_ranks, expected) in
        [(true, [(1, Some(2)), (3, Some(1)), (4, Some(0))]), (false, [(1, Some(0)), (3, Some(1)), (4, Some(2))])]
    {
        let settings = Settings { stable_ranks, ..Settings::new(3, 3) };
        let mut state =
            after(State::default(), &settings, &[(Action::TakePart, 2), (Action::TakePart, 3), (Action::TakePart, 4)]);
        assert_eq!(ranks(&state), [(2, Some(0)), (3, Some(1)), (4, Some(2))]);
        // Node 2 goes and node 1 comes: 4 had rank 2, 3 had rank 1.
        state.former.insert(node(4), 0);
        let out = [(Action::Withdraw, 2), (Action::Withdraw, 3), (Action::Withdraw, 4)];
        let back = [(Action::TakePart, 1), (Action::TakePart, 3), (Action::TakePart, 4)];
        let state = after(after(state, &settings, &out), &settings, &back);
        assert_eq!((state.round, ranks(&state)), (1, expected.to_vec()), "stable: {stable_ranks}");
    }
}

#[test]
fn the_dead_are_those_not_heard_of_for_longer_than_a_lease() {
    let settings = settings();
    let mut state = waiting(redundant(complete(&[1, 2, 3]), 4), 5);
    state.hear(&node(1), NOW + SECOND);
    assert_eq!(state.next_death(&settings), Some(NOW + 15 * SECOND));
    assert_eq!(state.bury(&settings, NOW + 15 * SECOND), [], "at the limit they live");
    let dead = state.bury(&settings, NOW + 15 * SECOND + INSTANT);
    assert_eq!(dead, [node(2), node(3), node(4), node(5)]);
    assert_eq!((ranks(&state), state.complete, state.round), (vec![(1, None)], true, 0));
    assert!(state.waiting.is_empty() && state.redundant.is_empty());
    assert_eq!(state.bury(&settings, NOW + 17 * SECOND), [node(1)]);
    assert_eq!((state.complete, state.round, state.members().count()), (false, 1, 0), "everybody dead: the next round");
}

#[test]
fn the_death_of_one_of_too_few_ends_the_last_call() {
    let mut state = called(with(&[1, 2]), NOW + 30 * SECOND);
    state.hear(&node(1), NOW + 10 * SECOND);
    state.bury(&settings(), NOW + 20 * SECOND);
    assert_eq!((state.last_call, state.participants.len()), (None, 1));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let usual = Settings::new(1, 4);
    assert_eq!((usual.last_call, usual.keep_alive, usual.lease()), (30 * SECOND, 5 * SECOND, 15 * SECOND));
    assert!(usual.check().is_ok() && Settings::new(3, 3).check().is_ok());
    let zero = Duration::ZERO;
    let wrong = [
        Settings::new(0, 1),
        Settings::new(3, 2),
        Settings { last_call: zero, ..usual.clone() },
        Settings { keep_alive: zero, ..usual.clone() },
        Settings { missed: 0, ..usual.clone() },
        Settings { last_call: Duration::MAX, ..usual.clone() },
        Settings { keep_alive: Duration::from_millis(u64::MAX), missed: u32::MAX, ..usual.clone() },
        Settings { expected: Some(5), ..usual.clone() },
        Settings { expected: Some(0), ..usual },
    ];
    for settings in wrong {
        assert!(settings.check().is_err(), "{settings:?}");
    }
    for run in ["", "a\nb", &"x".repeat(300)] {
        assert!(graphmill_rendezvous::check_run(run).is_err(), "{run:?}");
    }
    assert!(graphmill_rendezvous::check_run("train 7").is_ok());
}

#[test]
fn nodes_are_ordered_by_address_process_and_counter() {
    let nodes = [Node::new("a", 9, 9), Node::new("b", 1, 9), Node::new("b", 2, 1), Node::new("b", 2, 2)];
    assert!(nodes.is_sorted());
    assert_eq!(nodes[2].to_string(), "b_2_1");
    let set: std::collections::HashSet<_> = nodes.iter().chain(&nodes.clone()).cloned().collect();
    assert_eq!(set.len(), nodes.len(), "equal ones are one");
}
