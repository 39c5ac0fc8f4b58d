//! Some edges of each node's list, uniformly, where all lists are of one partition: what most batches ask.
//!
//! Lists of a power law are short, and whether one is taken whole is a coin toss. So nodes are taken in blocks, and each
//! block in loops that have one kind of work each: find the lists, take the short ones whole, draw from the long ones. Nothing
//! in them depends on a coin. Where the processor can, all long ones are drawn from in the same way, eight at a time. What a
//! block has chosen is read when the next one has chosen, and so has had time to load.

use graphmill_graph::random::Stream;
use graphmill_graph::{IdSlice, Location};

use super::draw::{EDGES, NODES, extend_ids};
use super::floyd::{self, MEDIUM, SHORT};
use super::lanes::{self, LANES, LONGEST, Lane, Lanes};
use super::{OpenLists, OpenPart, Stored};
use crate::cache::prefetch;
use crate::exchange::{Answer, Id, Need};
use crate::law::Draws;
use crate::room::grow;
use crate::{Error, Result};

/// How many nodes make a block.
const BLOCK: usize = 64;

/// The most edges of a node that are taken this way.
pub(super) const MOST: usize = lanes::MOST;

/// Reusable memory.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Positions that were chosen, and room behind them.
    chosen: Vec<usize>,
    /// Positions of the block before, which are loading.
    loading: Vec<usize>,
}

impl Scratch {
    pub(super) fn bytes(&self) -> usize {
        size_of::<usize>() * (self.chosen.capacity() + self.loading.capacity())
    }
}

/// The lists of a block's nodes.
struct Block {
    rows: [usize; BLOCK],
    starts: [usize; BLOCK],
    lengths: [usize; BLOCK],
}

/// Draws up to `count` edges of every node's list, all of which are in the only part that is opened here.
pub(super) fn uniform<N: Stored>(
    lists: &OpenLists<'_, N>,
    only: (u32, &OpenPart<'_, N>),
    need: &Need<'_>,
    take: (usize, Stream, bool),
    answer: &mut Answer,
    scratch: &mut Scratch,
) -> Result<()> {
    match only.1.indptr {
        IdSlice::U32(indptr) => run(lists, only, indptr, need, take, answer, scratch),
        IdSlice::U64(indptr) => run(lists, only, indptr, need, take, answer, scratch),
    }
}

fn run<N: Stored, P: Id>(
    lists: &OpenLists<'_, N>,
    (partition, part): (u32, &OpenPart<'_, N>),
    indptr: &[P],
    need: &Need<'_>,
    (count, stream, edge_ids): (usize, Stream, bool),
    answer: &mut Answer,
    Scratch { chosen, loading }: &mut Scratch,
) -> Result<()> {
    // Whole lists are written as if all had as many edges as there may be, over the places of those that follow.
    for positions in [&mut *chosen, &mut *loading] {
        grow(positions, EDGES, (BLOCK * count + MOST).saturating_sub(positions.len()))?;
        positions.resize(BLOCK * count + MOST, 0);
    }
    grow(&mut answer.counts, NODES, need.ids.len())?;
    let lanes = Lanes::find();
    let mut left = need.limit;
    let mut under_way = 0;
    let mut block = Block { rows: [0; BLOCK], starts: [0; BLOCK], lengths: [0; BLOCK] };
    let mut next = [0; BLOCK];
    let (mut to_locate, mut to_load) = (need.ids.chunks(BLOCK), need.ids.chunks(BLOCK));
    lists.prefetch_entries(to_load.next().unwrap_or_default());
    lists.prefetch_entries(to_load.next().unwrap_or_default());
    let mut found = lists.locate_block(to_locate.next().unwrap_or_default(), indptr, &mut next)?;
    for ids in need.ids.chunks(BLOCK) {
        block.rows[..found].copy_from_slice(&next[..found]);
        lists.prefetch_entries(to_load.next().unwrap_or_default());
        found = lists.locate_block(to_locate.next().unwrap_or_default(), indptr, &mut next)?;
        block
            .find(ids.len(), indptr, part.neighbors.len())
            .map_err(|row| lists.damaged(Location { partition, row }))?;
        let taken = if count <= MOST / 2 {
            block.choose::<{ MOST / 2 }, N>(ids, count, (stream, lanes), part.neighbors, chosen, &mut answer.counts)
        } else {
            block.choose::<MOST, N>(ids, count, (stream, lanes), part.neighbors, chosen, &mut answer.counts)
        };
        left = left.checked_sub(taken as u64).ok_or_else(|| Error::too_many_edges(need.batch, need.limit))?;
        match part.edge_ids.filter(|_| edge_ids) {
            Some(IdSlice::U32(ids)) => chosen[..taken].iter().for_each(|&position| prefetch(ids, position)),
            Some(IdSlice::U64(ids)) => chosen[..taken].iter().for_each(|&position| prefetch(ids, position)),
            None => {}
        }
        read(part, &loading[..under_way], edge_ids, answer)?;
        std::mem::swap(chosen, loading);
        under_way = taken;
    }
    read(part, &loading[..under_way], edge_ids, answer)
}

impl Block {
    /// Finds the lists of the first `count` rows; the row of one that cannot be read is an error.
    #[inline]
    fn find<P: Id>(&mut self, count: usize, indptr: &[P], edges: usize) -> std::result::Result<(), usize> {
        for (index, &row) in self.rows[..count].iter().enumerate() {
            let Some([start, end]) = indptr.get(row..).and_then(|behind| behind.first_chunk::<2>()) else {
                return Err(row);
            };
            let (start, end) = (start.widen(), end.widen());
            if start > end || end > edges as u64 {
                return Err(row);
            }
            (self.starts[index], self.lengths[index]) = (start as usize, (end - start) as usize);
        }
        Ok(())
    }

    /// Chooses the edges of all lists, whose neighbours begin to load; says how many there are.
    #[inline]
    fn choose<const WIDE: usize, N>(
        &self,
        ids: &[u64],
        count: usize,
        (stream, lanes): (Stream, Option<Lanes>),
        neighbors: &[N],
        chosen: &mut [usize],
        counts: &mut Vec<u32>,
    ) -> usize {
        let lengths = &self.lengths[..ids.len()];
        counts.extend(lengths.iter().map(|&length| length.min(count) as u32));
        // Where the edges of each list go, and which lists are of which kind: taken whole, or drawn from by their length, which
        // hardly any is too long for the processor to do with several at once.
        let (short, medium) = if lanes.is_some() { (LONGEST, LONGEST) } else { (SHORT, MEDIUM) };
        let (mut places, mut kinds, mut sizes) = ([0; BLOCK], [[0u8; BLOCK]; 4], [0; 4]);
        let mut place = 0;
        for (index, &length) in lengths.iter().enumerate() {
            let drawn = usize::from(length > count);
            let kind = drawn + (drawn & usize::from(length > short)) + usize::from(length > medium);
            kinds[kind][sizes[kind]] = index as u8;
            sizes[kind] += 1;
            places[index] = place;
            place += length.min(count);
        }
        let of_kind = |kind: usize| kinds[kind][..sizes[kind]].iter().map(|&index| usize::from(index) % BLOCK);
        for index in of_kind(0) {
            let (start, length) = (self.starts[index], self.lengths[index]);
            prefetch(neighbors, start);
            prefetch(neighbors, (start + length).saturating_sub(1));
            if let Some(positions) = chosen[places[index]..].first_chunk_mut::<WIDE>() {
                for (offset, position) in positions.iter_mut().enumerate() {
                    *position = start + offset;
                }
            }
        }
        let mut draw = |index: usize, way: fn(Draws, usize, usize, &mut [usize])| {
            let positions = &mut chosen[places[index]..][..count];
            way(Draws::new(stream, ids[index]), self.starts[index], self.lengths[index], positions);
            for &position in &*positions {
                prefetch(neighbors, position);
            }
        };
        of_kind(2).for_each(|index| draw(index, floyd::medium));
        of_kind(3).for_each(|index| draw(index, floyd::long));
        let Some(lanes) = lanes else {
            of_kind(1).for_each(|index| draw(index, floyd::short));
            return place;
        };
        let mut drawn = [Lane::default(); MOST];
        for group in kinds[1][..sizes[1]].chunks(LANES) {
            // A group that is not full has its last list again and again.
            let indices: [_; LANES] = std::array::from_fn(|lane| usize::from(group[lane.min(group.len() - 1)]) % BLOCK);
            let lists = lanes::Lists {
                nodes: indices.map(|index| ids[index]),
                starts: indices.map(|index| self.starts[index] as u64),
                lengths: indices.map(|index| self.lengths[index] as u64),
            };
            lanes.distinct(stream, &lists, &mut drawn[..count]);
            for (lane, index) in indices.into_iter().enumerate().take(group.len()) {
                for (position, row) in chosen[places[index]..].iter_mut().zip(&drawn[..count]) {
                    *position = row[lane] as usize;
                    prefetch(neighbors, *position);
                }
            }
        }
        place
    }
}

/// Reads the neighbours that have had time to load.
#[inline]
fn read<N: Stored>(part: &OpenPart<'_, N>, positions: &[usize], edge_ids: bool, answer: &mut Answer) -> Result<()> {
    let out = N::vector(&mut answer.neighbors);
    grow(out, EDGES, positions.len())?;
    out.extend(positions.iter().map(|&position| part.neighbors[position]));
    if edge_ids {
        grow(&mut answer.edge_ids, EDGES, positions.len())?;
        extend_ids(&mut answer.edge_ids, part, positions.iter().copied())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_one_at_a_time_and_several_at_once_give_the_same(
            lists in vec((0usize..1 << 40, prop_oneof![0usize..40, 0usize..400, 0usize..1 << 33], any::<u64>()), 1..=BLOCK),
            count in 1..=MOST,
            seed: u64,
        ) {
            let mut block = Block { rows: [0; BLOCK], starts: [0; BLOCK], lengths: [0; BLOCK] };
            for (index, (start, length, _)) in lists.iter().enumerate() {
                (block.starts[index], block.lengths[index]) = (*start, *length);
            }
            let ids: Vec<u64> = lists.iter().map(|list| list.2).collect();
            let choose = |lanes| {
                let (mut chosen, mut counts) = (vec![0; BLOCK * MOST + MOST], Vec::new());
                let ways = (Stream::new(seed, &[]), lanes);
                let taken = block.choose::<MOST, u32>(&ids, count, ways, &[], &mut chosen, &mut counts);
                chosen.truncate(taken);
                (chosen, counts)
            };
            prop_assert_eq!(choose(None), choose(Lanes::find()));
        }
    }
}
