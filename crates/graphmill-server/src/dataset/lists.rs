//! Neighbour lists of nodes anywhere in the graph, read in steps of bounded size.

use std::collections::VecDeque;
use std::sync::Arc;

use graphmill_graph::Direction;
use graphmill_graph::random::Stream;
use graphmill_sample::{Answer, Ask, BatchId, IdVec, Need, Take};
use graphmill_wire::Limits;

use super::aside::step_aside;
use super::parts::bound;
use crate::Refusal;
use crate::cluster::{Cluster, Ids};

/// Lists, and edges, of one step; a longer list is a step of its own.
const LISTS: usize = bound(1 << 16, 16);
const EDGES: u64 = bound(1 << 20, 9) as u64;
/// The longest list that fits a frame from a peer.
const LONGEST: u64 = Limits::SERVER.body / 8 - 1;

/// A reader of the lists of some nodes, in order.
#[derive(Debug)]
pub(super) struct Lists {
    cluster: Arc<Cluster>,
    edge_type: usize,
    direction: Direction,
    /// The nodes whose lists they are.
    owners: Ids,
    /// Where the next step begins.
    next: usize,
    /// How many edges the lists from there on have at most, as far as that is known.
    lengths: VecDeque<u64>,
    /// The most edges that are taken of each list.
    most: Option<u32>,
}

/// Some lists.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) owners: Vec<u64>,
    /// Edges of each list.
    pub(super) counts: Vec<u32>,
    /// The lists, one after the other.
    pub(super) neighbors: Vec<u64>,
}

impl Step {
    /// For each edge, the node whose list it is in.
    pub(super) fn repeated_owners(&self) -> impl Iterator<Item = u64> {
        self.owners.iter().zip(&self.counts).flat_map(|(&owner, &count)| std::iter::repeat_n(owner, count as usize))
    }
}

impl Lists {
    /// The lists of all nodes that have some.
    pub(super) fn all(cluster: &Arc<Cluster>, edge_type: usize, direction: Direction) -> Result<Self, Refusal> {
        let node_type = cluster.list_type(edge_type, direction)?;
        let owners = Ids::Stretch(0..cluster.dataset.node_types()[node_type].count);
        Ok(Self::new(cluster, edge_type, direction, owners, None))
    }

    /// The first edges of the lists of some nodes.
    pub(super) fn new(
        cluster: &Arc<Cluster>,
        edge_type: usize,
        direction: Direction,
        owners: Ids,
        most: Option<u32>,
    ) -> Self {
        let (cluster, lengths) = (Arc::clone(cluster), VecDeque::new());
        Self { cluster, edge_type, direction, owners, next: 0, lengths, most }
    }

    /// The next lists; nothing after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Step>, Refusal> {
        if self.lengths.is_empty() {
            self.look_ahead().await?;
        }
        let (mut lists, mut edges) = (0, 0);
        while let Some(&length) = self.lengths.get(lists)
            && (lists == 0 || edges + length <= EDGES)
        {
            edges += length;
            lists += 1;
        }
        if lists == 0 {
            return Ok(None);
        }
        self.lengths.drain(..lists);
        let owners = self.owners.at(self.next..self.next + lists);
        self.next += lists;
        let take = match self.most {
            None => Take::All,
            Some(0) => Take::Nothing,
            Some(most) => Take::First(most),
        };
        let ask = Ask::Neighbors { take, stream: Stream::from_word(0), edge_ids: false };
        let read = |owners, answer: Answer| {
            let neighbors = match answer.neighbors {
                IdVec::U32(ids) => ids.into_iter().map(u64::from).collect(),
                IdVec::U64(ids) => ids,
            };
            Step { owners, counts: answer.counts, neighbors }
        };
        self.ask(ask, owners, edges, read).await.map(Some)
    }

    /// Learns how long the next lists are.
    async fn look_ahead(&mut self) -> Result<(), Refusal> {
        let owners = self.owners.at(self.next..self.next + LISTS);
        if let Some(most) = self.most
            && u64::from(most) * LISTS as u64 <= EDGES
        {
            self.lengths.resize(owners.len(), most.into());
            return Ok(());
        }
        let most = self.most.map_or(u64::MAX, u64::from);
        let (owners, lengths) = self
            .ask(Ask::Degrees, owners, 0, move |owners, answer| {
                (owners, answer.degrees.into_iter().map(|degree| degree.min(most)).collect::<VecDeque<u64>>())
            })
            .await?;
        for (&owner, &length) in owners.iter().zip(&lengths).filter(|&(_, &length)| length > LONGEST) {
            self.check_long(owner, length)?;
        }
        self.lengths = lengths;
        Ok(())
    }

    /// Fails when a list is too long for where it must go.
    fn check_long(&self, owner: u64, length: u64) -> Result<(), Refusal> {
        let node_type = self.cluster.list_type(self.edge_type, self.direction)?;
        let lineup = self.cluster.lineup();
        let partition = self.cluster.dataset.node_book(node_type).owner(owner);
        let is_here = partition.is_some_and(|partition| matches!(lineup.owners(0).of(partition), Ok(0)));
        if is_here && length <= u32::MAX.into() {
            return Ok(());
        }
        let name = &self.cluster.dataset.edge_types()[self.edge_type].name;
        let longest = if is_here { u32::MAX.into() } else { LONGEST };
        Err(Refusal::invalid(format!(
            "node {owner} has {length} edges of `{name}`, a list of more than {longest} cannot be sent; ask the server that \
             has the node, or for fewer edges of each"
        )))
    }

    async fn ask<T: Send + 'static>(
        &self,
        ask: Ask,
        owners: Vec<u64>,
        limit: u64,
        read: impl FnOnce(Vec<u64>, Answer) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (cluster, edge_type, direction) = (Arc::clone(&self.cluster), self.edge_type, self.direction);
        step_aside(async move {
            let batch = BatchId::default();
            let need = Need { batch, edge_type, direction, ask, ids: &owners, others: &[], limit };
            let answer = cluster.ask(&need).await?;
            Ok(read(owners, answer))
        })
        .await
    }
}
