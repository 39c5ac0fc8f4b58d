//! Servers and clients that meet through a coordinator: who takes over when somebody dies, and that no batch is lost.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Options, Remote, SeedList, Seeding, Servers};
use graphmill_graph::{Dataset, Split};
use graphmill_sample::{Batch, Config};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::servers::{Coordinator, Served};
use crate::support::Workplace;

/// Long enough for a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

fn graph(place: &Workplace) {
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
}

fn config() -> Config {
    Config { features: vec!["x".to_owned()], labels: true, ..Config::neighbors(&[5, 3]) }
}

fn loading() -> Options {
    Options { batch_size: 16, shuffle: true, prefetch: 2, ..Options::default() }
}

/// Where a run is, with servers that are given up soon.
struct Run<'a> {
    place: &'a Workplace,
    coordinator: String,
    flags: &'static str,
}

impl Run<'_> {
    fn serve(&self, listen: &str) -> (Served, String) {
        let Self { place, coordinator, flags } = self;
        let meet = format!("--rendezvous {coordinator} --run train --server-lease 1 {flags}");
        Served::start(place, &format!("g4 --mmap --threads 1 --drain 2 --listen {listen} {meet}"))
    }

    fn url(&self) -> String {
        format!("graphmill://{}/train", self.coordinator)
    }

    /// What the coordinator knows of the servers; nothing if it does not know the run yet.
    fn status(&self) -> Value {
        let shown = self.place.run(&format!("rendezvous status {}/train --json", self.coordinator));
        serde_json::from_str::<Value>(&shown.stdout).map_or(Value::Null, |status| status["storage"].clone())
    }

    /// Waits until the registry is as it should be.
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if holds(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "not in time: {what}; {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn connect(&self) -> Arc<Remote> {
        let options = ConnectOptions { deadline: PATIENCE, ..ConnectOptions::default() };
        Remote::connect_to(&Servers::parse(&[self.url()]).unwrap(), options).unwrap()
    }
}

fn servers_of(status: &Value) -> usize {
    status["servers"].as_array().map_or(0, Vec::len)
}

fn all_served(status: &Value) -> bool {
    status["missing"] == json!([])
}

/// The partitions that a server serves.
fn served(status: &Value, address: &str) -> Value {
    let servers = status["servers"].as_array().into_iter().flatten();
    servers.filter(|server| server["address"] == address).map(|server| server["serving"].clone()).collect()
}

fn train(remote: &Arc<Remote>) -> Loader {
    Loader::remote(remote, config(), Seeding::Split(Split::Train), loading()).unwrap()
}

/// Fails unless batches are those of an epoch, each once, as they are sampled in one process.
fn check(place: &Workplace, epoch: u64, found: &[Batch]) {
    let dataset = Dataset::open(place.path("g4")).unwrap();
    let seeds = SeedList::split(&dataset, None, Split::Train).unwrap();
    let expected = Loader::new(&dataset, config(), seeds, loading()).unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected.epoch(epoch)) {
        let expected = expected.unwrap();
        assert_eq!(found.id(), expected.id());
        assert!(found.bytes() == expected.bytes(), "batch {:?} differs", found.id());
    }
}

#[test]
fn a_spare_takes_over_from_a_server_that_is_killed_and_the_epoch_goes_on() {
    let place = Workplace::new();
    graph(&place);
    let (_coordinator, coordinator) = Coordinator::start(&place, "--listen 127.0.0.1:0");
    let run = Run { place: &place, coordinator, flags: "--servers 2" };
    let (first, dead) = run.serve("127.0.0.1:0");
    let (second, _) = run.serve("127.0.0.1:0");
    run.until("two serve everything", all_served);
    let (spare, heir) = run.serve("127.0.0.1:0");
    run.until("the spare is there", |status| servers_of(status) == 3);
    assert_eq!(served(&run.status(), &heir), json!([[]]));

    let remote = run.connect();
    let loader = train(&remote);
    let mut batches = loader.epoch(1);
    let mut taken: Vec<_> = batches.by_ref().take(3).map(Result::unwrap).collect();
    let had = served(&run.status(), &dead);
    assert_eq!(first.stop(Signal::KILL), None);
    taken.extend(batches.map(Result::unwrap));
    check(&place, 1, &taken);
    let status = run.status();
    assert_eq!(served(&status, &heir), had, "{status:#}");
    // Whoever died comes back as the spare, and takes over in turn.
    let (third, back) = run.serve(&dead);
    assert_eq!(back, dead);
    run.until("it is the spare", |status| served(status, &dead) == json!([[]]));
    let mut batches = loader.epoch(2);
    let mut taken: Vec<_> = batches.by_ref().take(3).map(Result::unwrap).collect();
    assert!(spare.stop(Signal::TERM).is_some());
    taken.extend(batches.map(Result::unwrap));
    check(&place, 2, &taken);
    assert_eq!(served(&run.status(), &dead), had);
    let shown = place.succeed(&format!("rendezvous status {}/train", run.coordinator));
    assert!(shown.contains("4, each on 1; all served") && shown.contains(&dead), "{shown}");
    let shown = place.succeed(&format!("status {}", run.url()));
    assert!(shown.contains(&dead), "{shown}");
    drop((taken, loader, remote));
    for server in [second, third] {
        assert_eq!(server.stop(Signal::TERM), Some(0));
    }
}

#[test]
fn with_replicas_a_death_is_not_noticed_by_who_iterates() {
    let place = Workplace::new();
    graph(&place);
    let (_coordinator, coordinator) = Coordinator::start(&place, "--listen 127.0.0.1:0");
    let run = Run { place: &place, coordinator, flags: "--servers 4 --replicas 2" };
    let mut servers: Vec<_> = (0..4).map(|_| run.serve("127.0.0.1:0")).collect();
    let twice = |status: &Value| {
        let servers = status["servers"].as_array().unwrap();
        servers.iter().map(|server| server["serving"].as_array().unwrap().len()).sum::<usize>() == 8
    };
    run.until("everything is served twice", twice);
    let remote = run.connect();
    let loader = train(&remote);
    for epoch in 0..2 {
        let mut batches = loader.epoch(epoch);
        let mut taken: Vec<_> = batches.by_ref().take(4).map(Result::unwrap).collect();
        let (server, address) = servers.remove(0);
        assert_eq!(server.stop(Signal::KILL), None);
        taken.extend(batches.map(Result::unwrap));
        check(&place, epoch, &taken);
        assert!(all_served(&run.status()), "the other one has the same");
        servers.push(run.serve(&address));
        run.until("it is back", twice);
    }
}

#[test]
fn a_rolling_restart_of_all_servers_loses_nothing() {
    let place = Workplace::new();
    graph(&place);
    let (_coordinator, coordinator) = Coordinator::start(&place, "--listen 127.0.0.1:0");
    let run = Run { place: &place, coordinator, flags: "--servers 2" };
    let mut servers: Vec<_> = (0..2).map(|_| run.serve("127.0.0.1:0")).collect();
    run.until("two serve everything", all_served);
    let remote = run.connect();
    let loader = train(&remote);
    let mut batches = loader.epoch(0);
    let mut taken = Vec::new();
    for (number, signal) in [Signal::TERM, Signal::KILL, Signal::KILL, Signal::TERM].into_iter().enumerate() {
        taken.extend(batches.by_ref().take(3).map(Result::unwrap));
        let (server, address) = servers.remove(0);
        let had = served(&run.status(), &address);
        server.stop(signal);
        let (server, _) = run.serve(&address);
        servers.push((server, address.clone()));
        taken.extend(batches.by_ref().take(2).map(Result::unwrap));
        run.until("it has its partitions again", |status| served(status, &address) == had);
        assert!(batches.size_hint().0 > 0, "the epoch is over after {number}");
    }
    taken.extend(batches.map(Result::unwrap));
    check(&place, 0, &taken);
}

#[test]
fn loaders_and_servers_go_on_without_a_coordinator_and_find_the_next_one() {
    let place = Workplace::new();
    graph(&place);
    // One that forgets everything, and one that keeps it.
    for state in ["", "--state state"] {
        let (coordinator, address) = Coordinator::start(&place, &format!("--listen 127.0.0.1:0 {state}"));
        let run = Run { place: &place, coordinator: address.clone(), flags: "--servers 2" };
        let servers: Vec<_> = (0..3).map(|_| run.serve("127.0.0.1:0")).collect();
        run.until("everything is served", |status| all_served(status) && servers_of(status) == 3);
        let before: Vec<_> = servers.iter().map(|(_, address)| served(&run.status(), address)).collect();
        let remote = run.connect();
        let loader = train(&remote);
        let mut batches = loader.epoch(0);
        let mut taken: Vec<_> = batches.by_ref().take(3).map(Result::unwrap).collect();
        drop(coordinator);
        taken.extend(batches.map(Result::unwrap));
        check(&place, 0, &taken);
        let (_coordinator, _) = Coordinator::start(&place, &format!("--listen {address} {state}"));
        run.until("all are back", |status| all_served(status) && servers_of(status) == 3);
        let after: Vec<_> = servers.iter().map(|(_, address)| served(&run.status(), address)).collect();
        assert_eq!(before, after, "{state}");
        check(&place, 1, &loader.epoch(1).map(Result::unwrap).collect::<Vec<_>>());
        check(&place, 0, &train(&run.connect()).epoch(0).map(Result::unwrap).collect::<Vec<_>>());
        let _ = std::fs::remove_dir_all(place.path("state"));
    }
}

#[test]
fn what_is_missing_or_does_not_fit_is_said_in_words() {
    let place = Workplace::new();
    graph(&place);
    let (_coordinator, coordinator) = Coordinator::start(&place, "--listen 127.0.0.1:0");
    let run = Run { place: &place, coordinator: coordinator.clone(), flags: "--servers 2" };
    let nobody = place.fail(&format!("status {} --deadline 0.5", run.url()));
    assert!(nobody.contains("run `train` has no server yet"), "{nobody}");
    let (_server, _) = run.serve("127.0.0.1:0");
    run.until("one is there", |status| status["missing"] == json!([2, 3]));
    let missing = place.fail(&format!("status {} --deadline 0.5", run.url()));
    assert!(missing.contains("of 4 partitions, run `train` misses 2, 3; it has 1 server"), "{missing}");
    assert!(place.fail(&format!("status graphmill://{coordinator}")).contains("which run?"));

    let meet = format!("--listen 127.0.0.1:0 --mmap --rendezvous {coordinator} --run train");
    let refusals = [
        (format!("g4 {meet} --servers 2 --replicas 2"), "the number of replicas is 1 there, 2 here"),
        (format!("g {meet} --servers 2"), "the number of partitions is 4 there, 1 here"),
        (format!("g4 {meet} --partition 9 --servers 2"), "there is no partition 9 of 4"),
    ];
    for (line, words) in refusals {
        let ended = place.run(&format!("--quiet serve {line}"));
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.stderr.contains(words), "{ended:#?}");
    }
    for (line, words) in [
        ("g4 --rendezvous 127.0.0.1:1", "which run does this server serve?"),
        ("g4 --replicas 2", "say --rendezvous too"),
        ("g4 --insecure --listen 0.0.0.0:0 --rendezvous 127.0.0.1:1 --run r", "say one with --advertise"),
    ] {
        assert!(place.fail(&format!("serve {line}")).contains(words), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_sees_the_servers_of_a_run_and_whoever_joins_it_later() {
    let place = Workplace::new();
    graph(&place);
    let (_coordinator, coordinator) = Coordinator::start(&place, "--listen 127.0.0.1:0");
    assert!(place.fail(&format!("rendezvous status {coordinator}/train --watch")).contains("there is no run `train`"));
    let run = Run { place: &place, coordinator: coordinator.clone(), flags: "--servers 1" };
    let (server, _) = run.serve("127.0.0.1:0");
    run.until("all is served", all_served);
    let line = format!("rendezvous status {coordinator}/train --watch --json");
    let mut watcher = place.command(&line).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert!(all_served(&first["storage"]) && first["members"] == Value::Null, "{first}");
    let settings = graphmill_rendezvous::Settings::new(1, 1);
    let member = crate::rendezvous::member(&coordinator, &settings);
    member.next_rendezvous().await.unwrap();
    while next()["members"].as_array().map(Vec::len) != Some(1) {}
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let gone = loop {
        let seen = next();
        if servers_of(&seen["storage"]) == 0 {
            break seen;
        }
    };
    assert_eq!((&gone["storage"]["missing"], &gone["round"]), (&json!([0, 1, 2, 3]), &json!(0)), "members stay");
    member.set_closed().await.unwrap();
    while next()["closed"] != true {}
    assert!(watcher.wait().unwrap().success());
}

#[test]
fn a_server_ends_by_itself_when_its_clients_are_gone() {
    let place = Workplace::new();
    graph(&place);
    let (_coordinator, coordinator) = Coordinator::start(&place, "--listen 127.0.0.1:0");
    let run = Run { place: &place, coordinator, flags: "--servers 1 --exit-when-idle 0.3" };
    let (mut server, _) = run.serve("127.0.0.1:0");
    run.until("it serves", all_served);
    std::thread::sleep(Duration::from_millis(600));
    assert!(server.child.try_wait().unwrap().is_none(), "nobody came yet");
    let remote = run.connect();
    let loader = train(&remote);
    assert!(loader.epoch(0).all(|batch| batch.is_ok()));
    assert!(server.child.try_wait().unwrap().is_none());
    drop((loader, remote));
    let deadline = Instant::now() + PATIENCE;
    while server.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    run.until("it left", |status| servers_of(status) == 0);
}
