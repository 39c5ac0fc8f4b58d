//! Questions whose nodes have several owners: split into a share for each, merged in the order of the nodes, so that who
//! answered what, and when, cannot be seen.

use graphmill_graph::OpenBook;

use crate::cache::{ENTRIES_AHEAD, prefetch};
use crate::exchange::{Answer, Ask, IdVec, Need};
use crate::places::copy_rows;
use crate::room::grow;
use crate::{Error, Result};

/// What there may be no memory for.
const NODES: &str = "nodes of a question";
const EDGES: &str = "edges of an answer";

/// A question split by owner. Its memory is used again.
#[derive(Debug, Default)]
pub struct Split {
    shares: Vec<Share>,
    /// Whose share each node is in.
    owners: Vec<u32>,
}

/// What one owner is asked, and answers.
#[derive(Debug, Default)]
pub struct Share {
    /// The nodes whose lists are meant.
    pub ids: Vec<u64>,
    /// Further nodes, where the question names some.
    pub others: Vec<u64>,
    /// The owner's answer.
    pub answer: Answer,
}

impl Split {
    /// Splits a question among so many owners; `owner` names that of a partition.
    ///
    /// # Errors
    /// When an id is out of range or its partition has no owner.
    pub fn split(
        &mut self,
        need: &Need<'_>,
        owners: usize,
        book: OpenBook<'_>,
        owner: impl Fn(u32) -> Result<usize>,
    ) -> Result<()> {
        self.shares.resize_with(owners, Share::default);
        for share in &mut self.shares {
            share.ids.clear();
            share.others.clear();
            share.answer.clear();
        }
        find_owners(need.ids, book, owner, &mut self.owners)?;
        for (share, count) in self.shares.iter_mut().zip(counts(&self.owners, owners)) {
            grow(&mut share.ids, NODES, count)?;
            if matches!(need.ask, Ask::Contains) {
                grow(&mut share.others, NODES, count)?;
            } else if count > 0 {
                grow(&mut share.others, NODES, need.others.len())?;
                share.others.extend_from_slice(need.others);
            }
        }
        for (&id, &owner) in need.ids.iter().zip(&self.owners) {
            self.shares[owner as usize].ids.push(id);
        }
        if let Ask::Contains = need.ask {
            for (&other, &owner) in need.others.iter().zip(&self.owners) {
                self.shares[owner as usize].others.push(other);
            }
        }
        Ok(())
    }

    /// Bytes that it keeps for the next question.
    pub fn scratch_bytes(&self) -> usize {
        let share = |share: &Share| 8 * (share.ids.capacity() + share.others.capacity()) + share.answer.bytes();
        self.shares.iter().map(share).sum::<usize>() + 4 * self.owners.capacity()
    }

    /// The shares, by owner; those without ids need no answer.
    pub fn shares(&mut self) -> &mut [Share] {
        &mut self.shares
    }

    /// Brings the answers of all shares together.
    ///
    /// # Errors
    /// When an answer does not fit what was asked.
    pub fn merge(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        answer.clear();
        for (owner, share) in self.shares.iter().enumerate() {
            share.check(ask).map_err(|reason| Error::answer(format!("owner {owner} was asked {ask:?}: {reason}")))?;
        }
        // One wide answer makes all wide; the widths of one graph's lists are equal, so this is not the rule.
        let wide =
            self.shares.iter().any(|share| matches!(share.answer.neighbors, IdVec::U64(_)) && !share.ids.is_empty());
        let mut cursors = vec![Cursor::default(); self.shares.len()];
        if let Ask::Degrees = ask {
            grow(&mut answer.degrees, NODES, self.owners.len())?;
            for &owner in &self.owners {
                let next = &mut cursors[owner as usize].node;
                answer.degrees.push(self.shares[owner as usize].answer.degrees[*next]);
                *next += 1;
            }
            return Ok(());
        }
        answer.neighbors = if wide { IdVec::U64(Vec::new()) } else { std::mem::take(&mut answer.neighbors).narrow() };
        let neighbors = self.shares.iter().map(|share| share.answer.neighbors.len()).sum();
        match &mut answer.neighbors {
            IdVec::U32(to) => grow(to, EDGES, neighbors)?,
            IdVec::U64(to) => grow(to, EDGES, neighbors)?,
        }
        grow(&mut answer.edge_ids, EDGES, self.shares.iter().map(|share| share.answer.edge_ids.len()).sum())?;
        grow(&mut answer.counts, NODES, self.owners.len())?;
        for &owner in &self.owners {
            let (share, cursor) = (&self.shares[owner as usize].answer, &mut cursors[owner as usize]);
            let count = share.counts[cursor.node];
            cursor.node += 1;
            answer.counts.push(count);
            if let Ask::Contains = ask {
                continue;
            }
            let stretch = cursor.edge..cursor.edge + count as usize;
            cursor.edge = stretch.end;
            match (&mut answer.neighbors, &share.neighbors) {
                (IdVec::U32(to), IdVec::U32(from)) => to.extend_from_slice(&from[stretch.clone()]),
                (IdVec::U64(to), IdVec::U64(from)) => to.extend_from_slice(&from[stretch.clone()]),
                (IdVec::U64(to), IdVec::U32(from)) => to.extend(from[stretch.clone()].iter().map(|&id| u64::from(id))),
                // No share is wide then, or `wide` would be set; an empty one adds nothing.
                (IdVec::U32(_), IdVec::U64(_)) => {}
            }
            if !share.edge_ids.is_empty() {
                answer.edge_ids.extend_from_slice(&share.edge_ids[stretch]);
            }
        }
        Ok(())
    }
}

/// How far an owner's answer was read.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    node: usize,
    edge: usize,
}

impl Share {
    /// Whether the answer has what a merge will read.
    fn check(&self, ask: Ask) -> std::result::Result<(), String> {
        let (asked, found) = match ask {
            Ask::Degrees => (self.ids.len(), self.answer.degrees.len()),
            _ => (self.ids.len(), self.answer.counts.len()),
        };
        if asked != found {
            return Err(format!("{found} of {asked} nodes were answered"));
        }
        let (Ask::Neighbors { edge_ids, .. } | Ask::Within { edge_ids }) = ask else { return Ok(()) };
        let edges: u64 = self.answer.counts.iter().map(|&count| u64::from(count)).sum();
        let ids = if edge_ids { edges } else { 0 };
        if self.answer.neighbors.len() as u64 != edges || self.answer.edge_ids.len() as u64 != ids {
            return Err(format!(
                "{} neighbours and {} edge ids, expected {edges} and {ids}",
                self.answer.neighbors.len(),
                self.answer.edge_ids.len()
            ));
        }
        Ok(())
    }
}

/// The owner of every id. They are looked up in a loop of their own, and their entries in the book are loaded ahead: the fewer
/// instructions there are between two look-ups, the more of them are under way.
fn find_owners(
    ids: &[u64],
    book: OpenBook<'_>,
    owner: impl Fn(u32) -> Result<usize>,
    owners: &mut Vec<u32>,
) -> Result<()> {
    owners.clear();
    grow(owners, NODES, ids.len())?;
    let listed = book.listed();
    for (index, &id) in ids.iter().enumerate() {
        if let (Some((partitions, _)), Some(&later)) = (listed, ids.get(index + ENTRIES_AHEAD)) {
            prefetch(partitions, later as usize);
        }
        let partition = book.owner(id).ok_or_else(|| out_of_range(book, id))?;
        owners.push(owner(partition)? as u32);
    }
    Ok(())
}

/// On its own, so that looking up stays small.
#[cold]
fn out_of_range(book: OpenBook<'_>, id: u64) -> Error {
    Error::answer(format!("id {id} is out of range, there are {}", book.count()))
}

/// How many each owner has.
fn counts(owners: &[u32], count: usize) -> Vec<usize> {
    let mut counts = vec![0; count];
    for &owner in owners {
        counts[owner as usize] += 1;
    }
    counts
}

/// Rows whose ids have several owners: per owner, which ids, and which rows of the result they become.
#[derive(Debug, Default)]
pub struct RowSplit {
    /// By owner.
    pub shares: Vec<(Vec<u64>, Vec<u32>)>,
    owners: Vec<u32>,
}

impl RowSplit {
    /// Splits ids among so many owners; `owner` names that of a partition.
    ///
    /// # Errors
    /// When an id is out of range or its partition has no owner.
    pub fn split(
        &mut self,
        ids: &[u64],
        owners: usize,
        book: OpenBook<'_>,
        owner: impl Fn(u32) -> Result<usize>,
    ) -> Result<()> {
        find_owners(ids, book, owner, &mut self.owners)?;
        self.shares.resize_with(owners, Default::default);
        for ((ids, places), count) in self.shares.iter_mut().zip(counts(&self.owners, owners)) {
            ids.clear();
            places.clear();
            grow(ids, NODES, count)?;
            grow(places, NODES, count)?;
        }
        for (place, (&id, &owner)) in ids.iter().zip(&self.owners).enumerate() {
            let (ids, places) = &mut self.shares[owner as usize];
            ids.push(id);
            places.push(place as u32);
        }
        Ok(())
    }

    /// Bytes that it keeps for the next ids.
    pub fn scratch_bytes(&self) -> usize {
        let share = |(ids, places): &(Vec<u64>, Vec<u32>)| 8 * ids.capacity() + 4 * places.capacity();
        self.shares.iter().map(share).sum::<usize>() + 4 * self.owners.capacity()
    }

    /// Copies rows that an owner has sent to where they belong.
    ///
    /// # Errors
    /// When there are not as many bytes as rows were asked for.
    pub fn scatter(places: &[u32], rows: &[u8], into: &mut [u8], row_bytes: usize) -> Result<()> {
        if rows.len() != places.len() * row_bytes {
            let (found, count) = (rows.len(), places.len());
            return Err(Error::answer(format!("{found} bytes for {count} rows of {row_bytes} bytes")));
        }
        if row_bytes == 0 {
            return Ok(());
        }
        let row = |index: usize| Ok(&rows[index * row_bytes..][..row_bytes]);
        copy_rows(into, row_bytes, places.len(), row, |index| places[index] as usize)
    }
}
