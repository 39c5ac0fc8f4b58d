//! A small batch as a tree: each expanded node with the neighbours that were found from it.

use std::fmt::Write;

use graphmill_sample::{Batch, Expand, Field};

/// Larger batches are not drawn.
const MOST_EDGES: usize = 40;

/// The drawing, if the batch is small and has hops to draw.
pub(super) fn draw(batch: &Batch) -> Option<String> {
    let plan = batch.plan();
    let one_type = plan.node_types().len() == 1 && plan.walked().len() == 1;
    let hops = matches!(plan.config().expand, Expand::Neighbors(_));
    let edges = batch.num_edges();
    if !one_type || !hops || edges == 0 || edges > MOST_EDGES {
        return None;
    }
    let nodes = batch.ints(Field::Node(0));
    let edges = batch.ints(Field::Col(0)).iter().copied().zip(batch.ints(Field::Row(0)).iter().copied()).collect();
    let seeds = batch.ints(Field::NumSampledNodes(0))[0];
    let tree = Tree { nodes, seeds, edges };
    let mut text = String::new();
    for seed in 0..seeds {
        let _ = writeln!(text, "{}", nodes[seed as usize]);
        tree.branches(seed, "", &mut text);
    }
    Some(text)
}

struct Tree<'a> {
    nodes: &'a [i64],
    /// How many of the nodes are seeds.
    seeds: i64,
    /// Expanded node and neighbour, by row.
    edges: Vec<(i64, i64)>,
}

impl Tree<'_> {
    /// Draws what was found from a node; a neighbour that was found elsewhere first has its own branches there.
    fn branches(&self, from: i64, indent: &str, text: &mut String) {
        let found: Vec<usize> = (0..self.edges.len()).filter(|&edge| self.edges[edge].0 == from).collect();
        for (place, &edge) in found.iter().enumerate() {
            let row = self.edges[edge].1;
            let last = place + 1 == found.len();
            let first = row >= self.seeds && self.edges.iter().position(|&(_, other)| other == row) == Some(edge);
            let again = if first { "" } else { " ↑" };
            let _ = writeln!(text, "{indent}{} {}{again}", if last { "└─" } else { "├─" }, self.nodes[row as usize]);
            if first {
                self.branches(row, &format!("{indent}{}", if last { "   " } else { "│  " }), text);
            }
        }
    }
}
