//! Parquet files: row groups streamed, only the wanted columns decoded.
//!
//! Booleans, integers, floats, decimals, dates, times and strings are scalars (a string must then hold a number, as in
//! delimited text). A list column is a value whose rows all have the length of the first one.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field};
use graphmill_graph::DType;

use super::bad_rows::Faults;
use super::cell::{Cell, Sink, Target, Values};
use super::columns::Columns;
use super::number::Number;
use super::numpy::common;
use super::{BadRows, Chunk, Column, ColumnType, Shape, Source, Wanted, chunk_rows};
use crate::{Error, Result};

/// A stream of rows of a Parquet file.
pub(super) struct ParquetReader {
    file: String,
    bad: BadRows,
    batches: ParquetRecordBatchReader,
    columns: Vec<ArrowColumn>,
    rows: u64,
    next_row: u64,
}

/// A wanted column: the file's columns it is made of.
struct ArrowColumn {
    kind: ColumnType,
    shape: Shape,
    parts: Vec<Part>,
}

struct Part {
    /// Where the column is in a decoded batch.
    position: usize,
    label: String,
    /// What its arrays are cast to first.
    cast_to: DataType,
    /// Elements it gives to a row.
    width: usize,
}

impl ParquetReader {
    pub(super) fn open(source: &Source, wanted: &[Wanted], bad: &BadRows) -> Result<(Self, Vec<Shape>)> {
        contain(&source.name, || Self::open_unguarded(source, wanted, bad))
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn next(&mut self) -> Result<Option<Chunk>> {
        let file = self.file.clone();
        contain(&file, || self.next_unguarded())
    }

    fn open_unguarded(source: &Source, wanted: &[Wanted], bad: &BadRows) -> Result<(Self, Vec<Shape>)> {
        let file = source.name.clone();
        let unreadable = |error| Error::input(&file, format!("it is not a readable parquet file: {error}"));
        let builder = open_builder(source)?;
        let schema = builder.schema().clone();
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        let table = Columns { count: schema.fields().len(), names: Some(names) };
        let positions: Vec<Vec<usize>> =
            wanted.iter().map(|column| table.positions(&file, &column.columns)).collect::<Result<_>>()?;
        let mut read: Vec<usize> = positions.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();

        let mut columns = Vec::with_capacity(wanted.len());
        for (wanted, positions) in wanted.iter().zip(&positions) {
            let in_batch = |position| read.binary_search(position).unwrap_or_default();
            let fields: Vec<_> =
                positions.iter().map(|at| (*at, in_batch(at), schema.field(*at), table.label(*at))).collect();
            columns.push(ArrowColumn::new(source, wanted.kind, fields)?);
        }
        let shapes: Vec<Shape> = columns.iter().map(|column| column.shape.clone()).collect();
        let widest = shapes.iter().map(Shape::row_bytes).max().unwrap_or(0);
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let projection = ProjectionMask::roots(builder.parquet_schema(), read);
        let batches = builder
            .with_projection(projection)
            .with_batch_size(chunk_rows(&file, widest)?)
            .build()
            .map_err(unreadable)?;
        Ok((Self { file, bad: bad.clone(), batches, columns, rows, next_row: 0 }, shapes))
    }

    fn next_unguarded(&mut self) -> Result<Option<Chunk>> {
        let unreadable = |error: ArrowError| Error::input(&self.file, format!("cannot decode: {error}"));
        let Some(batch) = self.batches.next().transpose().map_err(unreadable)? else { return Ok(None) };
        let mut faults = Faults::default();
        let mut chunk = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            chunk.push(column.fill(&batch, &mut faults).map_err(unreadable)?);
        }
        let (first, count) = (self.next_row, batch.num_rows());
        self.next_row += count as u64;
        faults.settle(&self.bad, &self.file, first, count, chunk).map(Some)
    }
}

/// Turns a panic into an error: the decoder panics on some damaged files. The reader is not used again after an error.
fn contain<T>(file: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(Error::input(file, "the parquet decoder gave up; the file is damaged")))
}

fn open_builder(source: &Source) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = File::open(&source.path).map_err(Error::io("open", &source.path))?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| Error::input(&source.name, format!("it is not a readable parquet file: {error}")))
}

impl ArrowColumn {
    /// Plans a column from (position in the file, position in a batch, field, label) of each part.
    fn new(source: &Source, kind: ColumnType, fields: Vec<(usize, usize, &Field, String)>) -> Result<Self> {
        let unsupported = |label: &str, found: &DataType, expected: &str| {
            Error::input(&source.name, format!("{label} is of type {found}; expected {expected}"))
        };
        let mut parts = Vec::with_capacity(fields.len());
        let mut dtypes = Vec::with_capacity(fields.len());
        let alone = fields.len() == 1;
        let mut is_list = false;
        for (in_file, position, field, label) in fields {
            let found = field.data_type();
            let (cast_to, dtype, width) = match (kind, list_item(found)) {
                (ColumnType::Value(_), Some(item)) if alone => {
                    let (cast_to, dtype) =
                        scalar(item).ok_or_else(|| unsupported(&label, found, "a list of numbers"))?;
                    is_list = true;
                    let cast_to = DataType::LargeList(Field::new("item", cast_to, true).into());
                    (cast_to, dtype, list_length(source, in_file, found)?)
                }
                (ColumnType::Text, None) if scalar(found).is_some() || is_binary(found) => {
                    (DataType::LargeUtf8, DType::I64, 1)
                }
                (ColumnType::Text, _) => return Err(unsupported(&label, found, "numbers or strings")),
                (_, None) => {
                    let (cast_to, dtype) = scalar(found).ok_or_else(|| unsupported(&label, found, "numbers"))?;
                    (cast_to, dtype, 1)
                }
                (_, Some(_)) => return Err(unsupported(&label, found, "one number in each row")),
            };
            dtypes.push(dtype);
            parts.push(Part { position, label, cast_to, width });
        }
        let shape = match kind {
            ColumnType::Value(dtype) => {
                let dtype = dtype.unwrap_or_else(|| common(dtypes.into_iter()));
                if is_list {
                    Shape { dtype, dims: vec![parts[0].width as u64] }
                } else {
                    Shape::side_by_side(dtype, parts.len())
                }
            }
            _ => Shape::key(),
        };
        Ok(Self { kind, shape, parts })
    }

    fn fill(&self, batch: &RecordBatch, faults: &mut Faults) -> std::result::Result<Column, ArrowError> {
        let mut column = Column::for_rows(self.kind, &self.shape, batch.num_rows());
        let (dtype, row_bytes) = (self.shape.dtype, self.shape.row_bytes());
        let mut first = 0;
        for part in &self.parts {
            let array = cast(batch.column(part.position), &part.cast_to)?;
            let label = part.label.as_str();
            let target = match &mut column {
                Column::Dense(ids) => Target::Dense(ids),
                Column::Int(keys) => Target::Int(keys),
                Column::Text(texts) => Target::Text(texts),
                Column::Rows(rows) if matches!(part.cast_to, DataType::LargeList(_)) => {
                    fill_lists(&array, part, dtype, rows, faults);
                    continue;
                }
                Column::Rows(rows) => Target::Values(Values { dtype, rows, row_bytes, first, count: 1 }),
            };
            feed(&array, Sink { target, column: label, first_row: 0, faults });
            first += 1;
        }
        Ok(column)
    }
}

fn fill_lists(array: &ArrayRef, part: &Part, dtype: DType, rows: &mut [u8], faults: &mut Faults) {
    let lists = array.as_list::<i64>();
    let row_bytes = part.width * dtype.size();
    for row in 0..lists.len() {
        let length = lists.value_length(row) as usize;
        if lists.is_null(row) {
            faults.add(row, || format!("{} has no value", part.label));
        } else if length != part.width {
            faults.add(row, || format!("{} has {length} values, the first row has {}", part.label, part.width));
        } else {
            let rows = &mut rows[row * row_bytes..(row + 1) * row_bytes];
            let target = Target::Values(Values { dtype, rows, row_bytes, first: 0, count: part.width });
            feed(&lists.value(row), Sink { target, column: &part.label, first_row: row, faults });
        }
    }
}

/// Hands the elements of an array that was cast as [`scalar`] says to the sink.
fn feed(array: &ArrayRef, sink: Sink<'_>) {
    match array.data_type() {
        DataType::Int8 => numbers::<Int8Type>(array, sink, |number| Number::Int(number.into())),
        DataType::Int16 => numbers::<Int16Type>(array, sink, |number| Number::Int(number.into())),
        DataType::Int32 => numbers::<Int32Type>(array, sink, |number| Number::Int(number.into())),
        DataType::Int64 => numbers::<Int64Type>(array, sink, Number::Int),
        DataType::UInt8 => numbers::<UInt8Type>(array, sink, |number| Number::Uint(number.into())),
        DataType::UInt16 => numbers::<UInt16Type>(array, sink, |number| Number::Uint(number.into())),
        DataType::UInt32 => numbers::<UInt32Type>(array, sink, |number| Number::Uint(number.into())),
        DataType::UInt64 => numbers::<UInt64Type>(array, sink, Number::Uint),
        DataType::Float16 => numbers::<Float16Type>(array, sink, |number| Number::Float(number.into())),
        DataType::Float32 => numbers::<Float32Type>(array, sink, |number| Number::Float(number.into())),
        DataType::Float64 => numbers::<Float64Type>(array, sink, Number::Float),
        _ => {
            let texts = array.as_string::<i64>();
            sink.accept(texts.iter().map(|text| text.map_or(Cell::Missing, |text| Cell::Text(text.as_bytes()))));
        }
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef, sink: Sink<'_>, number: impl Fn(T::Native) -> Number) {
    let array = array.as_primitive::<T>();
    if array.null_count() == 0 {
        sink.accept(array.values().iter().map(|value| Cell::Number(number(*value))));
    } else {
        sink.accept(array.iter().map(|value| value.map_or(Cell::Missing, |value| Cell::Number(number(value)))));
    }
}

/// What a scalar column is cast to before its numbers are taken, and the element type nearest to it.
fn scalar(found: &DataType) -> Option<(DataType, DType)> {
    Some(match found {
        DataType::Boolean | DataType::UInt8 => (DataType::UInt8, DType::U8),
        DataType::Int8 => (DataType::Int8, DType::I8),
        DataType::Int16 | DataType::UInt16 | DataType::Int32 => (found.clone(), DType::I32),
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => (found.clone(), DType::I64),
        DataType::Float16 => (DataType::Float16, DType::F16),
        DataType::Float32 => (DataType::Float32, DType::F32),
        DataType::Float64 => (DataType::Float64, DType::F64),
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => (DataType::Int64, DType::I64),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => {
            if *scale <= 0 {
                (DataType::Int64, DType::I64)
            } else {
                (DataType::Float64, DType::F64)
            }
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => (DataType::LargeUtf8, DType::F32),
        DataType::Dictionary(_, values) => return scalar(values),
        _ => return None,
    })
}

/// Old writers do not mark their strings as text.
fn is_binary(found: &DataType) -> bool {
    matches!(found, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn list_item(found: &DataType) -> Option<&DataType> {
    match found {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}

/// The length of the lists in a column: of the first one that is not null, unless the schema says it.
fn list_length(source: &Source, position: usize, found: &DataType) -> Result<usize> {
    if let DataType::FixedSizeList(_, length) = found {
        return Ok(usize::try_from(*length).unwrap_or(0));
    }
    let unreadable = |error: &dyn std::fmt::Display| Error::input(&source.name, format!("cannot decode: {error}"));
    let builder = open_builder(source)?;
    let projection = ProjectionMask::roots(builder.parquet_schema(), [position]);
    let batches =
        builder.with_projection(projection).with_batch_size(64).build().map_err(|error| unreadable(&error))?;
    for batch in batches {
        let batch = batch.map_err(|error| unreadable(&error))?;
        let lists = batch.column(0);
        let Some(row) = (0..lists.len()).find(|row| lists.is_valid(*row)) else { continue };
        return Ok(match lists.data_type() {
            DataType::LargeList(_) => lists.as_list::<i64>().value_length(row) as usize,
            _ => lists.as_list::<i32>().value_length(row) as usize,
        });
    }
    Ok(0)
}
