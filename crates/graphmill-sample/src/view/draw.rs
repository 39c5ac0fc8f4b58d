//! Some edges of each node's list, however they are asked for; [`uniform`] is the short way for most questions.
//!
//! Every step of this walk misses the cache: the offsets of a list, the list itself, each drawn edge. So the work is a
//! pipeline over the nodes: offsets are loaded well ahead; by weight, the entries of the table that will be drawn from are
//! loaded less far ahead; then the positions of a node are drawn and their neighbours begin to load; only when enough others
//! are on their way are the neighbours read.

use graphmill_graph::random::Stream;
use graphmill_graph::{IdSlice, Location};

use super::weighted::{self, Weighted};
use super::{List, OpenLists, OpenPart, Stored, floyd, uniform};
use crate::cache::prefetch;
use crate::exchange::{Answer, Need, Take};
use crate::law::Draws;
use crate::room::grow;
use crate::{Error, Result};

/// How many nodes ahead offsets begin to load.
const OFFSETS_AHEAD: usize = 64;
/// How many nodes ahead what weights say of a list begins to load.
const LISTS_AHEAD: usize = 12;
/// How many chosen edges are on their way before the first of them is read.
const EDGES_AHEAD: usize = 192;
/// A stretch of a list that is longer is copied as a whole.
const LONG: usize = 64;

/// What there may be no memory for.
pub(super) const NODES: &str = "nodes of a question";
pub(super) const EDGES: &str = "edges of an answer";

/// Reusable memory of the pipeline.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    chosen: Stage,
    loading: Stage,
    few: floyd::Taken,
    weighted: weighted::Scratch,
    uniform: uniform::Scratch,
}

impl Scratch {
    pub(super) fn bytes(&self) -> usize {
        let stages = self.chosen.bytes() + self.loading.bytes() + self.uniform.bytes();
        stages + self.few.bytes() + self.weighted.bytes()
    }
}

/// Positions that were chosen and not yet read.
#[derive(Debug, Default)]
struct Stage {
    positions: Vec<usize>,
    /// The partition of each, where there are several.
    partitions: Vec<u32>,
}

impl Stage {
    fn bytes(&self) -> usize {
        size_of::<usize>() * self.positions.capacity() + 4 * self.partitions.capacity()
    }

    fn clear(&mut self) {
        self.positions.clear();
        self.partitions.clear();
    }
}

pub(super) fn draw<N: Stored>(
    lists: &OpenLists<'_, N>,
    need: &Need<'_>,
    take: Take,
    stream: Stream,
    edge_ids: bool,
    answer: &mut Answer,
    scratch: &mut Scratch,
) -> Result<()> {
    if take == Take::Nothing {
        grow(&mut answer.counts, NODES, need.ids.len())?;
        answer.counts.resize(need.ids.len(), 0);
        return Ok(());
    }
    if let Take::Uniform(count) = take
        && count as usize <= uniform::MOST
        && let Some(only) = lists.only()
    {
        return uniform::uniform(lists, only, need, (count as usize, stream, edge_ids), answer, &mut scratch.uniform);
    }
    Pipeline { lists, need, take, stream, edge_ids, scratch, left: need.limit, answer }.run()
}

struct Pipeline<'a, 'g, N> {
    lists: &'a OpenLists<'g, N>,
    need: &'a Need<'a>,
    take: Take,
    stream: Stream,
    edge_ids: bool,
    scratch: &'a mut Scratch,
    /// Edges that may still be taken.
    left: u64,
    answer: &'a mut Answer,
}

impl<N: Stored> Pipeline<'_, '_, N> {
    fn run(&mut self) -> Result<()> {
        let ids = self.need.ids;
        self.scratch.chosen.clear();
        self.scratch.loading.clear();
        grow(&mut self.answer.counts, NODES, ids.len())?;
        let mut ahead = [Location { partition: 0, row: 0 }; 2 * OFFSETS_AHEAD];
        self.locate(0, &mut ahead)?;
        let looks_ahead = matches!(self.take, Take::Weighted(_) | Take::WeightedReplace(_));
        for (index, &id) in ids.iter().enumerate() {
            if index % OFFSETS_AHEAD == 0 {
                self.locate(index + OFFSETS_AHEAD, &mut ahead)?;
            }
            let location = ahead[index % (2 * OFFSETS_AHEAD)];
            if looks_ahead {
                self.look_ahead(index, &ahead);
            }
            let Some(list) = self.lists.find(location) else { return Err(self.lists.damaged(location)) };
            self.choose(id, list)?;
            if self.scratch.chosen.positions.len() >= EDGES_AHEAD {
                self.read()?;
            }
        }
        self.read()?;
        self.read()
    }

    /// Finds the lists of a stretch of nodes, whose offsets begin to load. All at once: who looks them up one by one waits
    /// for each look-up.
    fn locate(&self, start: usize, ahead: &mut [Location; 2 * OFFSETS_AHEAD]) -> Result<()> {
        for (index, &id) in self.need.ids.iter().enumerate().skip(start).take(OFFSETS_AHEAD) {
            let slot = &mut ahead[index % (2 * OFFSETS_AHEAD)];
            *slot = self.lists.locate(id)?;
            self.lists.prefetch_offsets(*slot);
        }
        Ok(())
    }

    /// Begins to load what decides which edges of a later node are taken by weight.
    #[inline]
    fn look_ahead(&self, index: usize, ahead: &[Location; 2 * OFFSETS_AHEAD]) {
        let Some(&later) = self.need.ids.get(index + LISTS_AHEAD) else { return };
        let Some(list) = self.lists.find(ahead[(index + LISTS_AHEAD) % (2 * OFFSETS_AHEAD)]) else { return };
        let Ok(part) = self.lists.part(list.partition) else { return };
        match self.take {
            Take::Weighted(count) if list.len() <= count as usize => {
                prefetch(part.weights, list.start);
                prefetch(part.weights, list.end);
            }
            Take::Weighted(count) | Take::WeightedReplace(count) => {
                if let Some(weighted) = part.weighted(list) {
                    weighted.expect(Draws::new(self.stream, later), count as usize);
                }
            }
            _ => {}
        }
    }

    /// Chooses edges of a list, whose neighbours begin to load.
    #[inline]
    fn choose(&mut self, id: u64, list: List) -> Result<()> {
        let length = list.len();
        let stretch = match self.take {
            Take::All => length,
            Take::First(count) => length.min(count as usize),
            Take::Uniform(count) if length <= count as usize => length,
            Take::Uniform(count) => return self.draw_distinct(id, list, count as usize),
            _ => return self.draw(id, list),
        };
        self.count(stretch)?;
        let part = self.lists.part(list.partition)?;
        if stretch > LONG {
            return self.copy(list, stretch);
        }
        prefetch(part.neighbors, list.start);
        let positions = &mut self.scratch.chosen.positions;
        positions.extend(list.start..list.start + stretch);
        self.note_chosen(list, stretch);
        Ok(())
    }

    /// Draws fewer edges than the list has, uniformly: the usual way, apart from all others so that it stays small.
    fn draw_distinct(&mut self, id: u64, list: List, count: usize) -> Result<()> {
        self.count(count)?;
        if count > LONG {
            self.make_room(count)?;
        }
        let part = self.lists.part(list.partition)?;
        let (draws, positions) = (Draws::new(self.stream, id), &mut self.scratch.chosen.positions);
        let before = positions.len();
        floyd::floyd(draws, (list.start, list.len()), count, &mut self.scratch.few, positions);
        positions[before..].iter().for_each(|&position| prefetch(part.neighbors, position));
        self.note_chosen(list, count);
        Ok(())
    }

    fn draw(&mut self, id: u64, list: List) -> Result<()> {
        let length = list.len();
        let most = match self.take {
            _ if length == 0 => 0,
            Take::UniformReplace(count) | Take::WeightedReplace(count) => count as usize,
            Take::Weighted(count) => length.min(count as usize),
            // What is positive is counted when it is known.
            _ => 0,
        };
        if most as u64 > self.left {
            return Err(Error::too_many_edges(self.need.batch, self.need.limit));
        }
        let room = if most > 0 { most } else { length };
        if room > LONG {
            self.make_room(room)?;
        }
        let (part, scratch) = (self.lists.part(list.partition)?, &mut *self.scratch);
        let draws = Draws::new(self.stream, id);
        let positions = &mut scratch.chosen.positions;
        let before = positions.len();
        match self.take {
            _ if length == 0 => {}
            Take::UniformReplace(count) => {
                let position = |index| list.start + draws.below(index, length as u64) as usize;
                positions.extend((0..count.into()).map(position));
            }
            Take::Weighted(count) if length > count as usize => {
                let weighted = part.weighted(list).ok_or_else(no_weights)?;
                weighted.distinct(draws, count as usize, &mut scratch.weighted, positions);
            }
            Take::WeightedReplace(count) => {
                let weighted = part.weighted(list).ok_or_else(no_weights)?;
                weighted.replaced(draws, count as usize, positions);
            }
            _ => {
                let weights = part.weights.get(list.start..list.end).ok_or_else(no_weights)?;
                positions
                    .extend((list.start..).zip(weights).filter(|(_, weight)| **weight > 0.0).map(|(place, _)| place));
            }
        }
        positions[before..].iter().for_each(|&position| prefetch(part.neighbors, position));
        let count = positions.len() - before;
        self.count(count)?;
        self.note_chosen(list, count);
        Ok(())
    }

    /// Makes room for the positions of a node that has many. What others have is too little to ask about.
    #[cold]
    fn make_room(&mut self, count: usize) -> Result<()> {
        let Scratch { chosen, few, weighted, .. } = &mut *self.scratch;
        grow(&mut chosen.positions, EDGES, count)?;
        if !self.lists.is_whole() {
            let unnoted = chosen.positions.len() - chosen.partitions.len();
            grow(&mut chosen.partitions, EDGES, unnoted + count)?;
        }
        match self.take {
            Take::Uniform(_) => few.make_room(count),
            Take::Weighted(_) => weighted.make_room(count),
            _ => Ok(()),
        }
    }

    fn count(&mut self, count: usize) -> Result<()> {
        if count as u64 > self.left {
            return Err(Error::too_many_edges(self.need.batch, self.need.limit));
        }
        self.left -= count as u64;
        self.answer.counts.push(count as u32);
        Ok(())
    }

    /// What else must be known of the last chosen positions.
    #[inline]
    fn note_chosen(&mut self, list: List, count: usize) {
        let chosen = &mut self.scratch.chosen;
        if !self.lists.is_whole() {
            chosen.partitions.resize(chosen.positions.len(), list.partition);
        }
        if self.edge_ids
            && let Ok(part) = self.lists.part(list.partition)
            && let Some(ids) = part.edge_ids
        {
            let last = &chosen.positions[chosen.positions.len() - count..];
            for &position in last {
                match ids {
                    IdSlice::U32(ids) => prefetch(ids, position),
                    IdSlice::U64(ids) => prefetch(ids, position),
                }
            }
        }
    }

    /// Reads the neighbours that have had time to load, and gives those chosen since then the same time.
    fn read(&mut self) -> Result<()> {
        let Stage { positions, partitions } = &mut self.scratch.loading;
        let out = N::vector(&mut self.answer.neighbors);
        grow(out, EDGES, positions.len())?;
        if self.edge_ids {
            grow(&mut self.answer.edge_ids, EDGES, positions.len())?;
        }
        if self.lists.is_whole() {
            let part = self.lists.part(0)?;
            out.extend(positions.iter().map(|&position| part.neighbors[position]));
            if self.edge_ids {
                extend_ids(&mut self.answer.edge_ids, part, positions.iter().copied())?;
            }
        } else {
            for (&position, &partition) in positions.iter().zip(&*partitions) {
                let part = self.lists.part(partition)?;
                out.push(part.neighbors[position]);
                if self.edge_ids {
                    extend_ids(&mut self.answer.edge_ids, part, std::iter::once(position))?;
                }
            }
        }
        self.scratch.loading.clear();
        std::mem::swap(&mut self.scratch.chosen, &mut self.scratch.loading);
        Ok(())
    }

    /// Copies a long stretch, after everything that was chosen before it.
    #[cold]
    fn copy(&mut self, list: List, count: usize) -> Result<()> {
        self.read()?;
        self.read()?;
        let part = self.lists.part(list.partition)?;
        let stretch = list.start..list.start + count;
        let out = N::vector(&mut self.answer.neighbors);
        grow(out, EDGES, count)?;
        out.extend_from_slice(&part.neighbors[stretch.clone()]);
        if self.edge_ids {
            grow(&mut self.answer.edge_ids, EDGES, count)?;
            extend_ids(&mut self.answer.edge_ids, part, stretch)?;
        }
        Ok(())
    }
}

impl<'a, N> OpenPart<'a, N> {
    /// What a list that is not empty is drawn from by weight.
    #[inline]
    fn weighted(&self, list: List) -> Option<Weighted<'a>> {
        Weighted::new(self.alias, self.cumulative, list.start, list.end)
    }
}

#[cold]
fn no_weights() -> Error {
    Error::answer("the lists have no weights")
}

pub(super) fn extend_ids<N>(
    out: &mut Vec<u64>,
    part: &OpenPart<'_, N>,
    positions: impl Iterator<Item = usize>,
) -> Result<()> {
    match part.edge_ids {
        Some(IdSlice::U32(ids)) => out.extend(positions.map(|position| u64::from(ids[position]))),
        Some(IdSlice::U64(ids)) => out.extend(positions.map(|position| ids[position])),
        None => return Err(Error::answer("the lists have no edge ids")),
    }
    Ok(())
}
