//! All edges among the nodes of a batch.

use super::{Machine, Stage};
use crate::exchange::Ask;
use crate::plan::Plan;
use crate::room::grow;
use crate::{Error, Result};

impl Machine {
    /// Forgets the edges met on the way and asks for all edges among the nodes.
    pub(super) fn ask_induced(&mut self, plan: &Plan) -> Result<()> {
        self.stage = Stage::Induced;
        self.edge_count = 0;
        for (place, walk) in plan.walks.iter().enumerate() {
            self.edges[place].clear();
            let rows = 0..self.nodes[walk.from].locals.len();
            self.edges[place].expanded.push(rows.clone());
            let ask = Ask::Within { edge_ids: walk.edge_ids };
            self.ask(walk.edge_type, walk.direction, ask, plan.config().max_edges).rows = Some((walk.from, rows));
            let others = &mut self.questions[place].others;
            grow(others, "nodes of a batch", self.nodes[walk.to].locals.len())?;
            others.extend_from_slice(self.nodes[walk.to].locals.nodes());
            others.sort_unstable();
        }
        if plan.walks.is_empty() {
            self.stage = Stage::Done;
        }
        Ok(())
    }

    pub(super) fn take_induced(&mut self, plan: &Plan) -> Result<()> {
        self.asked = 0;
        for (place, walk) in plan.walks.iter().enumerate() {
            let known = self.nodes[walk.to].locals.len();
            self.take_edges(plan, place, true)?;
            if self.nodes[walk.to].locals.len() != known {
                return Err(Error::answer("an edge of an induced subgraph ends outside of it"));
            }
        }
        self.stage = Stage::Done;
        Ok(())
    }
}
