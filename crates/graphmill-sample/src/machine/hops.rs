//! Neighbours, hop by hop: only nodes that were new in the last hop are expanded.

use super::{EDGES, Machine, Stage, refused};
use crate::config::Expand;
use crate::exchange::{Ask, Take};
use crate::law::{self, Purpose};
use crate::plan::Plan;
use crate::room::grow;
use crate::{Error, Result};

impl Machine {
    /// Asks for the neighbours of the frontier along every walked edge type, or ends.
    pub(super) fn ask_hop(&mut self, plan: &Plan, hop: usize) -> Result<()> {
        if hop == plan.hops {
            self.stage = Stage::Done;
            if let Expand::Induced(_) = plan.config().expand {
                self.ask_induced(plan)?;
            }
            return Ok(());
        }
        self.stage = Stage::Hop { hop };
        for (place, walk) in plan.walks.iter().enumerate() {
            let frontier = self.frontier(walk.from, hop);
            self.edges[place].expanded.push(frontier.clone());
            let take = if frontier.is_empty() { Take::Nothing } else { walk.takes[hop] };
            let stream = law::stream(Purpose::Neighbors, plan.config().seed, self.batch, hop, walk.word);
            let edge_ids = walk.edge_ids && matches!(plan.config().expand, Expand::Neighbors(_));
            let ask = Ask::Neighbors { take, stream, edge_ids };
            self.ask(walk.edge_type, walk.direction, ask, plan.config().max_edges).rows = Some((walk.from, frontier));
        }
        if plan.walks.is_empty() {
            self.close_hop();
            self.ask_hop(plan, hop + 1)?;
        }
        Ok(())
    }

    /// Nodes that were new in the hop before.
    fn frontier(&self, node_type: usize, hop: usize) -> std::ops::Range<usize> {
        let bounds = &self.nodes[node_type].bounds;
        let start = if hop == 0 { 0 } else { bounds[hop - 1] };
        start..bounds[hop]
    }

    /// Takes in the neighbours, edge type by edge type.
    pub(super) fn take_hop(&mut self, plan: &Plan, hop: usize) -> Result<()> {
        self.asked = 0;
        for place in 0..plan.walks.len() {
            self.take_edges(plan, place, matches!(plan.config().expand, Expand::Neighbors(_)))?;
        }
        self.close_hop();
        self.ask_hop(plan, hop + 1)
    }

    /// Takes in the edges of one walked type, as answered for the nodes that were expanded last.
    pub(super) fn take_edges(&mut self, plan: &Plan, place: usize, edge_ids: bool) -> Result<()> {
        let walk = &plan.walks[place];
        let (answer, edges) = (&self.answers[place], &mut self.edges[place]);
        let expanded = edges.expanded.last().map_or(0, ExactSizeIterator::len);
        check_counts(&answer.counts, expanded, answer.neighbors.len())?;
        if walk.edge_ids && edge_ids && answer.edge_ids.len() != answer.neighbors.len() {
            return Err(Error::answer("edges came without their ids"));
        }
        self.edge_count += answer.neighbors.len() as u64;
        if self.edge_count > plan.config().max_edges {
            return Err(Error::too_many_edges(self.batch, plan.config().max_edges));
        }
        grow(&mut edges.counts, EDGES, answer.counts.len())?;
        grow(&mut edges.edge_ids, EDGES, answer.edge_ids.len())?;
        let admitted = self.nodes[walk.to].locals.admit_all(&answer.neighbors, &mut edges.rows);
        admitted.map_err(|refusal| refused(plan, self.batch, walk.to, &refusal))?;
        edges.counts.extend_from_slice(&answer.counts);
        edges.edge_ids.extend_from_slice(&answer.edge_ids);
        edges.bounds.push(edges.rows.len());
        Ok(())
    }
}

/// An answer must say for each node how many edges it has, and have that many.
pub(super) fn check_counts(counts: &[u32], nodes: usize, edges: usize) -> Result<()> {
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    if counts.len() == nodes && total == edges as u64 {
        return Ok(());
    }
    Err(Error::answer(format!(
        "expected the lists of {nodes} nodes, found {} with {total} of {edges} edges",
        counts.len()
    )))
}
