//! Cells of a file, and the sinks that turn a run of them into a column.

use graphmill_graph::DType;
use half::{bf16, f16};

use super::TextColumn;
use super::bad_rows::Faults;
use super::number::{Element, Fault, Number};

/// How much of an offending text a message quotes.
const QUOTED_CHARS: usize = 40;

/// One cell as it stands in a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell<'a> {
    Missing,
    Number(Number),
    Text(&'a [u8]),
}

impl<'a> Cell<'a> {
    /// The cell as an id.
    #[inline]
    pub(super) fn key<T: Element>(self) -> Result<T, Fault> {
        self.number().and_then(T::from_number)
    }

    /// Writes the cell as a value.
    #[inline]
    pub(super) fn write<T: Element>(self, out: &mut [u8]) -> Result<(), Fault> {
        self.number().and_then(T::value).map(|element| element.write(out))
    }

    /// The cell as text; it must be a text that is not empty.
    #[inline]
    pub(super) fn text(self) -> Result<&'a str, TextFault> {
        match self {
            Self::Text(text) if !text.is_empty() => std::str::from_utf8(text).map_err(|_| TextFault::NotUtf8),
            _ => Err(TextFault::Missing),
        }
    }

    /// What is wrong with the cell, for people.
    #[cold]
    pub(super) fn reason(self, column: &str, fault: Fault) -> String {
        let found = match self {
            Self::Missing => String::new(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quote(text),
        };
        match fault {
            Fault::Missing => format!("{column} has no value"),
            Fault::NotANumber => format!("{column}: {found} is not a number"),
            Fault::NotWhole => format!("{column}: {found} is not a whole number"),
            Fault::OutOfRange(target) => format!("{column}: {found} is out of range for {target}"),
        }
    }

    #[inline]
    fn number(self) -> Result<Number, Fault> {
        match self {
            Self::Missing => Err(Fault::Missing),
            Self::Number(number) => Ok(number),
            Self::Text(text) => Number::parse(text),
        }
    }
}

/// Why a text cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextFault {
    Missing,
    NotUtf8,
}

impl TextFault {
    pub(super) fn reason(self, column: &str) -> String {
        match self {
            Self::Missing => format!("{column} has no value"),
            Self::NotUtf8 => format!("{column} is not UTF-8 text"),
        }
    }
}

fn quote(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let start: String = text.chars().take(QUOTED_CHARS).collect();
    if start.len() < text.len() { format!("\"{start}…\"") } else { format!("\"{start}\"") }
}

/// Takes the cells of one column, row after row, and marks the rows it cannot use.
pub(super) struct Sink<'a> {
    pub(super) target: Target<'a>,
    /// The column, for messages.
    pub(super) column: &'a str,
    /// The first row's number in the chunk.
    pub(super) first_row: usize,
    pub(super) faults: &'a mut Faults,
}

/// Where cells go.
pub(super) enum Target<'a> {
    Dense(&'a mut Vec<u64>),
    Int(&'a mut Vec<i64>),
    Text(&'a mut TextColumn),
    Values(Values<'a>),
}

/// Rows of values of which a column fills some elements: `count` from `first` on.
pub(super) struct Values<'a> {
    pub(super) dtype: DType,
    pub(super) rows: &'a mut [u8],
    pub(super) row_bytes: usize,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Sink<'_> {
    pub(super) fn accept<'c>(self, cells: impl Iterator<Item = Cell<'c>>) {
        let Self { target, column, first_row, faults } = self;
        match target {
            Target::Dense(ids) => keys(cells, ids, column, first_row, faults),
            Target::Int(keys_) => keys(cells, keys_, column, first_row, faults),
            Target::Text(texts) => render(cells, texts, column, first_row, faults),
            Target::Values(mut place) => {
                let fill = match place.dtype {
                    DType::F16 => values::<f16, _>,
                    DType::BF16 => values::<bf16, _>,
                    DType::F32 => values::<f32, _>,
                    DType::F64 => values::<f64, _>,
                    DType::I8 => values::<i8, _>,
                    DType::U8 => values::<u8, _>,
                    DType::I32 => values::<i32, _>,
                    DType::I64 => values::<i64, _>,
                };
                fill(cells, &mut place, column, first_row, faults);
            }
        }
    }
}

fn keys<'c, T: Element>(
    cells: impl Iterator<Item = Cell<'c>>,
    out: &mut Vec<T>,
    column: &str,
    first_row: usize,
    faults: &mut Faults,
) {
    for (row, cell) in cells.enumerate() {
        out.push(cell.key().unwrap_or_else(|fault| {
            faults.add(first_row + row, || cell.reason(column, fault));
            T::default()
        }));
    }
}

fn render<'c>(
    cells: impl Iterator<Item = Cell<'c>>,
    out: &mut TextColumn,
    column: &str,
    first_row: usize,
    faults: &mut Faults,
) {
    for (row, cell) in cells.enumerate() {
        match cell {
            Cell::Number(number) => out.push(&number.to_string()),
            cell => out.push(cell.text().unwrap_or_else(|fault| {
                faults.add(first_row + row, || fault.reason(column));
                ""
            })),
        }
    }
}

fn values<'c, T: Element, I: Iterator<Item = Cell<'c>>>(
    mut cells: I,
    place: &mut Values<'_>,
    column: &str,
    first_row: usize,
    faults: &mut Faults,
) {
    let own = place.first * T::SIZE..(place.first + place.count) * T::SIZE;
    for (row, bytes) in place.rows.chunks_exact_mut(place.row_bytes.max(1)).enumerate() {
        for (element, cell) in bytes[own.clone()].chunks_exact_mut(T::SIZE).zip(&mut cells) {
            if let Err(fault) = cell.write::<T>(element) {
                faults.add(first_row + row, || cell.reason(column, fault));
            }
        }
    }
}
