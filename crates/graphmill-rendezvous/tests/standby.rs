//! Several coordinators on one etcd: one leads, the others stand by, and nothing is lost when one goes.

mod etcd;

use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_rendezvous::keeper::{EtcdKeeper, Keeper, Written};
use graphmill_rendezvous::{Coordinator, Keeping, Node, Operation, Outcome, Refused, Settings};

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
        let etcd = Arc::new(graphmill_rendezvous::keeper::Etcd::clone(&nodes.connect("takes-over")));
        Coordinator::new(Keeping::Etcd(etcd, address.to_owned())).unwrap()
    };
    let first = coordinator("first");
    let settings = Settings::new(2, 2);
    let (one, two) = tokio::join!(
        led(async || first.join("run", node(1), settings.clone(), WITHIN, false).await),
        led(async || first.join("run", node(2), settings.clone(), WITHIN, false).await),
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
    let again = led(async || second.join("run", node(1), settings.clone(), WITHIN, true).await).await;
    assert_eq!((again, two), (one, Outcome::Joined { round: 0, rank: 1, world_size: 2 }), "with the rank it had");
    let get = Operation::Get(vec!["port".to_owned()], WITHIN);
    assert_eq!(led(async || second.store("run", 0, get.clone()).await).await.values, [b"29500".to_vec()]);
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
