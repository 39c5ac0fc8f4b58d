//! Arrays of npy and npz files as rows.
//!
//! Every column reads its array through a handle of its own, a [`Lane`], so that the two rows of a `[2, E]` edge list
//! stream side by side, and compressed members never have to be inflated as a whole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use graphmill_graph::DType;

use super::bad_rows::Faults;
use super::cell::{Sink, Target, Values};
use super::columns::list;
use super::npy::{Header, Item};
use super::npz::{Archive, Member, MemberReader};
use super::{BadRows, Chunk, Column, ColumnRef, ColumnType, Shape, Source, Wanted, chunk_rows};
use crate::{Error, Result};

/// A stream of rows of one or several arrays.
pub(super) struct NumpyReader {
    file: String,
    bad: BadRows,
    columns: Vec<LaneColumn>,
    chunk_rows: usize,
    rows: u64,
    next_row: u64,
}

/// A wanted column: one lane, or several side by side.
struct LaneColumn {
    kind: ColumnType,
    shape: Shape,
    lanes: Vec<Lane>,
}

impl NumpyReader {
    pub(super) fn open(
        source: &Source,
        arrays: &Arrays,
        wanted: &[Wanted],
        bad: &BadRows,
    ) -> Result<(Self, Vec<Shape>)> {
        let file = source.name.clone();
        let columns: Vec<LaneColumn> = wanted
            .iter()
            .map(|column| LaneColumn::open(arrays, column))
            .collect::<std::result::Result<_, _>>()
            .map_err(|reason| Error::input(&file, reason))?;
        let lanes = || columns.iter().flat_map(|column| &column.lanes);
        let rows = lanes().next().map_or(0, |lane| lane.rows);
        if let Some(other) = lanes().find(|lane| lane.rows != rows) {
            let first = lanes().next().map_or("", |lane| lane.label.as_str());
            let reason = format!("{first} has {rows} rows, but {} has {}", other.label, other.rows);
            return Err(Error::input(&file, reason));
        }
        let shapes: Vec<Shape> = columns.iter().map(|column| column.shape.clone()).collect();
        let widest = lanes().map(|lane| lane.row_bytes).chain(shapes.iter().map(Shape::row_bytes)).max().unwrap_or(0);
        let chunk_rows = chunk_rows(&file, widest)?;
        Ok((Self { file, bad: bad.clone(), columns, chunk_rows, rows, next_row: 0 }, shapes))
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn next(&mut self) -> Result<Option<Chunk>> {
        let count = (self.rows - self.next_row).min(self.chunk_rows as u64) as usize;
        if count == 0 {
            return Ok(None);
        }
        let mut faults = Faults::default();
        let mut chunk = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            let filled = column.fill(count, &mut faults).map_err(|reason| Error::input(&self.file, reason))?;
            chunk.push(filled);
        }
        let first = self.next_row;
        self.next_row += count as u64;
        faults.settle(&self.bad, &self.file, first, count, chunk).map(Some)
    }
}

impl LaneColumn {
    fn open(arrays: &Arrays, wanted: &Wanted) -> std::result::Result<Self, String> {
        let ColumnType::Value(dtype) = wanted.kind else {
            let lane = arrays.lane(wanted.columns.first(), wanted.kind)?;
            lane.require_scalar()?;
            return Ok(Self { kind: wanted.kind, shape: Shape::key(), lanes: vec![lane] });
        };
        if wanted.columns.len() < 2 {
            let lane = arrays.lane(wanted.columns.first(), wanted.kind)?;
            let shape = Shape { dtype: dtype.unwrap_or(lane.item.nearest()), dims: lane.dims.clone() };
            return Ok(Self { kind: wanted.kind, shape, lanes: vec![lane] });
        }
        let mut lanes = Vec::with_capacity(wanted.columns.len());
        for column in &wanted.columns {
            let lane = arrays.lane(Some(column), wanted.kind)?;
            lane.require_scalar()?;
            lanes.push(lane);
        }
        let dtype = dtype.unwrap_or_else(|| common(lanes.iter().map(|lane| lane.item.nearest())));
        let shape = Shape::side_by_side(dtype, lanes.len());
        Ok(Self { kind: wanted.kind, shape, lanes })
    }

    fn fill(&mut self, rows: usize, faults: &mut Faults) -> std::result::Result<Column, String> {
        if let [lane] = self.lanes.as_mut_slice()
            && matches!(self.kind, ColumnType::Value(_))
            && lane.item.same() == Some(self.shape.dtype)
        {
            return lane.read(rows).map(Column::Rows);
        }
        let mut column = Column::for_rows(self.kind, &self.shape, rows);
        let row_bytes = self.shape.row_bytes();
        let mut first = 0;
        for lane in &mut self.lanes {
            let bytes = lane.read(rows)?;
            let target = match &mut column {
                Column::Dense(ids) => Target::Dense(ids),
                Column::Int(keys) => Target::Int(keys),
                Column::Text(texts) => Target::Text(texts),
                Column::Rows(rows) => {
                    Target::Values(Values { dtype: self.shape.dtype, rows, row_bytes, first, count: lane.width() })
                }
            };
            lane.item.feed(&bytes, Sink { target, column: &lane.label, first_row: 0, faults });
            first += lane.width();
        }
        Ok(column)
    }
}

/// The element type that holds all of several.
pub(super) fn common(dtypes: impl Iterator<Item = DType>) -> DType {
    dtypes
        .reduce(|left, right| match (left.is_integer(), right.is_integer()) {
            _ if left == right => left,
            (true, true) => DType::I64,
            _ if left == DType::F64 || right == DType::F64 => DType::F64,
            _ => DType::F32,
        })
        .unwrap_or(DType::F32)
}

/// A stream of consecutive rows of an array, or of one column of it.
struct Lane {
    /// The array or column, for messages.
    label: String,
    data: Data,
    item: Item,
    rows: u64,
    /// Bytes of a row of the array.
    row_bytes: usize,
    /// Where in such a row this lane's bytes are.
    own: std::ops::Range<usize>,
    /// The shape of a row of this lane.
    dims: Vec<u64>,
}

impl Lane {
    /// Elements of a row.
    fn width(&self) -> usize {
        self.own.len() / self.item.size()
    }

    fn require_scalar(&self) -> std::result::Result<(), String> {
        if self.dims.is_empty() {
            return Ok(());
        }
        Err(format!("{} has rows of shape {:?}, expected one number; name one column of it", self.label, self.dims))
    }

    /// Reads the next `rows` rows, which were checked to be few.
    fn read(&mut self, rows: usize) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = vec![0; rows * self.row_bytes];
        self.data.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("{} ends before its {} rows", self.label, self.rows),
            _ => format!("cannot read {}: {error}", self.label),
        })?;
        if self.own.len() < self.row_bytes {
            bytes = bytes.chunks_exact(self.row_bytes).flat_map(|row| &row[self.own.clone()]).copied().collect();
        }
        Ok(bytes)
    }
}

/// The bytes of an array.
enum Data {
    Npy(File),
    Npz(MemberReader),
}

impl Data {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Npy(file) => {
                let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
                file.seek(SeekFrom::Current(bytes)).map(drop)
            }
            Self::Npz(member) => {
                let skipped = io::copy(&mut member.take(bytes), &mut io::sink())?;
                if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
        }
    }
}

impl Read for Data {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Npy(file) => file.read(out),
            Self::Npz(member) => member.read(out),
        }
    }
}

/// The arrays of a file.
pub(super) enum Arrays {
    Npy(Source),
    Npz(Archive),
}

impl Arrays {
    pub(super) fn npy(source: &Source) -> Self {
        Self::Npy(source.clone())
    }

    pub(super) fn npz(source: &Source) -> Result<Self> {
        Archive::open(source).map(Self::Npz)
    }

    /// Opens the array or the column of an array that `column` means; without one, the only array there is.
    fn lane(&self, column: Option<&ColumnRef>, kind: ColumnType) -> std::result::Result<Lane, String> {
        match (self, column) {
            (Self::Npy(_), Some(ColumnRef::Name(name))) => {
                Err(format!("column \"{name}\" is asked for by name, but an npy file has no names; give its position"))
            }
            (Self::Npy(source), Some(ColumnRef::Position(position))) => open_npy(source)?.lane(Some(*position), kind),
            (Self::Npy(source), None) => open_npy(source)?.lane(None, kind),
            (Self::Npz(archive), Some(ColumnRef::Name(name))) => {
                let (member, position) = split_index(name);
                let found = archive.members().iter().find(|other| other.name == member);
                let found = found.ok_or_else(|| format!("there is no array \"{member}\"; {}", members(archive)))?;
                open_member(archive, found)?.lane(position, kind)
            }
            (Self::Npz(archive), position) => {
                let [only] = archive.members() else {
                    return Err(format!("say which array to read; {}", members(archive)));
                };
                let position = match position {
                    Some(ColumnRef::Position(position)) => Some(*position),
                    _ => None,
                };
                open_member(archive, only)?.lane(position, kind)
            }
        }
    }
}

/// Splits `member[k]`.
fn split_index(name: &str) -> (&str, Option<usize>) {
    name.strip_suffix(']')
        .and_then(|name| name.rsplit_once('['))
        .and_then(|(member, index)| Some((member, Some(index.parse().ok()?))))
        .unwrap_or((name, None))
}

fn members(archive: &Archive) -> String {
    let names: Vec<String> = archive.members().iter().map(|member| member.name.clone()).collect();
    if names.is_empty() { "the archive has none".to_owned() } else { format!("the arrays are {}", list(&names)) }
}

/// An array whose header was read.
struct Array {
    label: String,
    header: Header,
    data: Data,
}

fn open_npy(source: &Source) -> std::result::Result<Array, String> {
    let mut file = File::open(&source.path).map_err(|error| format!("cannot open: {error}"))?;
    let bytes = file.metadata().map_err(|error| format!("cannot open: {error}"))?.len();
    let header = Header::read(&mut file)?;
    Array { label: "the array".to_owned(), header, data: Data::Npy(file) }.checked(bytes)
}

fn open_member(archive: &Archive, member: &Member) -> std::result::Result<Array, String> {
    let label = format!("array \"{}\"", member.name);
    let within = |reason| format!("{label}: {reason}");
    let mut data = member.open(archive.path()).map_err(|error| within(error.to_string()))?;
    let header = Header::read(&mut data).map_err(within)?;
    Array { label, header, data: Data::Npz(data) }.checked(member.bytes())
}

impl Array {
    /// Refuses an array that cannot be in a file of `bytes`.
    fn checked(self, bytes: u64) -> std::result::Result<Self, String> {
        let Header { shape, bytes: header, .. } = &self.header;
        let needed = self.header.array_bytes().and_then(|array| array.checked_add(*header));
        if needed.is_some_and(|needed| needed <= bytes) {
            return Ok(self);
        }
        let needed = needed.map_or("more than any file has".to_owned(), |needed| format!("{needed} bytes"));
        Err(format!("{} has shape {shape:?}, which takes {needed}; found {bytes} bytes: it is cut short", self.label))
    }

    /// The whole array, or its column `position`. Of an array of shape `[2, E]` an id's position means a row.
    fn lane(mut self, position: Option<usize>, kind: ColumnType) -> std::result::Result<Lane, String> {
        let shape = std::mem::take(&mut self.header.shape);
        let item = self.header.item;
        let is_id = !matches!(kind, ColumnType::Value(_));
        let no_column = |position| format!("{} has shape {shape:?} and no column {position}", self.label);
        let (rows, row_items, own, dims) = match (shape.as_slice(), position) {
            ([rows], None | Some(0)) => (*rows, 1, 0..1, Vec::new()),
            ([2, edges], Some(position)) if is_id => {
                if position > 1 {
                    return Err(no_column(position));
                }
                let skipped = position as u64 * edges * item.size() as u64;
                self.data.skip(skipped).map_err(|error| format!("cannot read {}: {error}", self.label))?;
                self.label = format!("{} row {position}", self.label);
                (*edges, 1, 0..1, Vec::new())
            }
            ([rows, columns], Some(position)) if (position as u64) < *columns => {
                self.label = format!("{} column {position}", self.label);
                (*rows, *columns, position..position + 1, Vec::new())
            }
            ([rows, dims @ ..], None) => {
                // The product was checked against the file's size, unless there are no rows.
                let row_items = dims.iter().try_fold(1_u64, |items, dim| items.checked_mul(*dim)).unwrap_or(u64::MAX);
                (*rows, row_items, 0..usize::try_from(row_items).unwrap_or(usize::MAX), dims.to_vec())
            }
            (_, Some(position)) => return Err(no_column(position)),
            ([], None) => return Err(format!("{} has no rows", self.label)),
        };
        if row_items == 0 && rows > 0 {
            return Err(format!("{} has shape {shape:?}: its rows are empty", self.label));
        }
        let bytes = |items: usize| items.saturating_mul(item.size());
        let row_bytes = bytes(usize::try_from(row_items).unwrap_or(usize::MAX));
        let own = bytes(own.start)..bytes(own.end);
        Ok(Lane { label: self.label, data: self.data, item, rows, row_bytes, own, dims })
    }
}
