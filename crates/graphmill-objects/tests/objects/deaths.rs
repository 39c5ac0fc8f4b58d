//! Servers that die in the middle of something.

use std::time::{Duration, Instant};

use graphmill_objects::{Connector, ErrorKind};

use crate::support::{Other, PATIENCE, Place, Way, content, eventually};

/// A deadline that a test can wait for.
const DEADLINE: Duration = Duration::from_secs(5);

fn place(way: Way) -> Place {
    let mut place = Place::new(way, |server| server.budget = 512 << 20).watched();
    place.config.deadline = DEADLINE.as_secs_f64();
    place
}

#[test]
fn a_server_that_dies_gives_every_caller_an_error_within_the_deadline() {
    for way in Way::SERVERS {
        let place = place(way);
        let connector = place.open();
        let key = connector.put(&content(100_000, 1)).unwrap();
        let held = connector.get(&key).unwrap().unwrap();
        let never = connector.new_key().unwrap();
        std::thread::scope(|scope| {
            let connector = &connector;
            // Some wait for an object, others put and get without a pause.
            let waiting = scope.spawn(|| connector.get_waiting(&never, Duration::from_secs(600)).unwrap_err());
            let busy = [0u64, 1].map(|number| {
                scope.spawn(move || {
                    loop {
                        let moved = connector.put(&content(8 << 20, number)).and_then(|key| {
                            let got = connector.get(&key)?;
                            // Nothing is half there: whoever sees an object sees all of it.
                            assert!(got.is_none_or(|got| got[..] == content(8 << 20, number)));
                            connector.evict(&key)
                        });
                        if let Err(error) = moved {
                            return error;
                        }
                    }
                })
            });
            eventually("one waits", || connector.stat().unwrap().waiting_gets == 1);
            std::thread::sleep(Duration::from_millis(100));
            place.kill_server();
            let began = Instant::now();
            for error in busy.into_iter().map(|one| one.join().unwrap()).chain([waiting.join().unwrap()]) {
                assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{way:?}: {error}");
            }
            assert!(began.elapsed() < DEADLINE + PATIENCE / 4, "{way:?}: {:?}", began.elapsed());
        });
        assert!(held[..] == content(100_000, 1), "what was handed out stays");
        assert_eq!(connector.put(b"x").unwrap_err().kind(), ErrorKind::Unreachable);
        drop(held);
        // A new start at the same address, where a dead server's socket may still lie.
        let again = place.open();
        assert!(connector.get(&key).unwrap().is_none());
        assert!(again.put(b"x").is_ok());
        assert_eq!(place.starts(), 2);
    }
}

#[test]
fn a_server_that_says_nothing_any_more_is_a_time_out() {
    for way in [Way::Tcp, Way::Unix, Way::Shared] {
        let place = place(way);
        let connector = Connector::open(place.with(|config| config.deadline = 0.5)).unwrap();
        let key = connector.put(b"x").unwrap();
        place.pause_server();
        for error in [connector.put(b"y").unwrap_err(), connector.get(&key).map(drop).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Timeout, "{way:?}: {error}");
        }
        place.resume_server();
        eventually("it is well again", || connector.get(&key).is_ok_and(|got| got.is_some()));
    }
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_put_leaves_nothing_behind() {
    for way in [Way::Tcp, Way::Unix, Way::Shared] {
        let place = place(way);
        let connector = place.open();
        for _ in 0..5 {
            let mut other = Other::start(&place.config);
            assert_eq!(other.ask("open"), "opened");
            other.tell("put 60000000 1");
            std::thread::sleep(Duration::from_millis(40));
            other.kill();
        }
        // What was put as a whole is there, what was not is not; nothing is charged that is not there.
        eventually("all connections are gone", || connector.stat().unwrap().connections == 1);
        let listed = connector.list(None, 100).unwrap();
        assert!(listed.iter().all(|entry| entry.bytes == 60_000_000));
        for entry in &listed {
            connector.evict(&connector.key_of(entry).unwrap()).unwrap();
        }
        assert_eq!(connector.stat().unwrap().used, 0, "{way:?}");
    }
}

#[test]
fn a_hundred_killed_starters_leave_no_server_and_no_socket() {
    let change = |server: &mut graphmill_objects::ServerConfig| {
        server.linger = Some(1.0);
        server.budget = 512 << 20;
    };
    let place = Place::new(Way::Shared, change).watched();
    let mut servers = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let mut others: Vec<Other> = (0..10).map(|_| Other::start(&place.config)).collect();
        for other in &mut others {
            other.tell("put 1000000 1");
        }
        for other in &mut others {
            let said = other.hear();
            assert!(!said.starts_with("error"), "{said}");
        }
        servers.insert(place.server_process());
        others.into_iter().for_each(Other::kill);
    }
    // A dead process that nobody has waited for has no command line any more.
    let lives = |process: &i32| std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty());
    eventually("all servers have ended", || !servers.iter().any(lives));
    assert!(!place.folder.path().join("objects.sock").exists());
}
