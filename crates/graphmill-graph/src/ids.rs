//! Ids are 64-bit at every interface and stored as narrow as their space allows.

use crate::array::Array;

/// How an array of ids is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdWidth {
    /// Four bytes: every id is below 2^32.
    U32,
    /// Eight bytes.
    U64,
}

impl IdWidth {
    /// The width of ids `0..count`.
    pub const fn for_count(count: u64) -> Self {
        if count <= 1 << 32 { Self::U32 } else { Self::U64 }
    }

    /// Bytes of one stored id.
    pub const fn size(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }

    /// The element type's name in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// Appends one id to little-endian bytes.
    pub fn push(self, bytes: &mut Vec<u8>, id: u64) {
        match self {
            Self::U32 => bytes.extend_from_slice(&(id as u32).to_le_bytes()),
            Self::U64 => bytes.extend_from_slice(&id.to_le_bytes()),
        }
    }
}

/// An array of ids of a dataset.
#[derive(Debug, Clone)]
pub enum IdArray {
    /// Stored as `u32`.
    U32(Array<u32>),
    /// Stored as `u64`.
    U64(Array<u64>),
}

impl IdArray {
    /// The ids as a slice of their stored width; take it once, outside the loop.
    pub fn as_slice(&self) -> IdSlice<'_> {
        match self {
            Self::U32(array) => IdSlice::U32(array),
            Self::U64(array) => IdSlice::U64(array),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes they take.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::U32(array) => array.bytes(),
            Self::U64(array) => array.bytes(),
        }
    }
}

/// A borrowed stretch of ids in their stored width.
#[derive(Debug, Clone, Copy)]
pub enum IdSlice<'a> {
    /// Stored as `u32`.
    U32(&'a [u32]),
    /// Stored as `u64`.
    U64(&'a [u64]),
}

impl<'a> IdSlice<'a> {
    /// How many there are.
    pub const fn len(self) -> usize {
        match self {
            Self::U32(ids) => ids.len(),
            Self::U64(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The id at a position, if there is one.
    pub fn get(self, index: usize) -> Option<u64> {
        match self {
            Self::U32(ids) => ids.get(index).map(|&id| u64::from(id)),
            Self::U64(ids) => ids.get(index).copied(),
        }
    }

    /// The ids of a range, if it lies inside.
    pub fn slice(self, range: std::ops::Range<usize>) -> Option<Self> {
        match self {
            Self::U32(ids) => ids.get(range).map(Self::U32),
            Self::U64(ids) => ids.get(range).map(Self::U64),
        }
    }

    /// All ids in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + 'a {
        (0..self.len()).map(move |index| match self {
            Self::U32(ids) => u64::from(ids[index]),
            Self::U64(ids) => ids[index],
        })
    }
}
