//! A column of a chunk.

use super::{ColumnType, Shape};

/// The rows of one wanted column.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Dense node ids.
    Dense(Vec<u64>),
    /// Integer keys.
    Int(Vec<i64>),
    /// String keys.
    Text(TextColumn),
    /// Values: little-endian rows of the wanted element type, one after the other.
    Rows(Vec<u8>),
}

impl Column {
    /// A column without rows, with room for some.
    pub(super) fn with_capacity(kind: ColumnType, shape: &Shape, rows: usize) -> Self {
        match kind {
            ColumnType::Dense => Self::Dense(Vec::with_capacity(rows)),
            ColumnType::Int => Self::Int(Vec::with_capacity(rows)),
            ColumnType::Text => Self::Text(TextColumn::default()),
            ColumnType::Value(_) => Self::Rows(Vec::with_capacity(rows * shape.row_bytes())),
        }
    }

    /// A column to be filled with `rows` rows: values are written in place, ids are pushed.
    pub(super) fn for_rows(kind: ColumnType, shape: &Shape, rows: usize) -> Self {
        match kind {
            ColumnType::Value(_) => Self::Rows(vec![0; rows * shape.row_bytes()]),
            _ => Self::with_capacity(kind, shape, rows),
        }
    }

    /// Takes back all but the first `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize, shape: &Shape) {
        match self {
            Self::Dense(ids) => ids.truncate(rows),
            Self::Int(keys) => keys.truncate(rows),
            Self::Text(texts) => texts.truncate(rows),
            Self::Rows(bytes) => bytes.truncate(rows * shape.row_bytes()),
        }
    }

    /// Keeps the rows whose flag is set.
    pub(super) fn retain(&mut self, keep: &[bool]) {
        let mut flags = keep.iter().copied();
        let mut next = || flags.next().unwrap_or(false);
        match self {
            Self::Dense(ids) => ids.retain(|_| next()),
            Self::Int(keys) => keys.retain(|_| next()),
            Self::Text(texts) => *texts = texts.iter().filter(|_| next()).collect(),
            Self::Rows(bytes) => {
                let row_bytes = bytes.len() / keep.len().max(1);
                let kept = bytes.chunks_exact(row_bytes.max(1)).filter(|_| next()).flatten().copied().collect();
                *bytes = kept;
            }
        }
    }
}

/// Strings one after the other in one buffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextColumn {
    text: String,
    ends: Vec<usize>,
}

impl TextColumn {
    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`.
    ///
    /// # Panics
    /// When `i` is not below [`Self::len`].
    pub fn get(&self, i: usize) -> &str {
        &self.text[self.start(i)..self.ends[i]]
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.text.truncate(self.start(len));
            self.ends.truncate(len);
        }
    }

    fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[i - 1] }
    }
}

impl<'a> FromIterator<&'a str> for TextColumn {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Self {
        let mut column = Self::default();
        texts.into_iter().for_each(|text| column.push(text));
        column
    }
}
