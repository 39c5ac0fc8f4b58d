//! Ranks that are killed, and others that go on from where they stood.

use crate::good_day::{Digest, GoodDay};
use crate::rank::{Order, Rank, Told};
use crate::servers::cluster;
use crate::support::Workplace;

const BATCH: usize = 16;

fn graph() -> (Workplace, GoodDay) {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
    let good = GoodDay::new(&place, BATCH);
    (place, good)
}

fn transport(rank: u32) -> &'static str {
    ["tcp", "uds", "shm"][rank as usize % 3]
}

/// Pulls the first epoch with so many ranks, each until it has told of so many batches and is killed.
fn killed(place: &Workplace, servers: &[String], ranks: u32, after: usize) -> Vec<Vec<Told>> {
    let start = |rank| Order { rank, world_size: ranks, ..Order::new(servers, transport(rank), BATCH) };
    let mut running: Vec<Rank> = (0..ranks).map(|rank| Rank::start(place, &start(rank))).collect();
    let mut told: Vec<Vec<Told>> =
        running.iter_mut().map(|rank| std::iter::from_fn(|| rank.next()).take(after).collect()).collect();
    for (told, rank) in told.iter_mut().zip(running) {
        told.extend(rank.kill());
        told.retain(|told| told.epoch == 0);
    }
    told
}

/// What is left of the first epoch, from the states of ranks that were killed.
fn resumed(place: &Workplace, servers: &[String], ranks: u32, states: &[&Told]) -> Vec<Digest> {
    let start = |rank: u32| {
        let state = Some(states[rank as usize % states.len()].state.clone());
        let order = Order::new(servers, transport(rank + 1), BATCH);
        Rank::start(place, &Order { rank, world_size: ranks, epochs: Some(1), state, ..order })
    };
    let running: Vec<Rank> = (0..ranks).map(start).collect();
    let told = running.into_iter().flat_map(Rank::finish);
    told.filter(|told| !told.repeated).map(|told| told.digest()).collect()
}

#[test]
fn a_killed_rank_goes_on_with_the_next_batch_on_any_number_of_servers_and_ranks() {
    let (place, mut good) = graph();
    let (servers, addresses) = cluster(&place, "g4", 2);
    let [before] = &killed(&place, &addresses, 1, 23)[..] else { panic!("one rank") };
    assert!(before.len() >= 23);
    drop(servers);
    for (servers, ranks) in [(2, 1), (1, 1), (4, 1), (1, 2), (4, 3)] {
        let (_servers, addresses) = cluster(&place, "g4", servers);
        let mut all: Vec<Digest> = before.iter().map(Told::digest).collect();
        all.extend(resumed(&place, &addresses, ranks, &[before.last().unwrap()]));
        all.sort_unstable();
        assert!(all == good.epoch(0), "{servers} servers, {ranks} ranks: {} batches", all.len());
    }
}

#[test]
fn ranks_that_are_killed_at_different_batches_go_on_from_the_round_they_all_had() {
    let (place, mut good) = graph();
    let (servers, addresses) = cluster(&place, "g4", 4);
    let before = killed(&place, &addresses, 2, 9);
    drop(servers);
    // What training keeps: the states after one and the same round, and what was trained on until then.
    let rounds = before.iter().map(Vec::len).min().unwrap();
    let states: Vec<&Told> = before.iter().map(|told| &told[rounds - 1]).collect();
    for (servers, ranks) in [(4, 2), (2, 3), (1, 1)] {
        let (_servers, addresses) = cluster(&place, "g4", servers);
        let mut all: Vec<Digest> = before.iter().flat_map(|told| &told[..rounds]).map(Told::digest).collect();
        all.extend(resumed(&place, &addresses, ranks, &states));
        all.sort_unstable();
        assert!(all == good.epoch(0), "{servers} servers, {ranks} ranks: {} batches", all.len());
    }
}
