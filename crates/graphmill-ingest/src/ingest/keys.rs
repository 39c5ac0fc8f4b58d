//! Original ids to dense ones.
//!
//! Dense ids are given in ascending order of the original ids, so they do not depend on the order of input rows and the
//! sorted originals need no index on disk. While edges are mapped, a table of ids finds them by hash if that fits the
//! bound of memory; otherwise each is a binary search in the mapped file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::hash::{BuildHasher, Hash};
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use graphmill_graph::path::{self, NodeArray};
use graphmill_graph::{DatasetWriter, OriginalId, Originals, Place};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};

use crate::{Error, Result};

/// Runs are merged into one when there are this many, so that open files stay bounded.
const MAX_RUNS: usize = 64;

/// A kind of original id that can be spilled to disk.
pub(super) trait Key: Ord + Hash + Eq + Sized {
    /// Roughly what one takes in a set, in bytes.
    fn footprint(&self) -> u64;

    fn write(&self, file: &mut impl Write) -> std::io::Result<()>;

    /// The next one; nothing at the end.
    fn read(file: &mut impl Read) -> std::io::Result<Option<Self>>;
}

impl Key for i64 {
    fn footprint(&self) -> u64 {
        24
    }

    fn write(&self, file: &mut impl Write) -> std::io::Result<()> {
        file.write_all(&self.to_le_bytes())
    }

    fn read(file: &mut impl Read) -> std::io::Result<Option<Self>> {
        let mut bytes = [0; 8];
        Ok(read_or_end(file, &mut bytes)?.then(|| Self::from_le_bytes(bytes)))
    }
}

impl Key for String {
    fn footprint(&self) -> u64 {
        self.len() as u64 + 56
    }

    fn write(&self, file: &mut impl Write) -> std::io::Result<()> {
        file.write_all(&(self.len() as u64).to_le_bytes())?;
        file.write_all(self.as_bytes())
    }

    fn read(file: &mut impl Read) -> std::io::Result<Option<Self>> {
        let mut length = [0; 8];
        if !read_or_end(file, &mut length)? {
            return Ok(None);
        }
        let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
        file.read_exact(&mut bytes)?;
        Self::from_utf8(bytes).map(Some).map_err(std::io::Error::other)
    }
}

/// Fills the buffer, or says that the file ended before it.
fn read_or_end(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    let first = file.read(&mut buffer[..1])?;
    if first == 0 {
        return Ok(false);
    }
    file.read_exact(&mut buffer[1..]).map(|()| true)
}

/// Collects the distinct keys of a node type within a bound of memory.
pub(super) struct KeyCollector<K> {
    keys: HashSet<K>,
    used: u64,
    memory: u64,
    runs: Vec<File>,
    scratch: PathBuf,
}

impl<K: Key> KeyCollector<K> {
    pub(super) fn new(memory: u64, scratch: &Path) -> Self {
        Self { keys: HashSet::new(), used: 0, memory, runs: Vec::new(), scratch: scratch.to_owned() }
    }

    /// Takes a key by reference, and makes one of its own only if it is new.
    pub(super) fn insert<Q>(&mut self, key: &Q) -> Result<()>
    where
        Q: ?Sized + Hash + hashbrown::Equivalent<K> + ToOwned<Owned = K>,
    {
        if self.keys.contains(key) {
            return Ok(());
        }
        let key = key.to_owned();
        self.used += key.footprint();
        self.keys.insert(key);
        if self.used >= self.memory { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        let mut keys: Vec<K> = self.keys.drain().collect();
        keys.sort_unstable();
        let mut run = Run::new(&self.scratch)?;
        keys.iter().try_for_each(|key| run.push(key))?;
        self.runs.push(run.finish()?);
        self.used = 0;
        if self.runs.len() >= MAX_RUNS {
            let mut merged = Run::new(&self.scratch)?;
            merge(std::mem::take(&mut self.runs), &self.scratch, |key: &K| merged.push(key))?;
            self.runs.push(merged.finish()?);
        }
        Ok(())
    }

    /// Hands out the distinct keys in ascending order.
    fn for_each(mut self, take: impl FnMut(&K) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            let mut keys: Vec<K> = self.keys.drain().collect();
            keys.sort_unstable();
            return keys.iter().try_for_each(take);
        }
        self.spill()?;
        merge(self.runs, &self.scratch, take)
    }
}

/// Sorted keys on disk, being written.
struct Run<'a> {
    file: BufWriter<File>,
    scratch: &'a Path,
}

impl<'a> Run<'a> {
    fn new(scratch: &'a Path) -> Result<Self> {
        let file = tempfile::tempfile_in(scratch).map_err(Error::io("create a temporary file in", scratch))?;
        Ok(Self { file: BufWriter::with_capacity(256 << 10, file), scratch })
    }

    fn push(&mut self, key: &impl Key) -> Result<()> {
        key.write(&mut self.file).map_err(Error::io("spill to", self.scratch))
    }

    fn finish(self) -> Result<File> {
        let failed = |error| Error::io("spill to", self.scratch)(error);
        let mut file = self.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.rewind().map_err(failed)?;
        Ok(file)
    }
}

/// Hands out the distinct keys of sorted runs in ascending order.
fn merge<K: Key>(runs: Vec<File>, scratch: &Path, mut take: impl FnMut(&K) -> Result<()>) -> Result<()> {
    let failed = |error| Error::io("read back from", scratch)(error);
    let mut runs: Vec<_> = runs.into_iter().map(|run| BufReader::with_capacity(256 << 10, run)).collect();
    let mut heads = BinaryHeap::new();
    for (index, run) in runs.iter_mut().enumerate() {
        heads.extend(K::read(run).map_err(failed)?.map(|key| Reverse((key, index))));
    }
    let mut last: Option<K> = None;
    while let Some(Reverse((key, index))) = heads.pop() {
        heads.extend(K::read(&mut runs[index]).map_err(failed)?.map(|key| Reverse((key, index))));
        if last.as_ref() != Some(&key) {
            take(&key)?;
            last = Some(key);
        }
    }
    Ok(())
}

/// Writes the collected numbers as the originals of a node type.
pub(super) fn write_ints(keys: KeyCollector<i64>, writer: &DatasetWriter, name: &str) -> Result<Originals> {
    let mut array = writer.array(Place::Part(0), &path::node(name, NodeArray::OriginalInts))?;
    keys.for_each(|key| Ok(array.write(&key.to_le_bytes())?))?;
    Ok(Originals::Ints(array.finish_mapped()?))
}

/// Writes the collected strings as the originals of a node type.
pub(super) fn write_strings(keys: KeyCollector<String>, writer: &DatasetWriter, name: &str) -> Result<Originals> {
    let mut offsets = writer.array(Place::Part(0), &path::node(name, NodeArray::OriginalOffsets))?;
    let mut text = writer.array(Place::Part(0), &path::node(name, NodeArray::OriginalText))?;
    let mut end = 0u64;
    offsets.write(&end.to_le_bytes())?;
    keys.for_each(|key| {
        end += key.len() as u64;
        text.write(key.as_bytes())?;
        Ok(offsets.write(&end.to_le_bytes())?)
    })?;
    Ok(Originals::strings(offsets.finish_mapped()?, text.finish_mapped()?))
}

/// Finds the dense id of an original one.
pub(super) struct KeyIndex {
    originals: Originals,
    /// Ids by the hash of their originals; empty if it would take more memory than allowed.
    table: HashTable<u64>,
    hasher: DefaultHashBuilder,
}

impl KeyIndex {
    pub(super) fn new(originals: Originals, memory: u64) -> Result<Self> {
        let mut index = Self { originals, table: HashTable::new(), hasher: DefaultHashBuilder::default() };
        let count = index.originals.len();
        if (count as u64).saturating_mul(20) <= memory {
            index.table.reserve(count, |_| 0);
            for row in 0..count {
                let Some(key) = index.originals.get(row)? else { continue };
                let hash = hash_of(&index.hasher, key);
                let rehash = |&id: &u64| {
                    let key = index.originals.get(id as usize).ok().flatten();
                    key.map_or(0, |key| hash_of(&index.hasher, key))
                };
                index.table.insert_unique(hash, row as u64, rehash);
            }
        }
        Ok(index)
    }

    pub(super) fn len(&self) -> u64 {
        self.originals.len() as u64
    }

    pub(super) fn originals(&self) -> &Originals {
        &self.originals
    }

    pub(super) fn find(&self, key: OriginalId<'_>) -> Result<Option<u64>> {
        if self.table.is_empty() {
            return Ok(self.originals.find(key)?.map(|row| row as u64));
        }
        let same = |&id: &u64| self.originals.get(id as usize).is_ok_and(|found| found == Some(key));
        Ok(self.table.find(hash_of(&self.hasher, key), same).copied())
    }
}

fn hash_of(hasher: &DefaultHashBuilder, key: OriginalId<'_>) -> u64 {
    match key {
        OriginalId::Int(key) => hasher.hash_one(key),
        OriginalId::String(key) => hasher.hash_one(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spilled_keys_come_back_sorted_and_distinct(keys in prop::collection::vec("[a-c]{0,4}", 0..400)) {
            let scratch = tempfile::tempdir().unwrap();
            let mut collector = KeyCollector::<String>::new(200, scratch.path());
            for key in &keys {
                collector.insert(key.as_str()).unwrap();
            }
            let mut found = Vec::new();
            collector.for_each(|key| { found.push(key.clone()); Ok(()) }).unwrap();
            let expected: Vec<String> = keys.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
