//! The rows of a batch whose nodes have several owners: those that are here, or kept here, are copied to their places, all
//! others are asked for.

use std::ops::Range;

use graphmill_codec::query as codec;
use graphmill_sample::{Gather, KeptRows, Layout, RowCache, RowSplit};
use graphmill_wire::Message;

use crate::Refusal;
use crate::asking::{Asking, Replies};
use crate::cluster::Question;
use crate::outlet::BatchMemory;
use crate::sync::Arc;

/// The most bytes of rows to ask for at once.
const ROWS_ASKED: usize = 64 << 20;

/// A batch that is being filled.
pub(crate) struct Rows {
    pub(crate) layout: Layout,
    pub(crate) memory: BatchMemory,
    /// What peers were asked for, in the order of their questions.
    pub(crate) asked: Vec<RowsAsked>,
}

/// Rows that a peer was asked for.
pub(crate) struct RowsAsked {
    /// Which rows of the tensor they become.
    places: Vec<u32>,
    /// Where the tensor lies.
    tensor: Range<usize>,
    row_bytes: usize,
    /// Where they may be kept, and whose they are.
    keeps: Option<(Arc<RowCache>, Vec<u64>)>,
}

/// For each tensor of a batch, lists that are as long as it has rows. Their memory is used again.
#[derive(Debug, Default)]
pub(crate) struct RowLists(Vec<TensorLists>);

#[derive(Debug, Default)]
struct TensorLists {
    /// Who owns which row.
    split: RowSplit,
    /// Rows of others that are kept here.
    kept: KeptRows,
}

/// Fills the tensors of batch `g`, each at its place in `buffer`, but for what is asked for.
pub(crate) fn fill<'a>(
    asking: &Asking,
    g: u64,
    gathers: impl Iterator<Item = (Gather<'a>, Range<usize>)>,
    buffer: &mut [u8],
    lists: &mut RowLists,
) -> Result<Vec<RowsAsked>, Refusal> {
    let gathers: Vec<_> = gathers.collect();
    lists.0.resize_with(gathers.len(), TensorLists::default);
    let mut tensors: Vec<_> =
        gathers.into_iter().zip(&mut lists.0).filter(|((rows, _), _)| !rows.ids.is_empty()).collect();
    let (mut asked, mut caches) = (Vec::new(), Vec::with_capacity(tensors.len()));
    // Questions first: while they travel, the rest is copied.
    for ((rows, tensor), lists) in &mut tensors {
        caches.push(ask(asking, g, *rows, tensor, lists, &mut asked)?);
    }
    for ((rows, tensor), lists) in &tensors {
        if let Some((ids, places)) = lists.split.shares.first().filter(|(ids, _)| !ids.is_empty()) {
            let here = Gather { ids, ..*rows };
            asking.lineup.view.gather_to(here, places, rows.ids.len(), &mut buffer[tensor.clone()])?;
        }
    }
    for (((_, tensor), lists), cache) in tensors.iter().zip(&caches) {
        if let Some(cache) = cache {
            cache.copy(&lists.kept, &mut buffer[tensor.clone()])?;
        }
    }
    Ok(asked)
}

/// Splits a tensor's rows by their owners, and asks peers for those that are not kept here; where the others are kept.
fn ask(
    asking: &Asking,
    g: u64,
    rows: Gather<'_>,
    tensor: &Range<usize>,
    TensorLists { split, kept }: &mut TensorLists,
    asked: &mut Vec<RowsAsked>,
) -> Result<Option<Arc<RowCache>>, Refusal> {
    let (core, lineup) = (asking.core(), &asking.lineup);
    let owners = lineup.owners(g);
    let book = core.cluster.book(rows.source)?.open();
    split
        .split(rows.ids, lineup.owner_count(), book, |partition| owners.of(partition))
        .map_err(|error| lineup.explain(error))?;
    let row_bytes = tensor.len() / rows.ids.len();
    let cache = core.cluster.row_caches.of(rows.source, rows.half, row_bytes);
    kept.clear();
    for (owner, (ids, places)) in split.shares.iter_mut().enumerate().skip(1).filter(|(_, (ids, _))| !ids.is_empty()) {
        if let Some(cache) = &cache {
            let before = kept.len();
            cache.take_out(ids, places, kept)?;
            core.metrics.peer_rows(kept.len() - before, ids.len());
        }
        let most = (ROWS_ASKED / row_bytes.max(1)).clamp(1, codec::ASKED_IDS);
        for (ids, places) in ids.chunks(most).zip(places.chunks(most)) {
            asking.ask(asked.len(), owner, Question::gather(Gather { ids, ..rows }));
            let keeps = cache.as_ref().filter(|cache| !cache.is_full());
            let keeps = keeps.map(|cache| (Arc::clone(cache), ids.to_vec()));
            asked.push(RowsAsked { places: places.to_vec(), tensor: tensor.clone(), row_bytes, keeps });
        }
    }
    Ok(cache)
}

impl RowLists {
    /// Bytes that they hold.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.0.iter().map(|lists| lists.split.scratch_bytes() + lists.kept.scratch_bytes()).sum()
    }
}

impl Rows {
    /// Puts what peers have sent to its places.
    pub(crate) fn take(&mut self, replies: Replies) -> Result<(), Refusal> {
        let buffer = self.memory.bytes_mut();
        for (number, reply) in replies {
            let answered = reply?;
            let Message::Rows(_) = &answered.message else { return Err(answered.unexpected()) };
            let asked = self.asked.get(number).ok_or_else(|| Refusal::internal("rows have no question"))?;
            let into = &mut buffer[asked.tensor.clone()];
            RowSplit::scatter(&asked.places, answered.body(), into, asked.row_bytes)?;
            if let Some((cache, ids)) = &asked.keeps {
                cache.offer(ids, answered.body());
            }
        }
        Ok(())
    }
}
