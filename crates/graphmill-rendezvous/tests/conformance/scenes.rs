//! Whole runs, step by step.

use std::time::Duration;

use graphmill_rendezvous::state::State;
use graphmill_rendezvous::{Event, Outcome, Settings};

use crate::stage::{Keepers, SECOND, Stage, node};

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A node joins, within ten minutes.
    Join(u32),
    /// A node joins, within so many seconds.
    JoinWithin(u32, u64),
    /// A node asks again, because the answer was lost.
    Again(u32),
    /// A node does not wait any more.
    Abandon(u32),
    Leave(u32),
    Close,
    /// Time passes, in which some are alive.
    Pass(Duration, &'static [u32]),
    /// The coordinator stands still for so long.
    Stop(Duration),
    /// The coordinator is another one from here on.
    Restart,
    /// So many take part, wait and are spares, in this round.
    See(u64, bool, [usize; 3]),
}

use Outcome::{Closed, Exit, Lost, TimedOut};
use Step::{Abandon, Again, Close, Join, JoinWithin, Leave, Pass, Restart, See, Stop};

const INSTANT: Duration = Duration::from_nanos(1);

fn joined(round: u64, rank: u32, world_size: u32) -> Outcome {
    Outcome::Joined { round, rank, world_size }
}

type Scene = (&'static str, Settings, Vec<(Step, Vec<(u32, Outcome)>)>);

/// A step after which nobody is answered.
fn quiet(step: Step) -> (Step, Vec<(u32, Outcome)>) {
    (step, Vec::new())
}

fn scenes() -> Vec<Scene> {
    let both = |round| vec![(1, joined(round, 0, 2)), (2, joined(round, 1, 2))];
    vec![
        (
            "two nodes get two ranks, and repeated calls advance the rounds",
            Settings::new(2, 2),
            (0..4).flat_map(|round| [quiet(Join(1)), (Join(2), both(round))]).collect(),
        ),
        (
            "a third is redundant, without a time-out, and moves up when a participant dies",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(JoinWithin(3, 20)),
                quiet(See(0, true, [2, 0, 1])),
                quiet(Pass(3_600 * SECOND, &[1, 2, 3])),
                quiet(See(0, true, [2, 0, 1])),
                quiet(Pass(16 * SECOND, &[2, 3])),
                quiet(See(0, true, [1, 1, 0])),
                (Join(2), vec![(2, joined(1, 1, 2)), (3, joined(1, 0, 2))]),
            ],
        ),
        (
            "a redundant node that moves up has all its time again",
            Settings::new(1, 1),
            vec![
                (Join(1), vec![(1, joined(0, 0, 1))]),
                quiet(JoinWithin(2, 20)),
                quiet(Pass(60 * SECOND, &[1, 2])),
                (Leave(1), vec![(2, joined(1, 0, 1))]),
            ],
        ),
        (
            "a newcomer waits for the next round while there is room",
            Settings::new(1, 3),
            vec![
                quiet(Join(1)),
                quiet(Join(2)),
                (Pass(31 * SECOND, &[1, 2]), both(0)),
                quiet(Join(3)),
                quiet(Join(4)),
                quiet(See(0, true, [2, 2, 0])),
                (Leave(4), vec![(4, Lost)]),
                quiet(See(0, true, [2, 1, 0])),
                quiet(Join(1)),
                (Join(2), (1..4).map(|counter| (counter, joined(1, counter - 1, 3))).collect()),
            ],
        ),
        (
            "the last call ends strictly after its time",
            Settings::new(2, 3),
            vec![
                quiet(Join(1)),
                quiet(Pass(10 * SECOND, &[1])),
                quiet(Join(2)),
                quiet(Pass(30 * SECOND, &[1, 2])),
                (Pass(INSTANT, &[1, 2]), both(0)),
            ],
        ),
        (
            "falling below the fewest clears the last call",
            Settings::new(2, 3),
            vec![
                quiet(Join(1)),
                quiet(Join(2)),
                quiet(Pass(20 * SECOND, &[1, 2])),
                (Leave(2), vec![(2, Lost)]),
                quiet(Pass(20 * SECOND, &[1])),
                quiet(Join(2)),
                quiet(Pass(30 * SECOND, &[1, 2])),
                (Pass(INSTANT, &[1, 2]), both(0)),
            ],
        ),
        (
            "everyone expected ends it early",
            Settings { expected: Some(2), ..Settings::new(1, 8) },
            vec![quiet(Join(1)), (Join(2), both(0))],
        ),
        (
            "leaving is not closing, and the last one out starts the next round",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(Leave(1)),
                quiet(See(0, true, [1, 0, 0])),
                quiet(Leave(2)),
                quiet(See(1, false, [0, 0, 0])),
                quiet(Join(1)),
                (Join(2), both(1)),
            ],
        ),
        (
            "a join times out strictly after its time and leaves no trace",
            Settings::new(2, 3),
            vec![
                quiet(JoinWithin(1, 60)),
                quiet(Pass(60 * SECOND, &[1])),
                (Pass(INSTANT, &[1]), vec![(1, TimedOut)]),
                quiet(See(0, false, [0, 0, 0])),
            ],
        ),
        (
            "so does one on the wait list",
            Settings::new(1, 2),
            vec![
                quiet(Join(1)),
                (Pass(31 * SECOND, &[1]), vec![(1, joined(0, 0, 1))]),
                quiet(JoinWithin(2, 60)),
                quiet(See(0, true, [1, 1, 0])),
                (Pass(61 * SECOND, &[1, 2]), vec![(2, TimedOut)]),
                quiet(See(0, true, [1, 0, 0])),
            ],
        ),
        (
            "a join that is found to be late leaves no trace either, however late that is",
            Settings::new(1, 2),
            vec![
                quiet(JoinWithin(1, 2)),
                (Stop(9 * SECOND), vec![(1, TimedOut)]),
                quiet(See(0, false, [0, 0, 0])),
                quiet(Join(2)),
                (Pass(31 * SECOND, &[1, 2]), vec![(2, joined(0, 0, 1))]),
            ],
        ),
        (
            "who leaves while it joins is told so",
            Settings::new(2, 2),
            vec![quiet(Join(1)), (Leave(1), vec![(1, Lost)]), quiet(See(0, false, [0, 0, 0]))],
        ),
        (
            "a member is dead strictly after its lease",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(Pass(15 * SECOND, &[])),
                quiet(See(0, true, [2, 0, 0])),
                quiet(Pass(INSTANT, &[])),
                quiet(See(1, false, [0, 0, 0])),
            ],
        ),
        (
            "when everybody is dead the next round begins with empty lists",
            Settings::new(1, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(Join(3)),
                (Pass(16 * SECOND, &[]), vec![(3, Lost)]),
                quiet(See(1, false, [0, 0, 0])),
                quiet(Join(4)),
                (Pass(31 * SECOND, &[4]), vec![(4, joined(1, 0, 1))]),
            ],
        ),
        (
            "who dies while it waits for an answer is told so",
            Settings::new(2, 2),
            vec![quiet(Join(1)), (Pass(16 * SECOND, &[]), vec![(1, Lost)]), quiet(Join(2))],
        ),
        (
            "closing reaches everyone and is for good, and a spare exits in peace",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(Join(3)),
                (Close, vec![(3, Exit)]),
                quiet(Close),
                (Join(1), vec![(1, Closed)]),
                (Join(4), vec![(4, Closed)]),
            ],
        ),
        (
            "closing ends the wait of an open round",
            Settings::new(2, 2),
            vec![quiet(Join(1)), (Close, vec![(1, Closed)])],
        ),
        (
            "who asks again gets the same answer and does not leave the round",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                (Again(1), vec![(1, joined(0, 0, 2))]),
                quiet(See(0, true, [2, 0, 0])),
            ],
        ),
        (
            "also if others have left it since, and the coordinator is another one",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(Leave(1)),
                (Again(2), vec![(2, joined(0, 1, 2))]),
                quiet(Restart),
                (Again(2), vec![(2, joined(0, 1, 2))]),
            ],
        ),
        (
            "an answer that nobody waits for is not given, but the place is kept",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                quiet(Abandon(1)),
                (Join(2), vec![(2, joined(0, 1, 2))]),
                (Again(1), vec![(1, joined(0, 0, 2))]),
            ],
        ),
        (
            "a restarted coordinator gives everyone a full lease again",
            Settings::new(2, 2),
            vec![
                quiet(Join(1)),
                (Join(2), both(0)),
                quiet(Pass(14 * SECOND, &[])),
                quiet(Restart),
                quiet(Pass(15 * SECOND, &[2])),
                quiet(See(0, true, [2, 0, 0])),
                quiet(Pass(INSTANT, &[2])),
                quiet(See(0, true, [1, 0, 0])),
            ],
        ),
        (
            "and a last call its full time",
            Settings::new(2, 3),
            vec![
                quiet(Join(1)),
                quiet(Join(2)),
                quiet(Pass(20 * SECOND, &[1, 2])),
                quiet(Restart),
                quiet(Again(1)),
                quiet(Again(2)),
                quiet(Pass(30 * SECOND, &[1, 2])),
                (Pass(INSTANT, &[1, 2]), both(0)),
            ],
        ),
        (
            "and knows who waits, who is a spare, and that a run is closed",
            Settings::new(1, 1),
            vec![
                (Join(1), vec![(1, joined(0, 0, 1))]),
                quiet(Join(2)),
                quiet(Restart),
                quiet(See(0, true, [1, 0, 1])),
                quiet(Close),
                quiet(Restart),
                (Again(2), vec![(2, Exit)]),
                (Join(3), vec![(3, Closed)]),
            ],
        ),
        (
            "members that stay keep their ranks, also over a restart",
            Settings::new(2, 3),
            vec![
                quiet(Join(1)),
                quiet(Join(2)),
                (Join(3), (1..4).map(|counter| (counter, joined(0, counter - 1, 3))).collect()),
                quiet(Leave(1)),
                quiet(Restart),
                quiet(Join(2)),
                quiet(Join(3)),
                (Pass(31 * SECOND, &[2, 3]), vec![(2, joined(1, 1, 2)), (3, joined(1, 0, 2))]),
            ],
        ),
        (
            "unless they are to follow the order of nodes",
            Settings { stable_ranks: false, ..Settings::new(2, 2) },
            vec![
                quiet(Join(2)),
                (Join(3), vec![(2, joined(0, 0, 2)), (3, joined(0, 1, 2))]),
                quiet(Leave(2)),
                quiet(Join(3)),
                (Join(1), vec![(1, joined(1, 0, 2)), (3, joined(1, 1, 2))]),
            ],
        ),
    ]
}

async fn play(stage: &mut Stage, step: Step) -> Vec<(u32, Outcome)> {
    let event = match step {
        Join(counter) => Event::Join(node(counter), 600 * SECOND),
        JoinWithin(counter, seconds) => Event::Join(node(counter), Duration::from_secs(seconds)),
        Again(counter) => Event::JoinAgain(node(counter), 600 * SECOND),
        Abandon(counter) => Event::Abandon(node(counter)),
        Leave(counter) => Event::Leave(node(counter)),
        Close => Event::Close,
        Pass(time, alive) => return stage.pass(time, alive).await,
        Stop(time) => {
            stage.now += time;
            Event::Tick
        }
        Restart => {
            stage.restart().await;
            return Vec::new();
        }
        See(round, complete, counts) => {
            let State { participants, waiting, redundant, .. } = stage.run.state();
            assert_eq!([participants.len(), waiting.len(), redundant.len()], counts);
            assert_eq!((stage.run.state().round, stage.run.state().complete), (round, complete));
            return Vec::new();
        }
    };
    stage.happens(event).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scene_plays_alike_on_every_keeper() {
    let keepers = Keepers::start().await;
    for (name, settings, steps) in scenes() {
        for (kind, keeper) in keepers.all(name).await {
            let mut stage = Stage::new(settings.clone(), keeper);
            for (number, (step, expected)) in steps.iter().enumerate() {
                let answers = play(&mut stage, *step).await;
                assert_eq!(&answers, expected, "{kind}: {name}: step {number}, {step:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_keep_alive_of_nobody_changes_nothing() {
    let keepers = Keepers::start().await;
    for (kind, keeper) in keepers.all("nobody").await {
        let mut stage = Stage::new(Settings::new(2, 2), keeper);
        assert_eq!(stage.happens(Event::KeepAlive(node(7))).await, []);
        assert_eq!(stage.happens(Event::Leave(node(7))).await, []);
        assert_eq!((stage.token, stage.run.state()), (None, &State::default()), "{kind}: nothing was written");
    }
}
