//! Who has which partition: this server, or a peer.

use graphmill_graph::{Dataset, OpenBook};
use graphmill_sample::{Error, Result};

/// A table from partitions to owners. Owner 0 is this server, owner `i + 1` its i-th peer.
#[derive(Debug)]
pub(crate) struct Owners(Vec<Option<usize>>);

impl Owners {
    /// What is opened here is owned here; the rest by the first peer that has it.
    pub(crate) fn new(dataset: &Dataset, peers: &[Vec<u32>]) -> Self {
        let owner = |partition: u32| {
            if dataset.partition(partition).is_ok() {
                return Some(0);
            }
            peers.iter().position(|partitions| partitions.contains(&partition)).map(|place| place + 1)
        };
        Self((0..dataset.parts()).map(owner).collect())
    }

    /// The first partition that nobody has.
    pub(crate) fn missing(&self) -> Option<u32> {
        self.0.iter().position(Option::is_none).map(|partition| partition as u32)
    }

    /// The owner of an id.
    ///
    /// # Errors
    /// When the id is out of range, or its partition has no owner.
    #[inline]
    pub(crate) fn of(&self, book: OpenBook<'_>, id: u64) -> Result<usize> {
        let Some(partition) = book.owner(id) else {
            let reason = format!("id {id} is out of range, there are {}", book.count());
            return Err(Error::Answer { reason });
        };
        self.of_partition(partition)
    }

    /// The owner of a partition.
    ///
    /// # Errors
    /// When it has none.
    #[inline]
    pub(crate) fn of_partition(&self, partition: u32) -> Result<usize> {
        self.0.get(partition as usize).copied().flatten().ok_or(Error::Unowned { partition })
    }
}
