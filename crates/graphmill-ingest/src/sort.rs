//! Sorting more records than fit in memory: sorted runs on disk, merged at the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use rayon::prelude::*;

use crate::{Error, Result};

/// Runs are merged into one when there are this many, so that open files and merge buffers stay bounded.
const MAX_RUNS: usize = 128;
const BUFFER: usize = 256 << 10;

/// A record of fixed size with an order.
pub(crate) trait Record: Pod + Send + Sync {
    /// What it is sorted by.
    type Key: Ord + Copy + Send;

    /// The key of this record.
    fn key(&self) -> Self::Key;
}

/// Takes records in any order within a bound of memory.
pub(crate) struct Sorter<R> {
    buffer: Vec<R>,
    capacity: usize,
    runs: Vec<File>,
    scratch: PathBuf,
}

impl<R: Record> Sorter<R> {
    /// A sorter that holds at most `memory` bytes of records and spills to unnamed files in `scratch`.
    pub(crate) fn new(memory: u64, scratch: &Path) -> Self {
        let capacity = (memory as usize / size_of::<R>()).max(1024);
        Self { buffer: Vec::new(), capacity, runs: Vec::new(), scratch: scratch.to_owned() }
    }

    /// Takes a record.
    pub(crate) fn push(&mut self, record: R) -> Result<()> {
        if self.buffer.len() == self.capacity {
            self.spill()?;
        }
        if self.buffer.len() == self.buffer.capacity() {
            let room = self.buffer.capacity().max(1024).min(self.capacity - self.buffer.len());
            self.buffer.reserve_exact(room);
        }
        self.buffer.push(record);
        Ok(())
    }

    /// Hands out all records in order.
    pub(crate) fn for_each(mut self, mut take: impl FnMut(&R) -> Result<()>) -> Result<()> {
        self.sort_buffer();
        if self.runs.is_empty() {
            return self.buffer.iter().try_for_each(take);
        }
        self.spill()?;
        merge(&mut self.runs, &self.scratch, &mut take)
    }

    fn sort_buffer(&mut self) {
        self.buffer.par_sort_unstable_by_key(R::key);
    }

    fn spill(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.sort_buffer();
        let mut run = self.new_run()?;
        run.write_all(bytemuck::cast_slice(&self.buffer)).map_err(Error::io("spill to", &self.scratch))?;
        self.buffer.clear();
        self.runs.push(run);
        if self.runs.len() >= MAX_RUNS {
            let mut merged = BufWriter::with_capacity(BUFFER, self.new_run()?);
            merge(&mut self.runs, &self.scratch, &mut |record: &R| {
                merged.write_all(bytemuck::bytes_of(record)).map_err(Error::io("spill to", &self.scratch))
            })?;
            let merged =
                merged.into_inner().map_err(|error| Error::io("spill to", &self.scratch)(error.into_error()))?;
            self.runs = vec![merged];
        }
        Ok(())
    }

    fn new_run(&self) -> Result<File> {
        tempfile::tempfile_in(&self.scratch).map_err(Error::io("create a temporary file in", &self.scratch))
    }
}

fn merge<R: Record>(runs: &mut [File], scratch: &Path, take: &mut dyn FnMut(&R) -> Result<()>) -> Result<()> {
    let mut readers = runs.iter_mut().map(|run| Run::open(run, scratch)).collect::<Result<Vec<Run<'_, R>>>>()?;
    let mut heads = BinaryHeap::with_capacity(readers.len());
    for (index, reader) in readers.iter_mut().enumerate() {
        if let Some(record) = reader.next()? {
            heads.push(Reverse((record.key(), index)));
        }
    }
    while let Some(Reverse((_, index))) = heads.pop() {
        take(&readers[index].head)?;
        if let Some(record) = readers[index].next()? {
            heads.push(Reverse((record.key(), index)));
        }
    }
    Ok(())
}

struct Run<'a, R> {
    file: BufReader<&'a mut File>,
    scratch: &'a Path,
    left: u64,
    head: R,
}

impl<'a, R: Record> Run<'a, R> {
    fn open(file: &'a mut File, scratch: &'a Path) -> Result<Self> {
        let bytes = file.stream_position().map_err(Error::io("read back from", scratch))?;
        file.rewind().map_err(Error::io("read back from", scratch))?;
        let left = bytes / size_of::<R>() as u64;
        Ok(Self { file: BufReader::with_capacity(BUFFER, file), scratch, left, head: R::zeroed() })
    }

    fn next(&mut self) -> Result<Option<&R>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let head = bytemuck::bytes_of_mut(&mut self.head);
        self.file.read_exact(head).map_err(Error::io("read back from", self.scratch))?;
        Ok(Some(&self.head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Record for u64 {
        type Key = Self;

        fn key(&self) -> Self {
            *self
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn any_number_of_runs_comes_back_sorted(count in 0usize..300_000, seed: u64) {
            let scratch = tempfile::tempdir().unwrap();
            // The smallest sorter holds 1024 records: up to 293 runs, so some are merged early.
            let mut sorter = Sorter::<u64>::new(0, scratch.path());
            let mut expected: Vec<u64> =
                (0..count as u64).map(|index| graphmill_graph::random::mix(index ^ seed) >> 40).collect();
            for &record in &expected {
                sorter.push(record).unwrap();
            }
            expected.sort_unstable();
            let mut sorted = Vec::new();
            sorter.for_each(|&record| { sorted.push(record); Ok(()) }).unwrap();
            prop_assert!(sorted == expected);
        }
    }
}
