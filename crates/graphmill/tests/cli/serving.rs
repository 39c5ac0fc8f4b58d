//! Servers and ranks as processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Options, Remote, SeedList, Transport};
use graphmill_graph::{Dataset, Split};
use graphmill_sample::Config;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::Workplace;

/// A server of some partitions, and what it prints.
struct Served {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Served {
    /// Starts a server; with its address if `listen` left the port open.
    fn start(place: &Workplace, line: &str) -> (Self, String) {
        let mut child = place
            .command(&format!("--quiet serve {line}"))
            .env("GRAPHMILL_LOG", "error")
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("a server says where it listens").unwrap();
        let address = first.strip_prefix("listening on ").unwrap().to_owned();
        (Self { child, lines }, address)
    }

    /// Asks it to stop and gives its exit code.
    fn stop(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.lines.by_ref().for_each(drop);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Most have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Servers with the partitions of `g4` between them, over Unix sockets among each other.
fn cluster(place: &Workplace, servers: usize) -> (Vec<Served>, Vec<String>) {
    let socket = |server: usize| format!("unix:{}", place.path(&format!("{server}.sock")).display());
    let start = |server: usize| {
        let parts: Vec<String> = (0..4).filter(|part| part % servers == server).map(|part| part.to_string()).collect();
        let peers: Vec<String> = (0..servers).filter(|other| *other != server).map(socket).collect();
        let among = format!("--listen {} --peers {}", socket(server), peers.join(","));
        let among = if servers > 1 { among } else { String::new() };
        let parts = parts.join(",");
        Served::start(place, &format!("g4 --mmap --threads 1 --listen 127.0.0.1:0 --partition {parts} {among}"))
    };
    (0..servers).map(start).unzip()
}

fn graph(place: &Workplace) {
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
}

fn config() -> Config {
    Config { features: vec!["x".to_owned()], labels: true, ..Config::neighbors(&[5, 3]) }
}

/// The sum of all words of all batches of a rank, and how many there are.
fn embedded(place: &Workplace, rank: u32, world_size: u32, epochs: u64) -> (u64, u64) {
    let dataset = Dataset::open(place.path("g4")).unwrap();
    let seeds = SeedList::split(&dataset, None, Split::Train).unwrap();
    let options = Options { batch_size: 100, shuffle: true, rank, world_size, ..Options::default() };
    let loader = Loader::new(&dataset, config(), seeds, options).unwrap();
    let (mut sum, mut batches) = (0u64, 0);
    for batch in (0..epochs).flat_map(|epoch| loader.epoch(epoch)) {
        let batch = batch.unwrap();
        let (words, _) = batch.bytes().as_chunks::<8>();
        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        batches += 1;
    }
    (sum, batches)
}

#[test]
fn every_rank_of_every_topology_reads_the_bytes_of_the_embedded_loader() {
    let place = Workplace::new();
    graph(&place);
    for (servers, ranks) in [(1, 1), (1, 4), (2, 1), (2, 2), (4, 3)] {
        let (served, addresses) = cluster(&place, servers);
        let start = |rank: u32| {
            let transport = ["tcp", "uds", "shm"][rank as usize % 3];
            let order = json!({
                "servers": addresses, "transport": transport, "config": config(),
                "seeds": {"split": "train"}, "batch_size": 100, "prefetch": 2, "rank": rank, "world_size": ranks,
                "epochs": 2, "seconds": null,
            });
            let mut command = place.command("rank");
            command.arg(order.to_string()).stdin(Stdio::piped()).spawn().unwrap()
        };
        let children: Vec<Child> = (0..ranks).map(start).collect();
        for (rank, mut child) in (0..ranks).zip(children) {
            // Open until the end, or the rank would end with it.
            let stdin = child.stdin.take();
            let ended = child.wait_with_output().unwrap();
            drop(stdin);
            let said = String::from_utf8(ended.stdout).unwrap();
            let context = format!("{servers} x {ranks}, rank {rank}: {}", String::from_utf8_lossy(&ended.stderr));
            let last: Value = serde_json::from_str(said.lines().last().expect(&context)).unwrap();
            let found = (last["sum"].as_u64().unwrap(), last["batches"].as_u64().unwrap());
            assert_eq!(found, embedded(&place, rank, ranks, 2), "{context}");
        }
        for server in served {
            assert_eq!(server.stop(Signal::TERM), Some(0), "{servers} x {ranks}");
        }
    }
    let left: Vec<String> = place.names().into_iter().filter(|name| name.starts_with("graphmill-")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_server_killed_in_mid_epoch_and_started_again_loses_nothing() {
    let place = Workplace::new();
    graph(&place);
    let (first, address) = Served::start(&place, "g4 --mmap --listen 127.0.0.1:0");
    let options = ConnectOptions { deadline: Duration::from_secs(30), ..ConnectOptions::default() };
    let remote = Remote::connect(&[address.parse().unwrap()], options).unwrap();
    let loading = Options { batch_size: 100, shuffle: true, ..Options::default() };
    let loader = Loader::remote(&remote, config(), graphmill_client::Seeding::Split(Split::Train), loading).unwrap();
    let mut batches = loader.epoch(1);
    let mut taken: Vec<_> = batches.by_ref().take(5).map(Result::unwrap).collect();
    assert_eq!(first.stop(Signal::KILL), None);
    let (second, _) = Served::start(&place, &format!("g4 --mmap --listen {address}"));
    taken.extend(batches.map(Result::unwrap));
    assert_eq!(taken.len(), loader.len());

    let dataset = Dataset::open(place.path("g4")).unwrap();
    let seeds = SeedList::split(&dataset, None, Split::Train).unwrap();
    let loading = Options { batch_size: 100, shuffle: true, ..Options::default() };
    let expected = Loader::new(&dataset, config(), seeds, loading).unwrap();
    for (found, expected) in taken.iter().zip(expected.epoch(1)) {
        assert_eq!(found.bytes(), expected.unwrap().bytes());
    }
    drop((taken, loader, remote));
    assert_eq!(second.stop(Signal::TERM), Some(0));
}

#[test]
fn a_server_that_stops_with_open_channels_says_so() {
    let place = Workplace::new();
    graph(&place);
    let (server, address) = Served::start(&place, "g4 --mmap --listen 127.0.0.1:0 --drain 1");
    let options = ConnectOptions { transport: Transport::Socket, ..ConnectOptions::default() };
    let remote = Remote::connect(&[address.parse().unwrap()], options).unwrap();
    let loader = Loader::remote(&remote, config(), graphmill_client::Seeding::All, Options::default()).unwrap();
    assert_eq!(loader.epoch(0).next().unwrap().unwrap().batch_size(), 1024);
    let began = Instant::now();
    assert_eq!(server.stop(Signal::TERM), Some(1));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_is_not_safe_or_not_there_is_refused_in_words() {
    let place = Workplace::new();
    graph(&place);
    assert!(place.fail("serve g4 --listen 0.0.0.0:0").contains("give a token (--token-file) or mutual TLS"));
    assert!(place.fail("serve g4 --partition 9").contains("there is no partition `9`; there are: 0 to 3"));
    assert!(place.fail("serve nowhere").contains("cannot open nowhere"));
    place.write("serve.toml", "listen = [\"127.0.0.1:0\"]\nthread = 3\n");
    let ended = place.run("--quiet serve g4 --config serve.toml");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("unknown field `thread`"), "{ended:#?}");
    assert!(place.fail("status 127.0.0.1:1 --deadline 0.3").contains("127.0.0.1:1"));
}

#[test]
fn status_shows_channels_and_the_watch_plane_answers_without_a_token() {
    use std::io::{Read as _, Write as _};
    let place = Workplace::new();
    graph(&place);
    place.write("token", "a-secret\n");
    let (server, address) = Served::start(&place, "g4 --mmap --listen 127.0.0.1:0 --token-file token");
    let refused = place.fail(&format!("status {address}"));
    assert!(refused.contains("the token is missing or wrong"), "{refused}");
    let shown = place.succeed(&format!("status {address} --token-file token"));
    assert!(shown.contains("0, 1, 2, 3 of 4"), "{shown}");
    let told: Value =
        serde_json::from_str(&place.succeed(&format!("status {address} --token-file token --json"))).unwrap();
    assert_eq!(told[0]["partitions"], json!([0, 1, 2, 3]));
    for (page, expected) in [("/healthz", "ok"), ("/metrics", "graphmill_batches_total 0")] {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        write!(socket, "GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(expected), "{answer}");
        assert!(!answer.contains("a-secret"));
    }
    assert_eq!(server.stop(Signal::INT), Some(0));
}
