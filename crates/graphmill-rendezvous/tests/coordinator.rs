//! The coordinator in its own process: many members, restarts, values.

use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::calls::Call;
use graphmill_rendezvous::{Coordinator, Keeping, Node, Operation, Outcome, Refused, Settings};

const WITHIN: Duration = Duration::from_secs(30);

fn node(counter: u32) -> Node {
    Node::new("host", 1, counter)
}

fn memory() -> Arc<Coordinator> {
    Coordinator::new(Keeping::Memory).unwrap()
}

/// Joins as many at once, and gives their outcomes in order.
async fn join_all(
    coordinator: &Arc<Coordinator>,
    members: std::ops::Range<u32>,
    settings: &Settings,
    again: bool,
) -> Vec<Outcome> {
    let mut joins = tokio::task::JoinSet::new();
    for counter in members {
        let (coordinator, settings) = (Arc::clone(coordinator), settings.clone());
        joins.spawn(async move {
            let outcome = if again {
                coordinator.join_again("run", node(counter), settings, WITHIN, None).await
            } else {
                coordinator.join("run", node(counter), settings, WITHIN).await
            };
            (counter, outcome.unwrap())
        });
    }
    let mut outcomes = joins.join_all().await;
    outcomes.sort_by_key(|(counter, _)| *counter);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

#[tokio::test]
async fn a_hundred_members_get_a_hundred_ranks() {
    let coordinator = memory();
    let outcomes = join_all(&coordinator, 0..100, &Settings::new(100, 100), false).await;
    let expected: Vec<_> = (0..100).map(|rank| Outcome::Joined { round: 0, rank, world_size: 100 }).collect();
    assert_eq!(outcomes, expected);
    assert!(coordinator.keep_alive("run", node(7)).await.unwrap());
    assert!(!coordinator.keep_alive("run", node(700)).await.unwrap(), "nobody knows it");
    assert_eq!(coordinator.runs(), ["run"]);
}

#[tokio::test]
async fn a_restarted_coordinator_gives_the_same_answer_to_who_asks_again() {
    let folder = tempfile::tempdir().unwrap();
    let keeping = Keeping::Folder(folder.path().join("state"));
    let settings = Settings { last_call: Duration::from_millis(50), ..Settings::new(3, 4) };
    let first = Coordinator::new(keeping.clone()).unwrap();
    let before = join_all(&first, 0..3, &settings, false).await;
    first.store("run", 0, Operation::Set(vec![("port".to_owned(), b"29500".to_vec())])).await.unwrap();
    drop(first);
    // Its task ends when it sees that nobody is left to ask it.
    tokio::time::sleep(Duration::from_millis(100)).await;

    let second = Coordinator::new(keeping).unwrap();
    assert!(second.keep_alive("run", node(1)).await.unwrap(), "members are where they were");
    assert_eq!(join_all(&second, 0..3, &settings, true).await, before, "with the same ranks");
    let stored = second.store("run", 0, Operation::Get(vec!["port".to_owned()], WITHIN)).await.unwrap();
    assert_eq!(stored.values, [b"29500".to_vec()]);
    second.close("run", None).await.unwrap();
    assert_eq!(second.join("run", node(9), settings, WITHIN).await.unwrap(), Outcome::Closed);
}

#[tokio::test]
async fn who_hangs_up_is_not_waited_for_and_may_ask_again() {
    let coordinator = memory();
    let settings = Settings::new(2, 2);
    let hangs_up = coordinator.join("run", node(0), settings.clone(), WITHIN);
    assert!(tokio::time::timeout(Duration::from_millis(50), hangs_up).await.is_err());
    let outcomes = tokio::join!(
        coordinator.join_again("run", node(0), settings.clone(), WITHIN, None),
        coordinator.join("run", node(1), settings.clone(), WITHIN),
    );
    assert_eq!(outcomes.0.unwrap(), Outcome::Joined { round: 0, rank: 0, world_size: 2 });
    assert_eq!(outcomes.1.unwrap(), Outcome::Joined { round: 0, rank: 1, world_size: 2 });
}

#[tokio::test]
async fn a_death_is_an_event_that_frees_a_place_at_once() {
    let coordinator = memory();
    let settings = Settings { keep_alive: Duration::from_millis(100), missed: 3, ..Settings::new(2, 2) };
    let alive = {
        let coordinator = Arc::clone(&coordinator);
        tokio::spawn(async move {
            loop {
                for counter in [1, 2] {
                    let _ = coordinator.keep_alive("run", node(counter)).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    join_all(&coordinator, 0..2, &settings, false).await;
    let spare = tokio::spawn({
        let (coordinator, settings) = (Arc::clone(&coordinator), settings.clone());
        async move { coordinator.join("run", node(2), settings, WITHIN).await.unwrap() }
    });
    // Node 0 says nothing any more; node 1 is told by what it watches, and comes again.
    let mut changes = coordinator.changes("run").await.unwrap();
    loop {
        changes.changed().await.unwrap();
        if coordinator.status("run").await.unwrap().state.participants.len() == 1 {
            break;
        }
    }
    let again = coordinator.join("run", node(1), settings, WITHIN).await.unwrap();
    assert_eq!(again, Outcome::Joined { round: 1, rank: 1, world_size: 2 });
    assert_eq!(spare.await.unwrap(), Outcome::Joined { round: 1, rank: 0, world_size: 2 });
    alive.abort();
}

#[tokio::test]
async fn a_sign_of_life_that_comes_too_late_does_not_pass_for_one_in_time() {
    let coordinator = memory();
    let settings = Settings { keep_alive: Duration::from_millis(20), missed: 1, ..Settings::new(1, 1) };
    for round in 0..10 {
        let joined = coordinator.join("run", node(0), settings.clone(), WITHIN).await.unwrap();
        assert_eq!(joined, Outcome::Joined { round, rank: 0, world_size: 1 });
        // The coordinator has no other thread, so it sees the end of the lease when it sees the keep-alive.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!coordinator.keep_alive("run", node(0)).await.unwrap(), "round {round}");
    }
}

#[tokio::test]
async fn whoever_brings_other_settings_is_told_the_difference() {
    let coordinator = memory();
    let first = coordinator.join("run", node(0), Settings::new(2, 4), WITHIN);
    assert!(tokio::time::timeout(Duration::from_millis(20), first).await.is_err(), "one is too few");
    let refused = coordinator.join("run", node(1), Settings::new(2, 8), WITHIN).await.unwrap_err().to_string();
    assert_eq!(refused, "run `run` has other settings: the most participants are 4 there, 8 here");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_harms_nobody() {
    let coordinator = memory();
    let settings = Settings::new(1, 1);
    let refused = |outcome: Result<Outcome, Refused>| outcome.unwrap_err().to_string();
    assert!(refused(coordinator.join("", node(0), settings.clone(), WITHIN).await).contains("name"));
    assert!(refused(coordinator.join("run", node(0), Settings::new(3, 2), WITHIN).await).contains("fewer"));
    assert!(refused(coordinator.join("run", node(0), settings.clone(), Duration::ZERO).await).contains("1 ms"));
    let nobody = Node::new("x".repeat(300), 1, 1);
    assert!(refused(coordinator.join("run", nobody, settings.clone(), WITHIN).await).contains("256 bytes"));
    assert!(matches!(coordinator.status("other").await, Err(Refused::Unknown(_))));
    assert_eq!(
        coordinator.join("run", node(0), settings, WITHIN).await.unwrap(),
        Outcome::Joined { round: 0, rank: 0, world_size: 1 }
    );
}

#[tokio::test]
async fn a_value_reaches_everyone_who_waits_for_it() {
    let coordinator = memory();
    coordinator.join("run", node(0), Settings::new(1, 1), WITHIN).await.unwrap();
    let get = |keys: &[&str], within| {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let coordinator = Arc::clone(&coordinator);
        async move { coordinator.store("run", 0, Operation::Get(keys, within)).await }
    };
    let (both, one) = (tokio::spawn(get(&["a", "b"], WITHIN)), tokio::spawn(get(&["a"], WITHIN)));
    let late = get(&["a", "never"], Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(late.to_string(), "`a`, `never` did not come within the time");
    let set = |key: &str, value: &[u8]| Operation::Set(vec![(key.to_owned(), value.to_vec())]);
    coordinator.store("run", 0, set("a", b"1")).await.unwrap();
    assert_eq!(one.await.unwrap().unwrap().values, [b"1".to_vec()]);
    coordinator.store("run", 0, set("b", b"2")).await.unwrap();
    assert_eq!(both.await.unwrap().unwrap().values, [b"1".to_vec(), b"2".to_vec()]);

    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert!(coordinator.store("run", 0, Operation::Check(keys(&["a", "b"]))).await.unwrap().yes);
    assert!(!coordinator.store("run", 0, Operation::Check(keys(&["a", "c"]))).await.unwrap().yes);
    assert_eq!(coordinator.store("run", 0, Operation::Add("n".to_owned(), 3)).await.unwrap().number, 3);
    assert_eq!(coordinator.store("run", 0, Operation::Count(String::new())).await.unwrap().number, 3);
    assert_eq!(coordinator.store("run", 0, Operation::Delete(keys(&["a", "x"]))).await.unwrap().number, 1);
    assert!(matches!(coordinator.store("run", 5, set("a", b"1")).await, Err(Refused::Invalid(_))), "no such round yet");
}

#[tokio::test]
async fn a_call_that_is_sent_again_is_not_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let keeping = Keeping::Folder(folder.path().to_owned());
    let key = || "k".to_owned();
    let calls = [
        Operation::Set(vec![(key(), b"4".to_vec())]),
        Operation::Add(key(), 3),
        Operation::Append(vec![(key(), b"0".to_vec())]),
        Operation::CompareSet(key(), b"70".to_vec(), b"71".to_vec()),
        Operation::Delete(vec![key()]),
        Operation::Add(key(), 1),
    ];
    let answers = async |coordinator: &Coordinator| {
        let mut answers = Vec::new();
        for (number, operation) in (0..).zip(calls.clone()) {
            answers.push(coordinator.store_once("run", 0, operation, Call { caller: 7, number }).await.unwrap());
        }
        answers
    };
    let first = Coordinator::new(keeping.clone()).unwrap();
    first.join("run", node(0), Settings::new(1, 1), WITHIN).await.unwrap();
    let before = answers(&first).await;
    assert_eq!(before.iter().map(|stored| stored.number).collect::<Vec<_>>(), [0, 7, 0, 0, 1, 1]);
    assert_eq!(answers(&first).await, before);
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;

    let second = Coordinator::new(keeping).unwrap();
    assert_eq!(answers(&second).await, before, "also by the one that takes over");
    let count = async |caller, number| {
        second.store_once("run", 0, Operation::Add(key(), 1), Call { caller, number }).await.unwrap().number
    };
    assert_eq!((count(7, 6).await, count(7, 6).await, count(8, 6).await), (2, 2, 3), "others are others");
    let refused = second.store_once("run", 0, Operation::Add("n".repeat(2000), 1), Call { caller: 7, number: 9 }).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn values_are_forgotten_after_the_next_round() {
    let coordinator = memory();
    let settings = Settings::new(1, 1);
    let set = Operation::Set(vec![("a".to_owned(), b"1".to_vec())]);
    coordinator.join("run", node(0), settings.clone(), WITHIN).await.unwrap();
    coordinator.store("run", 0, set).await.unwrap();
    for round in 1..3 {
        let outcome = coordinator.join("run", node(0), settings.clone(), WITHIN).await.unwrap();
        assert_eq!(outcome, Outcome::Joined { round, rank: 0, world_size: 1 });
        let found = coordinator.store("run", 0, Operation::Check(vec!["a".to_owned()])).await;
        assert_eq!(found.is_ok_and(|found| found.yes), round == 1, "round {round}");
    }
}

#[tokio::test]
async fn who_asks_again_for_the_next_round_does_not_get_the_one_it_is_in() {
    let coordinator = memory();
    let settings = Settings::new(1, 1);
    let join_again = async |told| {
        let outcome = coordinator.join_again("run", node(0), settings.clone(), WITHIN, told).await.unwrap();
        let Outcome::Joined { round, .. } = outcome else { panic!("{outcome:?}") };
        round
    };
    assert_eq!(join_again(None).await, 0);
    assert_eq!(join_again(None).await, 0, "nobody has told it yet");
    assert_eq!(join_again(Some(0)).await, 1, "the first request has never come");
    assert_eq!(join_again(Some(0)).await, 1, "it has come, and its answer was lost");
}
