//! Everything that can go wrong, with every way to reach servers and over every transport: an epoch for each.

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Options, Remote, Seeding, Servers, Transport};
use graphmill_graph::Split;
use graphmill_testing::{Fault, Way};

use crate::cluster::{Cluster, Meeting, Setup};
use crate::dice::{Dice, seed};
use crate::good_day::{GoodDay, config};
use crate::reading::read;
use crate::strike::{Hit, Strike};
use crate::support::Workplace;

const BATCH: usize = 16;
/// Servers that meet, two for each partition.
const RUN: Meeting = Meeting::Run { replicas: 2 };

/// How long things go wrong in `make test`.
const BRIEFLY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(1200));
/// How long they do in `make soak`: up to what ends leases and makes readers give servers up.
const LONG: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(14));

/// Servers of a small graph, and what they give on a good day.
fn cluster(setup: Setup) -> (Cluster, GoodDay) {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 3k --edges 30k --features 8 --classes 4 --out g");
    place.succeed("partition g --parts 4 --method ldg --out g4");
    let good = GoodDay::new(&place, BATCH);
    (Cluster::start(place, setup, seed()), good)
}

/// An epoch for each strike, which hits twice. All batches must come, once, with the bytes of a good day.
fn epochs(
    (cluster, good): &mut (Cluster, GoodDay),
    transport: Transport,
    ordered: bool,
    strikes: &[Strike],
    lasts: (Duration, Duration),
) {
    let mut dice = Dice::new(2 * transport as u64 + u64::from(ordered));
    cluster.until_whole();
    let remote = cluster.connect(transport);
    let options = Options { batch_size: BATCH, shuffle: true, prefetch: 4, ordered, ..Options::default() };
    let loader = Loader::remote(&remote, config(), Seeding::Split(Split::Train), options).unwrap();
    for (epoch, &strike) in (0..).zip(strikes) {
        let mut hit = |at: usize| {
            let server = dice.below(cluster.len());
            (at + dice.below(10), Hit { strike, server, lasts: dice.between(lasts), seed: dice.seed() })
        };
        let hits = [hit(5), hit(40)];
        // One after the other, where each is everybody's turn.
        let hits = if strike == Strike::Roll { &hits[..1] } else { &hits[..] };
        let began = Instant::now();
        let mut found = read(cluster, &loader, epoch, hits);
        eprintln!("{transport:?}, epoch {epoch}: {:.1} s with {hits:?}", began.elapsed().as_secs_f64());
        if !ordered {
            found.sort_unstable();
        }
        let expected = good.epoch(epoch);
        assert_eq!(found.len(), expected.len(), "seed {}, {hits:?}", seed());
        assert!(found == expected, "batches differ: seed {}, {hits:?}", seed());
        cluster.until_whole();
    }
}

#[test]
fn whatever_the_network_does_to_servers_at_addresses_every_batch_comes_once() {
    let mut cluster = cluster(Setup::new(Meeting::Addresses, 2));
    epochs(&mut cluster, Transport::Socket, true, &Strike::NETWORK, BRIEFLY);
}

#[test]
fn whatever_the_network_does_to_the_servers_of_a_run_every_batch_comes_once() {
    let mut cluster = cluster(Setup { flags: "--server-lease 1", ..Setup::new(RUN, 3) });
    epochs(&mut cluster, Transport::Socket, false, &Strike::NETWORK, BRIEFLY);
}

#[test]
fn servers_at_addresses_that_die_or_stand_still_cost_no_batch_over_any_transport() {
    let mut cluster = cluster(Setup { sharing: true, ..Setup::new(Meeting::Addresses, 2) });
    for transport in [Transport::Socket, Transport::UnixSocket, Transport::SharedMemory] {
        epochs(&mut cluster, transport, true, &Strike::PROCESSES, BRIEFLY);
    }
}

#[test]
fn servers_of_a_run_that_die_or_stand_still_cost_no_batch_and_neither_does_its_coordinator() {
    let mut cluster = cluster(Setup { sharing: true, flags: "--server-lease 1", ..Setup::new(RUN, 3) });
    let strikes = [&Strike::PROCESSES[..], &[Strike::Coordinator]].concat();
    for transport in [Transport::Socket, Transport::SharedMemory] {
        epochs(&mut cluster, transport, true, &strikes, BRIEFLY);
    }
}

#[test]
fn bytes_that_are_damaged_under_tls_are_found_and_cost_no_batch() {
    let mut cluster = cluster(Setup { tls: true, ..Setup::new(Meeting::Addresses, 2) });
    let strikes = [&Strike::DAMAGE[..], &[Strike::Kill, Strike::Storm]].concat();
    epochs(&mut cluster, Transport::Socket, true, &strikes, BRIEFLY);
}

/// Without TLS nobody can tell a damaged byte of a batch from a good one; but it harms nobody else, and not for longer than it
/// lasts.
#[test]
fn bytes_that_are_damaged_in_plain_text_end_no_server_and_hang_nobody() {
    let mut damaged = cluster(Setup { flags: "--lease 5", ..Setup::new(Meeting::Addresses, 2) });
    let options = Options { batch_size: BATCH, shuffle: true, prefetch: 4, ..Options::default() };
    for fault in [Fault::Corrupt(Way::Up, 500), Fault::Corrupt(Way::Down, 5000)] {
        let connecting = ConnectOptions {
            transport: Transport::Socket,
            deadline: Duration::from_secs(20),
            ..ConnectOptions::default()
        };
        let remote = Remote::connect_to(&Servers::parse(&damaged.0.names()).unwrap(), connecting).unwrap();
        let loader = Loader::remote(&remote, config(), Seeding::Split(Split::Train), options.clone()).unwrap();
        damaged.0.proxies.iter().for_each(|proxy| proxy.apply(fault));
        // Batches or an error, whatever it is, and then the end.
        let came = loader.epoch(0).take_while(Result::is_ok).count();
        eprintln!("{fault:?}: {came} of {} batches came before an error", loader.len());
        damaged.0.proxies.iter().for_each(|proxy| proxy.apply(Fault::Heal));
    }
    assert!((0..2).all(|server| damaged.0.lives(server)), "no server has ended");
    epochs(&mut damaged, Transport::Socket, true, &[Strike::SlowReader], BRIEFLY);
}

#[test]
#[ignore = "takes minutes: make soak"]
fn the_whole_matrix() {
    for tls in [false, true] {
        for meeting in [Meeting::Addresses, RUN] {
            let setup = Setup { tls, flags: "--lease 8", ..Setup::new(meeting, 3) };
            if tls && meeting == RUN {
                // The coordinator has no certificate here.
                continue;
            }
            let damage = if tls { &Strike::DAMAGE[..] } else { &[] };
            let mut apart = cluster(setup);
            for ordered in [true, false] {
                let strikes = [&Strike::NETWORK[..], damage].concat();
                epochs(&mut apart, Transport::Socket, ordered, &strikes, LONG);
            }
            drop(apart);
            let mut sharing = cluster(Setup { sharing: true, ..setup });
            let coordinator = if meeting == RUN { &[Strike::Coordinator][..] } else { &[] };
            let strikes = [&Strike::PROCESSES[..], coordinator].concat();
            for transport in [Transport::Socket, Transport::UnixSocket, Transport::SharedMemory] {
                for ordered in [true, false] {
                    epochs(&mut sharing, transport, ordered, &strikes, LONG);
                }
            }
        }
    }
}
