//! Questions about other ends: which edges of a list end in a set, and whether an edge exists.

use super::{OpenLists, Stored};
use crate::exchange::{Answer, Need};
use crate::room::grow;
use crate::{Error, Result};

/// A set of ids: a coarse filter in front of a sorted list, so that most strangers cost one bit.
#[derive(Debug, Default)]
pub(super) struct Members {
    bits: Vec<u64>,
}

impl Members {
    /// Bits per member; the share of strangers that pass is its inverse.
    const BITS: usize = 16;

    pub(super) fn bytes(&self) -> usize {
        8 * self.bits.capacity()
    }

    fn fill(&mut self, ids: &[u64]) -> Result<()> {
        let words = (ids.len() * Self::BITS / 64).next_power_of_two();
        self.bits.clear();
        grow(&mut self.bits, "nodes of a question", words)?;
        self.bits.resize(words, 0);
        for &id in ids {
            let (word, bit) = self.place(id);
            self.bits[word] |= bit;
        }
        Ok(())
    }

    #[inline]
    fn place(&self, id: u64) -> (usize, u64) {
        let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> 38) as usize & (self.bits.len() - 1), 1 << (hash >> 58))
    }

    #[inline]
    fn contain(&self, sorted: &[u64], id: u64) -> bool {
        let (word, bit) = self.place(id);
        self.bits[word] & bit != 0 && sorted.binary_search(&id).is_ok()
    }
}

pub(super) fn within<N: Stored>(
    lists: &OpenLists<'_, N>,
    need: &Need<'_>,
    edge_ids: bool,
    answer: &mut Answer,
    members: &mut Members,
) -> Result<()> {
    members.fill(need.others)?;
    grow(&mut answer.counts, "nodes of a question", need.ids.len())?;
    let out = N::vector(&mut answer.neighbors);
    for &id in need.ids {
        let list = lists.list(lists.locate(id)?)?;
        let part = lists.part(list.partition)?;
        let before = out.len();
        for position in list.start..list.end {
            let neighbor = part.neighbors[position];
            if members.contain(need.others, neighbor.widen()) {
                grow(out, "edges of an answer", 1)?;
                out.push(neighbor);
                if edge_ids {
                    grow(&mut answer.edge_ids, "edges of an answer", 1)?;
                    let id = part.edge_ids.and_then(|ids| ids.get(position));
                    answer.edge_ids.push(id.ok_or_else(|| Error::answer("the lists have no edge ids"))?);
                }
            }
        }
        if out.len() as u64 > need.limit {
            return Err(Error::too_many_edges(need.batch, need.limit));
        }
        answer.counts.push((out.len() - before) as u32);
    }
    Ok(())
}

pub(super) fn contains<N: Stored>(lists: &OpenLists<'_, N>, need: &Need<'_>, answer: &mut Answer) -> Result<()> {
    grow(&mut answer.counts, "nodes of a question", need.ids.len())?;
    for (&id, &other) in need.ids.iter().zip(need.others) {
        let list = lists.list(lists.locate(id)?)?;
        let part = lists.part(list.partition)?;
        let neighbors = &part.neighbors[list.start..list.end];
        // With timestamps a list is sorted by them first.
        let found = if part.adjacency.timestamps().is_some() {
            neighbors.iter().any(|neighbor| neighbor.widen() == other)
        } else {
            neighbors.binary_search_by_key(&other, |neighbor| neighbor.widen()).is_ok()
        };
        answer.counts.push(found.into());
    }
    Ok(())
}
