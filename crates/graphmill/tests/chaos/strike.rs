//! What goes wrong: how it begins, and how it is mended.

use std::time::Duration;

use graphmill_testing::{Fault, Storm, Way};
use rustix::process::Signal;

use crate::cluster::Cluster;

/// One bit in so many bytes is wrong on a network that damages them.
const DAMAGED: u32 = 20_000;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The network before a server does something to what passes it.
    Network(Fault),
    /// It does one thing after the other.
    Storm,
    /// A server is killed, and started again.
    Kill,
    /// A server stands still, and goes on.
    Freeze,
    /// All servers are stopped or killed and started again, one after the other.
    Roll,
    /// The coordinator is killed, and started again.
    Coordinator,
    /// The reader takes its time.
    SlowReader,
}

impl Strike {
    /// Everything that a network does but for damage, which only TLS finds.
    pub(crate) const NETWORK: [Self; 8] = [
        Self::Network(Fault::Latency(Way::Down, Duration::from_millis(60))),
        Self::Network(Fault::Stall(Way::Up)),
        Self::Network(Fault::Stall(Way::Down)),
        Self::Network(Fault::Partition),
        Self::Network(Fault::Reset),
        Self::Network(Fault::HalfClose(Way::Up)),
        Self::Network(Fault::HalfClose(Way::Down)),
        Self::Storm,
    ];

    /// Everything that processes do.
    pub(crate) const PROCESSES: [Self; 4] = [Self::Kill, Self::Freeze, Self::Roll, Self::SlowReader];

    /// Damage on the way up, and on the way down.
    pub(crate) const DAMAGE: [Self; 2] =
        [Self::Network(Fault::Corrupt(Way::Up, DAMAGED)), Self::Network(Fault::Corrupt(Way::Down, DAMAGED))];
}

/// Whom a strike hits, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) strike: Strike,
    pub(crate) server: usize,
    pub(crate) lasts: Duration,
    pub(crate) seed: u64,
}

impl Hit {
    /// Makes it happen, at once.
    pub(crate) fn begin(&self, cluster: &Cluster) {
        match self.strike {
            Strike::Network(fault) => cluster.proxies[self.server].apply(fault),
            Strike::Kill => cluster.kill(self.server),
            Strike::Freeze => cluster.signal(self.server, Signal::STOP),
            Strike::Coordinator => cluster.kill_coordinator(),
            Strike::Storm | Strike::Roll | Strike::SlowReader => {}
        }
    }

    /// Waits until it is over, and mends it.
    pub(crate) fn end(&self, cluster: &Cluster) {
        match self.strike {
            Strike::Storm => {
                return cluster.proxies[self.server].weather(Storm::new(self.seed, self.lasts / 4), self.lasts);
            }
            Strike::Roll => return roll(cluster, self.seed),
            Strike::SlowReader => return,
            _ => std::thread::sleep(self.lasts),
        }
        match self.strike {
            Strike::Network(_) => cluster.proxies[self.server].apply(Fault::Heal),
            Strike::Kill => cluster.start_again(self.server),
            Strike::Freeze => cluster.signal(self.server, Signal::CONT),
            Strike::Coordinator => cluster.coordinate_again(),
            Strike::Storm | Strike::Roll | Strike::SlowReader => {}
        }
    }
}

/// As the page on operations says, but that some are killed.
fn roll(cluster: &Cluster, seed: u64) {
    for server in 0..cluster.len() {
        let killed = seed >> server & 1 == 1;
        cluster.end(server, if killed { Signal::KILL } else { Signal::TERM });
        cluster.start_again(server);
        cluster.until_whole();
    }
}
