//! Several coordinators on one etcd: one leads, the others stand by, and nothing is lost when one goes.

mod etcd;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_rendezvous::etcd::{Etcd, EtcdUrl};
use graphmill_rendezvous::keeper::{EtcdKeeper, Keeper, Written};
use graphmill_rendezvous::storage::{Arrival, Terms};
use graphmill_rendezvous::{Coordinator, Keeping, Node, Operation, Outcome, Refused, Settings};
use graphmill_testing::{Fault, Proxy};

const WITHIN: Duration = Duration::from_secs(30);

fn node(counter: u32) -> Node {
    Node::new("host", 1, counter)
}

/// Asks a coordinator again and again until it does not stand by.
async fn led<T>(mut ask: impl AsyncFnMut() -> Result<T, Refused>) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(Refused::Standby(_) | Refused::Unkept(_)) if began.elapsed() < WITHIN => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            answered => return answered.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_with_every_rank_and_value() {
    let Some(mut nodes) = etcd::Nodes::start(3) else { return };
    let coordinator = |address: &str| {
        let etcd = nodes.connect("takes-over");
        Coordinator::new(Keeping::Etcd(etcd, address.to_owned())).unwrap()
    };
    let first = coordinator("first");
    let settings = Settings::new(2, 2);
    let (one, two) = tokio::join!(
        led(async || first.join("run", node(1), settings.clone(), WITHIN).await),
        led(async || first.join("run", node(2), settings.clone(), WITHIN).await),
    );
    let set = Operation::Set(vec![("port".to_owned(), b"29500".to_vec())]);
    led(async || first.store("run", 0, set.clone()).await).await;

    let second = coordinator("second");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let refused = second.keep_alive("run", node(1)).await.unwrap_err().to_string();
    assert!(refused.contains("first leads"), "{refused}");

    // One node of etcd goes, then the leader.
    nodes.kill(0);
    assert!(led(async || first.keep_alive("run", node(1)).await).await, "the others of etcd go on");
    drop(first);
    let again = led(async || second.join_again("run", node(1), settings.clone(), WITHIN, None).await).await;
    assert_eq!((again, two), (one, Outcome::Joined { round: 0, rank: 1, world_size: 2 }), "with the rank it had");
    let get = Operation::Get(vec!["port".to_owned()], WITHIN);
    assert_eq!(led(async || second.store("run", 0, get.clone()).await).await.values, [b"29500".to_vec()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_with_every_storage_server() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let coordinator =
        |address: &str| Coordinator::new(Keeping::Etcd(nodes.connect("storage"), address.to_owned())).unwrap();
    let arrival = |address: &str| Arrival {
        address: address.to_owned(),
        incarnation: 1,
        terms: Terms { fingerprint: "f".to_owned(), law: 1, parts: 2, replicas: 1, servers: 2 },
        lease: WITHIN,
        wanted: BTreeSet::new(),
        serving: BTreeSet::new(),
    };
    let first = coordinator("first");
    for (address, expected) in [("a", vec![0]), ("b", vec![1]), ("spare", vec![])] {
        let assigned = led(async || first.register_server("run", arrival(address)).await).await;
        assert_eq!(assigned, expected.into_iter().collect(), "{address}");
    }
    assert!(led(async || first.renew_server("run", "a".to_owned(), 1, [0].into()).await).await);
    // A run of the same name is kept beside it.
    led(async || first.join("run", node(1), Settings::new(1, 1), WITHIN).await).await;
    drop(first);

    let second = coordinator("second");
    let status = led(async || second.storage("run").await).await;
    let found: Vec<_> = status.servers.iter().map(|(address, ..)| address.as_str()).collect();
    assert_eq!((found, status.missing), (vec!["a", "b", "spare"], vec![1]));
    led(async || second.remove_server("run", "b".to_owned(), 1).await).await;
    let status = led(async || second.storage("run").await).await;
    assert_eq!(status.servers.last().unwrap().1.assigned, [1].into(), "the spare takes over");
    assert_eq!(second.status("run").await.unwrap().state.participants.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_has_lost_its_place_writes_nothing() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let etcd = nodes.connect("fenced");
    let (leading, old) = etcd::lead(&etcd, "old").await;
    let mut keeper = Keeper::Etcd(EtcdKeeper::new(Arc::clone(&etcd), "run", old));
    let change = |value: &str| vec![("key".to_owned(), Some(value.as_bytes().to_vec()))];
    let Written::Set(token) = keeper.write(change("1"), None).await.unwrap() else { panic!("it leads") };
    // Its lease is given back; somebody else leads.
    drop(leading);
    let (_leading, new) = etcd::lead(&etcd, "new").await;
    assert_ne!(old, new);
    assert!(matches!(keeper.write(change("2"), Some(token)).await.unwrap(), Written::Stale(Some(_))));
    let mut keeper = Keeper::Etcd(EtcdKeeper::new(etcd, "run", new));
    assert_eq!(keeper.read().await.unwrap().unwrap().0["key"], b"1");
    // More changes than etcd takes at once.
    let many = (0..350).map(|number| (format!("k{number}"), Some(vec![0; 10]))).collect();
    assert!(matches!(keeper.write(many, Some(token)).await.unwrap(), Written::Set(_)));
    assert_eq!(keeper.read().await.unwrap().unwrap().0.len(), 351);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_write_is_there_as_a_whole_or_not_at_all() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let etcd = nodes.connect("large");
    let (_leading, leader) = etcd::lead(&etcd, "here").await;
    let keeper = |run: &str| Keeper::Etcd(EtcdKeeper::new(Arc::clone(&etcd), run, leader));
    let all = |value: u8| -> graphmill_rendezvous::records::Changes {
        (0..1_000).map(|number| (format!("member/{number}"), Some(vec![value; 150]))).collect()
    };
    assert!(matches!(keeper("run").write(all(0), None).await.unwrap(), Written::Set(_)));
    for (value, wait) in [(1, 1), (2, 3), (3, 6), (4, 10), (5, 20)] {
        // Given up somewhere: the process was killed, or cut off.
        let mut writer = keeper("run");
        let (_, token) = writer.read().await.unwrap().unwrap();
        let written = tokio::time::timeout(Duration::from_millis(wait), writer.write(all(value), Some(token))).await;
        let (records, _) = keeper("run").read().await.unwrap().unwrap();
        assert_eq!(records.len(), 1_000, "nothing but records is seen");
        let first = records["member/0"][0];
        assert!(records.values().all(|record| record[0] == first), "one write or another, not a mixture");
        let acknowledged = matches!(written, Ok(Ok(Written::Set(_))));
        assert!(!acknowledged || first == value, "what was acknowledged is there");
    }
    // What was given up may still be on its way.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (_, token) = keeper("run").read().await.unwrap().unwrap();
    // Twice the same key in one write: the last one counts. And a name inside a name is another run.
    let twice = vec![("member/0".to_owned(), Some(vec![8])), ("member/0".to_owned(), Some(vec![9]))];
    assert!(matches!(keeper("run").write(twice.clone(), Some(token)).await.unwrap(), Written::Set(_)));
    assert_eq!(keeper("run").read().await.unwrap().unwrap().0["member/0"], [9]);
    keeper("run/member").write(twice, None).await.unwrap();
    assert_eq!(keeper("run").read().await.unwrap().unwrap().0.len(), 1_000);
    assert_eq!(keeper("run/member").read().await.unwrap().unwrap().0.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_changed_elsewhere_is_read_again() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let etcd = nodes.connect("elsewhere");
    let coordinator = Coordinator::new(Keeping::Etcd(Arc::clone(&etcd), "here".to_owned())).unwrap();
    let settings = Settings { expected: Some(1), ..Settings::new(1, 2) };
    led(async || coordinator.join("run", node(1), settings.clone(), WITHIN).await).await;
    // Somebody writes as if it were the leader. Its key was made at the revision before the run's first.
    let mut written = false;
    for leader in 1..20 {
        let mut other = Keeper::Etcd(EtcdKeeper::new(Arc::clone(&etcd), "run", leader));
        let (_, token) = other.read().await.unwrap().unwrap();
        let value = vec![("value/0/k".to_owned(), Some(b"theirs".to_vec()))];
        written |= matches!(other.write(value, Some(token)).await.unwrap(), Written::Set(_));
    }
    assert!(written);
    // Nobody is told what is not kept, also who only looks.
    let set = Operation::Set(vec![("k".to_owned(), b"ours".to_vec())]);
    let (stored, closed, status) =
        tokio::join!(coordinator.store("run", 0, set), coordinator.close("run", None), coordinator.status("run"));
    let refused = stored.unwrap_err().to_string();
    assert!(refused.contains("somebody else keeps this run"), "{refused}");
    assert!(closed.is_err() && !status.is_ok_and(|status| status.state.closed));
    let get = Operation::Get(vec!["k".to_owned()], WITHIN);
    let found = led(async || coordinator.store("run", 0, get.clone()).await).await;
    assert_eq!(found.values, [b"theirs".to_vec()], "what is kept is what counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_resigns_is_followed_at_once() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let coordinator =
        |address: &str| Coordinator::new(Keeping::Etcd(nodes.connect("resigns"), address.to_owned())).unwrap();
    let (first, settings) = (coordinator("first"), Settings::new(1, 1));
    let joined = led(async || first.join("run", node(1), settings.clone(), WITHIN).await).await;
    let second = coordinator("second");
    second.resign().await;
    assert!(first.keep_alive("run", node(1)).await.unwrap(), "who does not lead cannot resign");
    first.resign().await;
    // Nothing of the first is dropped, so its lease in etcd is kept up all the time; only its word makes room.
    let again = led(async || second.join_again("run", node(1), settings.clone(), WITHIN, None).await).await;
    assert_eq!(again, joined);
    let set = Operation::Set(vec![("k".to_owned(), b"late".to_vec())]);
    assert!(matches!(first.store("run", 0, set).await, Err(Refused::Unkept(_))), "it keeps nothing any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_from_etcd_stands_by_and_another_goes_on() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let proxy = Proxy::start(nodes.addresses().parse().unwrap(), 1).unwrap();
    let through = EtcdUrl { nodes: vec![proxy.address().to_string()], ..EtcdUrl::default() };
    let through = Arc::new(Etcd::open(&through, "cut").unwrap());
    let first = Coordinator::new(Keeping::Etcd(through, "first".to_owned())).unwrap();
    let settings = Settings { expected: Some(1), ..Settings::new(1, 2) };
    let joined = led(async || first.join("run", node(1), settings.clone(), WITHIN).await).await;
    let second = Coordinator::new(Keeping::Etcd(nodes.connect("cut"), "second".to_owned())).unwrap();
    proxy.apply(Fault::Partition);
    // A member that reaches the first alone is not told of a round; one that reaches the second is in the one it was in.
    let cut_off = first.join("run", node(2), settings.clone(), WITHIN);
    let goes_on = led(async || second.join_again("run", node(1), settings.clone(), WITHIN, None).await);
    let (cut_off, goes_on) = tokio::join!(cut_off, goes_on);
    assert!(matches!(cut_off, Err(Refused::Standby(_) | Refused::Unkept(_))), "{cut_off:?}");
    assert_eq!(goes_on, joined);
    let next = led(async || second.join("run", node(1), settings.clone(), WITHIN).await).await;
    assert_eq!(next, Outcome::Joined { round: 1, rank: 0, world_size: 1 });

    proxy.apply(Fault::Heal);
    let began = Instant::now();
    loop {
        match first.keep_alive("run", node(1)).await {
            Err(Refused::Standby(reason)) if reason.contains("second leads") => break,
            Err(Refused::Standby(_) | Refused::Unkept(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < WITHIN);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(second.status("run").await.unwrap().state.round, 1, "what the first wanted to write is not there");
}
