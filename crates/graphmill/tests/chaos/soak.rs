//! `make soak`: readers that read for minutes while servers and readers are killed, connections cut and networks held up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_testing::{Fault, Way};
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, Meeting, PATIENCE, Setup};
use crate::dice::{Dice, seed};
use crate::good_day::GoodDay;
use crate::process::Footprint;
use crate::rank::Order;
use crate::readers::{Reader, Seen};
use crate::strike::{Hit, Strike};
use crate::support::Workplace;

const BATCH: usize = 64;
/// A kill or a cut comes this often, and between two of them something milder.
const EVERY: Duration = Duration::from_secs(10);
/// How long things stay bad.
const LASTS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(4500));
/// What long-living processes may have more of at the end: resident bytes (or a twentieth of what they had), threads and
/// descriptors. A server that is just being connected to has a few.
const SLACK: (u64, u64, usize) = (6 << 20, 2, 8);
/// Slots that a server may keep for its two peers, when all readers are gone.
const PEER_SLOTS: usize = 2 * 16;

/// What happens to a soak.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// To a server or to the network before it.
    Server(Strike),
    /// The second reader is killed; another goes on from its state.
    KillReader,
    /// The third reader stands still.
    StopReader,
}

impl Event {
    const HARD: [Self; 5] = [
        Self::Server(Strike::Kill),
        Self::KillReader,
        Self::Server(Strike::Network(Fault::Reset)),
        Self::Server(Strike::Network(Fault::HalfClose(Way::Up))),
        Self::Server(Strike::Network(Fault::HalfClose(Way::Down))),
    ];
    const MILD: [Self; 7] = [
        Self::StopReader,
        Self::Server(Strike::Freeze),
        Self::Server(Strike::Storm),
        Self::Server(Strike::Network(Fault::Partition)),
        Self::Server(Strike::Network(Fault::Stall(Way::Up))),
        Self::Server(Strike::Network(Fault::Stall(Way::Down))),
        Self::Server(Strike::Network(Fault::Latency(Way::Down, Duration::from_millis(40)))),
    ];

    fn name(self) -> String {
        match self {
            Self::Server(Strike::Network(Fault::Latency(..))) => "network: latency".to_owned(),
            Self::Server(Strike::Network(fault)) => format!("network: {fault:?}").to_lowercase(),
            Self::Server(strike) => format!("server: {strike:?}").to_lowercase(),
            Self::KillReader => "reader: kill".to_owned(),
            Self::StopReader => "reader: stop".to_owned(),
        }
    }
}

/// A process that lives for all of the soak, and what it held from time to time.
struct Watched {
    name: &'static str,
    process: u32,
    held: Vec<Footprint>,
}

#[test]
#[ignore = "takes minutes: make soak"]
fn a_soak_loses_nothing_and_leaks_nothing() {
    let minutes: f64 = std::env::var("MINUTES").map_or(1.0, |text| text.parse().expect("MINUTES is a number"));
    let lasts = Duration::from_secs_f64(60.0 * minutes);
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 20k --edges 200k --features 32 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
    let good = Arc::new(Mutex::new(GoodDay::new(&place, BATCH)));
    let meeting = Meeting::Run { replicas: 2 };
    let cluster = Cluster::start(place, Setup { sharing: true, flags: "--lease 5", ..Setup::new(meeting, 3) }, seed());
    cluster.until_whole();
    // The last server is never killed.
    let steady = cluster.len() - 1;
    let idle = Footprint::of(cluster.process(steady));
    let readers = ["reader (TCP)", "reader, killed (shared memory)", "reader, slow (Unix)"].map(Reader::new);
    let names = cluster.names();
    let happened = std::thread::scope(|scope| {
        for (reader, transport) in readers.iter().zip(["tcp", "shm", "uds"]) {
            let order = Order::new(&names, transport, BATCH);
            let (cluster, good) = (&cluster, &good);
            scope.spawn(move || reader.work(&cluster.place, &order, good));
        }
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trouble(&cluster, &readers, lasts)));
        readers.iter().for_each(Reader::stop);
        happened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let (events, watched) = happened;
    let left = until_alone(&cluster, steady);
    let ended = Footprint::of(cluster.process(steady));
    report(&readers, &events, &watched);
    eprintln!("the steady server without readers: {idle:?} before, {ended:?} after");
    for reader in &readers {
        let Seen { lost, duplicated, wrong, .. } = &reader.seen;
        let faults = [lost, duplicated, wrong].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(faults, [0; 3], "{}: batches lost, duplicated, wrong", reader.name);
        assert_eq!(reader.failed(), None);
    }
    assert!(left, "channels or backends were left");
    assert!(ended.shared <= PEER_SLOTS, "{ended:?}");
    assert!(ended.descriptors <= idle.descriptors + PEER_SLOTS + SLACK.2, "{idle:?}, {ended:?}");
    for one in &watched {
        one.check();
    }
}

/// What happened how often, and how often with batches under way; and what lived all the time.
type Happened = (BTreeMap<String, (u64, u64)>, Vec<Watched>);

/// Makes trouble for so long.
fn trouble(cluster: &Cluster, readers: &[Reader; 3], lasts: Duration) -> Happened {
    let mut dice = Dice::new(1000);
    let mut events = BTreeMap::new();
    let began = Instant::now();
    while readers.iter().any(|reader| reader.seen.batches.load(Ordering::Relaxed) == 0) {
        assert!(began.elapsed() < PATIENCE, "readers do not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let steady = cluster.len() - 1;
    let watched = [
        ("steady server", cluster.process(steady)),
        ("coordinator", cluster.coordinator_process()),
        (readers[0].name, readers[0].process().expect("it reads")),
    ];
    let mut watched = watched.map(|(name, process)| Watched { name, process, held: Vec::new() });
    for half in 1.. {
        let event = if half % 2 == 1 { dice.one_of(&Event::HARD) } else { dice.one_of(&Event::MILD) };
        // The steady server may be cut off and held up, but is not killed.
        let server = dice.below(if matches!(event, Event::Server(Strike::Kill)) { steady } else { cluster.len() });
        let hit = Hit { strike: Strike::SlowReader, server, lasts: dice.between(LASTS), seed: dice.seed() };
        let under_way = under_way(cluster, server);
        match event {
            Event::Server(strike) => {
                let hit = Hit { strike, ..hit };
                hit.begin(cluster);
                hit.end(cluster);
            }
            Event::KillReader => readers[1].signal(Signal::KILL),
            Event::StopReader => {
                readers[2].signal(Signal::STOP);
                // Some longer than its lease.
                std::thread::sleep(2 * hit.lasts);
                readers[2].signal(Signal::CONT);
            }
        }
        let (count, busy) = events.entry(event.name()).or_insert((0, 0));
        (*count, *busy) = (*count + 1, *busy + u64::from(under_way));
        let due = EVERY / 2 * half;
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        watch(&mut watched);
        if let Some(failed) = readers.iter().find_map(Reader::failed) {
            panic!("{failed}");
        }
        if began.elapsed() >= lasts {
            break;
        }
    }
    (events, watched.into())
}

fn watch(watched: &mut [Watched]) {
    for one in watched {
        one.held.push(Footprint::of(one.process));
    }
}

/// Whether a server has batches that were asked for and not taken yet.
fn under_way(cluster: &Cluster, server: usize) -> bool {
    let count = |channel: &Value, key: &str| channel[key].as_u64().unwrap_or(0);
    let channels = channels(cluster, server).unwrap_or_default();
    channels.iter().any(|channel| {
        count(channel, "waiting_credits") + count(channel, "running") + count(channel, "buffered_batches") > 0
    })
}

/// The channels of a server that answers.
fn channels(cluster: &Cluster, server: usize) -> Option<Vec<Value>> {
    let shown = cluster.place.run(&format!("status {} --json --deadline 5", cluster.address(server)));
    let status: Value = serde_json::from_str(&shown.stdout).ok()?;
    status[0]["channels"].as_array().cloned()
}

/// Waits until a server has no channels; says whether that was soon.
fn until_alone(cluster: &Cluster, server: usize) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if channels(cluster, server).is_some_and(|channels| channels.is_empty()) {
            // Their connections end a moment later.
            std::thread::sleep(Duration::from_secs(3));
            return true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    false
}

impl Watched {
    /// What it held in the second quarter, when it had warmed up, and in the last.
    fn ends(&self) -> (Footprint, Footprint) {
        let quarter = (self.held.len() / 4).max(1);
        let middle = |held: &[Footprint]| {
            let median = |of: fn(&Footprint) -> u64| {
                let mut values: Vec<u64> = held.iter().map(of).collect();
                values.sort_unstable();
                values[values.len() / 2]
            };
            Footprint {
                resident: median(|held| held.resident),
                threads: median(|held| held.threads),
                descriptors: median(|held| held.descriptors as u64) as usize,
                shared: median(|held| held.shared as u64) as usize,
            }
        };
        let first = self.held.get(quarter..2 * quarter).unwrap_or(&self.held);
        (middle(first), middle(&self.held[self.held.len() - quarter..]))
    }

    fn check(&self) {
        let (first, last) = self.ends();
        let name = self.name;
        assert!(
            last.resident <= first.resident + SLACK.0.max(first.resident / 20),
            "{name} grows: {first:?}, {last:?}"
        );
        assert!(last.threads <= first.threads + SLACK.1, "{name} has more threads: {first:?}, {last:?}");
        assert!(last.descriptors <= first.descriptors + SLACK.2, "{name} has more open: {first:?}, {last:?}");
    }
}

/// The closing table.
fn report(readers: &[Reader], events: &BTreeMap<String, (u64, u64)>, watched: &[Watched]) {
    let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
    eprintln!("\nseed {}", seed());
    eprintln!("{:<32}{:>9}{:>8}{:>7}{:>6}{:>12}{:>7}", "", "batches", "epochs", "kills", "lost", "duplicated", "wrong");
    for Reader { name, seen, .. } in readers {
        let Seen { batches, epochs, lost, duplicated, wrong, kills } = seen;
        let [batches, epochs, kills, lost, duplicated, wrong] =
            [batches, epochs, kills, lost, duplicated, wrong].map(number);
        eprintln!("{name:<32}{batches:>9}{epochs:>8}{kills:>7}{lost:>6}{duplicated:>12}{wrong:>7}");
    }
    eprintln!("\n{:<32}{:>9}{:>24}", "", "times", "with batches under way");
    let (mut times, mut busy) = (0, 0);
    for (name, (count, under_way)) in events {
        eprintln!("{name:<32}{count:>9}{under_way:>24}");
        (times, busy) = (times + count, busy + under_way);
    }
    eprintln!("{:<32}{times:>9}{busy:>24}", "all");
    eprintln!("\n{:<32}{:>20}{:>14}{:>16}", "after the warm-up, at the end", "resident MiB", "threads", "descriptors");
    for one in watched {
        let (first, last) = one.ends();
        let pair = |first: u64, last: u64| format!("{first}, {last}");
        eprintln!(
            "{:<32}{:>20}{:>14}{:>16}",
            one.name,
            format!("{:.1}, {:.1}", mebibytes(first.resident), mebibytes(last.resident)),
            pair(first.threads, last.threads),
            pair(first.descriptors as u64, last.descriptors as u64),
        );
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
