//! The store for programs that do not block: the same promises, kept by tasks.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use graphmill_objects::{AsyncConnector, Config, Connector, ErrorKind, PutOptions, Stat};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::support::{PATIENCE, Place, Way, content, eventually};

const ONCE: PutOptions = PutOptions { ttl: None };

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a test over every transport of object servers.
fn everywhere(test: &impl AsyncFn(&Place, AsyncConnector)) {
    for way in Way::SERVERS {
        let place = Place::new(way, |_| {});
        runtime().block_on(async {
            let connector = AsyncConnector::open(place.config.clone()).await.unwrap();
            test(&place, connector).await;
        });
    }
}

#[test]
fn objects_of_every_size_come_back_as_they_were() {
    everywhere(&async |place, connector| {
        let shared = 64 << 10;
        for size in [0, 1, 1 << 10, 16 << 10, shared - 1, shared, 1 << 20, 3 << 20] {
            let object = content(size, size as u64);
            let (head, tail) = object.split_at(size / 3);
            let key = connector.put(&[head, tail], ONCE).await.unwrap();
            assert!(connector.exists(&key).await.unwrap());
            let got = connector.get(&key, Duration::ZERO).await.unwrap().unwrap();
            assert!(got[..] == object, "{size} bytes");
            assert_eq!(got.is_mapped(), place.way.shares() && size >= shared, "{size} bytes");
            connector.evict(&key).await.unwrap();
            connector.evict(&key).await.unwrap();
            assert!(connector.get(&key, Duration::ZERO).await.unwrap().is_none());
            assert!(got[..] == object, "what was got stays");
        }
        let error = connector.put(&[&vec![0; 17 << 20]], ONCE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        // All memory is given back.
        let config = place.config.clone();
        let blocking = tokio::task::spawn_blocking(move || {
            let other = Connector::open(config).unwrap();
            eventually("nothing is held", || matches!(other.stat().unwrap(), Stat { objects: 0, used: 0, .. }));
        });
        blocking.await.unwrap();
    });
}

#[test]
fn many_tasks_of_several_threads_share_one() {
    let place = Place::new(Way::Shared, |_| {});
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let connector = std::sync::Arc::new(AsyncConnector::open(place.config.clone()).await.unwrap());
        let mut tasks = JoinSet::new();
        for number in 0..64u64 {
            let connector = std::sync::Arc::clone(&connector);
            tasks.spawn(async move {
                for round in 0..20 {
                    let object = content(if number % 8 == 0 { 70_000 } else { 500 }, 1000 * number + round);
                    let key = connector.put(&[&object], ONCE).await.unwrap();
                    let got = connector.get(&key, Duration::ZERO).await.unwrap().unwrap();
                    assert!(got[..] == object, "task {number}, round {round}");
                    connector.evict(&key).await.unwrap();
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
    let stat = || place.open().stat().unwrap();
    eventually("nothing is held", || matches!(stat(), Stat { objects: 0, used: 0, .. }));
}

#[test]
fn a_get_waits_for_what_another_task_sets_and_can_be_given_up() {
    everywhere(&async |_, connector| {
        let key = connector.new_key().await.unwrap();
        let given_up = tokio::time::timeout(Duration::from_millis(50), connector.get(&key, PATIENCE)).await;
        assert!(given_up.is_err());
        let set = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            connector.set(&key, &[b"later"], ONCE).await.unwrap();
        };
        let (got, ()) = tokio::join!(connector.get(&key, PATIENCE), set);
        assert_eq!(got.unwrap().unwrap()[..], *b"later");
        let never_set = connector.new_key().await.unwrap();
        let began = Instant::now();
        let nothing = connector.get(&never_set, Duration::from_millis(100)).await.unwrap();
        assert!(nothing.is_none() && began.elapsed() >= Duration::from_millis(100));
    });
}

#[test]
fn a_key_leads_to_its_own_server() {
    let [one, other] = [Way::Unix, Way::Tcp].map(|way| Place::new(way, |_| {}));
    runtime().block_on(async {
        let first = AsyncConnector::open(one.config.clone()).await.unwrap();
        let second = AsyncConnector::open(other.config.clone()).await.unwrap();
        let key = first.put(&[b"here"], ONCE).await.unwrap();
        assert_eq!(second.get(&key, Duration::ZERO).await.unwrap().unwrap()[..], *b"here");
        second.evict(&key).await.unwrap();
        assert!(!first.exists(&key).await.unwrap());
    });
}

#[test]
fn a_server_that_dies_is_an_error_and_another_one_is_used() {
    let place = Place::new(Way::Shared, |_| {}).watched();
    runtime().block_on(async {
        let connector = AsyncConnector::open(place.config.clone()).await.unwrap();
        let key = connector.put(&[&content(100_000, 1)], ONCE).await.unwrap();
        let object = connector.get(&key, Duration::ZERO).await.unwrap().unwrap();
        place.kill_server();
        let error = connector.get(&key, PATIENCE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(object[..] == content(100_000, 1), "what was got stays");
        let _another = AsyncConnector::open(place.config.clone()).await.unwrap();
        let error = connector.set(&key, &[b"new"], ONCE).await.unwrap_err();
        assert!(error.to_string().contains("an earlier start"), "{error}");
        connector.put(&[b"new"], ONCE).await.unwrap();
    });
}

#[test]
fn a_server_that_does_not_answer_is_an_error_in_time() {
    let place = Place::new(Way::Unix, |_| {}).watched();
    runtime().block_on(async {
        let connector = AsyncConnector::open(place.with(|config| config.deadline = 1.0)).await.unwrap();
        place.pause_server();
        let began = Instant::now();
        let error = connector.put(&[b"x"], ONCE).await.unwrap_err();
        assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
        place.resume_server();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        connector.put(&[b"x"], ONCE).await.unwrap();
    });
}

#[test]
fn it_is_a_lease_and_can_be_dropped_by_a_task() {
    let place = Place::new(Way::Shared, |server| server.linger = Some(0.2));
    runtime().block_on(async {
        let connector = AsyncConnector::open(place.config.clone()).await.unwrap();
        let key = connector.put(&[b"small"], ONCE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(connector.exists(&key).await.unwrap(), "it stays while it is used");
    });
    eventually("it ends with its last lease", || {
        UnixStream::connect(place.folder.path().join("objects.sock")).is_err()
    });
    // One that blocks may end in a task as well.
    let connector = place.open();
    runtime().block_on(async move { drop(connector) });
}

#[test]
fn what_is_no_object_server_is_refused() {
    let refused = runtime().block_on(AsyncConnector::open(Config::at("redis://127.0.0.1:1"))).unwrap_err();
    assert!(refused.kind() == ErrorKind::Config && refused.to_string().contains("Redis"), "{refused}");
    let absent = Config { wait: 0.1, deadline: 5.0, ..Config::at("127.0.0.1:1") };
    let refused = runtime().block_on(AsyncConnector::open(absent)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
}
