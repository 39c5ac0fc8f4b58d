//! `make soak`: how long batches stay away when a server goes, and how fast they come then. Leases are those that servers have
//! by default.

use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::PATIENCE;
use crate::good_day::{Digest, GoodDay};
use crate::rank::{Order, Rank};
use crate::servers::{Coordinator, Served};
use crate::support::Workplace;

const BATCH: usize = 1024;
/// The lease of a server, unless it says another.
const LEASE: Duration = Duration::from_secs(5);
/// How long batches are counted before and after; what comes right after is not counted.
const COUNTED: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_secs(1);

/// Who goes, and who is there in its place.
struct Case {
    name: &'static str,
    flags: &'static str,
    servers: usize,
    signal: Signal,
    /// The least that may come then, beside what came before.
    least: Option<f64>,
}

const CASES: [Case; 3] = [
    Case {
        name: "killed, a replica goes on",
        flags: "--servers 2 --replicas 2",
        servers: 2,
        signal: Signal::KILL,
        least: Some(0.45),
    },
    Case {
        name: "frozen, a replica goes on",
        flags: "--servers 2 --replicas 2",
        servers: 2,
        signal: Signal::STOP,
        least: Some(0.45),
    },
    Case { name: "killed, a spare takes over", flags: "--servers 2", servers: 3, signal: Signal::KILL, least: None },
];

#[test]
#[ignore = "takes minutes: make soak"]
fn batches_of_a_server_that_goes_resume_within_two_leases() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 200k --edges 2M --features 64 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
    let mut good = GoodDay::new(&place, BATCH);
    eprintln!(
        "{:<32}{:>18}{:>18}{:>8}{:>20}",
        "a server is", "batches/s before", "batches/s after", "ratio", "longest pause s"
    );
    for case in &CASES {
        let (before, after, pause) = measure(&place, case, &mut good);
        let ratio = after / before;
        eprintln!("{:<32}{before:>18.1}{after:>18.1}{ratio:>8.2}{:>20.2}", case.name, pause.as_secs_f64());
        assert!(pause <= 2 * LEASE, "{}: {pause:?}", case.name);
        assert!(case.least.is_none_or(|least| ratio >= least), "{}: {ratio}", case.name);
    }
}

/// Batches a second before and after, and the longest pause between.
fn measure(place: &Workplace, case: &Case, good: &mut GoodDay) -> (f64, f64, Duration) {
    let (_coordinator, meeting) = Coordinator::start(place, "--listen 127.0.0.1:0");
    let line = format!("g4 --threads 1 --listen 127.0.0.1:0 --rendezvous {meeting} --run train {}", case.flags);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let servers: Vec<Served> = (0..case.servers)
        .map(|number| {
            let (server, _) = Served::start(place, &line);
            pin(server.child.id(), number % cores);
            server
        })
        .collect();
    until_served(place, &meeting, case.servers);
    let order = Order::new(&[format!("graphmill://{meeting}/train")], "tcp", BATCH);
    let mut rank = Rank::start(place, &order);
    let process = Pid::from_child(&rank.child);
    let (sender, told) = channel();
    let reading = std::thread::spawn(move || {
        while let Some(batch) = rank.next() {
            if sender.send((Instant::now(), batch.epoch, batch.digest())).is_err() {
                return;
            }
        }
    });
    let mut epochs = Vec::new();
    count(&told, SETTLING, &mut epochs);
    let (before, _) = count(&told, COUNTED, &mut epochs);
    let first = Pid::from_child(&servers[0].child);
    kill_process(first, case.signal).unwrap();
    let (_, pause) = count(&told, 2 * LEASE + SETTLING, &mut epochs);
    let (after, _) = count(&told, COUNTED, &mut epochs);
    kill_process(process, Signal::KILL).unwrap();
    reading.join().unwrap();
    if case.signal == Signal::STOP {
        kill_process(first, Signal::CONT).unwrap();
    }
    check(&epochs, good);
    (before, after, pause)
}

/// Takes batches for some time: how many came in a second, and the longest pause.
fn count(told: &Receiver<(Instant, u64, Digest)>, lasts: Duration, epochs: &mut Vec<Vec<Digest>>) -> (f64, Duration) {
    let (began, mut batches) = (Instant::now(), 0);
    let (mut last, mut pause) = (began, Duration::ZERO);
    while began.elapsed() < lasts {
        match told.recv_timeout(lasts.saturating_sub(began.elapsed())) {
            Ok((came, epoch, digest)) => {
                pause = pause.max(came.saturating_duration_since(last));
                (last, batches) = (came, batches + 1);
                epochs.resize_with(epochs.len().max(epoch as usize + 1), Vec::new);
                epochs[epoch as usize].push(digest);
            }
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => panic!("the rank ended"),
        }
    }
    (f64::from(batches) / began.elapsed().as_secs_f64(), pause.max(last.elapsed()))
}

/// Everything came in order and once, as on a good day; the last epoch was left.
fn check(epochs: &[Vec<Digest>], good: &mut GoodDay) {
    for (epoch, found) in (0..).zip(epochs) {
        let expected = good.epoch(epoch);
        let expected = if epoch as usize + 1 == epochs.len() { &expected[..found.len()] } else { expected };
        assert!(found == expected, "epoch {epoch}: {} batches of {}", found.len(), expected.len());
    }
}

/// Keeps a process to a core.
fn pin(process: u32, core: usize) {
    let arguments = ["-a", "-c", "-p", &core.to_string(), &process.to_string()];
    let pinned = Command::new("taskset").args(arguments).output().expect("taskset is there");
    assert!(pinned.status.success(), "{pinned:?}");
}

/// Waits until everything is served and all servers are known.
fn until_served(place: &Workplace, meeting: &str, servers: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = place.run(&format!("rendezvous status {meeting}/train --json"));
        let status = serde_json::from_str::<Value>(&shown.stdout).unwrap_or_default();
        let storage = &status["storage"];
        let known = storage["servers"].as_array().map_or(0, Vec::len);
        if known == servers && storage["missing"].as_array().is_some_and(Vec::is_empty) {
            return;
        }
        assert!(Instant::now() < deadline, "not served: {status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
