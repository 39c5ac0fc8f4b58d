//! Files that the tests write, and columns that they expect.

mod csv;
mod damage;
mod fetch;
mod numpy;
mod parquet;
mod same;

use std::fs;
use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use graphmill_graph::DType;
use tempfile::TempDir;

use super::{BadRows, Chunk, Column, ColumnRef, ColumnType, OnError, Shape, Source, Table, Wanted};
use crate::Result;

/// A directory to write input files to.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Source {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        Source { name: name.to_owned(), path }
    }

    fn write_parquet(&self, name: &str, columns: Vec<(&str, ArrayRef)>) -> Source {
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)));
        let batch = batch.unwrap();
        let mut bytes = Vec::new();
        let mut writer = ::parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        self.write(name, bytes)
    }

    fn write_npz(&self, name: &str, deflated: bool, members: &[(&str, Vec<u8>)]) -> Source {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let method = if deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        for (member, bytes) in members {
            archive.start_file(format!("{member}.npy"), options).unwrap();
            archive.write_all(bytes).unwrap();
        }
        self.write(name, archive.finish().unwrap().into_inner())
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An npy file of a type and a shape, such as `(3, 2)`.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    npy_with_header(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), bytes)
}

fn npy_with_header(header: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{header:<117}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&u16::try_from(header.len()).unwrap().to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(bytes);
    file
}

fn i64_bytes(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn f32_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn array<T: arrow_array::Array + 'static>(array: T) -> ArrayRef {
    Arc::new(array)
}

fn name(name: &str) -> ColumnRef {
    ColumnRef::Name(name.to_owned())
}

fn at(position: usize) -> ColumnRef {
    ColumnRef::Position(position)
}

fn want(column: ColumnRef, kind: ColumnType) -> Wanted {
    Wanted { columns: vec![column], kind }
}

fn whole(dtype: Option<DType>) -> Wanted {
    Wanted { columns: Vec::new(), kind: ColumnType::Value(dtype) }
}

/// All rows of a file as one chunk.
fn read_with(source: &Source, header: bool, wanted: &[Wanted], bad: &BadRows) -> Result<Chunk> {
    let mut table = Table::open(source, header, wanted, bad)?;
    let mut all = Chunk {
        rows: Vec::new(),
        columns: wanted.iter().map(|column| Column::with_capacity(column.kind, &Shape::key(), 0)).collect(),
    };
    while let Some(chunk) = table.next()? {
        all.rows.extend(chunk.rows);
        for (all, more) in all.columns.iter_mut().zip(chunk.columns) {
            match (all, more) {
                (Column::Dense(all), Column::Dense(more)) => all.extend(more),
                (Column::Int(all), Column::Int(more)) => all.extend(more),
                (Column::Text(all), Column::Text(more)) => more.iter().for_each(|text| all.push(text)),
                (Column::Rows(all), Column::Rows(more)) => all.extend(more),
                (all, more) => panic!("a chunk has {more:?} after {all:?}"),
            }
        }
    }
    Ok(all)
}

/// All columns of a file with a header that has no bad row.
fn read(source: &Source, wanted: &[Wanted]) -> Result<Vec<Column>> {
    Ok(read_with(source, true, wanted, &BadRows::new(OnError::Stop))?.columns)
}

/// What stops the reading of a file with a header.
fn failure(source: &Source, wanted: &[Wanted]) -> String {
    read(source, wanted).unwrap_err().to_string()
}

/// The first column, the kept rows and the messages when bad rows are skipped.
fn skipping(source: &Source, wanted: &[Wanted]) -> (Vec<Column>, Vec<u64>, Vec<String>) {
    let bad = BadRows::new(OnError::Skip);
    let chunk = read_with(source, true, wanted, &bad).unwrap();
    assert_eq!(bad.skipped().min(5), bad.examples().len() as u64);
    (chunk.columns, chunk.rows, bad.examples())
}

fn texts(texts: &[&str]) -> Column {
    Column::Text(texts.iter().copied().collect())
}

#[test]
fn a_file_of_unknown_kind_is_refused_with_the_known_ones() {
    let folder = Folder::new();
    let source = folder.write("edges.xlsx", "");
    let message = failure(&source, &[]);
    assert!(message.starts_with("edges.xlsx: unknown kind of file; supported are .csv"), "{message}");
}

#[test]
fn an_id_of_two_columns_is_refused() {
    let folder = Folder::new();
    let wanted = Wanted { columns: vec![at(0), at(1)], kind: ColumnType::Int };
    assert!(failure(&folder.write("a.csv", "a,b\n1,2\n"), &[wanted]).contains("exactly one column"));
}
