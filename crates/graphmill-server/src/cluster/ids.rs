//! Ascending ids of one node type.

use std::ops::Range;

/// A list of ids, or all of a stretch, which takes no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ids {
    Stretch(Range<u64>),
    Listed(Vec<u64>),
}

impl Ids {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Stretch(ids) => ids.end.saturating_sub(ids.start) as usize,
            Self::Listed(ids) => ids.len(),
        }
    }

    /// The ids at some places, as far as there are any.
    pub(crate) fn at(&self, places: Range<usize>) -> Vec<u64> {
        let end = places.end.min(self.len());
        let start = places.start.min(end);
        match self {
            Self::Stretch(ids) => (ids.start + start as u64..ids.start + end as u64).collect(),
            Self::Listed(ids) => ids[start..end].to_vec(),
        }
    }

    /// Keeps the ids at some places, which must exist.
    pub(crate) fn keep(self, places: Range<usize>) -> Self {
        match self {
            Self::Stretch(ids) => Self::Stretch(ids.start + places.start as u64..ids.start + places.end as u64),
            Self::Listed(mut ids) => {
                ids.truncate(places.end);
                ids.drain(..places.start);
                Self::Listed(ids)
            }
        }
    }

    pub(crate) fn into_vec(self) -> Vec<u64> {
        match self {
            Self::Stretch(ids) => ids.collect(),
            Self::Listed(ids) => ids,
        }
    }
}
