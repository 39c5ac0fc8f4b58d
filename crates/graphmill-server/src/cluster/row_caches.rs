//! Rows of peers that are kept here because batches need them again and again, within a bound for all of them.

use std::collections::HashMap;

use graphmill_sample::{CacheRoom, RowCache, Source};

use crate::sync::{Arc, Mutex, lock};

/// A tensor, and whether its elements were halved on their way.
type Tensor = (Source, bool);

/// The caches of all tensors.
#[derive(Debug)]
pub(crate) struct RowCaches {
    room: Arc<CacheRoom>,
    bytes: usize,
    /// None for a tensor that is not worth it.
    caches: Mutex<HashMap<Tensor, Option<Arc<RowCache>>>>,
}

impl RowCaches {
    /// Caches that take so many bytes together.
    pub(super) fn new(bytes: usize) -> Self {
        Self { room: CacheRoom::new(bytes), bytes, caches: Mutex::default() }
    }

    /// The cache of a tensor's rows. Edges are in few batches each, so those of their rows are not kept.
    pub(crate) fn of(&self, source: Source, half: bool, row_bytes: usize) -> Option<Arc<RowCache>> {
        let Source::Node { .. } = source else { return None };
        let make = || RowCache::new(row_bytes, &self.room).map(Arc::new);
        let cache = lock(&self.caches).entry((source, half)).or_insert_with(make).clone();
        cache.filter(|cache| cache.row_bytes() == row_bytes)
    }

    /// The memory that they take now.
    pub(crate) fn used(&self) -> usize {
        self.bytes - self.room.left()
    }
}
