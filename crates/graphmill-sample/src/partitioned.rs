//! A seed list by partition: what partition order cuts.

use graphmill_graph::{Book, Error as GraphError};
use xxhash_rust::xxh3::Xxh3;

use crate::exchange::IdVec;
use crate::{Error, Result, SeedList, room};

/// Where the seeds of each partition stand in a seed list. Takes four bytes per seed (eight where there are 2^32 of them), and nothing
/// where the seeds stand in the order of their partitions already.
#[derive(Debug)]
pub struct PartitionLists {
    sizes: Vec<u64>,
    /// The lists, end to end; none where they are the seed list itself.
    positions: Option<IdVec>,
    word: u64,
}

impl PartitionLists {
    /// The lists of seeds whose type, or whose sources' type, has a book. The type's name is for messages.
    ///
    /// # Errors
    /// When a seed is out of range, the book is damaged, or there is no memory for the lists.
    pub fn new(seeds: &SeedList, book: &Book, node_type: &str) -> Result<Self> {
        let open = book.open();
        Self::build(seeds.len(), book.parts(), |position| {
            let id = seeds.id(position);
            open.owner(id).ok_or_else(|| {
                let (name, count) = (node_type.to_owned(), open.count());
                GraphError::OutOfRange { kind: "node", name, id, count }.into()
            })
        })
    }

    /// The lists of seeds whose owners are known.
    ///
    /// # Errors
    /// When an owner is none of the partitions.
    pub fn of_owners(owners: &[u32], parts: u32) -> Result<Self> {
        Self::build(owners.len(), parts, |position| Ok(owners[position]))
    }

    fn build(count: usize, parts: u32, owner: impl Fn(usize) -> Result<u32>) -> Result<Self> {
        let mut sizes = vec![0u64; parts as usize];
        let (mut hash, mut block) = (Xxh3::new(), Vec::with_capacity(1024));
        hash.update(&parts.to_le_bytes());
        let (mut last, mut in_order) = (0, true);
        for position in 0..count {
            let owner = owner(position)?;
            let size = sizes.get_mut(owner as usize).ok_or_else(|| {
                Error::config(format!("a seed belongs to partition {owner}, there are {parts}: the dataset is damaged"))
            })?;
            *size += 1;
            in_order &= last <= owner;
            last = owner;
            block.push(owner);
            if block.len() == block.capacity() {
                hash.update(bytemuck::cast_slice(&block));
                block.clear();
            }
        }
        hash.update(bytemuck::cast_slice(&block));
        let positions = match (in_order, u32::try_from(count)) {
            (true, _) => None,
            (false, Ok(_)) => Some(IdVec::U32(laid_out(count, &sizes, owner, |position| position as u32)?)),
            (false, Err(_)) => Some(IdVec::U64(laid_out(count, &sizes, owner, |position| position as u64)?)),
        };
        Ok(Self { sizes, positions, word: hash.digest() })
    }

    /// How many seeds each partition owns.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// A word that names the partitioning of the seeds.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// The position in the seed list of what stands at an index of the lists laid end to end.
    #[inline]
    pub(crate) fn position(&self, index: u64) -> u64 {
        match &self.positions {
            None => index,
            // The index is below the number of seeds.
            Some(positions) => positions.get(index as usize).unwrap_or(index),
        }
    }
}

/// Positions by partition, and in order within each.
fn laid_out<T: Copy + Default>(
    count: usize,
    sizes: &[u64],
    owner: impl Fn(usize) -> Result<u32>,
    word: impl Fn(usize) -> T,
) -> Result<Vec<T>> {
    let mut next: Vec<usize> = Vec::with_capacity(sizes.len());
    let mut start = 0;
    for &size in sizes {
        next.push(start);
        start += size as usize;
    }
    let mut positions = room("seeds by partition", count as u64)?;
    positions.resize(count, T::default());
    for position in 0..count {
        let next = &mut next[owner(position)? as usize];
        positions[*next] = word(position);
        *next += 1;
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_hold_the_seeds_of_their_partition_in_order(mut owners in vec(0u32..5, 0..80), sorted: bool) {
            if sorted {
                owners.sort_unstable();
            }
            let lists = PartitionLists::of_owners(&owners, 5).unwrap();
            let positions: Vec<usize> = (0..owners.len()).map(|index| lists.position(index as u64) as usize).collect();
            let mut expected: Vec<usize> = (0..owners.len()).collect();
            expected.sort_by_key(|&position| owners[position]);
            prop_assert_eq!(positions, expected);
            prop_assert_eq!(lists.positions.is_none(), owners.is_sorted());
            let size = |partition| owners.iter().filter(|&&owner| owner == partition).count() as u64;
            prop_assert_eq!(lists.sizes(), (0..5).map(size).collect::<Vec<_>>());
        }

        #[test]
        fn another_partitioning_has_another_word(owners in vec(0u32..5, 1..3000), place: prop::sample::Index) {
            let word = |owners: &[u32], parts| PartitionLists::of_owners(owners, parts).unwrap().word();
            let mut others = owners.clone();
            others[place.index(owners.len())] += 1;
            prop_assert_eq!(word(&owners, 6), word(&owners, 6));
            prop_assert_ne!(word(&owners, 6), word(&others, 6));
            prop_assert_ne!(word(&owners, 6), word(&owners, 7));
        }
    }

    #[test]
    fn an_owner_that_does_not_exist_is_refused() {
        assert!(PartitionLists::of_owners(&[0, 3], 3).is_err());
    }
}
