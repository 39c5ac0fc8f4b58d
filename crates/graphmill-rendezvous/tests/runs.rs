//! Whole runs, event by event, on a clock that the test turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::state::Time;
use graphmill_rendezvous::{Effect, Event, Node, Outcome, Run, Settings};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(600);

fn node(counter: u32) -> Arc<Node> {
    Arc::new(Node::new("host", 1, counter))
}

/// A run and its clock.
struct Scene {
    run: Run,
    now: Time,
}

impl Scene {
    fn new(settings: Settings) -> Self {
        Self { run: Run::new(settings), now: Duration::ZERO }
    }

    fn happens(&mut self, event: Event) -> Vec<(u32, Outcome)> {
        let answer = |effect| match effect {
            Effect::Answer(node, outcome) => Some((node.counter, outcome)),
            Effect::Changed => None,
        };
        let mut answers: Vec<_> = self.run.handle(event, self.now).into_iter().filter_map(answer).collect();
        answers.sort_by_key(|(counter, _)| *counter);
        answers
    }

    fn join(&mut self, counter: u32) -> Vec<(u32, Outcome)> {
        self.happens(Event::Join(node(counter), WITHIN))
    }

    /// Lets time pass up to its next point of interest after another, in which some say that they are alive.
    fn pass(&mut self, time: Duration, alive: &[u32]) -> Vec<(u32, Outcome)> {
        let (end, mut answers) = (self.now + time, Vec::new());
        while self.now < end {
            self.now = (self.now + SECOND).min(end);
            for &counter in alive {
                answers.extend(self.happens(Event::KeepAlive(node(counter))));
            }
            answers.extend(self.happens(Event::Tick));
        }
        answers
    }
}

fn joined(round: u64, rank: u32, world_size: u32) -> Outcome {
    Outcome::Joined { round, rank, world_size }
}

#[test]
fn two_nodes_find_each_other_and_a_third_becomes_a_spare() {
    let mut scene = Scene::new(Settings::new(2, 2));
    assert_eq!(scene.join(1), []);
    assert_eq!(scene.join(2), [(1, joined(0, 0, 2)), (2, joined(0, 1, 2))]);
    assert_eq!(scene.join(3), []);
    assert!(scene.run.state().redundant.contains(&node(3)));
    assert_eq!(scene.pass(1_000 * SECOND, &[1, 2, 3]), [], "a spare has all the time in the world");
    // Node 1 dies; node 2 sees its work fail and comes again.
    assert_eq!(scene.pass(20 * SECOND, &[2, 3]), []);
    let answers = scene.join(2);
    assert_eq!(answers, [(2, joined(1, 1, 2)), (3, joined(1, 0, 2))], "the spare moves up, node 2 keeps its rank");
}

#[test]
fn rounds_advance_as_members_come_again() {
    let mut scene = Scene::new(Settings::new(2, 2));
    for round in 0..4 {
        assert_eq!(scene.join(1), [], "round {round}");
        assert_eq!(scene.join(2), [(1, joined(round, 0, 2)), (2, joined(round, 1, 2))]);
    }
}

#[test]
fn a_newcomer_waits_until_all_have_left_the_round() {
    let mut scene = Scene::new(Settings::new(1, 3));
    scene.join(1);
    scene.join(2);
    assert_eq!(scene.pass(31 * SECOND, &[1, 2]), [(1, joined(0, 0, 2)), (2, joined(0, 1, 2))], "the last call is over");
    assert_eq!(scene.join(3), []);
    assert_eq!(scene.run.state().waiting.len(), 1);
    assert_eq!(scene.join(1), []);
    assert_eq!(scene.run.state().waiting.len(), 2);
    assert_eq!(scene.join(2), [(1, joined(1, 0, 3)), (2, joined(1, 1, 3)), (3, joined(1, 2, 3))]);
}

#[test]
fn whoever_waits_too_long_is_told_and_leaves_no_trace() {
    let mut scene = Scene::new(Settings::new(2, 3));
    assert_eq!(scene.happens(Event::Join(node(1), 60 * SECOND)), []);
    assert_eq!(scene.pass(60 * SECOND, &[1]), [], "exactly in time");
    assert_eq!(scene.pass(SECOND, &[1]), [(1, Outcome::TimedOut)]);
    assert_eq!(scene.run.state().members().count(), 0);
}

#[test]
fn closing_reaches_everyone_and_is_for_good() {
    let mut scene = Scene::new(Settings::new(2, 2));
    scene.join(1);
    scene.join(2);
    scene.join(3);
    assert_eq!(scene.happens(Event::Close), [(3, Outcome::Exit)], "a spare is not to blame");
    assert_eq!(scene.happens(Event::Close), []);
    assert_eq!(scene.join(4), [(4, Outcome::Closed)]);
    assert!(scene.run.state().closed);
}

#[test]
fn leaving_is_not_closing() {
    let mut scene = Scene::new(Settings::new(1, 2));
    scene.join(1);
    scene.join(2);
    scene.happens(Event::Leave(node(1)));
    assert!(!scene.run.state().closed && scene.run.state().complete);
    scene.happens(Event::Leave(node(2)));
    assert_eq!((scene.run.state().round, scene.run.state().complete), (1, false));
    assert_eq!(scene.join(3), []);
}

#[test]
fn a_member_that_dies_while_it_waits_for_an_answer_is_told_so() {
    let mut scene = Scene::new(Settings::new(2, 2));
    scene.join(1);
    assert_eq!(scene.pass(16 * SECOND, &[]), [(1, Outcome::Lost)]);
    assert_eq!(scene.join(2), []);
}

#[test]
fn a_restored_run_gives_everyone_a_full_lease_again() {
    let mut scene = Scene::new(Settings::new(2, 2));
    scene.join(1);
    scene.join(2);
    let later = 5_000 * SECOND;
    let mut run = Run::restored(scene.run.settings().clone(), scene.run.state().clone(), later);
    assert_eq!(run.handle(Event::Tick, later + 15 * SECOND), []);
    run.handle(Event::KeepAlive(node(2)), later + 15 * SECOND);
    run.handle(Event::Tick, later + 16 * SECOND);
    assert_eq!(run.state().participants, BTreeMap::from([(node(2), Some(1))]), "who does not come back is dead");
}

#[test]
fn an_answer_that_nobody_waits_for_is_not_given() {
    let mut scene = Scene::new(Settings::new(2, 2));
    scene.join(1);
    scene.happens(Event::Abandon(node(1)));
    assert_eq!(scene.join(2), [(2, joined(0, 1, 2))], "it takes part all the same, until its lease ends");
}

#[derive(Debug, Clone)]
enum Step {
    Join(u32, u64),
    Leave(u32),
    KeepAlive(u32),
    Abandon(u32),
    Close,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u32..8, 1u64..120).prop_map(|(node, within)| Step::Join(node, within)),
        2 => (0u32..8).prop_map(Step::Leave),
        6 => (0u32..8).prop_map(Step::KeepAlive),
        1 => (0u32..8).prop_map(Step::Abandon),
        1 => prop::sample::select(vec![Step::Close, Step::Pass(0), Step::Pass(0), Step::Pass(0)]),
        5 => prop_oneof![0u64..6, 0u64..40].prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens in whatever order, what members are told can be relied on.
    #[test]
    fn no_history_breaks_a_promise(
        steps in prop::collection::vec(step(), 1..120),
        min in 1u32..4,
        more in 0u32..4,
        stable_ranks: bool,
    ) {
        let settings = Settings { stable_ranks, ..Settings::new(min, min + more) };
        let mut run = Run::new(settings.clone());
        let mut now = Duration::ZERO;
        // Who was told to be in which round, with which rank, of how many.
        let mut told: BTreeMap<u64, (u32, BTreeMap<u32, u32>)> = BTreeMap::new();
        let (mut round, mut was_closed, mut sets) = (0, false, BTreeMap::<u64, BTreeSet<Arc<Node>>>::new());
        let mut joining = BTreeSet::new();
        for step in steps {
            let event = match step {
                Step::Join(counter, within) => {
                    joining.insert(counter);
                    Event::Join(node(counter), Duration::from_secs(within))
                }
                Step::Leave(counter) => {
                    joining.remove(&counter);
                    Event::Leave(node(counter))
                }
                Step::Abandon(counter) => {
                    joining.remove(&counter);
                    Event::Abandon(node(counter))
                }
                Step::KeepAlive(counter) => Event::KeepAlive(node(counter)),
                Step::Close => Event::Close,
                Step::Pass(seconds) => {
                    now += Duration::from_secs(seconds);
                    Event::Tick
                }
            };
            let before = run.state().clone();
            let effects = run.handle(event, now);
            let state = run.state();
            if state != &before && state.members().map(|node| &**node).collect::<Vec<_>>() != before.members().map(|node| &**node).collect::<Vec<_>>() {
                prop_assert!(effects.contains(&Effect::Changed), "a change that nobody hears of");
            }

            prop_assert!(state.round >= round, "the round went back");
            round = state.round;
            prop_assert!(state.closed || !was_closed, "a closed run opened");
            was_closed = state.closed;
            let lists: Vec<_> = state.members().collect();
            let distinct: BTreeSet<_> = lists.iter().collect();
            prop_assert_eq!(lists.len(), distinct.len(), "a member is in two lists");
            prop_assert!(state.participants.len() as u32 <= settings.max);
            if state.complete {
                let set: BTreeSet<_> = state.participants.keys().cloned().collect();
                let first = sets.entry(state.round).or_insert_with(|| set.clone());
                prop_assert!(set.is_subset(first), "a complete round has got a new participant");
                let (count, most) = (first.len() as u32, settings.max);
                prop_assert!(settings.min <= count && count <= most, "a round of {} was formed", count);
            }
            for effect in effects {
                let Effect::Answer(node, outcome) = effect else { continue };
                prop_assert!(joining.remove(&node.counter), "an answer that nobody waits for");
                let Outcome::Joined { round, rank, world_size } = outcome else { continue };
                prop_assert!(rank < world_size);
                let (world, ranks) = told.entry(round).or_insert((world_size, BTreeMap::new()));
                prop_assert_eq!(*world, world_size, "two world sizes in a round");
                prop_assert!(ranks.insert(rank, node.counter).is_none_or(|other| other == node.counter), "a rank given twice");
            }
            // Time alone would change nothing now: whoever could be served has been.
            let mut again = run.clone();
            prop_assert_eq!(again.handle(Event::Tick, now), vec![]);
        }
    }
}
