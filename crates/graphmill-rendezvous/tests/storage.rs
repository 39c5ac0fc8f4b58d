//! The registry of storage servers: who gets which partition, who takes over, what is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::storage::{self, Arrival, Registry, Terms, Unfit};
use graphmill_rendezvous::{Coordinator, Keeping, Refused};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_secs(5);
const START: Duration = Duration::ZERO;

fn terms(parts: u32, replicas: u32, servers: u32) -> Terms {
    Terms { fingerprint: "f".to_owned(), law: 1, parts, replicas, servers }
}

fn arrival(address: &str, incarnation: u64, terms: &Terms) -> Arrival {
    let (wanted, serving) = (BTreeSet::new(), BTreeSet::new());
    Arrival { address: address.to_owned(), incarnation, terms: terms.clone(), lease: LEASE, wanted, serving }
}

fn register(registry: &mut Registry, address: &str, incarnation: u64, terms: &Terms, now: Duration) -> Vec<u32> {
    registry.register(arrival(address, incarnation, terms), now).unwrap().into_iter().collect()
}

fn assigned(registry: &Registry, address: &str) -> Vec<u32> {
    registry.servers()[address].assigned.iter().copied().collect()
}

fn reason(refused: Result<BTreeSet<u32>, Unfit>) -> String {
    refused.unwrap_err().to_string()
}

#[test]
fn partitions_are_shared_out_in_the_order_of_coming() {
    // Partitions, replicas, servers; who gets what.
    let rows: [(u32, u32, u32, &[&[u32]]); 7] = [
        (4, 1, 2, &[&[0, 1], &[2, 3], &[]]),
        (3, 1, 2, &[&[0, 1], &[2], &[]]),
        (2, 1, 0, &[&[0], &[1], &[]]),
        (2, 2, 0, &[&[0, 1], &[0, 1], &[]]),
        (4, 2, 4, &[&[0, 1], &[2, 3], &[0, 1], &[2, 3], &[]]),
        (4, 2, 3, &[&[0, 1, 2], &[0, 1, 3], &[2, 3], &[]]),
        (1, 3, 2, &[&[0], &[0], &[0], &[]]),
    ];
    for (parts, replicas, servers, expected) in rows {
        let (mut registry, terms) = (Registry::default(), terms(parts, replicas, servers));
        for (number, expected) in expected.iter().enumerate() {
            let found = register(&mut registry, &format!("s{number}"), 1, &terms, START);
            assert_eq!(found, *expected, "server {number} of {terms:?}");
        }
    }
}

#[test]
fn a_spare_takes_over_when_a_lease_ends_or_a_server_leaves() {
    for leaves in [false, true] {
        let (mut registry, terms) = (Registry::default(), terms(4, 1, 2));
        for address in ["a", "b", "spare"] {
            register(&mut registry, address, 1, &terms, START);
        }
        let now = LEASE;
        assert!(registry.renew("b", 1, [2, 3].into(), now) && registry.renew("spare", 1, BTreeSet::new(), now));
        if leaves {
            registry.remove("a", 1, now);
        } else {
            registry.pass(now);
            assert_eq!(assigned(&registry, "a"), [0, 1], "a lease ends strictly after its time");
            assert_eq!(registry.next_end(), Some(LEASE));
            registry.pass(now + Duration::from_nanos(1));
        }
        assert_eq!(assigned(&registry, "spare"), [0, 1]);
        assert_eq!(registry.missing(), [0, 1], "it opens them first");
        assert!(registry.renew("spare", 1, [0, 1].into(), now));
        assert_eq!(registry.missing(), [0; 0]);
        assert!(!registry.renew("a", 1, [0, 1].into(), now), "it must register again");
        // What it still serves is its own; it harms nobody.
        let again = Arrival { serving: [0, 1].into(), ..arrival("a", 1, &terms) };
        assert_eq!(registry.register(again, now).unwrap(), [0, 1].into());
        // Had it come back with nothing, it would be the spare now.
        registry.remove("a", 1, now);
        assert_eq!(register(&mut registry, "a", 2, &terms, now), [0; 0]);
    }
}

#[test]
fn a_server_that_comes_back_gets_what_it_had() {
    let (mut registry, terms) = (Registry::default(), terms(6, 1, 3));
    for address in ["a", "b", "c"] {
        register(&mut registry, address, 1, &terms, START);
    }
    // Within its lease, as another incarnation.
    assert_eq!(register(&mut registry, "b", 2, &terms, LEASE), [2, 3]);
    assert!(!registry.renew("b", 1, BTreeSet::new(), LEASE), "the one before is fenced off");
    registry.remove("b", 1, LEASE);
    assert_eq!(assigned(&registry, "b"), [2, 3], "and cannot take it away");
    // All are gone, and come back in another order.
    registry.pass(3 * LEASE);
    assert_eq!(registry.living().count(), 0);
    for (address, expected) in [("c", [4, 5]), ("a", [0, 1]), ("b", [2, 3])] {
        assert_eq!(register(&mut registry, address, 3, &terms, 3 * LEASE), expected);
    }
}

#[test]
fn named_partitions_are_given_as_they_are_named() {
    let (mut registry, terms) = (Registry::default(), terms(4, 1, 2));
    let named = Arrival { wanted: [1, 3].into(), ..arrival("n", 1, &terms) };
    assert_eq!(registry.register(named.clone(), START).unwrap(), [1, 3].into());
    assert_eq!(register(&mut registry, "a", 1, &terms, START), [0, 2]);
    registry.remove("a", 1, START);
    assert_eq!(assigned(&registry, "n"), [1, 3], "it takes nothing else");
    let twice = Arrival { address: "m".to_owned(), ..named };
    assert_eq!(registry.register(twice, START).unwrap(), [1, 3].into(), "two on one partition are harmless");
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let (mut registry, agreed) = (Registry::default(), terms(4, 1, 2));
    register(&mut registry, "a", 1, &agreed, START);
    let other = |change: fn(&mut Terms)| {
        let mut terms = agreed.clone();
        change(&mut terms);
        arrival("b", 1, &terms)
    };
    let rows = [
        (other(|terms| terms.fingerprint = "g".to_owned()), "the dataset is f there, g here"),
        (other(|terms| terms.law = 2), "the law version is 1 there, 2 here"),
        (other(|terms| terms.parts = 5), "the number of partitions is 4 there, 5 here"),
        (other(|terms| terms.replicas = 2), "the number of replicas is 1 there, 2 here"),
        (other(|terms| terms.servers = 0), "the number of servers is 2 there, 4 here"),
        (other(|terms| terms.parts = 0), "1 to 65536 partitions, not 0"),
        (other(|terms| terms.parts = 65_537), "1 to 65536 partitions, not 65537"),
        (other(|terms| terms.replicas = 0), "1 to 4096 servers, not 0"),
        (other(|terms| terms.fingerprint.clear()), "a fingerprint of 0 bytes"),
        (Arrival { wanted: [4].into(), ..arrival("b", 1, &agreed) }, "no partition 4 of 4"),
        (Arrival { serving: [9].into(), ..arrival("b", 1, &agreed) }, "no partition 9 of 4"),
        (Arrival { lease: Duration::ZERO, ..arrival("b", 1, &agreed) }, "0.1 s to an hour"),
        (Arrival { lease: 1000 * Duration::from_secs(3600), ..arrival("b", 1, &agreed) }, "0.1 s to an hour"),
        (arrival("", 1, &agreed), "1 to 256 bytes"),
        (arrival(&"x".repeat(257), 1, &agreed), "1 to 256 bytes"),
        (arrival("a\nb", 1, &agreed), "no control characters"),
    ];
    for (arrival, words) in rows {
        let reason = reason(registry.register(arrival, START));
        assert!(reason.contains(words), "{reason}, expected {words}");
    }
    assert_eq!(registry.servers().len(), 1);
    // When nobody is left, the next one settles everything.
    registry.remove("a", 1, START);
    let new = Terms { fingerprint: "g".to_owned(), ..terms(9, 1, 1) };
    assert_eq!(register(&mut registry, "b", 1, &new, START).len(), 9);
    assert!(!registry.servers().contains_key("a"), "what it had was of another dataset");
}

#[test]
fn there_is_room_for_so_many_and_the_living_come_first() {
    let (mut registry, terms) = (Registry::default(), terms(1, 1, 1));
    for number in 0..storage::SERVERS {
        register(&mut registry, &format!("s{number}"), 1, &terms, START);
    }
    assert_eq!(registry.register(arrival("more", 1, &terms), START), Err(Unfit::Full));
    registry.remove("s7", 1, START);
    assert_eq!(register(&mut registry, "more", 1, &terms, START), [0; 0]);
    assert_eq!(registry.servers().len(), storage::SERVERS);
    assert!(!registry.servers().contains_key("s7"));
}

#[derive(Debug, Clone)]
enum Happening {
    Register(u8, u64),
    Serve(u8, u64),
    Remove(u8, u64),
    Pass(u64),
    /// The coordinator starts again from what it kept.
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    let who = || (0u8..6, 1u64..3);
    prop_oneof![
        4 => who().prop_map(|(server, incarnation)| Happening::Register(server, incarnation)),
        4 => who().prop_map(|(server, incarnation)| Happening::Serve(server, incarnation)),
        1 => who().prop_map(|(server, incarnation)| Happening::Remove(server, incarnation)),
        2 => (0u64..4000).prop_map(Happening::Pass),
        1 => Just(Happening::Restart),
    ]
}

/// What is kept, as the coordinator keeps it.
#[derive(Default)]
struct Kept(BTreeMap<String, Vec<u8>>);

impl Kept {
    fn follow(&mut self, registry: &mut Registry) {
        for address in registry.take_touched() {
            self.apply(storage::server_change(&address, registry.servers().get(&address)));
        }
        if let Some(terms) = registry.terms() {
            self.apply(storage::terms_change(terms));
        }
    }

    fn apply(&mut self, (key, record): (String, Option<Vec<u8>>)) {
        match record {
            Some(record) => drop(self.0.insert(key, record)),
            None => drop(self.0.remove(&key)),
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_partitions_go_to_who_can_take_them(
        happenings in proptest::collection::vec(happening(), 1..60),
        (parts, replicas, servers) in (1u32..9, 1u32..4, 0u32..5),
    ) {
        let terms = terms(parts, replicas, servers);
        let (mut registry, mut kept, mut now) = (Registry::default(), Kept::default(), START);
        for happening in happenings {
            let before = registry.clone();
            match happening {
                Happening::Register(server, incarnation) => {
                    let found = registry.register(arrival(&format!("s{server}"), incarnation, &terms), now).unwrap();
                    let was = before.servers().get(&format!("s{server}"));
                    if let Some(was) = was && was.heard.is_some_and(|heard| heard + LEASE >= now) {
                        prop_assert!(found.is_superset(&was.assigned), "nothing is taken away");
                    }
                }
                Happening::Serve(server, incarnation) => {
                    let address = format!("s{server}");
                    let serves = registry.servers().get(&address).map(|server| server.assigned.clone());
                    registry.renew(&address, incarnation, serves.unwrap_or_default(), now);
                }
                Happening::Remove(server, incarnation) => registry.remove(&format!("s{server}"), incarnation, now),
                Happening::Pass(millis) => {
                    now += Duration::from_millis(millis);
                    registry.pass(now);
                }
                Happening::Restart => {
                    let (terms, servers) = storage::read(&kept.0).unwrap();
                    registry = Registry::restored(terms, servers, now);
                }
            }
            kept.follow(&mut registry);

            let Some(agreed) = registry.terms() else { continue };
            let share = agreed.share();
            let holders = |partition: u32| {
                registry.living().filter(|(_, server)| server.assigned.contains(&partition)).count()
            };
            for server in registry.servers().values() {
                prop_assert!(server.assigned.len() <= share);
                prop_assert!(server.assigned.iter().all(|&partition| partition < parts));
                prop_assert!(server.heard.is_some() || server.assigned.is_empty() && server.serving.is_empty());
            }
            for partition in 0..parts {
                let count = holders(partition);
                prop_assert!(count <= replicas as usize, "nobody takes what enough have");
                let can_take = |server: &storage::Server| {
                    server.assigned.len() < share && !server.assigned.contains(&partition)
                };
                prop_assert!(
                    count == replicas as usize || !registry.living().any(|(_, server)| can_take(server)),
                    "partition {partition} is free, and somebody has room"
                );
            }
            let dead = registry.living().any(|(_, server)| server.heard.is_some_and(|heard| heard + server.lease < now));
            prop_assert!(!dead || registry.next_end().is_some_and(|end| end < now), "leases that ended are known");
            // Kept is what is known, but for when everybody was heard of.
            let (kept_terms, kept_servers) = storage::read(&kept.0).unwrap();
            prop_assert_eq!(kept_terms.as_ref(), registry.terms());
            let unheard = |servers: &BTreeMap<String, storage::Server>| -> Vec<_> {
                let server = |(address, server): (&String, &storage::Server)| {
                    (address.clone(), storage::Server { heard: server.heard.map(|_| START), ..server.clone() })
                };
                servers.iter().map(server).collect()
            };
            prop_assert_eq!(unheard(&kept_servers), unheard(registry.servers()));
        }
    }

    #[test]
    fn records_that_are_no_registry_are_refused_not_believed(
        key in "(storage|server/[a-z]{0,3}|[a-z]{1,4})", record in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        prop_assert!(storage::read(&BTreeMap::from([(key, record)])).is_err());
    }
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let (mut registry, agreed) = (Registry::default(), terms(4, 1, 1));
    register(&mut registry, "a", 1, &agreed, START);
    let mut kept = Kept::default();
    kept.follow(&mut registry);
    assert!(storage::read(&kept.0).is_ok());
    kept.apply(storage::terms_change(&terms(3, 1, 1)));
    let error = storage::read(&kept.0).unwrap_err().to_string();
    assert!(error.contains("server/a") && error.contains("beyond 3"), "{error}");
    assert!(storage::read(&BTreeMap::from([("other".to_owned(), Vec::new())])).is_err());
}

fn memory() -> Arc<Coordinator> {
    Coordinator::new(Keeping::Memory).unwrap()
}

#[tokio::test]
async fn whoever_watches_is_told_of_every_change_and_of_leases_that_end() {
    let coordinator = memory();
    let mut changes = coordinator.storage_changes("run").await.unwrap();
    assert!(coordinator.storage("run").await.unwrap().terms.is_none(), "nobody is there yet");
    let terms = terms(1, 1, 1);
    let short = Arrival { lease: Duration::from_millis(200), ..arrival("a", 1, &terms) };
    assert_eq!(coordinator.register_server("run", short).await.unwrap(), [0].into());
    changes.changed().await.unwrap();
    assert_eq!(coordinator.register_server("run", arrival("spare", 1, &terms)).await.unwrap(), BTreeSet::new());
    assert!(coordinator.renew_server("run", "a".to_owned(), 1, [0].into()).await.unwrap());
    assert_eq!(coordinator.storage("run").await.unwrap().missing, [0; 0]);
    changes.borrow_and_update();
    tokio::time::timeout(Duration::from_secs(20), changes.changed()).await.expect("the lease ends").unwrap();
    let status = coordinator.storage("run").await.unwrap();
    let [(address, server, _)] = &status.servers[..] else { panic!("{status:?}") };
    assert_eq!((address.as_str(), &server.assigned), ("spare", &[0].into()));
    assert_eq!(status.missing, [0]);
    assert!(!coordinator.renew_server("run", "a".to_owned(), 1, [0].into()).await.unwrap());
    assert_eq!(coordinator.runs(), ["run"]);
}

#[tokio::test]
async fn a_restarted_coordinator_knows_its_servers() {
    let folder = tempfile::tempdir().unwrap();
    let keeping = Keeping::Folder(folder.path().join("state"));
    let terms = terms(4, 1, 2);
    let first = Coordinator::new(keeping.clone()).unwrap();
    // Who only looks leaves no file.
    first.storage("other").await.unwrap();
    for address in ["a", "b", "spare"] {
        first.register_server("run", arrival(address, 1, &terms)).await.unwrap();
    }
    assert!(first.renew_server("run", "b".to_owned(), 1, [2, 3].into()).await.unwrap());
    drop(first);
    // Its task ends when it sees that nobody is left to ask it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let names: Vec<_> =
        folder.path().join("state").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["run.storage"]);

    let second = Coordinator::new(keeping).unwrap();
    let status = second.storage("run").await.unwrap();
    let found: Vec<_> =
        status.servers.iter().map(|(address, server, _)| (address.as_str(), server.assigned.len())).collect();
    assert_eq!(found, [("a", 2), ("b", 2), ("spare", 0)]);
    assert_eq!(status.missing, [0, 1]);
    assert!(second.renew_server("run", "a".to_owned(), 1, [0, 1].into()).await.unwrap());
    second.remove_server("run", "b".to_owned(), 1).await.unwrap();
    let status = second.storage("run").await.unwrap();
    assert_eq!(status.servers.last().unwrap().1.assigned, [2, 3].into(), "the spare took over");
    let stranger = Terms { fingerprint: "g".to_owned(), ..terms };
    let refused = second.register_server("run", arrival("c", 1, &stranger)).await.unwrap_err();
    assert!(
        matches!(&refused, Refused::Invalid(reason) if reason.contains("the dataset is f there, g here")),
        "{refused}"
    );
}
