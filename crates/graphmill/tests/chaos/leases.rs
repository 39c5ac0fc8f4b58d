//! Ranks that are killed leave nothing behind on servers, once their leases have ended.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::PATIENCE;
use crate::process::Footprint;
use crate::rank::{Order, Rank};
use crate::servers::Served;
use crate::support::Workplace;

const KILLS: usize = 100;
/// Ranks that live at the same time.
const WAVE: usize = 5;

#[test]
fn a_hundred_killed_ranks_leave_no_channel_no_backend_and_no_memory() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
    let (server, address) = Served::start(&place, "g4 --mmap --listen 127.0.0.1:0 --lease 2");
    let servers = std::slice::from_ref(&address);
    // After one that came and went in good order: what is made once is there.
    for transport in ["tcp", "uds", "shm"] {
        let order = Order { epochs: Some(1), ..Order::new(servers, transport, 16) };
        assert!(!Rank::start(&place, &order).finish().is_empty());
    }
    until_nobody_is_there(&place, &address);
    let before = Footprint::of(server.child.id());
    assert_eq!(before.shared, 0, "{before:?}");

    let (mut shared, mut killed) = (0, 0);
    while killed < KILLS {
        let transport = |rank: usize| ["shm", "tcp", "shm", "uds", "shm"][rank % 5];
        let start = |rank| Rank::start(&place, &Order::new(servers, transport(rank), 16));
        let mut ranks: Vec<Rank> = (0..WAVE).map(start).collect();
        for rank in &mut ranks {
            assert!(rank.next().is_some(), "a rank gets batches");
        }
        shared = shared.max(Footprint::of(server.child.id()).shared);
        for rank in ranks {
            rank.kill();
            killed += 1;
        }
    }
    assert!(shared > 0, "memory was shared");
    until_nobody_is_there(&place, &address);
    // Connections end a moment after the leases that they were kept by.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let after = Footprint::of(server.child.id());
        if after.shared == 0 && after.descriptors <= before.descriptors && after.threads <= before.threads {
            break;
        }
        assert!(Instant::now() < deadline, "before: {before:?}, after: {after:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0), "it stops without leftovers");
}

/// Waits until a server has no channel, no backend, and no client but who asks it.
fn until_nobody_is_there(place: &Workplace, address: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status: Value = serde_json::from_str(&place.succeed(&format!("status {address} --json"))).unwrap();
        let status = &status[0];
        let empty = status["channels"] == json!([]) && status["backends"] == json!([]);
        if empty && status["clients"].as_u64().unwrap() <= 1 {
            return;
        }
        assert!(Instant::now() < deadline, "still there: {status:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
