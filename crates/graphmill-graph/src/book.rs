//! Partition books: which partition owns an id, and in which row it stands there.
//!
//! A range book is two numbers a partition. Any other assignment is one or two bytes per id (its owner) plus a small
//! table of ranks per block of ids: the row of an id is the rank of its block plus a count over the block's bytes, which
//! the compiler turns into a few vector instructions. A book in RAM is spread out: four bytes
//! for every id say its row.

use std::path::PathBuf;

use crate::array::Array;
use crate::region::Region;
use crate::{BookInfo, DatasetWriter, Error, IdArray, IdSlice, IdWidth, Place, Result};

/// Where an id lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The partition that owns it.
    pub partition: u32,
    /// Its row there.
    pub row: usize,
}

/// A partition book of one node or edge type.
#[derive(Debug, Clone)]
pub struct Book(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Range(Vec<u64>),
    Assigned(Assigned),
}

#[derive(Debug, Clone)]
struct Assigned {
    owner: Owners,
    rank: IdArray,
    shape: Shape,
    /// Where the owners are stored, for messages.
    path: PathBuf,
    /// The row of every id, if the book is spread out.
    rows: Option<Array<u32>>,
}

#[derive(Debug, Clone)]
enum Owners {
    U8(Array<u8>),
    U16(Array<u16>),
}

/// The sizes of an assigned book's arrays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) wide: bool,
    pub(crate) rank: IdWidth,
    count: u64,
    parts: u32,
    block: u64,
}

impl Shape {
    pub(crate) fn new(count: u64, parts: u32) -> Self {
        let block = (4 * u64::from(parts)).next_power_of_two().max(256);
        Self { wide: parts > 256, rank: IdWidth::for_count(count), count, parts, block }
    }

    pub(crate) fn owner_bytes(self) -> u64 {
        if self.wide { 2 } else { 1 }
    }

    /// Entries of the rank table.
    pub(crate) fn ranks(self) -> u64 {
        self.count.div_ceil(self.block).saturating_mul(u64::from(self.parts))
    }
}

impl Book {
    pub(crate) fn range(bounds: Vec<u64>) -> Self {
        Self(Kind::Range(bounds))
    }

    pub(crate) fn narrow(owner: Array<u8>, rank: IdArray, shape: Shape, path: PathBuf) -> Self {
        Self(Kind::Assigned(Assigned { owner: Owners::U8(owner), rank, shape, path, rows: None }))
    }

    pub(crate) fn wide(owner: Array<u16>, rank: IdArray, shape: Shape, path: PathBuf) -> Self {
        Self(Kind::Assigned(Assigned { owner: Owners::U16(owner), rank, shape, path, rows: None }))
    }

    /// Notes the row of every id, which makes look-ups faster. A book that is damaged, or too large for it, stays as it is.
    pub(crate) fn spread(&mut self) {
        let Kind::Assigned(assigned) = &mut self.0 else { return };
        if assigned.shape.rank == IdWidth::U32
            && let Owners::U8(owner) = &assigned.owner
        {
            assigned.rows = rows(owner, assigned.shape.parts);
        }
    }

    /// Size of the id space.
    pub fn count(&self) -> u64 {
        match &self.0 {
            Kind::Range(bounds) => bounds.last().copied().unwrap_or(0),
            Kind::Assigned(assigned) => assigned.shape.count,
        }
    }

    /// Number of partitions.
    pub fn parts(&self) -> u32 {
        match &self.0 {
            Kind::Range(bounds) => bounds.len() as u32 - 1,
            Kind::Assigned(assigned) => assigned.shape.parts,
        }
    }

    /// The partition that owns an id; nothing if the id is out of range.
    pub fn owner(&self, id: u64) -> Option<u32> {
        match &self.0 {
            Kind::Range(bounds) => (id < self.count()).then(|| bounds.partition_point(|&bound| bound <= id) as u32 - 1),
            Kind::Assigned(assigned) => match &assigned.owner {
                Owners::U8(owner) => owner.get(id as usize).map(|&owner| u32::from(owner)),
                Owners::U16(owner) => owner.get(id as usize).map(|&owner| u32::from(owner)),
            },
        }
    }

    /// The book as slices, for who looks up many ids.
    pub fn open(&self) -> OpenBook<'_> {
        OpenBook(match &self.0 {
            Kind::Range(bounds) => OpenKind::Range(bounds),
            Kind::Assigned(Assigned { owner: Owners::U8(owner), rows: Some(rows), .. }) => {
                OpenKind::Spread { owner, rows }
            }
            Kind::Assigned(_) => OpenKind::Any(self),
        })
    }

    /// Where an id lives; nothing if the id is out of range.
    ///
    /// # Errors
    /// When the book names a partition that does not exist.
    pub fn locate(&self, id: u64) -> Result<Option<Location>> {
        let Some(partition) = self.owner(id) else { return Ok(None) };
        let row = match &self.0 {
            Kind::Range(bounds) => (id - bounds[partition as usize]) as usize,
            Kind::Assigned(assigned) => assigned.row(id, partition)?,
        };
        Ok(Some(Location { partition, row }))
    }
}

/// A partition book, opened for the time of many look-ups.
#[derive(Debug, Clone, Copy)]
pub struct OpenBook<'a>(OpenKind<'a>);

#[derive(Debug, Clone, Copy)]
enum OpenKind<'a> {
    Range(&'a [u64]),
    Spread { owner: &'a [u8], rows: &'a [u32] },
    Any(&'a Book),
}

impl<'a> OpenBook<'a> {
    /// Size of the id space.
    pub fn count(&self) -> u64 {
        match self.0 {
            OpenKind::Range(bounds) => bounds.last().copied().unwrap_or(0),
            OpenKind::Spread { owner, .. } => owner.len() as u64,
            OpenKind::Any(book) => book.count(),
        }
    }

    /// The partition that owns an id; nothing if the id is out of range.
    #[inline]
    pub fn owner(&self, id: u64) -> Option<u32> {
        match self.0 {
            OpenKind::Spread { owner, .. } => owner.get(id as usize).map(|&owner| u32::from(owner)),
            OpenKind::Range(_) => self.locate(id).map(|location| location.partition),
            OpenKind::Any(book) => book.owner(id),
        }
    }

    /// The partition and the row of every id, where they are listed; for whoever has them loaded before they are looked up.
    pub fn listed(&self) -> Option<(&'a [u8], &'a [u32])> {
        match self.0 {
            OpenKind::Spread { owner, rows } => Some((owner, rows)),
            OpenKind::Range(_) | OpenKind::Any(_) => None,
        }
    }

    /// Where an id lives; nothing where [`Book::locate`] finds nothing or an error, which it can tell.
    #[inline]
    pub fn locate(&self, id: u64) -> Option<Location> {
        match self.0 {
            OpenKind::Range(bounds) => {
                let partition = bounds.partition_point(|&bound| bound <= id).checked_sub(1)?;
                let row = (id - bounds[partition]) as usize;
                (partition + 1 < bounds.len()).then_some(Location { partition: partition as u32, row })
            }
            OpenKind::Spread { owner, rows } => {
                let (owner, row) = (owner.get(id as usize)?, rows.get(id as usize)?);
                Some(Location { partition: u32::from(*owner), row: *row as usize })
            }
            OpenKind::Any(book) => book.locate(id).ok().flatten(),
        }
    }
}

/// The row of every id; none if an owner does not exist or there is no memory for it.
fn rows(owner: &[u8], parts: u32) -> Option<Array<u32>> {
    let mut next = vec![0; parts as usize];
    if owner.iter().any(|&owner| u32::from(owner) >= parts) {
        return None;
    }
    let rows = Region::fill(owner.len() * size_of::<u32>(), |bytes| {
        let rows: &mut [u32] = bytemuck::cast_slice_mut(bytes);
        for (row, &owner) in rows.iter_mut().zip(owner) {
            *row = next[usize::from(owner)];
            next[usize::from(owner)] += 1;
        }
    });
    rows.map(Array::new)
}

impl Assigned {
    fn row(&self, id: u64, partition: u32) -> Result<usize> {
        let Shape { parts, block, .. } = self.shape;
        if partition >= parts {
            return Err(Error::corrupt(&self.path, format!("id {id} belongs to partition {partition} of {parts}")));
        }
        let start = id - id % block;
        let before = self.rank.as_slice().get((id / block) as usize * parts as usize + partition as usize);
        let (start, end) = (start as usize, id as usize);
        let here = match &self.owner {
            Owners::U8(owner) => count_equal(&owner[start..end], partition as u8),
            Owners::U16(owner) => count_equal(&owner[start..end], partition as u16),
        };
        Ok((before.unwrap_or(0) as usize).saturating_add(here))
    }
}

/// Counts in bytes, as many at once as a vector has, in pieces that a byte can count.
fn count_equal<T: Copy + PartialEq>(values: &[T], wanted: T) -> usize {
    let piece = |values: &[T]| values.iter().map(|&value| u8::from(value == wanted)).sum::<u8>();
    values.chunks(128).map(|values| usize::from(piece(values))).sum()
}

/// Makes a book from an assignment of ids to partitions.
#[derive(Debug, Clone)]
pub enum BookBuilder {
    /// Each partition owns a stretch; these are the bounds.
    Range(Vec<u64>),
    /// The owner of each id, and the number of partitions.
    Assigned {
        /// The owner of each id.
        owner: Vec<u16>,
        /// Number of partitions.
        parts: u32,
    },
}

impl BookBuilder {
    /// Number of partitions.
    pub fn parts(&self) -> u32 {
        match self {
            Self::Range(bounds) => bounds.len().saturating_sub(1) as u32,
            Self::Assigned { parts, .. } => *parts,
        }
    }

    /// The partition that owns an id.
    pub fn owner(&self, id: u64) -> u32 {
        match self {
            Self::Range(bounds) => bounds.partition_point(|&bound| bound <= id) as u32 - 1,
            Self::Assigned { owner, .. } => u32::from(owner[id as usize]),
        }
    }

    /// The ids of a partition in ascending order.
    pub fn ids(&self, partition: u32) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Range(bounds) => Box::new(bounds[partition as usize]..bounds[partition as usize + 1]),
            Self::Assigned { owner, .. } => Box::new(
                owner.iter().enumerate().filter(move |&(_, &own)| u32::from(own) == partition).map(|(id, _)| id as u64),
            ),
        }
    }

    /// How many ids each partition owns.
    pub fn rows(&self) -> Vec<u64> {
        match self {
            Self::Range(bounds) => bounds.windows(2).map(|pair| pair[1] - pair[0]).collect(),
            Self::Assigned { owner, parts } => {
                let mut rows = vec![0; *parts as usize];
                for &own in owner {
                    rows[own as usize] += 1;
                }
                rows
            }
        }
    }

    /// Writes the book's arrays and returns what the manifest says of it.
    pub fn write(&self, writer: &DatasetWriter, path: impl Fn(crate::path::BookArray) -> String) -> Result<BookInfo> {
        let (owner, parts) = match self {
            Self::Range(bounds) => return Ok(BookInfo::Range { bounds: bounds.clone() }),
            Self::Assigned { owner, parts } => (owner, *parts),
        };
        let shape = Shape::new(owner.len() as u64, parts);
        let mut owners = writer.array(Place::Book, &path(crate::path::BookArray::Owner(shape.wide)))?;
        let mut ranks = writer.array(Place::Book, &path(crate::path::BookArray::Rank(shape.rank)))?;
        let mut rows = vec![0u64; parts as usize];
        let mut bytes = Vec::new();
        for block in owner.chunks(shape.block as usize) {
            bytes.clear();
            for &rank in &rows {
                shape.rank.push(&mut bytes, rank);
            }
            ranks.write(&bytes)?;
            bytes.clear();
            for &own in block {
                let rank = rows.get_mut(own as usize).ok_or_else(|| {
                    Error::invalid(format!("an id is assigned to partition {own}, there are {parts}"))
                })?;
                *rank += 1;
                if shape.wide {
                    bytes.extend_from_slice(&own.to_le_bytes());
                } else {
                    bytes.push(own as u8);
                }
            }
            owners.write(&bytes)?;
        }
        owners.finish()?;
        ranks.finish()?;
        Ok(BookInfo::Assigned { rows })
    }
}

/// The ids that stand in the rows of a partition, with or without an array of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowIds<'a> {
    Stretch(u64),
    Listed(IdSlice<'a>),
}

impl RowIds<'_> {
    pub(crate) fn get(self, row: usize) -> Option<u64> {
        match self {
            Self::Stretch(start) => Some(start + row as u64),
            Self::Listed(ids) => ids.get(row),
        }
    }
}
