//! The tables that draws by weight are made from: running sums of integer weights.
//!
//! The integers of a list depend on its largest weight, and a list need not fit in memory. So a table is made in a second
//! pass, over weights that are written already.

use graphmill_graph::path::{self, EdgeArray, NodeArray};
use graphmill_graph::weights::running_sums;
use graphmill_graph::{Array, ArrayWriter, DatasetWriter, Direction, EdgeTypeInfo, Place};

use crate::Result;

/// Appends the table of one list.
pub(crate) fn write_list(table: &mut ArrayWriter, weights: &[f32]) -> Result<()> {
    for sum in running_sums(weights) {
        table.write(&sum.to_le_bytes())?;
    }
    Ok(())
}

/// Writes the table of a node type whose weights are all written, in one partition.
pub(crate) fn write_node_table(writer: &DatasetWriter, node_type: &str) -> Result<()> {
    let weights = writer.finished(Place::Part(0), &path::node(node_type, NodeArray::Weights))?;
    let mut table = writer.array(Place::Book, &path::node_cumulative(node_type))?;
    write_list(&mut table, &weights)?;
    Ok(table.finish()?)
}

/// The table of all lists of one direction.
pub(crate) struct ListTable {
    weights: Array<f32>,
    table: ArrayWriter,
    /// Where the next list begins.
    start: usize,
}

impl ListTable {
    /// Begins the table of an edge type whose weights are all written.
    pub(crate) fn new(
        writer: &DatasetWriter,
        info: &EdgeTypeInfo,
        direction: Direction,
        weights: ArrayWriter,
    ) -> Result<Self> {
        let path = path::edge(&info.name, EdgeArray::Cumulative(direction));
        Ok(Self { weights: weights.finish_mapped()?, table: writer.array(Place::Part(0), &path)?, start: 0 })
    }

    /// Appends the table of the list that ends at an offset.
    pub(crate) fn end_list(&mut self, end: u64) -> Result<()> {
        let list = self.start..end as usize;
        self.start = list.end;
        write_list(&mut self.table, &self.weights[list])
    }

    /// Ends the table.
    pub(crate) fn finish(self) -> Result<()> {
        Ok(self.table.finish()?)
    }
}
