//! Rows of other servers that are kept because batches need them again and again: nobody can tell by the batches.

use graphmill_client::{Loader, SeedList, Transport};
use graphmill_graph::DType;
use graphmill_sample::Config;
use graphmill_server::Options;

use crate::memory::wide;
use crate::security::page;
use crate::support::{Cluster, Store, bytes, expected, flat, loading};

/// The sum of a metric over both servers.
fn metric(cluster: &Cluster, name: &str) -> u64 {
    let on = |address| {
        let (_, numbers) = cluster.run(page(address, None, "/metrics"));
        let line = numbers.lines().find_map(|line| line.strip_prefix(&format!("graphmill_{name} ")));
        line.expect("there is such a metric").parse::<u64>().unwrap()
    };
    cluster.addresses().iter().map(on).sum()
}

/// Epochs from two servers with a row cache of so many bytes, with features in single and in half precision side by side, each
/// compared with that of this process. Says how many rows of the other server were found, and how many were not.
fn run_epochs(row_cache: usize) -> (u64, u64) {
    let store = Store::new(wide(), 2);
    let cluster = Cluster::over_tcp(&store.path, 2, move |mut options: Options| {
        options.limits.row_cache = row_cache;
        options
    });
    let remote = cluster.connect(Transport::Auto);
    let seeds = SeedList::Nodes((0..256).collect());
    let configs = [None, Some(DType::F16)].map(|feature_dtype| Config { feature_dtype, ..flat() });
    let loaders =
        configs.map(|config| (Loader::remote(&remote, config.clone(), seeds.clone(), loading(32)).unwrap(), config));
    for epoch in 0..12 {
        for (loader, config) in &loaders {
            assert!(bytes(loader.epoch(epoch)) == expected(&store, config, seeds.clone(), &loading(32), epoch));
        }
    }
    assert!(metric(&cluster, "row_cache_bytes") <= 2 * row_cache as u64);
    let counted = (metric(&cluster, "row_cache_found_total"), metric(&cluster, "row_cache_missed_total"));
    drop((loaders, remote));
    assert!(cluster.stop());
    counted
}

#[test]
fn rows_that_are_kept_are_in_batches_as_those_of_their_owner() {
    let (found, missed) = run_epochs(32 << 20);
    // Each of 256 rows is asked for once in an epoch of each loader, by the server that has it or by the other.
    assert!(found > 200 && found + missed < 2 * 12 * 256, "{found} found, {missed} missed");
}

#[test]
fn without_room_nothing_is_kept() {
    assert_eq!(run_epochs(0).0, 0);
}
