//! The workers and the scheduler: who has something to do is woken, and nothing is done twice.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::budget::{Budget, Share};
use crate::scheduler::{Bounds, Credited};
use crate::support::models;
use crate::sync::{Arc, Condvar, Mutex, lock, thread};
use crate::work::Work;

models![
    6000 each_credit_has_one_turn_whoever_gives_it,
    6000 a_parked_channel_goes_on_when_its_client_takes_what_is_finished,
    6000 a_batch_that_waits_for_memory_is_begun_when_there_is_some,
    6000 what_is_urgent_is_done_once_and_wakes_who_sleeps,
    3000 workers_that_are_told_to_stop_end_whatever_waits,
];

const LOOSE: Bounds = Bounds { credits: 16, bytes: 1 << 30 };

/// What workers have done, for somebody to wait for.
#[derive(Default)]
struct Done {
    turns: Mutex<BTreeMap<(u64, u64, u64), usize>>,
    changed: Condvar,
}

impl Done {
    fn add(&self, channel: u64, epoch: u64, g: u64) {
        *lock(&self.turns).entry((channel, epoch, g)).or_default() += 1;
        self.changed.notify_all();
    }

    /// Waits for so many different ones; how often each was done.
    fn wait(&self, count: usize) -> BTreeMap<(u64, u64, u64), usize> {
        let mut turns = lock(&self.turns);
        while turns.len() < count {
            turns = self.changed.wait(turns).unwrap();
        }
        turns.clone()
    }
}

fn each_credit_has_one_turn_whoever_gives_it() {
    let work = Arc::new(Work::new(2, Budget::new(64 << 20)));
    let done = Arc::new(Done::default());
    let workers = {
        let (work, done) = (Arc::clone(&work), Arc::clone(&done));
        let begin = {
            let work = Arc::clone(&work);
            move |turn: crate::scheduler::Turn, _: &mut crate::work::Memory| {
                work.scheduler(|scheduler| scheduler.finished(turn, 5, 10));
                work.scheduler(|scheduler| scheduler.consumed(turn.channel, 10));
                done.add(turn.channel, turn.epoch, turn.g);
            }
        };
        work.start(2, begin).unwrap()
    };
    let clients: Vec<_> = (1..=2)
        .map(|channel| {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                work.scheduler(|scheduler| scheduler.add(channel, LOOSE, Instant::now()));
                for g in 0..2 {
                    let credited = work.scheduler(|scheduler| scheduler.credit(channel, 1, &[g], Instant::now()));
                    assert_eq!(credited, Credited::Taken);
                }
            })
        })
        .collect();
    let turns = done.wait(4);
    assert!(turns.values().all(|&times| times == 1), "{turns:?}");
    for client in clients {
        client.join().unwrap();
    }
    work.stop();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(lock(&done.turns).values().sum::<usize>(), 4, "nothing was begun again");
    assert_eq!(work.scheduler(|scheduler| scheduler.running()), 0);
}

fn a_parked_channel_goes_on_when_its_client_takes_what_is_finished() {
    let work = Arc::new(Work::new(2, Budget::new(64 << 20)));
    let done = Arc::new(Done::default());
    let (finished, taken) = shuttle::sync::mpsc::channel();
    let finished = Mutex::new(finished);
    let workers = {
        let (work, done) = (Arc::clone(&work), Arc::clone(&done));
        let begin = {
            let work = Arc::clone(&work);
            move |turn: crate::scheduler::Turn, _: &mut crate::work::Memory| {
                work.scheduler(|scheduler| scheduler.finished(turn, 1, 10));
                done.add(turn.channel, turn.epoch, turn.g);
                lock(&finished).send(turn.channel).unwrap();
            }
        };
        work.start(2, begin).unwrap()
    };
    // There is room for one finished batch.
    work.scheduler(|scheduler| scheduler.add(1, Bounds { credits: 16, bytes: 10 }, Instant::now()));
    work.scheduler(|scheduler| scheduler.credit(1, 1, &[0, 1, 2], Instant::now()));
    for _ in 0..3 {
        let channel = taken.recv().unwrap();
        let seen = work.scheduler(|scheduler| scheduler.seen(channel)).unwrap();
        assert_eq!((seen.buffered, seen.running), (1, 0), "one at a time");
        work.scheduler(|scheduler| scheduler.consumed(channel, 10));
    }
    assert!(done.wait(3).values().all(|&times| times == 1));
    work.stop();
    for worker in workers {
        worker.join().unwrap();
    }
}

fn a_batch_that_waits_for_memory_is_begun_when_there_is_some() {
    let budget = Budget::new(16 << 20);
    let work = Arc::new(Work::new(1, Arc::clone(&budget)));
    let done = Arc::new(Done::default());
    let all = budget.take(budget.limit(Share::Whole), Share::Whole).unwrap();
    let workers = {
        let (work, done) = (Arc::clone(&work), Arc::clone(&done));
        let begin = {
            let work = Arc::clone(&work);
            move |turn: crate::scheduler::Turn, _: &mut crate::work::Memory| {
                done.add(turn.channel, turn.epoch, turn.g);
                work.scheduler(|scheduler| scheduler.failed(turn, 1));
            }
        };
        work.start(1, begin).unwrap()
    };
    let others = {
        let work = Arc::clone(&work);
        thread::spawn(move || {
            drop(all);
            work.wake();
        })
    };
    work.scheduler(|scheduler| scheduler.add(1, LOOSE, Instant::now()));
    work.scheduler(|scheduler| scheduler.credit(1, 1, &[0], Instant::now()));
    assert_eq!(done.wait(1)[&(1, 1, 0)], 1);
    others.join().unwrap();
    work.stop();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(budget.used(), 0);
}

fn what_is_urgent_is_done_once_and_wakes_who_sleeps() {
    let work = Arc::new(Work::new(1, Budget::new(64 << 20)));
    let done = Arc::new(Done::default());
    let workers = work.start(2, |_, _| ()).unwrap();
    let askers: Vec<_> = (0..2)
        .map(|asker| {
            let (work, done) = (Arc::clone(&work), Arc::clone(&done));
            thread::spawn(move || {
                for question in 0..2 {
                    let (again, done) = (Arc::clone(&work), Arc::clone(&done));
                    // One that has the next one done, as the last answer to a batch does.
                    work.urgent(move |_| again.urgent(move |_| done.add(asker, 0, question)));
                }
            })
        })
        .collect();
    assert!(done.wait(4).values().all(|&times| times == 1));
    for asker in askers {
        asker.join().unwrap();
    }
    work.stop();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(lock(&done.turns).values().sum::<usize>(), 4);
}

fn workers_that_are_told_to_stop_end_whatever_waits() {
    let work = Arc::new(Work::new(2, Budget::new(64 << 20)));
    let workers = {
        let begin = {
            let work = Arc::clone(&work);
            move |turn: crate::scheduler::Turn, _: &mut crate::work::Memory| {
                work.scheduler(|scheduler| scheduler.abandoned(turn));
            }
        };
        work.start(2, begin).unwrap()
    };
    let client = {
        let work = Arc::clone(&work);
        thread::spawn(move || {
            work.scheduler(|scheduler| scheduler.add(1, LOOSE, Instant::now()));
            work.scheduler(|scheduler| scheduler.credit(1, 1, &[0, 1], Instant::now()));
            work.urgent(|_| ());
        })
    };
    work.stop();
    for worker in workers {
        worker.join().unwrap();
    }
    client.join().unwrap();
    assert_eq!(work.scheduler(|scheduler| scheduler.running()), 0, "what was begun was ended");
}
