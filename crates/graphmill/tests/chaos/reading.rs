//! An epoch that is read while things go wrong.

use std::time::Duration;

use graphmill_client::Loader;

use crate::cluster::Cluster;
use crate::good_day::{Digest, digest};
use crate::strike::{Hit, Strike};

/// How long a slow reader takes for a batch, and for how many.
const SLOW: (Duration, usize) = (Duration::from_millis(60), 12);

/// Reads an epoch. Each hit comes when so many batches were taken; the last batches are taken when everything is mended, so
/// that all of it happens within the epoch.
pub(crate) fn read(cluster: &Cluster, loader: &Loader, epoch: u64, hits: &[(usize, Hit)]) -> Vec<Digest> {
    let (count, mut found) = (loader.len(), Vec::new());
    let mut slow = 0;
    std::thread::scope(|scope| {
        let mut mending = Vec::new();
        for (place, batch) in loader.epoch(epoch).enumerate() {
            found.push(digest(&batch.unwrap_or_else(|error| panic!("epoch {epoch}: {error}"))));
            for (_, hit) in hits.iter().filter(|(at, _)| *at == place) {
                hit.begin(cluster);
                if hit.strike == Strike::SlowReader {
                    slow = SLOW.1;
                }
                mending.push(scope.spawn(|| hit.end(cluster)));
            }
            if slow > 0 {
                slow -= 1;
                std::thread::sleep(SLOW.0);
            }
            if place + 1 == count * 3 / 4 {
                mending.drain(..).for_each(|mended| mended.join().expect("what went wrong is mended"));
            }
        }
    });
    found
}
