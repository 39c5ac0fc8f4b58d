//! Servers as processes: killed, stopped, refused, watched.

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Options, Remote, SeedList, Transport};
use graphmill_graph::{Dataset, Split};
use graphmill_sample::Config;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::servers::Served;
use crate::support::{Ended, Workplace};

fn graph(place: &Workplace) {
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
}

fn config() -> Config {
    Config { features: vec!["x".to_owned()], labels: true, ..Config::neighbors(&[5, 3]) }
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
fn settings_are_flags_then_variables_then_the_file() {
    let place = Workplace::new();
    graph(&place);
    place.write("serve.toml", "listen = [\"127.0.0.1:0\"]\ndrain = 7\nmmap = true\n");
    let serve = |flags: &str, variables: &[(&str, &str)]| {
        // Its input is empty, so that it stops at once.
        let mut command = place.command(&format!("serve g4 --until-stdin-closes {flags}"));
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    };
    let drain = ("GRAPHMILL_DRAIN", "8");
    for (flags, variables, seconds) in [
        ("--config serve.toml", &[][..], "7.00 s"),
        ("--config serve.toml", &[drain][..], "8.00 s"),
        ("--config serve.toml --drain 9", &[drain][..], "9.00 s"),
        ("", &[drain, ("GRAPHMILL_CONFIG", "serve.toml")][..], "8.00 s"),
    ] {
        let ended = serve(flags, variables);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.stderr.contains(&format!("stopping, within {seconds}")), "{flags}: {ended:#?}");
    }
    let listen = ("GRAPHMILL_LISTEN", "127.0.0.1:0,127.0.0.1:0");
    for (mmap, code) in [("1", 0), ("yes", 0), ("true", 0), ("0", 0), ("off", 0), ("perhaps", 2)] {
        let ended = serve("", &[listen, ("GRAPHMILL_MMAP", mmap)]);
        assert_eq!(ended.code, Some(code), "{mmap}: {ended:#?}");
        assert_eq!(ended.stdout.matches("listening on 127.0.0.1:").count(), if code == 0 { 2 } else { 0 });
    }
}

#[test]
fn coordinators_and_object_servers_listen_on_all_addresses_of_the_variable() {
    let place = Workplace::new();
    // Its input is empty, and nobody connects, so that each stops at once.
    for line in ["rendezvous serve --until-stdin-closes", "objects serve --linger 0"] {
        let mut command = place.command(line);
        let ended = Ended::from(command.env("GRAPHMILL_LISTEN", "127.0.0.1:0,127.0.0.1:0").output().unwrap());
        assert_eq!(ended.code, Some(0), "{line}: {ended:#?}");
        assert_eq!(ended.stdout.matches("listening on 127.0.0.1:").count(), 2, "{line}: {ended:#?}");
    }
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

#[test]
fn benches_of_servers_print_what_they_measured() {
    let place = Workplace::new();
    graph(&place);
    let measure = |line: &str| -> Value {
        serde_json::from_str(&place.succeed(&format!("bench {line} --fanouts 5,3 --batch-size 64 --json --quiet")))
            .unwrap()
    };
    let loader = measure("loader g4 --servers 2 --ranks 2 --seconds 0.5 --features");
    assert!(loader["seeds_per_s"].as_f64().unwrap() > 0.0, "{loader}");
    assert_eq!(loader["per_rank_seeds_per_s"].as_array().unwrap().len(), 2);
    let (server, address) = Served::start(&place, "g --mmap --listen 127.0.0.1:0");
    for reading in ["", "--unread"] {
        let loader = measure(&format!("loader g --at {address} --seconds 0.5 {reading}"));
        assert!(loader["seeds_per_s"].as_f64().unwrap() > 0.0, "{loader}");
        assert_eq!(loader["servers"], json!(1));
    }
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let fairness = measure("fairness g4 --mmap --seconds 1 --stop 1 --runs 2");
    assert_eq!(fairness["seed_counts"], json!([3000, 300, 30]));
    for key in ["fairness", "others_while_stopped"] {
        assert!(fairness[key].as_f64().unwrap() > 0.0, "{fairness}");
        assert_eq!(fairness[format!("{key}_by_run")].as_array().unwrap().len(), 2);
    }
    assert!(place.fail("bench fairness g4 --fanouts 5 --seed-counts 7").contains("two ranks"));
}
