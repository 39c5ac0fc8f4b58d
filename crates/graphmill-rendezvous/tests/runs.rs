//! Random histories of a run, on a clock that the test turns. `conformance` has the scripted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::records::{self, Records};
use graphmill_rendezvous::{Effect, Event, Node, Outcome, Run, Settings};
use proptest::prelude::*;

fn node(counter: u32) -> Arc<Node> {
    Arc::new(Node::new("host", 1, counter))
}

#[derive(Debug, Clone)]
enum Step {
    Join(u32, u64),
    JoinAgain(u32, u64),
    Leave(u32),
    KeepAlive(u32),
    Abandon(u32),
    Close,
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u32..8, 1u64..120).prop_map(|(node, within)| Step::Join(node, within)),
        2 => (0u32..8, 1u64..120).prop_map(|(node, within)| Step::JoinAgain(node, within)),
        2 => (0u32..8).prop_map(Step::Leave),
        6 => (0u32..8).prop_map(Step::KeepAlive),
        1 => (0u32..8).prop_map(Step::Abandon),
        1 => prop::sample::select(vec![Step::Close, Step::Restart, Step::Restart, Step::Restart]),
        5 => prop_oneof![0u64..6, 0u64..40].prop_map(Step::Pass),
    ]
}

fn keep(kept: &mut Records, (key, record): records::Change) {
    match record {
        Some(record) => drop(kept.insert(key, record)),
        None => drop(kept.remove(&key)),
    }
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
        expected in prop::option::of(0u32..4),
    ) {
        let expected = expected.map(|beyond| min + beyond.min(more));
        let settings = Settings { stable_ranks, expected, ..Settings::new(min, min + more) };
        let mut run = Run::new(settings.clone());
        let mut now = Duration::ZERO;
        // Who was told to be in which round, with which rank, of how many.
        let mut told: BTreeMap<u64, (u32, BTreeMap<u32, u32>)> = BTreeMap::new();
        let (mut round, mut was_closed, mut sets) = (0, false, BTreeMap::<u64, BTreeSet<Arc<Node>>>::new());
        let mut joining = BTreeSet::new();
        let mut kept = Records::new();
        for step in steps {
            let event = match step {
                Step::Join(counter, within) => {
                    joining.insert(counter);
                    Event::Join(node(counter), Duration::from_secs(within))
                }
                Step::JoinAgain(counter, within) => {
                    joining.insert(counter);
                    Event::JoinAgain(node(counter), Duration::from_secs(within))
                }
                Step::Leave(counter) => Event::Leave(node(counter)),
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
                Step::Restart => {
                    if let Some(kept) = records::read(&kept).unwrap() {
                        run = Run::restored(kept.settings, kept.state, now);
                    }
                    // Whoever waits for an answer has to ask again.
                    joining.clear();
                    Event::Tick
                }
            };
            let before = run.state().clone();
            let effects = run.handle(event, now);
            for member in run.take_touched() {
                keep(&mut kept, records::member_change(run.state(), &member));
            }
            if effects.contains(&Effect::Changed) {
                keep(&mut kept, records::run_change(run.settings(), run.state()));
            }
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
                if !sets.contains_key(&state.round) {
                    let ranks: BTreeSet<_> = state.participants.values().copied().collect();
                    let all: BTreeSet<_> = (0..set.len() as u32).map(Some).collect();
                    prop_assert_eq!(ranks, all, "the ranks of a round that is formed");
                }
                let first = sets.entry(state.round).or_insert_with(|| set.clone());
                prop_assert!(set.is_subset(first), "a complete round has got a new participant");
                let (count, most) = (first.len() as u32, settings.max);
                prop_assert!(settings.min <= count && count <= most, "a round of {} was formed", count);
            }
            for effect in effects {
                let Effect::Answer(node, outcome) = effect else { continue };
                prop_assert!(joining.remove(&node.counter), "an answer that nobody waits for");
                if matches!(outcome, Outcome::TimedOut | Outcome::Lost) {
                    prop_assert!(!state.knows(&node), "others count on a member that was turned away");
                }
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
