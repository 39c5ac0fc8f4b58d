//! Who has what at a moment: the partitions that are here, the peers, and who is asked about which partition. It never
//! changes; when something does, there is a new one, and whoever works with the old one finishes with it or begins anew.

use std::sync::Arc;

use graphmill_graph::Dataset;
use graphmill_sample::View;

use super::owners::Owners;
use super::peer::{Answered, Peer, Question};
use crate::Refusal;

#[derive(Debug)]
pub(crate) struct Lineup {
    /// With the partitions that are here.
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) view: Arc<View>,
    peers: Vec<Arc<Peer>>,
    owners: Vec<Owners>,
}

impl Lineup {
    pub(super) fn new(dataset: Arc<Dataset>, view: Arc<View>, peers: Vec<Arc<Peer>>) -> Self {
        let partitions: Vec<_> = peers.iter().map(|peer| peer.partitions()).collect();
        let owners = Owners::tables(&dataset, &partitions);
        Self { dataset, view, peers, owners }
    }

    pub(crate) fn peers(&self) -> &[Arc<Peer>] {
        &self.peers
    }

    /// Who has what. Whoever picks by different numbers asks different replicas.
    pub(crate) fn owners(&self, pick: u64) -> &Owners {
        &self.owners[(pick % self.owners.len() as u64) as usize]
    }

    /// How many owners there can be, this server first.
    pub(crate) fn owner_count(&self) -> usize {
        self.peers.len() + 1
    }

    /// The numbers of the partitions that are here.
    pub(crate) fn partitions(&self) -> Vec<u32> {
        self.dataset.partitions().map(|(number, _)| number).collect()
    }

    /// Whether this server has everything itself.
    pub(crate) fn is_whole(&self) -> bool {
        self.dataset.partitions().count() == self.dataset.parts() as usize
    }

    /// The first partition that nobody has.
    pub(crate) fn missing(&self) -> Option<u32> {
        self.owners[0].missing()
    }

    /// A sampler's error in a server's words: a partition that nobody has is named with the peers.
    pub(crate) fn explain(&self, error: graphmill_sample::Error) -> Refusal {
        match error {
            graphmill_sample::Error::Unowned { partition } => self.without_owner(partition),
            error => error.into(),
        }
    }

    /// Why a partition cannot be reached.
    pub(crate) fn without_owner(&self, partition: u32) -> Refusal {
        let peers: Vec<String> = self.peers.iter().map(|peer| peer.describe()).collect();
        let peers = if peers.is_empty() {
            "there are none; name them with --peers, or let them meet with --rendezvous".to_owned()
        } else {
            peers.join("; ")
        };
        Refusal::unavailable(format!(
            "partition {partition} of {} is neither here nor with a peer that can be reached ({peers})",
            self.dataset.parts()
        ))
    }

    /// Sends a question to an owner other than this server; `reply` is called once, from any thread.
    pub(crate) fn ask_peer(
        &self,
        owner: usize,
        question: Question,
        reply: impl FnOnce(Result<Answered, Refusal>) + Send + 'static,
    ) {
        match owner.checked_sub(1).and_then(|place| self.peers.get(place)) {
            Some(peer) => peer.send(question, Box::new(reply)),
            None => reply(Err(Refusal::internal(format!("there is no owner {owner}")))),
        }
    }
}
