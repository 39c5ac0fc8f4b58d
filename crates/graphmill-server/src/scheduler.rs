//! Whose batch is next: fair by work done, over all channels of all backends.
//!
//! Each channel has a tag, the work it was served; the runnable channel with the least tag is next, and is charged what
//! the batch will probably cost, then what it did cost. A channel that could not run for a while does not save up: when it
//! can again, its tag is at least that of whoever was served last. So a rank with many seeds cannot starve one with few,
//! and a slow reader holds up nobody but itself (`docs/decisions/0012`).
//!
//! A batch is begun only if there will probably be memory for it ([`Room`]). A channel that has nothing under way is let go
//! further than one that has: so the memory that slow readers fill is never all of it, while each has one batch.
//!
//! No thread, no clock, no I/O: the workers ask [`Scheduler::take_turn`], and tell it what happened.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use graphmill_sample::Pool;

/// A channel's number.
pub type ChannelId = u64;

/// What one channel may take of the server.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Credits that wait or run.
    pub credits: usize,
    /// Bytes of finished batches that the client did not take yet, beside those of one batch.
    pub bytes: u64,
}

/// The memory that there is for batches.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes that are taken.
    pub used: u64,
    /// How many may be, for a channel that has a batch already.
    pub most: u64,
    /// How many may be, for one that has none.
    pub whole: u64,
}

/// The most channels that are looked at for one that there is memory for.
const LOOKED_AT: usize = 1024;

/// A batch to be sampled.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// For whom.
    pub channel: ChannelId,
    /// Of which epoch.
    pub epoch: u64,
    /// Which.
    pub g: u64,
    /// When it was asked for.
    pub asked: Instant,
    /// The work that was charged in advance.
    charged: u64,
    /// The memory it will probably take.
    expected: u64,
}

/// What became of credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credited {
    /// They wait for their turn.
    Taken,
    /// The epoch is over.
    Stale,
    /// The channel has more credits than it may have.
    TooMany,
    /// There is no such channel.
    Unknown,
}

/// What a channel is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Nothing was asked of it.
    Idle,
    /// It waits for a worker.
    Runnable,
    /// It waits for its own client to take what is finished.
    Parked,
    /// It waits for memory, which others have.
    Starved,
}

/// A channel as the scheduler sees it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// What it is doing.
    pub activity: Activity,
    /// Its epoch, once one was started.
    pub epoch: Option<u64>,
    /// Credits that wait.
    pub waiting: usize,
    /// Batches being sampled.
    pub running: usize,
    /// Batches given to workers in this epoch.
    pub submitted: u64,
    /// Batches finished in this epoch.
    pub completed: u64,
    /// Batches that failed in this epoch.
    pub failed: u64,
    /// Finished batches that the client did not take yet.
    pub buffered: u64,
    /// Their bytes.
    pub buffered_bytes: u64,
    /// The work it was served in all.
    pub work: u64,
    /// When it was last asked for something.
    pub last_credit: Instant,
}

/// The state of all channels.
#[derive(Debug)]
pub struct Scheduler {
    channels: HashMap<ChannelId, Entry>,
    /// The channels that can run, by tag.
    runnable: BTreeSet<(u64, ChannelId)>,
    /// The tag of who was served last.
    now: u64,
    running: usize,
    /// The most batches under way at once.
    most: usize,
    /// The memory that those under way will probably take.
    expected: u64,
}

#[derive(Debug)]
struct Entry {
    bounds: Bounds,
    epoch: Option<u64>,
    waiting: VecDeque<(u64, Instant)>,
    /// Batches of this epoch that wait or run, each with whether it was asked for again meanwhile.
    asked: HashMap<u64, bool>,
    running: usize,
    buffered: u64,
    buffered_bytes: u64,
    tag: u64,
    /// What a batch of this channel costs, by those before.
    cost: u64,
    /// How large one is.
    size: u64,
    work: u64,
    submitted: u64,
    completed: u64,
    failed: u64,
    last_credit: Instant,
    /// Since when there is no memory for its next batch.
    starved: Option<Instant>,
}

/// The memory that a batch of so many bytes takes.
fn room_for(bytes: u64) -> u64 {
    Pool::room_for(usize::try_from(bytes).unwrap_or(usize::MAX / 2)) as u64
}

impl Entry {
    fn activity(&self) -> Activity {
        if self.waiting.is_empty() {
            Activity::Idle
        } else if self.has_room() {
            if self.starved.is_some() { Activity::Starved } else { Activity::Runnable }
        } else {
            Activity::Parked
        }
    }

    /// Whether another batch fits: always one, and more while what is finished and what is under way stay in bounds. The
    /// first is alone: how large they are is not known before.
    fn has_room(&self) -> bool {
        let expected = self.buffered_bytes + (self.running as u64 + 1) * self.size;
        self.has_nothing() || (self.size > 0 && expected <= self.bounds.bytes)
    }

    fn has_nothing(&self) -> bool {
        self.running == 0 && self.buffered == 0
    }
}

impl Scheduler {
    /// A scheduler that has at most so many batches under way.
    pub fn new(most: usize) -> Self {
        Self { channels: HashMap::new(), runnable: BTreeSet::new(), now: 0, running: 0, most: most.max(1), expected: 0 }
    }

    /// Lets a channel take part.
    pub fn add(&mut self, channel: ChannelId, bounds: Bounds, now: Instant) {
        let entry = Entry {
            bounds,
            epoch: None,
            waiting: VecDeque::new(),
            asked: HashMap::new(),
            running: 0,
            buffered: 0,
            buffered_bytes: 0,
            tag: self.now,
            cost: 1,
            size: 0,
            work: 0,
            submitted: 0,
            completed: 0,
            failed: 0,
            last_credit: now,
            starved: None,
        };
        self.channels.insert(channel, entry);
    }

    /// Forgets a channel. What it has under way goes on until it is told to stop, and is not counted any more.
    pub fn remove(&mut self, channel: ChannelId) {
        if let Some(entry) = self.channels.remove(&channel) {
            self.runnable.remove(&(entry.tag, channel));
        }
    }

    /// Starts an epoch, unless the channel is in it or in a later one; what waits of an earlier one is forgotten. Says which
    /// epoch it is in now.
    pub fn start(&mut self, channel: ChannelId, epoch: u64) -> Option<u64> {
        self.change(channel, |entry| {
            if entry.epoch.is_none_or(|current| current < epoch) {
                entry.epoch = Some(epoch);
                entry.starved = None;
                entry.waiting.clear();
                entry.asked.clear();
                (entry.submitted, entry.completed, entry.failed) = (0, 0, 0);
            }
            entry.epoch
        })?
    }

    /// The channel's client wants these batches.
    pub fn credit(&mut self, channel: ChannelId, epoch: u64, batches: &[u64], now: Instant) -> Credited {
        match self.start(channel, epoch) {
            None => return Credited::Unknown,
            Some(current) if current != epoch => return Credited::Stale,
            Some(_) => {}
        }
        let credited = self.change(channel, |entry| {
            entry.last_credit = now;
            for &g in batches {
                if let Some(again) = entry.asked.get_mut(&g) {
                    *again = true;
                    continue;
                }
                if entry.asked.len() >= entry.bounds.credits {
                    return Credited::TooMany;
                }
                entry.asked.insert(g, false);
                entry.waiting.push_back((g, now));
            }
            Credited::Taken
        });
        credited.unwrap_or(Credited::Unknown)
    }

    /// The batch to sample next, if there is one, not too many are under way, and there is memory for it.
    pub fn take_turn(&mut self, room: Room, now: Instant) -> Option<Turn> {
        if self.running >= self.most {
            return None;
        }
        let taken = room.used + self.expected;
        let (mut next, mut skipped) = (None, false);
        for &(tag, channel) in self.runnable.iter().take(LOOKED_AT) {
            let Some(entry) = self.channels.get_mut(&channel) else { continue };
            let limit = if entry.has_nothing() { room.whole } else { room.most };
            // How large a first batch is shows when it is there.
            let expected = room_for(entry.size);
            if taken.saturating_add(expected.max(1)) <= limit {
                next = Some((tag, channel, expected));
                break;
            }
            entry.starved.get_or_insert(now);
            skipped = true;
        }
        let (tag, channel, expected) = next?;
        // Time does not go back when those get their turn who were passed by for want of memory.
        self.now = if skipped { self.now.max(tag) } else { tag };
        self.running += 1;
        let turn = self.change(channel, |entry| {
            let (g, asked) = entry.waiting.pop_front()?;
            entry.starved = None;
            entry.asked.insert(g, false);
            entry.running += 1;
            entry.submitted += 1;
            entry.tag += entry.cost;
            Some(Turn { channel, epoch: entry.epoch.unwrap_or(0), g, asked, charged: entry.cost, expected })
        })??;
        self.expected += turn.expected;
        Some(turn)
    }

    /// A batch for which there was no memory waits again: it takes so many bytes.
    pub fn put_back(&mut self, turn: Turn, bytes: u64) {
        self.end(turn, turn.charged, |entry, asked| {
            entry.size = entry.size.max(bytes);
            if asked.is_some() {
                entry.submitted -= 1;
                entry.asked.insert(turn.g, false);
                entry.waiting.push_front((turn.g, turn.asked));
            }
        });
    }

    /// Forgets the credits of channels that had no memory for their next batch since some time or longer; says which, each
    /// with its channel and epoch, and how many bytes it was to take.
    pub fn take_starved(&mut self, since: Instant) -> Vec<(ChannelId, u64, u64, u64)> {
        let is_starved = |entry: &Entry| entry.starved.is_some_and(|at| at <= since);
        let starved: Vec<ChannelId> =
            self.channels.iter().filter(|(_, entry)| is_starved(entry)).map(|(channel, _)| *channel).collect();
        let mut given_up = Vec::new();
        for channel in starved {
            self.change(channel, |entry| {
                entry.starved = None;
                for (g, _) in entry.waiting.drain(..) {
                    entry.asked.remove(&g);
                    given_up.push((channel, entry.epoch.unwrap_or(0), g, entry.size));
                }
            });
        }
        given_up
    }

    /// A batch was sampled at some cost, and so many of its bytes wait for the client.
    pub fn finished(&mut self, turn: Turn, work: u64, bytes: u64) {
        self.end(turn, work, |entry, asked| {
            entry.size = bytes.max(entry.size - entry.size / 8);
            entry.buffered += 1;
            entry.buffered_bytes += bytes;
            if asked.is_some() {
                entry.completed += 1;
            }
        });
    }

    /// A batch failed at some cost, and its client was told.
    pub fn failed(&mut self, turn: Turn, work: u64) {
        self.end(turn, work.max(turn.charged), |entry, asked| {
            if asked.is_some() {
                entry.failed += 1;
            }
        });
    }

    /// Nobody waits for a batch any more: its epoch, its channel or its connection is over. What was charged stays charged. If
    /// its client came back and asked for it again meanwhile, it waits for another turn.
    pub fn abandoned(&mut self, turn: Turn) {
        self.end(turn, turn.charged, |entry, asked| {
            if asked == Some(true) {
                entry.asked.insert(turn.g, false);
                entry.waiting.push_back((turn.g, turn.asked));
            }
        });
    }

    /// Tells `count` whether the batch was asked for again, if its epoch goes on.
    fn end(&mut self, turn: Turn, work: u64, count: impl FnOnce(&mut Entry, Option<bool>)) {
        self.running -= 1;
        self.expected -= turn.expected;
        self.change(turn.channel, |entry| {
            entry.running -= 1;
            let current = entry.epoch == Some(turn.epoch);
            let asked = current.then(|| entry.asked.remove(&turn.g).unwrap_or(false));
            entry.work += work;
            entry.tag = (entry.tag + work).saturating_sub(turn.charged);
            entry.cost = if entry.cost <= 1 { work } else { entry.cost - entry.cost / 4 + work / 4 }.max(1);
            count(entry, asked);
        });
    }

    /// Forgets all credits that wait; what is under way goes on.
    pub fn forget_waiting(&mut self) {
        let channels: Vec<ChannelId> = self.channels.keys().copied().collect();
        for channel in channels {
            self.change(channel, |entry| {
                entry.starved = None;
                for (g, _) in entry.waiting.drain(..) {
                    entry.asked.remove(&g);
                }
            });
        }
    }

    /// The client took a batch of so many bytes.
    pub fn consumed(&mut self, channel: ChannelId, bytes: u64) {
        self.change(channel, |entry| {
            entry.buffered = entry.buffered.saturating_sub(1);
            entry.buffered_bytes = entry.buffered_bytes.saturating_sub(bytes);
        });
    }

    /// A channel as it stands.
    pub fn seen(&self, channel: ChannelId) -> Option<Seen> {
        let entry = self.channels.get(&channel)?;
        Some(Seen {
            activity: entry.activity(),
            epoch: entry.epoch,
            waiting: entry.waiting.len(),
            running: entry.running,
            submitted: entry.submitted,
            completed: entry.completed,
            failed: entry.failed,
            buffered: entry.buffered,
            buffered_bytes: entry.buffered_bytes,
            work: entry.work,
            last_credit: entry.last_credit,
        })
    }

    /// The epoch that a channel is in; nothing if there is none, or no such channel.
    pub fn epoch(&self, channel: ChannelId) -> Option<u64> {
        self.channels.get(&channel)?.epoch
    }

    /// Batches under way.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Changes a channel, and keeps the list of those that can run true.
    fn change<T>(&mut self, channel: ChannelId, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.channels.get_mut(&channel)?;
        let was = self.runnable.remove(&(entry.tag, channel));
        let result = change(entry);
        if matches!(entry.activity(), Activity::Runnable | Activity::Starved) {
            if !was {
                entry.tag = entry.tag.max(self.now);
            }
            self.runnable.insert((entry.tag, channel));
        } else {
            entry.starved = None;
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { credits: 1000, bytes: 1 << 30 };

    const ROOMY: Room = Room { used: 0, most: u64::MAX, whole: u64::MAX };

    fn scheduler(channels: u64) -> Scheduler {
        let mut scheduler = Scheduler::new(4);
        (0..channels).for_each(|channel| scheduler.add(channel, BOUNDS, Instant::now()));
        scheduler
    }

    fn credit(scheduler: &mut Scheduler, channel: u64, epoch: u64, batches: std::ops::Range<u64>) -> Credited {
        scheduler.credit(channel, epoch, &batches.collect::<Vec<_>>(), Instant::now())
    }

    /// Serves `turns` batches whose cost depends on the channel, and says what each was served.
    fn serve(scheduler: &mut Scheduler, turns: usize, cost: impl Fn(u64) -> u64) -> HashMap<u64, u64> {
        let mut served = HashMap::new();
        for _ in 0..turns {
            let Some(turn) = scheduler.take_turn(ROOMY, Instant::now()) else { break };
            *served.entry(turn.channel).or_default() += cost(turn.channel);
            scheduler.finished(turn, cost(turn.channel), 10);
            scheduler.consumed(turn.channel, 10);
        }
        served
    }

    #[test]
    fn work_is_shared_evenly_whatever_a_batch_costs_and_however_many_are_asked_for() {
        let mut scheduler = scheduler(3);
        credit(&mut scheduler, 0, 0, 0..1000);
        credit(&mut scheduler, 1, 0, 0..200);
        credit(&mut scheduler, 2, 0, 0..1000);
        // Batches of channel 1 cost ten times as much.
        let served = serve(&mut scheduler, 600, |channel| if channel == 1 { 1000 } else { 100 });
        let (least, most) = (served.values().min().unwrap(), served.values().max().unwrap());
        assert!(most - least <= 3000, "{served:?}");
    }

    #[test]
    fn a_channel_whose_batches_fail_takes_no_more_than_its_share() {
        let mut scheduler = scheduler(2);
        credit(&mut scheduler, 0, 0, 0..1000);
        credit(&mut scheduler, 1, 0, 0..1000);
        let mut turns = [0u32; 2];
        for _ in 0..400 {
            let turn = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
            turns[turn.channel as usize] += 1;
            if turn.channel == 0 {
                scheduler.failed(turn, 100);
            } else {
                scheduler.finished(turn, 100, 10);
                scheduler.consumed(1, 10);
            }
        }
        assert!(turns[0].abs_diff(turns[1]) < 5, "{turns:?}");
    }

    #[test]
    fn who_has_nothing_is_served_where_who_has_a_batch_must_wait_for_memory() {
        let mut scheduler = scheduler(2);
        credit(&mut scheduler, 0, 0, 0..9);
        let first = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        scheduler.finished(first, 1, 8192);
        let now = Instant::now();
        // A batch takes three pages, with the spare room that it is given.
        let tight = Room { used: 8192, most: 16 << 10, whole: 32 << 10 };
        assert!(scheduler.take_turn(tight, now).is_none());
        assert_eq!(scheduler.seen(0).unwrap().activity, Activity::Starved);
        credit(&mut scheduler, 1, 0, 0..9);
        let other = scheduler.take_turn(tight, now).unwrap();
        assert_eq!(other.channel, 1);
        scheduler.finished(other, 1, 8192);
        scheduler.consumed(1, 8192);
        assert_eq!(scheduler.take_turn(tight, now).map(|turn| turn.channel), Some(1));
        // The first is told in time; the other, which gets its turns, is not.
        assert!(scheduler.take_starved(now.checked_sub(std::time::Duration::from_millis(1)).unwrap()).is_empty());
        let told = scheduler.take_starved(now);
        assert_eq!(
            told.iter().map(|one| (one.0, one.2)).collect::<Vec<_>>(),
            (1..9).map(|g| (0, g)).collect::<Vec<_>>()
        );
        assert_eq!(scheduler.seen(0).unwrap().activity, Activity::Idle);
        assert_eq!(credit(&mut scheduler, 0, 0, 1..9), Credited::Taken, "they may be asked for again");
        assert!(scheduler.take_turn(ROOMY, now).is_some());
    }

    #[test]
    fn a_batch_that_found_no_memory_is_the_next_when_there_is_some() {
        let mut scheduler = scheduler(1);
        credit(&mut scheduler, 0, 0, 0..3);
        let room = Room { used: 0, most: 1 << 20, whole: 1 << 20 };
        let turn = scheduler.take_turn(room, Instant::now()).unwrap();
        scheduler.put_back(turn, 600 << 10);
        assert!(scheduler.take_turn(Room { used: 512 << 10, ..room }, Instant::now()).is_none());
        assert_eq!(scheduler.take_turn(room, Instant::now()).map(|turn| turn.g), Some(0));
        assert_eq!(credit(&mut scheduler, 0, 0, 0..3), Credited::Taken);
        assert_eq!(scheduler.seen(0).unwrap().waiting, 2, "nothing is there twice");
    }

    #[test]
    fn what_waits_is_forgotten_and_may_be_asked_for_again() {
        let mut scheduler = scheduler(1);
        credit(&mut scheduler, 0, 0, 0..5);
        let under_way = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        scheduler.forget_waiting();
        assert!(scheduler.take_turn(ROOMY, Instant::now()).is_none());
        scheduler.finished(under_way, 1, 1);
        assert_eq!(credit(&mut scheduler, 0, 0, 1..2), Credited::Taken);
        assert_eq!(scheduler.take_turn(ROOMY, Instant::now()).map(|turn| turn.g), Some(1));
    }

    #[test]
    fn a_batch_that_is_given_up_waits_again_only_if_it_was_asked_for_again() {
        let mut scheduler = scheduler(1);
        credit(&mut scheduler, 0, 0, 7..8);
        let turn = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        scheduler.abandoned(turn);
        assert!(scheduler.take_turn(ROOMY, Instant::now()).is_none());

        credit(&mut scheduler, 0, 0, 7..8);
        let turn = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        assert_eq!(credit(&mut scheduler, 0, 0, 7..8), Credited::Taken);
        scheduler.abandoned(turn);
        let turn = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        assert_eq!(turn.g, 7);
        scheduler.abandoned(turn);
        assert!(scheduler.take_turn(ROOMY, Instant::now()).is_none());
    }

    #[test]
    fn a_newcomer_does_not_wait_and_does_not_take_everything() {
        let mut scheduler = scheduler(2);
        credit(&mut scheduler, 0, 0, 0..1000);
        serve(&mut scheduler, 500, |_| 100);
        credit(&mut scheduler, 1, 0, 0..1000);
        let served = serve(&mut scheduler, 100, |_| 100);
        assert!(served[&0].abs_diff(served[&1]) <= 300, "{served:?}");
    }

    #[test]
    fn a_full_buffer_parks_a_channel_and_only_its_own_client_wakes_it() {
        let mut scheduler = Scheduler::new(8);
        let bounds = Bounds { credits: 100, bytes: 25 };
        for channel in [0, 1] {
            scheduler.add(channel, bounds, Instant::now());
            credit(&mut scheduler, channel, 0, 0..50);
        }
        // Nobody takes what channel 0 has finished.
        let mut finished = [0; 2];
        while let Some(turn) = scheduler.take_turn(ROOMY, Instant::now()) {
            finished[turn.channel as usize] += 1;
            scheduler.finished(turn, 10, 10);
            if turn.channel == 1 {
                scheduler.consumed(1, 10);
            }
        }
        let parked = scheduler.seen(0).unwrap();
        assert_eq!((finished, parked.activity, parked.buffered_bytes), ([2, 50], Activity::Parked, 20));
        scheduler.consumed(0, 10);
        assert_eq!(scheduler.take_turn(ROOMY, Instant::now()).map(|turn| turn.channel), Some(0));
    }

    #[test]
    fn the_first_batch_is_alone_because_nobody_knows_how_large_it_is() {
        let mut scheduler = Scheduler::new(8);
        scheduler.add(7, Bounds { credits: 9, bytes: 35 }, Instant::now());
        credit(&mut scheduler, 7, 0, 0..9);
        let first = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        assert!(scheduler.take_turn(ROOMY, Instant::now()).is_none());
        scheduler.finished(first, 1, 10);
        assert_eq!(
            std::iter::from_fn(|| scheduler.take_turn(ROOMY, Instant::now())).count(),
            2,
            "with the first, three fit"
        );
    }

    #[test]
    fn a_batch_larger_than_the_bound_still_comes_alone() {
        let mut scheduler = Scheduler::new(8);
        scheduler.add(7, Bounds { credits: 9, bytes: 5 }, Instant::now());
        credit(&mut scheduler, 7, 0, 0..3);
        for _ in 0..3 {
            let turn = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
            assert!(scheduler.seen(7).unwrap().running == 1);
            scheduler.finished(turn, 1, 100);
            assert!(scheduler.take_turn(ROOMY, Instant::now()).is_none());
            scheduler.consumed(7, 100);
        }
    }

    #[test]
    fn a_new_epoch_ends_the_old_one_and_an_old_credit_is_stale() {
        let mut scheduler = scheduler(1);
        credit(&mut scheduler, 0, 3, 0..5);
        let old = scheduler.take_turn(ROOMY, Instant::now()).unwrap();
        assert_eq!(credit(&mut scheduler, 0, 4, 0..2), Credited::Taken);
        assert_eq!(credit(&mut scheduler, 0, 3, 5..6), Credited::Stale);
        assert_eq!(scheduler.start(0, 2), Some(4));
        scheduler.abandoned(old);
        let turn = |scheduler: &mut Scheduler| {
            let turn = scheduler.take_turn(ROOMY, Instant::now())?;
            scheduler.finished(turn, 1, 1);
            Some((turn.epoch, turn.g))
        };
        let turns: Vec<(u64, u64)> = std::iter::from_fn(|| turn(&mut scheduler)).collect();
        assert_eq!(turns, [(4, 0), (4, 1)]);
    }

    #[test]
    fn asking_twice_is_asking_once_and_too_much_is_refused() {
        let mut scheduler = Scheduler::new(8);
        scheduler.add(0, Bounds { credits: 2, bytes: 100 }, Instant::now());
        assert_eq!(credit(&mut scheduler, 0, 0, 0..2), Credited::Taken);
        assert_eq!(credit(&mut scheduler, 0, 0, 0..2), Credited::Taken);
        assert_eq!(scheduler.seen(0).unwrap().waiting, 2);
        assert_eq!(credit(&mut scheduler, 0, 0, 2..3), Credited::TooMany);
        assert_eq!(credit(&mut scheduler, 9, 0, 0..1), Credited::Unknown);
    }

    proptest! {
        #[test]
        fn whatever_happens_each_credit_has_one_turn_and_counts_stay_true(
            steps in proptest::collection::vec((0u8..6, 0u64..3, 0u64..4, 0u64..30), 1..300),
        ) {
            let mut scheduler = scheduler(3);
            let mut under_way: Vec<Turn> = Vec::new();
            let mut turns: HashSet<(u64, u64, u64)> = HashSet::new();
            let mut asked: HashSet<(u64, u64, u64)> = HashSet::new();
            for (step, channel, epoch, g) in steps {
                match step {
                    0 | 1 => if credit(&mut scheduler, channel, epoch, g..g + 1) == Credited::Taken {
                        // A finished batch may be asked for again.
                        if !under_way.iter().any(|turn| (turn.channel, turn.epoch, turn.g) == (channel, epoch, g)) {
                            turns.remove(&(channel, epoch, g));
                        }
                        asked.insert((channel, epoch, g));
                    },
                    2 | 3 => if let Some(turn) = scheduler.take_turn(ROOMY, Instant::now()) {
                        let batch = (turn.channel, turn.epoch, turn.g);
                        prop_assert!(asked.contains(&batch) && turns.insert(batch));
                        under_way.push(turn);
                    },
                    4 => if let Some(turn) = under_way.pop() {
                        scheduler.finished(turn, g * 10, 5);
                    },
                    _ => scheduler.consumed(channel, 5),
                }
                prop_assert_eq!(scheduler.running(), under_way.len());
            }
        }
    }
}
