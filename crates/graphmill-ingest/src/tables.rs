//! The tables that draws by weight are made from: running sums of integer weights, and alias tables.
//!
//! The integers of a list depend on its largest weight, and a list need not fit in memory. So tables are made in a second
//! pass, over weights that are written already.

use graphmill_graph::path::{self, EdgeArray, NodeArray};
use graphmill_graph::weights::running_sums;
use graphmill_graph::{Array, ArrayWriter, DatasetWriter, Direction, EdgeTypeInfo, Place, alias};

use crate::{Error, Result};

/// Writes the table of a node type whose weights are all written, in one partition.
pub(crate) fn write_node_table(writer: &DatasetWriter, node_type: &str) -> Result<()> {
    let weights = writer.finished(Place::Part(0), &path::node(node_type, NodeArray::Weights))?;
    let mut table = writer.array(Place::Book, &path::node_cumulative(node_type))?;
    write_all(&mut table, running_sums(&weights))?;
    Ok(table.finish()?)
}

/// The tables of all lists of one direction in a partition.
pub(crate) struct ListTables {
    /// The edge type, for messages.
    name: String,
    sums: ArrayWriter,
    aliases: ArrayWriter,
}

impl ListTables {
    /// Begins the tables of an edge type.
    pub(crate) fn new(writer: &DatasetWriter, info: &EdgeTypeInfo, direction: Direction, part: u32) -> Result<Self> {
        let array = |array| writer.array(Place::Part(part), &path::edge(&info.name, array));
        Ok(Self {
            name: info.name.to_string(),
            sums: array(EdgeArray::Cumulative(direction))?,
            aliases: array(EdgeArray::Alias(direction))?,
        })
    }

    /// Appends the tables of a list.
    pub(crate) fn write(&mut self, weights: &[f32]) -> Result<()> {
        if weights.len() > alias::MAX_LIST {
            let (found, most) = (weights.len(), alias::MAX_LIST);
            let reason = format!("a node has {found} edges, expected at most {most} where edges have weights");
            return Err(Error::input(format!("edge type `{}`", self.name), reason));
        }
        write_all(&mut self.sums, running_sums(weights))?;
        write_all(&mut self.aliases, alias::table(weights))
    }

    /// Ends the tables.
    pub(crate) fn finish(self) -> Result<()> {
        self.sums.finish()?;
        Ok(self.aliases.finish()?)
    }
}

fn write_all(table: &mut ArrayWriter, words: impl Iterator<Item = u64>) -> Result<()> {
    for word in words {
        table.write(&word.to_le_bytes())?;
    }
    Ok(())
}

/// The tables of lists whose weights are all written, one after the other.
pub(crate) struct WrittenLists {
    weights: Array<f32>,
    tables: ListTables,
    /// Where the next list begins.
    start: usize,
}

impl WrittenLists {
    /// Begins the tables of an edge type.
    pub(crate) fn new(
        writer: &DatasetWriter,
        info: &EdgeTypeInfo,
        direction: Direction,
        weights: ArrayWriter,
    ) -> Result<Self> {
        let weights = weights.finish_mapped()?;
        Ok(Self { weights, tables: ListTables::new(writer, info, direction, 0)?, start: 0 })
    }

    /// Appends the tables of the list that ends at an offset.
    pub(crate) fn end_list(&mut self, end: u64) -> Result<()> {
        let list = self.start..end as usize;
        self.start = list.end;
        self.tables.write(&self.weights[list])
    }

    /// Ends the tables.
    pub(crate) fn finish(self) -> Result<()> {
        self.tables.finish()
    }
}
