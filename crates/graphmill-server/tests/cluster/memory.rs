//! Memory that is shared, and memory that is bounded: what is held stays as it is, and who does not read holds little.
//! What a fork sees is in `tests/fork.rs`, a process of its own.

use std::collections::BTreeMap;

use graphmill_client::{Loader, SeedList, Transport};
use graphmill_graph::{DType, Direction};
use graphmill_sample::Batch;
use graphmill_testing::{ModelGraph, ModelNodes, ModelTensor};
use graphmill_wire::{Header, Kind, Message, proto};

use crate::support::{Cluster, NODES, Opening, Store, Wire, bytes, config, eventually, expected, flat, hello, loading};

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

#[test]
fn keeping_every_batch_of_several_epochs_gives_all_of_them_and_ends() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::SharedMemory);
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let held: Vec<Vec<Batch>> = (0..3).map(|epoch| loader.epoch(epoch).map(Result::unwrap).collect()).collect();
    for (epoch, batches) in (0..).zip(&held) {
        let wanted = expected(&store, &config(), seeds(), &loading(8), epoch);
        assert_eq!(batches.len(), wanted.len());
        for (batch, (g, bytes)) in batches.iter().zip(&wanted) {
            assert!(batch.id().g == *g && batch.bytes() == &bytes[..], "epoch {epoch}, batch {g}");
        }
    }
    let traffic = remote.traffic();
    assert!(traffic.shared_bytes > 0 && traffic.copied_bytes > 0, "{traffic:?}");
    // Batches outlive their loader and their connection.
    let last = held[2].last().unwrap();
    let before = last.bytes().to_vec();
    drop((loader, remote));
    assert!(cluster.stop());
    assert!(last.bytes() == before);
}

#[test]
fn what_is_held_never_changes_while_others_are_loaded() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let remote = cluster.connect(Transport::SharedMemory);
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    // A few only: they stay in slots, and the others are reused around them.
    let mut first = loader.epoch(0);
    let held: Vec<(Batch, Vec<u8>)> = (0..3)
        .map(|_| {
            let batch = first.next().unwrap().unwrap();
            let bytes = batch.bytes().to_vec();
            (batch, bytes)
        })
        .collect();
    drop(first);
    for epoch in 1..5 {
        let found = bytes(loader.epoch(epoch));
        assert!(found == expected(&store, &config(), seeds(), &loading(8), epoch));
        assert!(held.iter().all(|(batch, bytes)| batch.bytes() == &bytes[..]), "after epoch {epoch}");
    }
    // A server that has no slot to spare for a moment sends through the socket.
    let traffic = remote.traffic();
    assert!(traffic.shared_bytes > traffic.socket_bytes, "{traffic:?}");
}

#[test]
fn an_edit_in_place_never_shows_in_a_later_batch() {
    for transport in [Transport::SharedMemory, Transport::Socket] {
        let store = Store::homogeneous(1);
        let cluster = Cluster::start(&store.path, 1);
        let remote = cluster.connect(transport);
        let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
        for epoch in 0..4 {
            let wanted = expected(&store, &config(), seeds(), &loading(8), epoch);
            for (batch, (_, bytes)) in loader.epoch(epoch).zip(&wanted) {
                let mut batch = batch.unwrap();
                assert!(batch.bytes() == &bytes[..], "epoch {epoch}, {transport:?}");
                batch.bytes_mut().fill(0xa5);
            }
        }
    }
}

/// A client with shared memory that keeps its slots until it gives them back.
fn slots(cluster: &Cluster, client: [u8; 16]) -> Wire {
    cluster.wire_with(0, proto::Hello { slots: true, client: client.to_vec(), ..hello() })
}

async fn next_slot(wire: &mut Wire) -> (u64, u32) {
    loop {
        let frame = wire.next().await.expect("a batch, not the end");
        match frame.message {
            Message::Slot(_) => assert!(frame.fd.is_some()),
            Message::Batch(head) => return (frame.header.g, head.slot.expect("it lies in a slot")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_rank_that_keeps_its_slots_holds_no_more_than_its_budget_and_goes_on_when_it_gives_them_back() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    // All full batches are equally large.
    let opening = Opening { config: flat(), nodes: 200, batch_size: 10, max_credits: 20, ..Opening::default() };
    let first = cluster.open(0, opening.clone());
    let mut wire = slots(&cluster, opening.client);
    cluster.run(async {
        wire.credit(first, 0, &[0]).await;
        next_slot(&mut wire).await;
    });
    let size = cluster.describe(0, first).buffered_bytes;
    assert!(size > 0, "a slot counts until it is given back");
    for batches in [1, 3] {
        let client = [batches as u8 + 10; 16];
        let channel = cluster.open(0, Opening { max_bytes: batches * size, client, ..opening.clone() });
        let mut wire = slots(&cluster, client);
        cluster.run(wire.credit(channel, 0, &(0..20).collect::<Vec<_>>()));
        let settled = || {
            let seen = cluster.describe(0, channel);
            (seen.state == "parked" && seen.running == 0).then_some(seen)
        };
        eventually("it is parked", || settled().is_some());
        let seen = settled().unwrap();
        assert_eq!((seen.buffered_batches, seen.buffered_bytes), (batches, batches * size));

        // Another rank is not held up, and does not wake it.
        let remote = cluster.connect(Transport::SharedMemory);
        let loader = Loader::remote(&remote, config(), seeds(), loading(32)).unwrap();
        assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &loading(32), 0));
        assert_eq!(settled().unwrap().buffered_batches, batches);

        let mut met = cluster.run(async {
            let mut met = Vec::new();
            for _ in 0..20 {
                let (g, slot) = next_slot(&mut wire).await;
                met.push(g);
                let back = proto::Return { returned: vec![slot], retired: Vec::new() };
                wire.send(Header::new(Kind::Return), Message::Return(back)).await;
            }
            met
        });
        met.sort_unstable();
        assert_eq!(met, (0..20).collect::<Vec<_>>());
        eventually("all is given back", || cluster.describe(0, channel).buffered_bytes == 0);
    }
}

/// Rows so wide that no socket takes an epoch of them.
pub(crate) fn wide() -> ModelGraph {
    let (count, width) = (256, 16 << 10);
    let rows = (0..count).map(|node: u64| (node as f32).to_le_bytes().repeat(width)).collect();
    let x = ModelTensor { dtype: DType::F32, shape: vec![width as u64], rows };
    let nodes = ModelNodes { count, features: [("x".to_owned(), x)].into(), ..ModelNodes::default() };
    ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), nodes)].into(),
        edges: BTreeMap::new(),
    }
}

#[test]
fn a_rank_that_stops_reading_its_socket_holds_no_more_than_its_budget() {
    let store = Store::new(wide(), 1);
    let cluster = Cluster::start(&store.path, 1);
    let budget = 2 << 20;
    let opening =
        Opening { config: flat(), nodes: 256, batch_size: 8, max_credits: 32, max_bytes: budget, ..Opening::default() };
    let channel = cluster.open(0, opening.clone());
    let mut wire = cluster.wire(0, opening.client);
    cluster.run(wire.credit(channel, 0, &(0..32).collect::<Vec<_>>()));
    eventually("it is parked", || {
        let seen = cluster.describe(0, channel);
        assert!(seen.buffered_bytes <= budget, "{seen:?}");
        seen.state == "parked" && seen.running == 0
    });
    // Another rank has all of its epoch meanwhile.
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, flat(), SeedList::Nodes((0..256).collect()), loading(8)).unwrap();
    assert_eq!(loader.epoch(0).map(Result::unwrap).count(), 32);
    assert_eq!(cluster.describe(0, channel).state, "parked");
    let mut met = cluster.run(async {
        let mut met = Vec::new();
        for _ in 0..32 {
            met.push(wire.batch().await.1);
        }
        met
    });
    met.sort_unstable();
    assert_eq!(met, (0..32).collect::<Vec<_>>());
}
