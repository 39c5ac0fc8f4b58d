//! Who asks and does not read is not answered on and on: what it leaves unread is bounded in bytes, and it is let go of.

use std::collections::BTreeSet;
use std::time::Duration;

use graphmill_client::{Loader, SeedList, Transport};
use graphmill_server::Options;
use graphmill_wire::proto::Role;
use graphmill_wire::{Header, Kind, Message, proto};

use crate::memory::wide;
use crate::security::page;
use crate::support::{Cluster, Opening, Store, Wire, bytes, eventually, expected, flat, hello, loading};

/// The rows of all nodes of the wide graph.
const ANSWER: u64 = 16 << 20;
/// What a connection may leave unread, as `docs/wire.md` has it.
const UNREAD: u64 = 64 << 20;
/// The threads of a server here.
const THREADS: u64 = 2;

fn peer(cluster: &Cluster) -> Wire {
    cluster.wire_with(0, proto::Hello { role: Role::Peer.into(), client: vec![7; 16], ..hello() })
}

/// Asks for the rows of all nodes.
async fn ask(wire: &mut Wire, request: u64) -> graphmill_net::Result<()> {
    let ids: Vec<u8> = (0u64..256).flat_map(u64::to_le_bytes).collect();
    let message = Message::Gather(proto::Gather { ids: 256, ..proto::Gather::default() });
    wire.writer.write(Header { request, ..Header::new(Kind::Gather) }, &message, &[&ids]).await
}

/// How many questions the server has answered.
fn answered(cluster: &Cluster) -> u64 {
    let (_, numbers) = cluster.run(page(&cluster.addresses()[0], None, "/metrics"));
    let line = numbers.lines().find_map(|line| line.strip_prefix("graphmill_peer_questions_total "));
    line.expect("questions are counted").parse().unwrap()
}

fn serves(cluster: &Cluster, store: &Store) {
    let remote = cluster.connect(Transport::Socket);
    let seeds = SeedList::Nodes((0..256).collect());
    let loader = Loader::remote(&remote, flat(), seeds.clone(), loading(32)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(store, &flat(), seeds, &loading(32), 0));
}

#[test]
fn a_peer_that_asks_and_does_not_read_is_answered_no_further_than_the_bound_and_on_when_it_reads() {
    const QUESTIONS: u64 = 12;
    let store = Store::new(wide(), 1);
    let cluster = Cluster::start(&store.path, 1);
    let mut wire = peer(&cluster);
    cluster.run(async {
        for request in 1..=QUESTIONS {
            ask(&mut wire, request).await.unwrap();
        }
    });
    eventually("as much as may be unread is answered", || answered(&cluster) * ANSWER >= UNREAD);
    // Time for a server that would go on.
    std::thread::sleep(Duration::from_millis(300));
    let held = answered(&cluster) * ANSWER;
    assert!(held <= UNREAD + (1 + THREADS) * ANSWER, "{} MiB wait for a peer that does not read", held >> 20);
    serves(&cluster, &store);
    let met: BTreeSet<u64> = cluster.run(async {
        let mut met = BTreeSet::new();
        for _ in 0..QUESTIONS {
            let frame = wire.next().await.expect("rows, not the end");
            assert!(matches!(frame.message, Message::Rows(_)) && frame.header.body == ANSWER, "{:?}", frame.message);
            met.insert(frame.header.request);
        }
        met
    });
    assert!(met.into_iter().eq(1..=QUESTIONS), "every question is answered once");
}

#[test]
fn who_takes_nothing_for_as_long_as_a_lease_is_let_go_of_though_it_goes_on_asking() {
    let store = Store::new(wide(), 1);
    let cluster =
        Cluster::start_with(&store.path, 1, |options| Options { lease: Duration::from_millis(500), ..options });
    let mut asking = peer(&cluster);
    let opening = Opening { config: flat(), nodes: 256, batch_size: 32, ..Opening::default() };
    let channel = cluster.open(0, opening.clone());
    let mut reading_not = cluster.wire(0, opening.client);
    cluster.run(async {
        ask(&mut asking, 1).await.unwrap();
        reading_not.credit(channel, 0, &[0, 1, 2]).await;
        for wire in [&mut asking, &mut reading_not] {
            // Each ping renews a client's lease; that it is not read is what ends it.
            let ping = Message::Ping(proto::Ping {});
            while wire.writer.write(Header::new(Kind::Ping), &ping, &[]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    serves(&cluster, &store);
}
