//! Input files of any supported kind as a stream of typed column chunks.
//!
//! A [`Table`] is one opened file: delimited text (`.csv`, `.tsv`, `.txt`, each also with `.gz`), Parquet (`.parquet`) or
//! numpy (`.npy`, `.npz`). The caller says which columns it wants and as what ([`Wanted`]); it gets the same [`Chunk`]s
//! whatever the file is. Memory is bounded by the chunk, never by the file. A row that cannot be used goes to
//! [`BadRows`], which stops or skips it.
//!
//! Rules that hold for all kinds:
//! - A number must fit where it goes: a fraction, a negative number or an overflow in an integer is a bad row, and so is a
//!   finite number that a smaller float would turn into infinity. A float stands for an integer only when whole and at
//!   most 2^53, where floats are exact.
//! - NaN (the text `nan` too) in a signed integer value becomes -1: OGB marks missing labels so. In an id it is a bad row.
//! - A missing value (null, an empty field) is a bad row.

mod bad_rows;
mod cell;
mod column;
mod columns;
mod csv;
mod fetch;
mod npy;
mod npz;
mod number;
mod numpy;
mod parquet;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use graphmill_graph::DType;

pub use bad_rows::{BadRows, OnError};
pub use column::{Column, TextColumn};
pub(crate) use csv::read_small_csv;
pub use fetch::Fetcher;

use crate::{Error, Result};

/// Rows of a chunk, unless they are wide.
const CHUNK_ROWS: usize = 1 << 16;
/// Bytes of a chunk of wide rows.
const CHUNK_BYTES: usize = 16 << 20;

/// An input file that is on this machine.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file as the user wrote it, without credentials; for messages.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// A column of a file, as the user refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnRef {
    /// By name. In an npz file the name of a member, or `member[k]` for row or column `k` of a two-dimensional one.
    Name(String),
    /// By position, from 0.
    Position(usize),
}

/// What a column is wanted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Node ids that are already `0..n`.
    Dense,
    /// Integer keys.
    Int,
    /// String keys; a column of any type is rendered as text.
    Text,
    /// Features, labels, weights, timestamps. Without a type: the file's own (text has none, it is read as `f32`).
    Value(Option<DType>),
}

/// A column to read.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// One column; or, for a value, several scalar columns side by side, or none for all there is: the whole array of an
    /// npy file or a one-member npz file, all columns of a table.
    pub columns: Vec<ColumnRef>,
    /// What it is wanted as.
    pub kind: ColumnType,
}

/// Some consecutive rows of a file, without the bad ones; it may be empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The 0-based row number in the file of every row that is here.
    pub rows: Vec<u64>,
    /// One for each wanted column, all as long as `rows`.
    pub columns: Vec<Column>,
}

/// One opened file.
pub struct Table {
    reader: Reader,
    shapes: Vec<Shape>,
}

enum Reader {
    Csv(csv::CsvReader),
    Parquet(parquet::ParquetReader),
    Numpy(numpy::NumpyReader),
}

impl Table {
    /// Opens a file. `header` says whether delimited text begins with column names; other kinds know theirs.
    pub fn open(source: &Source, header: bool, wanted: &[Wanted], bad: &BadRows) -> Result<Self> {
        for column in wanted {
            if column.columns.len() != 1 && !matches!(column.kind, ColumnType::Value(_)) {
                return Err(Error::input(&source.name, "an id is read from exactly one column"));
            }
        }
        let (reader, shapes) = match Kind::of(source)? {
            Kind::Delimited { delimiter, gzip } => {
                let (reader, shapes) = csv::CsvReader::open(source, delimiter, gzip, header, wanted, bad)?;
                (Reader::Csv(reader), shapes)
            }
            Kind::Parquet => {
                let (reader, shapes) = parquet::ParquetReader::open(source, wanted, bad)?;
                (Reader::Parquet(reader), shapes)
            }
            Kind::Npy => {
                let (reader, shapes) = numpy::NumpyReader::open(source, &numpy::Arrays::npy(source), wanted, bad)?;
                (Reader::Numpy(reader), shapes)
            }
            Kind::Npz => {
                let (reader, shapes) = numpy::NumpyReader::open(source, &numpy::Arrays::npz(source)?, wanted, bad)?;
                (Reader::Numpy(reader), shapes)
            }
        };
        Ok(Self { reader, shapes })
    }

    /// The next rows, or `None` after the last.
    #[expect(clippy::should_implement_trait, reason = "it fails; an iterator of results would hide when to stop")]
    pub fn next(&mut self) -> Result<Option<Chunk>> {
        match &mut self.reader {
            Reader::Csv(reader) => reader.next(),
            Reader::Parquet(reader) => reader.next(),
            Reader::Numpy(reader) => reader.next(),
        }
    }

    /// How many rows the file has, bad ones included: delimited text tells after its last row, other kinds at once.
    pub fn rows(&self) -> Option<u64> {
        match &self.reader {
            Reader::Csv(reader) => reader.rows(),
            Reader::Parquet(reader) => Some(reader.rows()),
            Reader::Numpy(reader) => Some(reader.rows()),
        }
    }

    /// The element type and the shape of one row of a wanted value; an id counts as one `i64`.
    pub fn value_shape(&self, wanted: usize) -> (DType, Vec<u64>) {
        let shape = &self.shapes[wanted];
        (shape.dtype, shape.dims.clone())
    }
}

/// The element type and the shape of one row of a wanted column.
#[derive(Debug, Clone)]
struct Shape {
    dtype: DType,
    dims: Vec<u64>,
}

impl Shape {
    fn key() -> Self {
        Self { dtype: DType::I64, dims: Vec::new() }
    }

    fn scalar(dtype: DType) -> Self {
        Self { dtype, dims: Vec::new() }
    }

    /// The shape of `count` scalar columns side by side.
    fn side_by_side(dtype: DType, count: usize) -> Self {
        if count == 1 { Self::scalar(dtype) } else { Self { dtype, dims: vec![count as u64] } }
    }

    /// Elements of a row; saturates, so that a shape nobody can store is caught by the limit on rows.
    fn width(&self) -> usize {
        self.dims.iter().fold(1, |width: usize, dim| width.saturating_mul(usize::try_from(*dim).unwrap_or(usize::MAX)))
    }

    fn row_bytes(&self) -> usize {
        self.width().saturating_mul(self.dtype.size())
    }
}

/// Rows of a chunk whose widest column has `row_bytes`, or an error when a single row exceeds a chunk.
fn chunk_rows(file: &str, row_bytes: usize) -> Result<usize> {
    if row_bytes > CHUNK_BYTES {
        let reason = format!("a row of {row_bytes} bytes is too wide; at most {CHUNK_BYTES} bytes are supported");
        return Err(Error::input(file, reason));
    }
    Ok((CHUNK_BYTES / row_bytes.max(1)).min(CHUNK_ROWS))
}

/// The kind of a file, by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delimited { delimiter: Option<u8>, gzip: bool },
    Parquet,
    Npy,
    Npz,
}

impl Kind {
    fn of(source: &Source) -> Result<Self> {
        let name = source.path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let (stem, gzip) = name.strip_suffix(".gz").map_or((name.as_str(), false), |stem| (stem, true));
        match (stem.rsplit_once('.').map_or("", |(_, extension)| extension), gzip) {
            ("csv", _) => Ok(Self::Delimited { delimiter: Some(b','), gzip }),
            ("tsv", _) => Ok(Self::Delimited { delimiter: Some(b'\t'), gzip }),
            ("txt", _) => Ok(Self::Delimited { delimiter: None, gzip }),
            ("parquet", false) => Ok(Self::Parquet),
            ("npy", false) => Ok(Self::Npy),
            ("npz", false) => Ok(Self::Npz),
            _ => Err(Error::input(
                &source.name,
                "unknown kind of file; supported are .csv .tsv .txt (each also with .gz), .parquet, .npy and .npz",
            )),
        }
    }
}
