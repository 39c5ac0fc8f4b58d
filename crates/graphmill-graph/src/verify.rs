//! Reading all of a dataset to prove that it is what was written.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::book::RowIds;
use crate::checksum::Checksummer;
use crate::fingerprint::sum_edges;
use crate::manifest::StoredArray;
use crate::region::{self, open_exact};
use crate::{
    Adjacency, Book, BookInfo, Dataset, EdgeTypeInfo, Error, IdSlice, Location, Manifest, NodeStore, OpenOptions,
    Originals, Partition, Result, alias, path, weights,
};

/// What a verification read.
#[derive(Debug)]
pub struct Verified {
    /// Arrays read.
    pub arrays: usize,
    /// Bytes read.
    pub bytes: u64,
    /// What is wrong; nothing for a sound dataset.
    pub problems: Vec<Error>,
}

impl Dataset {
    /// Checks every checksum, then the structure of every array, then the fingerprint. `on_bytes` is told of the bytes
    /// read as they are read.
    ///
    /// # Errors
    /// When the manifest itself cannot be read; damage to arrays is in [`Verified::problems`].
    pub fn verify(path: &Path, on_bytes: impl Fn(u64) + Sync) -> Result<Verified> {
        let manifest = Manifest::read(path)?;
        let arrays = stored_arrays(path, &manifest);
        let bytes = arrays.iter().map(|(_, stored)| stored.bytes).sum();
        let mut problems: Vec<Error> =
            arrays.par_iter().filter_map(|(path, stored)| check_array(path, *stored, &on_bytes).err()).collect();
        if problems.is_empty() {
            let checked = Self::from_manifest(path, manifest, &OpenOptions::default())
                .and_then(|dataset| dataset.check_structure().and_then(|()| dataset.check_fingerprint()));
            problems.extend(checked.err());
        }
        Ok(Verified { arrays: arrays.len(), bytes, problems })
    }

    fn check_fingerprint(&self) -> Result<()> {
        let (expected, found) = (self.fingerprint(), self.compute_fingerprint()?);
        if expected == found {
            return Ok(());
        }
        Err(Error::Fingerprint { path: self.path().to_owned(), expected, found })
    }

    fn check_structure(&self) -> Result<()> {
        for (number, partition) in self.partitions() {
            let folder = self.path().join(path::part(number));
            for (place, info) in self.node_types().iter().enumerate() {
                let damaged = |reason: String| Error::corrupt(&folder, format!("node type `{}`: {reason}", info.name));
                let nodes = partition.nodes(place);
                check_row_ids(self.node_book(place), nodes.row_ids(), nodes.rows(), number).map_err(damaged)?;
                check_splits(self.node_book(place), nodes, number).map_err(damaged)?;
                check_originals(nodes).map_err(damaged)?;
                check_weights(nodes.weights()).map_err(damaged)?;
            }
            for (place, info) in self.edge_types().iter().enumerate() {
                let damaged = |reason: String| Error::corrupt(&folder, format!("edge type `{}`: {reason}", info.name));
                if let (Some(book), Some(described)) = (self.edge_book(place), &info.book) {
                    let rows = described.rows(number) as usize;
                    check_row_ids(book, partition.edges(place).row_ids(), rows, number).map_err(damaged)?;
                }
                self.check_lists(info, place, partition)?;
            }
        }
        (0..self.node_types().len()).try_for_each(|place| self.check_node_table(place))?;
        self.edge_types().iter().enumerate().try_for_each(|(place, info)| self.check_edges(place, info))
    }

    /// Checks the table that nodes are drawn from: at each id it grows by the node's integer weight.
    fn check_node_table(&self, place: usize) -> Result<()> {
        let Some(sums) = self.node_cumulative(place) else { return Ok(()) };
        let info = &self.node_types()[place];
        let stores = || self.partitions().map(|(_, partition)| partition.nodes(place));
        let all = stores().flat_map(|nodes| nodes.weights().unwrap_or_default());
        let scale = weights::Scale::new(info.count, all.copied().fold(0.0, f32::max));
        let sum_at = |id: Option<u64>| id.map_or(Some(0), |id| sums.get(id as usize).copied());
        for nodes in stores() {
            let (ids, weights) = (nodes.row_ids(), nodes.weights().unwrap_or_default());
            let fits = |row: usize| {
                let id = ids.get(row)?;
                let (before, after) = (sum_at(id.checked_sub(1))?, sum_at(Some(id))?);
                Some(after.wrapping_sub(before) == scale.integer(weights[row]))
            };
            let wrong =
                (0..weights.len()).into_par_iter().with_min_len(1 << 14).find_first(|&row| fits(row) != Some(true));
            if let Some(row) = wrong {
                let table = self.path().join("book").join(path::node_cumulative(&info.name));
                let id = ids.get(row).unwrap_or(u64::MAX);
                return Err(Error::corrupt(table, format!("at node {id} it does not grow by the node's weight")));
            }
        }
        Ok(())
    }

    fn check_lists(&self, info: &EdgeTypeInfo, place: usize, partition: &Partition) -> Result<()> {
        for &direction in &info.layouts {
            let Some(lists) = partition.edges(place).lists(direction) else { continue };
            let neighbors = self.node_types()[self.manifest().node_type(info.name.neighbor(direction))?].count;
            check_adjacency(lists, neighbors, info.id_count)?;
        }
        Ok(())
    }

    /// Checks what only all partitions together can show: both layouts hold the same edges, and the cut is right.
    fn check_edges(&self, place: usize, info: &EdgeTypeInfo) -> Result<()> {
        let mut sums = Vec::new();
        for &direction in &info.layouts {
            let owner = self.manifest().node_type(info.name.list_owner(direction))?;
            let mut sum = 0u128;
            for (_, partition) in self.partitions() {
                if let Some(lists) = partition.edges(place).lists(direction) {
                    sum = sum.wrapping_add(sum_edges(lists, partition.nodes(owner).row_ids(), direction)?);
                }
            }
            sums.push(sum);
        }
        if sums.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(Error::corrupt(
                self.path(),
                format!("edge type `{}`: its `in` and `out` lists hold different edges", info.name),
            ));
        }
        let cut = self.count_cut(place)?;
        if cut != info.cut {
            return Err(Error::corrupt(
                self.path(),
                format!("edge type `{}`: expected {} cut edges, found {cut}", info.name, info.cut),
            ));
        }
        Ok(())
    }

    /// Counts the edges of a type whose neighbour belongs to another partition than their list.
    pub fn count_cut(&self, edge_type: usize) -> Result<u64> {
        let info = &self.edge_types()[edge_type];
        let direction = info.primary();
        let book = self.node_book(self.manifest().node_type(info.name.neighbor(direction))?);
        if self.parts() == 1 {
            return Ok(0);
        }
        let count = |(number, partition): (u32, &Partition)| {
            let Some(lists) = partition.edges(edge_type).lists(direction) else { return 0 };
            let neighbors = lists.neighbors().as_slice();
            let foreign = |place: &usize| neighbors.get(*place).and_then(|id| book.owner(id)) != Some(number);
            (0..neighbors.len()).into_par_iter().with_min_len(1 << 14).filter(foreign).count() as u64
        };
        Ok(self.partitions().map(count).sum())
    }
}

fn stored_arrays(dataset: &Path, manifest: &Manifest) -> Vec<(PathBuf, StoredArray)> {
    let books = manifest.book_arrays.iter().map(|(name, stored)| (dataset.join("book").join(name), *stored));
    let parts = (0..).zip(&manifest.partitions).flat_map(|(number, partition)| {
        let folder = dataset.join(path::part(number));
        partition.arrays.iter().map(move |(name, stored)| (folder.join(name), *stored))
    });
    books.chain(parts).collect()
}

/// Reads rather than maps: a disk that cannot be read is an error that names the file, not a signal.
fn check_array(path: &Path, stored: StoredArray, on_bytes: &impl Fn(u64)) -> Result<()> {
    let mut file = open_exact(path, stored.bytes)?;
    let mut checksum = Checksummer::default();
    let mut buffer = vec![0; stored.bytes.clamp(1, 1 << 20) as usize];
    loop {
        let read = file.read(&mut buffer).map_err(Error::io("read", path))?;
        if read == 0 {
            return region::check(path, stored.xxh3, checksum.value());
        }
        checksum.update(&buffer[..read]);
        on_bytes(read as u64);
    }
}

fn check_row_ids(book: &Book, ids: RowIds<'_>, rows: usize, partition: u32) -> std::result::Result<(), String> {
    if let RowIds::Listed(listed) = ids {
        if listed.len() != rows {
            return Err(format!("expected {rows} ids, found {}", listed.len()));
        }
        for row in 0..rows {
            let id = listed.get(row).unwrap_or(u64::MAX);
            let found = book.locate(id).map_err(|error| error.to_string())?;
            if found != Some(Location { partition, row }) {
                return Err(format!("row {row} of partition {partition} holds id {id}, the book says {found:?}"));
            }
        }
    }
    Ok(())
}

fn check_splits(book: &Book, nodes: &NodeStore, partition: u32) -> std::result::Result<(), String> {
    for split in crate::Split::ALL {
        let Some(ids) = nodes.split(split) else { continue };
        let ids = ids.as_slice();
        if !ids.iter().is_sorted_by(|a, b| a < b) {
            return Err(format!("split {split} is not in ascending order"));
        }
        if let Some(id) = ids.iter().find(|&id| book.owner(id) != Some(partition)) {
            return Err(format!("split {split} holds node {id}, which partition {partition} does not own"));
        }
    }
    Ok(())
}

fn check_originals(nodes: &NodeStore) -> std::result::Result<(), String> {
    let Some(originals) = nodes.originals() else { return Ok(()) };
    if let Originals::Strings(strings) = originals {
        let (first, last) = (strings.offsets.first(), strings.offsets.last());
        if first != Some(&0) || last != Some(&(strings.text.len() as u64)) {
            return Err(format!("the original ids go from {first:?} to {last:?} of {} bytes", strings.text.len()));
        }
    }
    let get = |row| originals.get(row).map_err(|error| error.to_string());
    for row in 1..originals.len() {
        if get(row - 1)? >= get(row)? {
            return Err(format!("the original ids of rows {} and {row} are not ascending", row - 1));
        }
    }
    Ok(())
}

fn check_adjacency(lists: &Adjacency, neighbor_count: u64, id_count: u64) -> Result<()> {
    let indptr = lists.indptr().as_slice();
    let damaged = |reason: String| Error::corrupt(&lists.path, reason);
    if indptr.get(0) != Some(0) || indptr.get(lists.rows()) != Some(lists.edges() as u64) {
        return Err(damaged(format!("expected lists from 0 to {} edges", lists.edges())));
    }
    let in_range = |ids: IdSlice<'_>, count| ids.iter().all(|id| id < count);
    if !in_range(lists.neighbors().as_slice(), neighbor_count) {
        return Err(damaged(format!("expected neighbours below {neighbor_count}")));
    }
    if lists.edge_ids().is_some_and(|ids| !in_range(ids.as_slice(), id_count)) {
        return Err(damaged(format!("expected edge ids below {id_count}")));
    }
    check_weights(lists.weights()).map_err(damaged)?;
    let neighbors = lists.neighbors().as_slice();
    let edge_ids = lists.edge_ids().map(|ids| ids.as_slice());
    let key = |place: usize| {
        let timestamp = lists.timestamps().map_or(0, |timestamps| timestamps[place]);
        (timestamp, neighbors.get(place), edge_ids.and_then(|ids| ids.get(place)))
    };
    (0..lists.rows()).into_par_iter().with_min_len(1024).try_for_each(|row| {
        let list = lists.list(row)?;
        if !list.clone().is_sorted_by_key(key) {
            return Err(damaged(format!("the list of row {row} is not sorted")));
        }
        check_tables(lists, list).map_err(|reason| damaged(format!("{reason} of row {row}")))
    })
}

/// Checks the tables that a list is drawn from.
fn check_tables(lists: &Adjacency, list: Range<usize>) -> std::result::Result<(), &'static str> {
    let (Some(weights), Some(sums), Some(aliases)) = (lists.weights(), lists.cumulative(), lists.alias()) else {
        return Ok(());
    };
    let [sums, aliases] = [sums, aliases].map(|table| table[list.clone()].iter().copied());
    let weights = &weights[list];
    if !weights::running_sums(weights).eq(sums) {
        return Err("expected the running sums of the weights");
    }
    if weights.len() > alias::MAX_LIST || !alias::table(weights).eq(aliases) {
        return Err("expected the alias table of the weights");
    }
    Ok(())
}

fn check_weights(weights: Option<&[f32]>) -> std::result::Result<(), String> {
    if weights.unwrap_or_default().iter().all(|&weight| weights::is_weight(weight)) {
        return Ok(());
    }
    Err("expected weights that are finite and not negative".to_owned())
}

impl BookInfo {
    /// The number of rows in the largest partition over the mean: 1 is perfect balance.
    pub fn balance(&self, parts: u32) -> f64 {
        let rows: Vec<u64> = (0..parts).map(|partition| self.rows(partition)).collect();
        let mean = rows.iter().sum::<u64>() as f64 / f64::from(parts);
        if mean == 0.0 { 1.0 } else { rows.into_iter().max().unwrap_or(0) as f64 / mean }
    }
}
