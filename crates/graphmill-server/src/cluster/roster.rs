//! The peers of a server, which come and go: named once and for all, or as a registry tells.

use graphmill_graph::Dataset;
use graphmill_net::Endpoint;
use graphmill_sample::View;
use tokio::task::JoinSet;

use super::Cluster;
use super::lineup::Lineup;
use super::peer::{Dialing, Peer};
use crate::sync::{Arc, PoisonError, lock};

/// Who is there, and what is here.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) dataset: Arc<Dataset>,
    pub(super) view: Arc<View>,
    peers: Vec<Arc<Peer>>,
    /// Keeps connections up; none once the server stops.
    tasks: Option<JoinSet<()>>,
}

/// A peer as a registry tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) endpoint: Endpoint,
    pub(crate) incarnation: u64,
    pub(crate) partitions: Vec<u32>,
}

/// Connections to peers, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Cluster>);

impl Drop for Connected {
    fn drop(&mut self) {
        lock(&self.0.roster).tasks = None;
    }
}

impl Roster {
    pub(super) fn new(dataset: Arc<Dataset>, peers: Vec<Dialing>) -> Self {
        let view = Arc::new(View::new(&dataset));
        Self { dataset, view, peers: peers.into_iter().map(Peer::new).collect(), tasks: None }
    }

    pub(super) fn lineup(&self) -> Lineup {
        Lineup::new(Arc::clone(&self.dataset), Arc::clone(&self.view), self.peers.clone())
    }

    /// Keeps up with a peer, unless the server stops.
    fn spawn(&mut self, cluster: &Arc<Cluster>, peer: &Arc<Peer>) {
        let (peer, cluster) = (Arc::clone(peer), Arc::downgrade(cluster));
        let changed = move || {
            if let Some(cluster) = cluster.upgrade() {
                cluster.recount();
            }
        };
        if let Some(tasks) = &mut self.tasks {
            tasks.spawn(peer.keep_connected(changed));
            // Those of peers that are gone have ended.
            while tasks.try_join_next().is_some() {}
        }
    }
}

impl Cluster {
    /// Keeps connections to all peers for as long as the result is kept; to be called inside a runtime.
    pub(crate) fn connect(self: &Arc<Self>) -> Connected {
        let mut roster = lock(&self.roster);
        roster.tasks = Some(JoinSet::new());
        for peer in roster.peers.clone() {
            roster.spawn(self, &peer);
        }
        Connected(Arc::clone(self))
    }

    /// These are the peers now. One that is not among them is let go of if it cannot be reached or is not needed: whoever
    /// serves all the same, and only lost touch with the coordinator, is better than nobody.
    pub(crate) fn set_peers(self: &Arc<Self>, announced: &[Announced], dialing: &Dialing) {
        let gone = {
            let mut roster = lock(&self.roster);
            for peer in announced {
                let known = roster.peers.iter().find(|known| *known.endpoint() == peer.endpoint).cloned();
                let known = known.unwrap_or_else(|| {
                    let made = Peer::new(Dialing { endpoint: peer.endpoint.clone(), ..dialing.clone() });
                    roster.peers.push(Arc::clone(&made));
                    roster.spawn(self, &made);
                    made
                });
                known.announce(peer.incarnation, &peer.partitions);
            }
            let is_listed = |peer: &Arc<Peer>| announced.iter().any(|listed| listed.endpoint == *peer.endpoint());
            let (listed, others): (Vec<_>, Vec<_>) = std::mem::take(&mut roster.peers).into_iter().partition(is_listed);
            let connected = listed.iter().filter(|peer| peer.is_connected()).cloned().collect();
            let without = Lineup::new(Arc::clone(&roster.dataset), Arc::clone(&roster.view), connected);
            let is_needed = |peer: &Arc<Peer>| peer.is_connected() && without.missing().is_some();
            let (kept, gone): (Vec<_>, Vec<_>) = others.into_iter().partition(is_needed);
            roster.peers = listed.into_iter().chain(kept).collect();
            gone
        };
        // Before they are stopped: what was asked of them is asked again of others.
        self.recount();
        for peer in &gone {
            peer.stop();
        }
    }

    /// Serves further partitions too: a dataset that has them, and what was here.
    pub(crate) fn hold(&self, dataset: Dataset) {
        {
            let mut roster = lock(&self.roster);
            roster.view = Arc::new(View::new(&dataset));
            roster.dataset = Arc::new(dataset);
        }
        self.recount();
    }

    pub(super) fn recount(&self) {
        {
            // Locked before the peers are looked at: of two that change at once, the one that looked first must not have the
            // last word.
            let mut lineup = self.lineup.write().unwrap_or_else(PoisonError::into_inner);
            *lineup = Arc::new(lock(&self.roster).lineup());
        }
        self.changed.send_modify(|count| *count += 1);
    }
}
