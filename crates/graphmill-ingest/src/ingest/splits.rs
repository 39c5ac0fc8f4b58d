//! Train, validation and test sets.

use graphmill_graph::path::{self, NodeArray};
use graphmill_graph::random::{Permutation, Stream};
use graphmill_graph::{ArrayWriter, DatasetWriter, IdWidth, NodeTypeInfo, Place, Split};

use crate::{Error, Job, Result, Unit};

/// How much of the nodes each split takes; a share of 0 means that there is no such split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shares {
    pub(crate) train: f64,
    pub(crate) val: f64,
    pub(crate) test: f64,
}

impl Shares {
    /// Checks that the shares are shares.
    pub(crate) fn check(self) -> Result<()> {
        let shares = [self.train, self.val, self.test];
        let sum: f64 = shares.iter().sum();
        if shares.iter().all(|share| (0.0..=1.0).contains(share)) && sum > 0.0 && sum <= 1.0 + 1e-9 {
            return Ok(());
        }
        Err(Error::option(format!(
            "split shares are between 0 and 1 and add up to at most 1, found train {}, val {}, test {}",
            self.train, self.val, self.test
        )))
    }

    /// The splits that have a share, with the bound of the draws that fall into each.
    fn bounds(self) -> Vec<(Split, f64)> {
        let mut bound = 0.0;
        let shares = [(Split::Train, self.train), (Split::Val, self.val), (Split::Test, self.test)];
        let bounds = shares.map(|(split, share)| {
            bound += share;
            (split, share, bound)
        });
        bounds.into_iter().filter(|&(_, share, _)| share > 0.0).map(|(split, _, bound)| (split, bound)).collect()
    }
}

/// Writes splits by a number in `[0, 1)` per node; a node without one is in no split.
pub(crate) fn write_hashed(
    writer: &DatasetWriter,
    info: &mut NodeTypeInfo,
    shares: Shares,
    job: &Job<'_>,
    draw: impl Fn(u64) -> Result<Option<f64>>,
) -> Result<()> {
    shares.check()?;
    let bounds = shares.bounds();
    write_chosen(writer, info, &bounds, job, |node| {
        let draw = draw(node)?;
        Ok(draw.and_then(|draw| bounds.iter().position(|&(_, bound)| draw < bound)))
    })
}

/// Writes splits of exactly the asked share of nodes, chosen by a seed.
pub(crate) fn write_fraction(
    writer: &DatasetWriter,
    info: &mut NodeTypeInfo,
    shares: Shares,
    seed: u64,
    job: &Job<'_>,
) -> Result<()> {
    shares.check()?;
    let bounds = shares.bounds();
    let ends: Vec<u64> = bounds.iter().map(|&(_, bound)| (bound * info.count as f64).round() as u64).collect();
    let order = Permutation::new(info.count, Stream::new(seed, &[SPLIT]));
    write_chosen(writer, info, &bounds, job, |node| {
        let place = order.at(node);
        Ok(ends.iter().position(|&end| place < end))
    })
}

/// Writes one split from ids in ascending order.
pub(crate) fn write_ids(
    writer: &DatasetWriter,
    info: &mut NodeTypeInfo,
    split: Split,
    ids: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let mut array = SplitWriter::new(writer, info, split)?;
    ids.into_iter().try_for_each(|id| array.push(id))?;
    array.finish(info)
}

/// Nodes between two looks at the job.
const STEP: u64 = 1 << 14;

/// The purpose of the permutation that chooses splits.
const SPLIT: u64 = 0x0073_706c_6974;

fn write_chosen(
    writer: &DatasetWriter,
    info: &mut NodeTypeInfo,
    bounds: &[(Split, f64)],
    job: &Job<'_>,
    choose: impl Fn(u64) -> Result<Option<usize>>,
) -> Result<()> {
    let mut arrays =
        bounds.iter().map(|&(split, _)| SplitWriter::new(writer, info, split)).collect::<Result<Vec<_>>>()?;
    let stage = job.stage(&format!("splitting {}", info.name), Unit::Nodes, Some(info.count));
    for node in 0..info.count {
        if node % STEP == STEP - 1 {
            stage.advance(STEP)?;
        }
        if let Some(chosen) = choose(node)? {
            arrays[chosen].push(node)?;
        }
    }
    stage.advance(info.count % STEP)?;
    arrays.into_iter().try_for_each(|array| array.finish(info))
}

struct SplitWriter {
    split: Split,
    array: ArrayWriter,
    width: IdWidth,
    size: u64,
}

impl SplitWriter {
    fn new(writer: &DatasetWriter, info: &NodeTypeInfo, split: Split) -> Result<Self> {
        let width = info.id_width();
        let array = writer.array(Place::Part(0), &path::node(&info.name, NodeArray::Split(split, width)))?;
        Ok(Self { split, array, width, size: 0 })
    }

    fn push(&mut self, id: u64) -> Result<()> {
        self.size += 1;
        Ok(self.array.write_id(self.width, id)?)
    }

    fn finish(self, info: &mut NodeTypeInfo) -> Result<()> {
        info.splits.set(self.split, self.size);
        Ok(self.array.finish()?)
    }
}
