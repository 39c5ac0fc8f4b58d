//! Delimited text: `.csv` (comma), `.tsv` (tab) and `.txt`, plain or gzipped.
//!
//! Fields may be quoted as RFC 4180 says; lines end in LF or CRLF; empty lines do not count as rows. In a `.txt` file the
//! delimiter is the tab, comma or space that its first line has, tried in this order, and lines that begin with `#` are
//! comments: edge lists are commonly published so. Every row must have as many fields as the header, or as the first row.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use graphmill_graph::DType;
use half::{bf16, f16};

use super::cell::Cell;
use super::columns::Columns;
use super::number::Fault;
use super::{BadRows, Chunk, Column, ColumnRef, ColumnType, Kind, Shape, Source, Wanted, chunk_rows};
use crate::{Error, Result};

const BUFFER_BYTES: usize = 1 << 18;
/// More rows than the description of any dataset has.
const SMALL_ROWS: usize = 1 << 16;

type TextReader = ::csv::Reader<Box<dyn Read + Send>>;

/// Reads a small delimited file without a header as text.
pub(crate) fn read_small_csv(source: &Source) -> Result<Vec<Vec<String>>> {
    let Kind::Delimited { delimiter, gzip } = Kind::of(source)? else {
        return Err(Error::input(&source.name, "expected delimited text"));
    };
    let mut reader = open_text(source, delimiter, gzip)?;
    let mut record = ::csv::ByteRecord::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    while read(&mut reader, &mut record, &source.name)? {
        if rows.len() == SMALL_ROWS {
            return Err(Error::input(
                &source.name,
                format!("expected a small table, found more than {SMALL_ROWS} rows"),
            ));
        }
        rows.push(record.iter().map(|field| String::from_utf8_lossy(field.trim_ascii()).into_owned()).collect());
    }
    Ok(rows)
}

/// A stream of rows of a delimited file.
pub(super) struct CsvReader {
    file: String,
    bad: BadRows,
    reader: TextReader,
    record: ::csv::ByteRecord,
    /// Whether `record` holds a row that no chunk has yet.
    pending: bool,
    fields: usize,
    columns: Vec<FieldColumn>,
    chunk_rows: usize,
    next_row: u64,
}

/// A wanted column: the fields it is made of.
struct FieldColumn {
    kind: ColumnType,
    shape: Shape,
    fields: Vec<Field>,
}

struct Field {
    position: usize,
    label: String,
}

impl CsvReader {
    pub(super) fn open(
        source: &Source,
        delimiter: Option<u8>,
        gzip: bool,
        header: bool,
        wanted: &[Wanted],
        bad: &BadRows,
    ) -> Result<(Self, Vec<Shape>)> {
        let file = source.name.clone();
        let mut reader = open_text(source, delimiter, gzip)?;
        let mut record = ::csv::ByteRecord::new();
        let mut pending = read(&mut reader, &mut record, &file)?;
        let table = Columns { count: record.len(), names: header.then(|| names(&record)) };
        if header {
            if !pending {
                return Err(Error::input(&file, "the file is empty; expected a header line with column names"));
            }
            pending = read(&mut reader, &mut record, &file)?;
        }

        if let Some(names) = &table.names {
            refuse_numbered_header(&file, names, wanted)?;
        }
        let columns: Vec<FieldColumn> =
            wanted.iter().map(|column| FieldColumn::new(&file, &table, pending, column)).collect::<Result<_>>()?;
        let shapes: Vec<Shape> = columns.iter().map(|column| column.shape.clone()).collect();
        let widest = shapes.iter().map(Shape::row_bytes).max().unwrap_or(0);
        let chunk_rows = chunk_rows(&file, widest)?;
        let fields = table.count;
        let bad = bad.clone();
        Ok((Self { file, bad, reader, record, pending, fields, columns, chunk_rows, next_row: 0 }, shapes))
    }

    pub(super) fn next(&mut self) -> Result<Option<Chunk>> {
        if !self.pending {
            return Ok(None);
        }
        let mut rows = Vec::with_capacity(self.chunk_rows);
        let room = |column: &FieldColumn| Column::with_capacity(column.kind, &column.shape, self.chunk_rows);
        let mut chunk: Vec<Column> = self.columns.iter().map(room).collect();
        let first = self.next_row;
        while self.pending && self.next_row - first < self.chunk_rows as u64 {
            match self.push_record(&mut chunk) {
                Ok(()) => rows.push(self.next_row),
                // Nearly always a quote that is never closed: skipping the row would skip the rest of the file.
                Err(reason) if self.record.len() != self.fields && self.record.as_slice().contains(&b'\n') => {
                    let row = self.next_row + 1;
                    let reason = format!("row {row}: {reason}; it runs over a line end, is a quote not closed?");
                    return Err(Error::input(&self.file, reason));
                }
                Err(reason) => {
                    for (column, out) in self.columns.iter().zip(&mut chunk) {
                        out.truncate(rows.len(), &column.shape);
                    }
                    self.bad.report(&self.file, self.next_row, reason)?;
                }
            }
            self.next_row += 1;
            self.pending = read(&mut self.reader, &mut self.record, &self.file)?;
        }
        Ok(Some(Chunk { rows, columns: chunk }))
    }

    /// How many rows there are, once the last is read.
    pub(super) fn rows(&self) -> Option<u64> {
        (!self.pending).then_some(self.next_row)
    }

    /// Appends the current record to the columns; some may have it already when another cannot take it.
    #[inline]
    fn push_record(&self, chunk: &mut [Column]) -> std::result::Result<(), String> {
        if self.record.len() != self.fields {
            return Err(format!("it has {} fields, expected {}", self.record.len(), self.fields));
        }
        for (column, out) in self.columns.iter().zip(chunk) {
            match out {
                Column::Dense(ids) => {
                    let field = &column.fields[0];
                    let cell = Cell::Text(&self.record[field.position]);
                    ids.push(cell.key().map_err(|fault| cell.reason(&field.label, fault))?);
                }
                Column::Int(keys) => {
                    let field = &column.fields[0];
                    let cell = Cell::Text(&self.record[field.position]);
                    keys.push(cell.key().map_err(|fault| cell.reason(&field.label, fault))?);
                }
                Column::Text(texts) => {
                    let field = &column.fields[0];
                    let cell = Cell::Text(&self.record[field.position]);
                    texts.push(cell.text().map_err(|fault| fault.reason(&field.label))?);
                }
                Column::Rows(bytes) => {
                    for field in &column.fields {
                        let cell = Cell::Text(&self.record[field.position]);
                        push_value(column.shape.dtype, cell, bytes)
                            .map_err(|fault| cell.reason(&field.label, fault))?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl FieldColumn {
    fn new(file: &str, table: &Columns, has_rows: bool, wanted: &Wanted) -> Result<Self> {
        let kind = wanted.kind;
        // A file without header and rows has no columns to look for, and nothing to read from them.
        let positions = if table.names.is_none() && !has_rows {
            (0..wanted.columns.len()).collect()
        } else {
            table.positions(file, &wanted.columns)?
        };
        let shape = match kind {
            ColumnType::Value(dtype) => Shape::side_by_side(dtype.unwrap_or(DType::F32), positions.len()),
            _ => Shape::key(),
        };
        let fields = positions.into_iter().map(|position| Field { position, label: table.label(position) }).collect();
        Ok(Self { kind, shape, fields })
    }
}

/// A column of ids that is meant by position and has a number for a name: the file has no header, and its first row would
/// be lost.
fn refuse_numbered_header(file: &str, names: &[String], wanted: &[Wanted]) -> Result<()> {
    for column in wanted.iter().filter(|column| matches!(column.kind, ColumnType::Dense | ColumnType::Int)) {
        let [ColumnRef::Position(position)] = column.columns[..] else { continue };
        if let Some(name) = names.get(position).filter(|name| name.parse::<i64>().is_ok()) {
            return Err(Error::input(
                file,
                format!("its first line looks like a row (`{name}`), not like a header; say header = false"),
            ));
        }
    }
    Ok(())
}

fn open_text(source: &Source, delimiter: Option<u8>, gzip: bool) -> Result<TextReader> {
    let raw = File::open(&source.path).map_err(Error::io("open", &source.path))?;
    let mut text: Box<dyn BufRead + Send> = if gzip {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(BufReader::new(raw))))
    } else {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, raw))
    };
    let mut builder = ::csv::ReaderBuilder::new();
    builder.flexible(true).has_headers(false).buffer_capacity(BUFFER_BYTES);
    if let Some(delimiter) = delimiter {
        builder.delimiter(delimiter);
    } else {
        let start = text.fill_buf().map_err(|error| unreadable(&source.name, &error))?;
        builder.delimiter(sniff_delimiter(start)).comment(Some(b'#'));
    }
    Ok(builder.from_reader(Box::new(text)))
}

#[inline]
fn push_value(dtype: DType, cell: Cell<'_>, out: &mut Vec<u8>) -> std::result::Result<(), Fault> {
    let mut element = [0; 8];
    let element = &mut element[..dtype.size()];
    match dtype {
        DType::F16 => cell.write::<f16>(element),
        DType::BF16 => cell.write::<bf16>(element),
        DType::F32 => cell.write::<f32>(element),
        DType::F64 => cell.write::<f64>(element),
        DType::I8 => cell.write::<i8>(element),
        DType::U8 => cell.write::<u8>(element),
        DType::I32 => cell.write::<i32>(element),
        DType::I64 => cell.write::<i64>(element),
    }?;
    out.extend_from_slice(element);
    Ok(())
}

fn read(reader: &mut TextReader, record: &mut ::csv::ByteRecord, file: &str) -> Result<bool> {
    reader.read_byte_record(record).map_err(|error| match error.kind() {
        ::csv::ErrorKind::Io(error) => unreadable(file, error),
        _ => unreadable(file, &error),
    })
}

fn unreadable(file: &str, error: &dyn std::fmt::Display) -> Error {
    Error::input(file, format!("cannot read: {error}; the file may be damaged or cut short"))
}

fn names(record: &::csv::ByteRecord) -> Vec<String> {
    record.iter().map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned()).collect()
}

fn sniff_delimiter(start: &[u8]) -> u8 {
    let line =
        start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty() && line[0] != b'#');
    let line = line.unwrap_or_default();
    [b'\t', b',', b' '].into_iter().find(|delimiter| line.contains(delimiter)).unwrap_or(b',')
}
