//! Who has which partition: this server, or a peer.

use graphmill_graph::Dataset;
use graphmill_sample::{Error, Result};

/// The most tables, and so the most replicas of a partition that questions are spread over.
const TABLES: usize = 8;

/// A table from partitions to owners. Owner 0 is this server, owner `i + 1` its i-th peer.
#[derive(Debug)]
pub(crate) struct Owners(Vec<Option<usize>>);

impl Owners {
    /// What is opened here is owned here; the rest by peers that have it, in each table by another one of them, so that
    /// whoever takes one table after the other spreads questions over replicas. There is at least one table.
    pub(crate) fn tables(dataset: &Dataset, peers: &[Vec<u32>]) -> Vec<Self> {
        let mut owners: Vec<Vec<usize>> = vec![Vec::new(); dataset.parts() as usize];
        for (place, partitions) in peers.iter().enumerate() {
            for &partition in partitions {
                if let Some(owners) = owners.get_mut(partition as usize) {
                    owners.push(place + 1);
                }
            }
        }
        for (partition, _) in dataset.partitions() {
            owners[partition as usize] = vec![0];
        }
        let tables = owners.iter().map(Vec::len).max().unwrap_or(0).clamp(1, TABLES);
        let owner = |table: usize, (partition, owners): (usize, &Vec<usize>)| {
            (!owners.is_empty()).then(|| owners[(table + partition) % owners.len()])
        };
        let table = |table| Self(owners.iter().enumerate().map(|entry| owner(table, entry)).collect());
        (0..tables).map(table).collect()
    }

    /// The first partition that nobody has.
    pub(crate) fn missing(&self) -> Option<u32> {
        self.0.iter().position(Option::is_none).map(|partition| partition as u32)
    }

    /// The owner of a partition.
    ///
    /// # Errors
    /// When it has none.
    #[inline]
    pub(crate) fn of(&self, partition: u32) -> Result<usize> {
        self.0.get(partition as usize).copied().flatten().ok_or(Error::Unowned { partition })
    }
}
