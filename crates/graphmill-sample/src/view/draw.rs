//! Some edges of each node's list.
//!
//! Every step of this walk misses the cache: the offsets of a list, the list itself, each drawn edge. So the work is a
//! pipeline over the nodes: offsets are loaded well ahead; then the positions of a node are drawn and their neighbours
//! begin to load; only when enough others are on their way are the neighbours read.

use graphmill_graph::Location;
use graphmill_graph::random::Stream;

use super::{List, OpenLists, Stored, floyd, weighted};
use crate::exchange::{Answer, Need, Take};
use crate::law::Draws;
use crate::prefetch::prefetch;
use crate::{Error, Result};

/// How many nodes ahead offsets begin to load.
const OFFSETS_AHEAD: usize = 32;
/// How many nodes ahead of drawing lists are found, so that what weights say of them can load.
const LISTS_AHEAD: usize = 12;
/// How many drawn edges are on their way before the first of them is read.
const EDGES_AHEAD: usize = 96;

/// Reusable memory of the pipeline.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    drawn: Stage,
    loading: Stage,
    few: floyd::Taken,
    weighted: weighted::Taken,
}

impl Scratch {
    pub(super) fn bytes(&self) -> usize {
        self.drawn.bytes() + self.loading.bytes() + self.few.bytes() + self.weighted.bytes()
    }
}

/// Positions that were drawn of some nodes and not yet read.
#[derive(Debug, Default)]
struct Stage {
    spans: Vec<Span>,
    positions: Vec<usize>,
}

/// What is taken of one list.
#[derive(Debug, Clone, Copy)]
struct Span {
    partition: u32,
    start: usize,
    count: u32,
    /// The edges from `start` on, or the next `count` drawn positions.
    stretch: bool,
}

impl Stage {
    fn bytes(&self) -> usize {
        size_of::<Span>() * self.spans.capacity() + size_of::<usize>() * self.positions.capacity()
    }

    fn clear(&mut self) {
        self.spans.clear();
        self.positions.clear();
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
        answer.counts.resize(need.ids.len(), 0);
        return Ok(());
    }
    let mut pipeline = Pipeline { lists, take, stream, edge_ids, scratch, left: need.limit, answer };
    pipeline.run(need.ids)?;
    if pipeline.left == u64::MAX {
        return Err(Error::too_many_edges(need.batch, need.limit));
    }
    Ok(())
}

struct Pipeline<'a, 'g, N> {
    lists: &'a OpenLists<'g, N>,
    take: Take,
    stream: Stream,
    edge_ids: bool,
    scratch: &'a mut Scratch,
    /// Edges that may still be taken; the largest number once there were too many.
    left: u64,
    answer: &'a mut Answer,
}

impl<N: Stored> Pipeline<'_, '_, N> {
    fn run(&mut self, ids: &[u64]) -> Result<()> {
        self.scratch.drawn.clear();
        self.scratch.loading.clear();
        self.answer.counts.reserve(ids.len());
        let mut ahead = [Location { partition: 0, row: 0 }; OFFSETS_AHEAD];
        for (slot, &id) in ahead.iter_mut().zip(ids) {
            *slot = self.lists.locate(id)?;
            self.lists.prefetch_offsets(*slot);
        }
        let looks_ahead = matches!(self.take, Take::Weighted(_) | Take::WeightedReplace(_));
        for (index, &id) in ids.iter().enumerate() {
            let location = ahead[index % OFFSETS_AHEAD];
            if let Some(&later) = ids.get(index + OFFSETS_AHEAD) {
                let slot = &mut ahead[index % OFFSETS_AHEAD];
                *slot = self.lists.locate(later)?;
                self.lists.prefetch_offsets(*slot);
            }
            if looks_ahead {
                self.look_ahead(ids, index, &ahead);
            }
            let list = self.lists.list(location)?;
            if !self.pick(list, Draws::new(self.stream, id))? {
                self.left = u64::MAX;
                return Ok(());
            }
            if self.scratch.drawn.positions.len() >= EDGES_AHEAD || self.scratch.drawn.spans.len() >= OFFSETS_AHEAD {
                self.read()?;
                std::mem::swap(&mut self.scratch.drawn, &mut self.scratch.loading);
            }
        }
        self.read()?;
        std::mem::swap(&mut self.scratch.drawn, &mut self.scratch.loading);
        self.read()
    }

    /// Weighted draws read the end of a list first, then scattered sums: both begin to load here.
    #[inline]
    fn look_ahead(&self, ids: &[u64], index: usize, ahead: &[Location; OFFSETS_AHEAD]) {
        let found = |distance: usize| {
            let later = *ids.get(index + distance)?;
            let list = self.lists.list(ahead[(index + distance) % OFFSETS_AHEAD]).ok()?;
            Some((later, list, self.lists.part(list.partition).ok()?.cumulative))
        };
        if let Some((_, list, cumulative)) = found(2 * LISTS_AHEAD) {
            prefetch(cumulative, list.end.saturating_sub(1));
        }
        if let Some((later, list, cumulative)) = found(LISTS_AHEAD)
            && let Some(sums) = cumulative.get(list.start..list.end)
            && let Take::Weighted(count) | Take::WeightedReplace(count) = self.take
        {
            weighted::expect(sums, Draws::new(self.stream, later), count as usize);
        }
    }

    /// Chooses edges of a list; false if they are too many.
    #[inline]
    fn pick(&mut self, list: List, draws: Draws) -> Result<bool> {
        let length = list.len();
        let scratch = &mut *self.scratch;
        let before = scratch.drawn.positions.len();
        let part = self.lists.part(list.partition)?;
        if let Take::Uniform(count) | Take::UniformReplace(count) | Take::WeightedReplace(count) = self.take
            && u64::from(count) > self.left
            && length > 0
            && (length > count as usize || !matches!(self.take, Take::Uniform(_)))
        {
            return Ok(false);
        }
        let stretch = match self.take {
            Take::Nothing => Some(0),
            Take::All => Some(length),
            Take::First(count) => Some(length.min(count as usize)),
            Take::Uniform(count) if length <= count as usize => Some(length),
            Take::UniformReplace(_) if length == 0 => Some(0),
            _ => None,
        };
        let count = if let Some(count) = stretch {
            prefetch(part.neighbors, list.start);
            count
        } else {
            let positions = &mut scratch.drawn.positions;
            let mut emit = |position: usize| {
                prefetch(part.neighbors, list.start + position);
                positions.push(list.start + position);
            };
            match self.take {
                Take::Uniform(count) => floyd::floyd(draws, length, count as usize, &mut scratch.few, emit),
                Take::UniformReplace(count) => {
                    (0..count.into()).for_each(|index| emit(draws.below(index, length as u64) as usize));
                }
                _ => {
                    let sums = part.cumulative.get(list.start..list.end);
                    let sums = sums.ok_or_else(|| Error::answer("the lists have no table of weights"))?;
                    match self.take {
                        Take::Weighted(count) if length > count as usize => {
                            weighted::distinct(sums, draws, count as usize, &mut scratch.weighted, emit);
                        }
                        Take::WeightedReplace(count) => weighted::replaced(sums, draws, count as usize, emit),
                        _ => {
                            let mut sum = 0;
                            for (position, &next) in sums.iter().enumerate() {
                                if next > sum {
                                    emit(position);
                                }
                                sum = next;
                            }
                        }
                    }
                }
            }
            scratch.drawn.positions.len() - before
        };
        if count as u64 > self.left {
            return Ok(false);
        }
        self.left -= count as u64;
        let span =
            Span { partition: list.partition, start: list.start, count: count as u32, stretch: stretch.is_some() };
        scratch.drawn.spans.push(span);
        if self.edge_ids
            && let Some(edge_ids) = part.edge_ids
        {
            prefetch_ids(edge_ids, &span, &scratch.drawn.positions[before..]);
        }
        Ok(true)
    }

    /// Reads the neighbours that have had time to load.
    fn read(&mut self) -> Result<()> {
        let Stage { spans, positions } = &mut self.scratch.loading;
        let out = N::vector(&mut self.answer.neighbors);
        let mut drawn = 0;
        for span in &*spans {
            let part = self.lists.part(span.partition)?;
            let count = span.count as usize;
            if span.stretch {
                out.extend_from_slice(&part.neighbors[span.start..span.start + count]);
            } else {
                out.extend(positions[drawn..drawn + count].iter().map(|&position| part.neighbors[position]));
            }
            if self.edge_ids {
                let ids = part.edge_ids.ok_or_else(|| Error::answer("the lists have no edge ids"))?;
                let out = &mut self.answer.edge_ids;
                if span.stretch {
                    out.extend((span.start..span.start + count).filter_map(|position| ids.get(position)));
                } else {
                    out.extend(positions[drawn..drawn + count].iter().filter_map(|&position| ids.get(position)));
                }
            }
            if !span.stretch {
                drawn += count;
            }
            self.answer.counts.push(span.count);
        }
        spans.clear();
        positions.clear();
        Ok(())
    }
}

fn prefetch_ids(ids: graphmill_graph::IdSlice<'_>, span: &Span, positions: &[usize]) {
    let load = |position: usize| match ids {
        graphmill_graph::IdSlice::U32(ids) => prefetch(ids, position),
        graphmill_graph::IdSlice::U64(ids) => prefetch(ids, position),
    };
    if span.stretch {
        load(span.start);
    }
    positions.iter().copied().for_each(load);
}
