//! What nodes were called in the input, for graphs whose ids were not dense to begin with.
//!
//! Dense ids are given in ascending order of the original ones, so the originals of a partition are sorted and a look-up
//! is a binary search: no index is stored.

use std::path::PathBuf;

use crate::array::Array;
use crate::{Error, Result};

/// A node's name in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OriginalId<'a> {
    /// A number.
    Int(i64),
    /// A string.
    String(&'a str),
}

impl std::fmt::Display for OriginalId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(id) => id.fmt(f),
            Self::String(id) => id.fmt(f),
        }
    }
}

/// The original ids of one partition's rows.
#[derive(Debug, Clone)]
pub enum Originals {
    /// Numbers, ascending.
    Ints(Array<i64>),
    /// Strings, ascending bytewise.
    Strings(OriginalStrings),
}

/// Strings one after the other, with offsets.
#[derive(Debug, Clone)]
pub struct OriginalStrings {
    pub(crate) offsets: Array<u64>,
    pub(crate) text: Array<u8>,
    /// Where the offsets are stored, for messages.
    pub(crate) path: PathBuf,
}

impl Originals {
    /// Strings from the arrays that a writer just made.
    pub fn strings(offsets: Array<u64>, text: Array<u8>) -> Self {
        Self::Strings(OriginalStrings { offsets, text, path: PathBuf::from("original.offsets.u64") })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Ints(ids) => ids.len(),
            Self::Strings(strings) => strings.offsets.len().saturating_sub(1),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The original id of a row; nothing past the end.
    ///
    /// # Errors
    /// When the stored strings are damaged.
    pub fn get(&self, row: usize) -> Result<Option<OriginalId<'_>>> {
        if row >= self.len() {
            return Ok(None);
        }
        match self {
            Self::Ints(ids) => Ok(Some(OriginalId::Int(ids[row]))),
            Self::Strings(strings) => strings.get(row).map(|id| Some(OriginalId::String(id))),
        }
    }

    /// The row of an original id, if this partition has it. A key of the other kind is in no row.
    ///
    /// # Errors
    /// When the stored strings are damaged.
    pub fn find(&self, key: OriginalId<'_>) -> Result<Option<usize>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(found) = self.get(middle)? else { break };
            match found.cmp(&key) {
                std::cmp::Ordering::Equal => return Ok(Some(middle)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }
}

impl OriginalStrings {
    fn get(&self, row: usize) -> Result<&str> {
        let (start, end) = (self.offsets[row], self.offsets[row + 1]);
        let text: Option<&[u8]> =
            if start <= end { self.text.get(start as usize..usize::try_from(end).unwrap_or(usize::MAX)) } else { None };
        text.and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(|| {
            Error::corrupt(
                &self.path,
                format!("row {row} is no text: it goes from {start} to {end} of {} bytes", self.text.len()),
            )
        })
    }
}
