//! The npy format: a magic, a header that is a Python dictionary, the raw array.
//!
//! The header is read by hand: it is three fixed keys, and a general Python parser is a large surface for hostile input.

use std::io::{self, Read};

use graphmill_graph::DType;
use half::f16;

use super::cell::{Cell, Sink};
use super::number::Number;

/// numpy writes headers of some hundred bytes; only records with very many fields have more.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// What an npy header says about its array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) shape: Vec<u64>,
    pub(super) item: Item,
    /// Bytes before the array.
    pub(super) bytes: u64,
}

/// An element type of numpy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl Header {
    /// Reads the header, leaving the reader at the array. The reason of a failure is for people.
    pub(super) fn read(reader: &mut impl Read) -> Result<Self, String> {
        let mut magic = [0; 8];
        read_exact(reader, &mut magic)?;
        let long = match &magic {
            b"\x93NUMPY\x01\x00" => false,
            b"\x93NUMPY\x02\x00" | b"\x93NUMPY\x03\x00" => true,
            [0x93, b'N', b'U', b'M', b'P', b'Y', major, minor] => {
                return Err(format!("npy version {major}.{minor} is not supported; versions 1 to 3 are"));
            }
            _ => return Err("it is not an npy array: the magic number is missing".to_owned()),
        };
        let mut length = [0; 4];
        read_exact(reader, &mut length[..if long { 4 } else { 2 }])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER_BYTES {
            return Err(format!("its npy header claims {length} bytes; at most {MAX_HEADER_BYTES} are read"));
        }
        let mut text = vec![0; length];
        read_exact(reader, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        let (shape, item) = parse(&text)?;
        Ok(Self { shape, item, bytes: (if long { 12 } else { 10 }) + length as u64 })
    }

    /// Bytes of the array, if that many can exist.
    pub(super) fn array_bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.item.size() as u64, |bytes, dim| bytes.checked_mul(*dim))
    }
}

fn read_exact(reader: &mut impl Read, out: &mut [u8]) -> Result<(), String> {
    reader.read_exact(out).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends within the npy header".to_owned(),
        _ => format!("cannot read the npy header: {error}"),
    })
}

fn parse(text: &str) -> Result<(Vec<u64>, Item), String> {
    let malformed = || "its npy header is malformed".to_owned();
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start()).ok_or_else(malformed);

    let descr = after("'descr':")?;
    let Some(descr) = descr.strip_prefix('\'') else {
        return Err("records are not supported; save each field as an array of its own".to_owned());
    };
    let item = Item::parse(descr.split_once('\'').ok_or_else(malformed)?.0)?;

    let order = after("'fortran_order':")?;
    if order.starts_with("True") {
        return Err("the array is in Fortran order; save it with numpy.ascontiguousarray(x)".to_owned());
    } else if !order.starts_with("False") {
        return Err(malformed());
    }

    let dims = after("'shape':")?.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(malformed)?.0;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let shape: Vec<u64> = dims.map(|dim| dim.parse().map_err(|_| malformed())).collect::<Result<_, _>>()?;
    if shape.is_empty() {
        return Err("it is a single number; an array with rows is needed".to_owned());
    }
    Ok((shape, item))
}

impl Item {
    fn parse(descr: &str) -> Result<Self, String> {
        let (order, name) = descr.split_at_checked(1).unwrap_or(("", descr));
        let item = match name {
            "b1" | "u1" => Self::U8,
            "i1" => Self::I8,
            "i2" => Self::I16,
            "u2" => Self::U16,
            "i4" => Self::I32,
            "u4" => Self::U32,
            "i8" => Self::I64,
            "u8" => Self::U64,
            "f2" => Self::F16,
            "f4" => Self::F32,
            "f8" => Self::F64,
            "O" => return Err("arrays of Python objects are not supported; save numbers".to_owned()),
            _ => {
                return Err(format!("numpy type '{descr}' is not supported; booleans, integers and floats are"));
            }
        };
        if order == ">" && item.size() > 1 {
            return Err(format!("the array is big-endian; save it with x.astype('<{name}')"));
        }
        Ok(item)
    }

    pub(super) fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The dataset type whose elements have the same bytes.
    pub(super) fn same(self) -> Option<DType> {
        match self {
            Self::I8 => Some(DType::I8),
            Self::U8 => Some(DType::U8),
            Self::I32 => Some(DType::I32),
            Self::I64 => Some(DType::I64),
            Self::F16 => Some(DType::F16),
            Self::F32 => Some(DType::F32),
            Self::F64 => Some(DType::F64),
            Self::I16 | Self::U16 | Self::U32 | Self::U64 => None,
        }
    }

    /// The dataset type that comes nearest.
    pub(super) fn nearest(self) -> DType {
        self.same().unwrap_or(match self {
            Self::I16 | Self::U16 => DType::I32,
            _ => DType::I64,
        })
    }

    /// Hands the elements in `bytes` to the sink.
    pub(super) fn feed(self, bytes: &[u8], sink: Sink<'_>) {
        match self {
            Self::I8 => sink.accept(bytes.iter().map(|byte| Cell::Number(Number::Int(i64::from(*byte as i8))))),
            Self::U8 => sink.accept(bytes.iter().map(|byte| Cell::Number(Number::Uint(u64::from(*byte))))),
            Self::I16 => feed(bytes, sink, |item| Number::Int(i16::from_le_bytes(item).into())),
            Self::U16 => feed(bytes, sink, |item| Number::Uint(u16::from_le_bytes(item).into())),
            Self::I32 => feed(bytes, sink, |item| Number::Int(i32::from_le_bytes(item).into())),
            Self::U32 => feed(bytes, sink, |item| Number::Uint(u32::from_le_bytes(item).into())),
            Self::I64 => feed(bytes, sink, |item| Number::Int(i64::from_le_bytes(item))),
            Self::U64 => feed(bytes, sink, |item| Number::Uint(u64::from_le_bytes(item))),
            Self::F16 => feed(bytes, sink, |item| Number::Float(f16::from_le_bytes(item).into())),
            Self::F32 => feed(bytes, sink, |item| Number::Float(f32::from_le_bytes(item).into())),
            Self::F64 => feed(bytes, sink, |item| Number::Float(f64::from_le_bytes(item))),
        }
    }
}

fn feed<const SIZE: usize>(bytes: &[u8], sink: Sink<'_>, number: impl Fn([u8; SIZE]) -> Number) {
    sink.accept(bytes.as_chunks::<SIZE>().0.iter().map(|item| Cell::Number(number(*item))));
}
