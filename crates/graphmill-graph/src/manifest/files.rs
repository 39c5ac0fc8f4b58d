//! Which files make up a dataset, or the part of it that some partitions need.

use super::Manifest;
use crate::{Error, Result, path};

/// The file of an array: where it lies and what must be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayFile {
    /// Its path below the dataset's directory, with `/` between names. It never leaves the directory: a manifest that
    /// lists any other path than those that follow from its names is refused.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The checksum of all of it.
    pub checksum: u64,
}

impl Manifest {
    /// The files that opening some partitions takes, or all when none are named: the books' first.
    ///
    /// # Errors
    /// When there is no such partition.
    pub fn files(&self, partitions: Option<&[u32]>) -> Result<Vec<ArrayFile>> {
        let books = std::iter::once(("book".to_owned(), &self.book_arrays));
        let wanted = self.wanted(partitions)?;
        let parts = wanted.into_iter().map(|number| (path::part(number), &self.partitions[number as usize].arrays));
        let files = books.chain(parts).flat_map(|(folder, arrays)| {
            arrays.iter().map(move |(path, stored)| ArrayFile {
                path: format!("{folder}/{path}"),
                bytes: stored.bytes,
                checksum: stored.xxh3,
            })
        });
        Ok(files.collect())
    }

    /// The partitions that were named, each once; all of them when none were.
    pub(crate) fn wanted(&self, partitions: Option<&[u32]>) -> Result<Vec<u32>> {
        let Some(named) = partitions else { return Ok((0..self.parts).collect()) };
        if let Some(partition) = named.iter().find(|&&partition| partition >= self.parts) {
            return Err(Error::Unknown {
                kind: "partition",
                name: partition.to_string(),
                available: format!("0 to {}", self.parts - 1),
            });
        }
        let mut wanted = named.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted)
    }
}
