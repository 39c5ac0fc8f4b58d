//! Rows that cannot be used, and what happens to them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Chunk, Column};
use crate::{Error, Result};

/// Messages kept of skipped rows.
const EXAMPLES: usize = 5;

/// What to do with a bad row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Stop at the first one.
    #[default]
    Stop,
    /// Count it and go on without it.
    Skip,
}

/// Stops at bad rows or counts them. Clones share the count.
#[derive(Debug, Clone)]
pub struct BadRows {
    on_error: OnError,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    skipped: AtomicU64,
    examples: Mutex<Vec<String>>,
}

impl BadRows {
    /// No bad row so far.
    pub fn new(on_error: OnError) -> Self {
        Self { on_error, seen: Arc::default() }
    }

    /// Reports a bad row by its 0-based number: an error when bad rows stop the work, else it is counted.
    pub fn report(&self, file: &str, row0: u64, reason: impl Into<String>) -> Result<()> {
        let (row, reason) = (row0.saturating_add(1), reason.into());
        if self.on_error == OnError::Stop {
            return Err(Error::BadRow { file: file.to_owned(), row, reason });
        }
        if self.seen.skipped.fetch_add(1, Ordering::Relaxed) < EXAMPLES as u64 {
            let mut examples = self.seen.examples.lock().unwrap_or_else(PoisonError::into_inner);
            examples.push(format!("{file}: row {row}: {reason}"));
        }
        Ok(())
    }

    /// How many rows were skipped.
    pub fn skipped(&self) -> u64 {
        self.seen.skipped.load(Ordering::Relaxed)
    }

    /// Messages about the first few skipped rows.
    pub fn examples(&self) -> Vec<String> {
        self.seen.examples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The bad rows of a chunk that is read column by column: the first reason for each.
#[derive(Debug, Default)]
pub(super) struct Faults(BTreeMap<usize, String>);

impl Faults {
    /// Marks a row of the chunk as bad, unless it is already.
    pub(super) fn add(&mut self, row: usize, reason: impl FnOnce() -> String) {
        self.0.entry(row).or_insert_with(reason);
    }

    /// Reports the bad rows in order and takes them out of the columns, which hold `count` rows from `first` on.
    pub(super) fn settle(
        self,
        bad: &BadRows,
        file: &str,
        first: u64,
        count: usize,
        mut columns: Vec<Column>,
    ) -> Result<Chunk> {
        let mut rows: Vec<u64> = (first..first + count as u64).collect();
        if !self.0.is_empty() {
            let mut keep = vec![true; count];
            for (row, reason) in self.0 {
                keep[row] = false;
                bad.report(file, first + row as u64, reason)?;
            }
            let mut flags = keep.iter();
            rows.retain(|_| flags.next().is_some_and(|keep| *keep));
            for column in &mut columns {
                column.retain(&keep);
            }
        }
        Ok(Chunk { rows, columns })
    }
}
