//! How servers begin and end.

use std::time::{Duration, Instant};

use graphmill_objects::{Config, Connector, ErrorKind, Server, ServerConfig, spawn_server, wait_server};

use crate::support::{Other, PATIENCE, Place, Way, content, eventually};

#[test]
fn ten_processes_that_begin_together_start_one_server() {
    for way in [Way::Tcp, Way::Tls, Way::Shared] {
        let place = Place::new(way, |_| {}).watched();
        let mut others: Vec<Other> = (0..10).map(|_| Other::start(&place.config)).collect();
        for (number, other) in others.iter_mut().enumerate() {
            other.tell(&format!("put 100 {number}"));
        }
        let keys: Vec<String> = others.iter_mut().map(Other::hear).collect();
        // Each sees what its neighbour put: it is one server for all.
        for (number, other) in others.iter_mut().enumerate() {
            let next = (number + 1) % 10;
            assert_eq!(other.ask(&format!("get {} {next}", keys[next])), "right", "{way:?}: {keys:?}");
        }
        assert_eq!(place.starts(), 1, "{way:?}");
    }
}

#[test]
fn two_processes_share_a_server_and_the_end_of_one_leaves_it() {
    for way in Way::SERVERS {
        let place = Place::new(way, |_| {}).watched();
        let (mut first, mut second) = (Other::start(&place.config), Other::start(&place.config));
        let key = first.ask("put 100000 1");
        assert_eq!(second.ask(&format!("get {key} 1")), "right");
        assert_eq!(second.ask("close"), "closed");
        assert_eq!(first.ask(&format!("get {key} 1")), "right");
        // The one that started it dies without a word; the other one's lease keeps it.
        assert_eq!(second.ask(&format!("get {key} 1")), "right");
        first.kill();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(second.ask(&format!("get {key} 1")), "right", "{way:?}");
        assert_eq!(place.starts(), 1);
    }
}

#[test]
fn the_death_of_the_starter_loses_nothing() {
    let place = Place::new(Way::Shared, |_| {}).watched();
    let mut starter = Other::start(&place.config);
    let key = starter.ask("put 1000000 5");
    starter.kill();
    // Within its linger time the server waits for somebody else.
    let connector = place.find().unwrap();
    assert!(connector.get(&key.parse().unwrap()).unwrap().unwrap()[..] == content(1_000_000, 5));
}

#[test]
fn a_started_server_ends_when_nobody_uses_it_and_not_before() {
    let place = Place::new(Way::Unix, |server| server.linger = Some(0.3)).watched();
    let connector = place.open();
    let process = place.server_process();
    let lives = || std::path::Path::new(&format!("/proc/{process}/fd/0")).symlink_metadata().is_ok();
    std::thread::sleep(Duration::from_millis(900));
    assert!(lives(), "an idle connector holds a lease");
    drop(connector);
    eventually("it ends", || !lives());
    assert!(!place.folder.path().join("objects.sock").exists(), "its socket went with it");
    let connector = place.open();
    assert_eq!((connector.stat().unwrap().objects, place.starts()), (0, 2));
}

#[test]
fn a_started_server_that_was_told_no_linger_time_has_one() {
    let place = Place::new(Way::Unix, |server| server.linger = None);
    let connector = place.open();
    assert!(connector.stat().unwrap().spawned);
    connector.close(true).unwrap();
    eventually("it is gone", || place.find().is_err());
}

#[test]
fn a_server_is_stopped_on_request_if_a_connector_started_it() {
    for way in Way::SERVERS {
        let place = Place::new(way, |_| {});
        let (first, second) = (place.open(), place.open());
        let key = first.put(b"x").unwrap();
        first.close(true).unwrap();
        eventually("it is gone", || second.get(&key).is_err());
        assert_eq!(second.get(&key).unwrap_err().kind(), ErrorKind::Unreachable, "{way:?}");
        // Another start at the same address: the same connector goes on, and the old object is not there.
        let third = place.open();
        assert!(second.get(&key).unwrap().is_none());
        let new = second.put(b"y").unwrap();
        assert_eq!(&third.get(&new).unwrap().unwrap()[..], b"y");
    }
}

#[test]
fn a_server_that_was_started_by_hand_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("s").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ServerConfig { listen: vec![address.clone()], ..ServerConfig::default() };
    let server = runtime.block_on(Server::start(&server)).unwrap();
    let connector = Connector::open(Config::at(address.clone())).unwrap();
    let error = connector.close(true).unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("by hand"), "{error}");
    assert!(!connector.stat().unwrap().spawned);
    // A second server does not take its place.
    let second = ServerConfig { listen: vec![address], ..ServerConfig::default() };
    let error = runtime.block_on(Server::start(&second)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Start, "{error}");
    runtime.block_on(server.stop());
}

#[test]
fn where_nobody_is_the_answer_comes_at_once_or_after_the_wait() {
    let place = Place::new(Way::Unix, |_| {});
    let nobody = Config { spawn: None, ..place.config.clone() };
    let began = Instant::now();
    assert_eq!(Connector::open(nobody.clone()).unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(began.elapsed() < PATIENCE / 2);
    let within = Duration::from_millis(200);
    assert_eq!(wait_server(&nobody, within).unwrap_err().kind(), ErrorKind::Unreachable);
    let info = spawn_server(&place.config).unwrap();
    assert!(info.spawned && info.generation != 0);
    assert_eq!(wait_server(&nobody, PATIENCE).unwrap().generation, info.generation);
    assert_eq!(spawn_server(&place.config).unwrap().generation, info.generation, "there is one already");
}

#[test]
fn a_server_that_takes_its_time_is_waited_for_and_no_other_takes_its_place() {
    for way in [Way::Tcp, Way::Unix, Way::Shared] {
        let place = Place::new(way, |_| {}).watched();
        let key = place.open().put(b"x").unwrap();
        for spawn in [place.config.spawn.clone(), None] {
            let config = place.with(|config| (config.wait, config.spawn) = (0.2, spawn));
            place.pause_server();
            std::thread::scope(|scope| {
                let opened = scope.spawn(|| Connector::open(config));
                std::thread::sleep(Duration::from_millis(500));
                assert!(!opened.is_finished(), "{way:?}: it waits");
                place.resume_server();
                assert!(opened.join().unwrap().unwrap().exists(&key).unwrap(), "{way:?}");
            });
        }
    }
}

#[test]
fn why_a_server_does_not_start_is_told() {
    let place = Place::new(Way::Unix, |server| server.token_file = Some("/nowhere/token".into()));
    let error = Connector::open(place.config.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Start);
    assert!(error.to_string().contains("/nowhere/token"), "{error}");
    for (command, reason) in [("/nowhere/program", "cannot run"), ("/bin/true", "ended before it listened")] {
        let config = place.with(|config| config.spawn.as_mut().unwrap().command = vec![command.to_owned()]);
        let error = Connector::open(config).unwrap_err();
        assert!(error.kind() == ErrorKind::Start && error.to_string().contains(reason), "{error}");
    }
    let silent = place.with(|config| {
        let spawn = config.spawn.as_mut().unwrap();
        spawn.command = ["sleep", "60"].map(str::to_owned).to_vec();
        spawn.deadline = 0.3;
    });
    let error = Connector::open(silent).unwrap_err();
    assert!(error.to_string().contains("did not listen in time"), "{error}");
    // Somebody whom it leaves behind has its standard error, and does not end.
    let left = place.with(|config| {
        let script = "echo the reason >&2; setsid sleep 30 >/dev/null & exit 1";
        config.spawn.as_mut().unwrap().command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    });
    let began = Instant::now();
    let error = Connector::open(left).unwrap_err();
    assert!(error.to_string().contains("ended before it listened: the reason"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn beyond_this_host_a_server_wants_a_token() {
    let place = Place::new(Way::Tcp, |server| server.listen = vec!["0.0.0.0:0".to_owned()]);
    let error = Connector::open(place.config.clone()).unwrap_err();
    assert!(error.to_string().contains("can be reached from other hosts"), "{error}");
}
