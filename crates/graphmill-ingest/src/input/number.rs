//! Numbers on their way from a file's type to the wanted one.

use half::{bf16, f16};

/// The largest whole number up to which every whole number has a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A number as it stands in a file; no file type has one that this cannot hold exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Uint(u64),
    Float(f64),
}

/// Why a number cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Missing,
    NotANumber,
    NotWhole,
    OutOfRange(&'static str),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::Uint(number) => number.fmt(f),
            Self::Float(number) => write!(f, "{number:?}"),
        }
    }
}

impl Number {
    /// Reads a decimal number. Anything beyond plain digits goes through the float parser.
    #[inline]
    pub(super) fn parse(text: &[u8]) -> Result<Self, Fault> {
        let (negative, digits) = match text {
            [b'-', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        // Nineteen digits fit u64, whatever they are.
        if digits.is_empty() || digits.len() > 19 {
            return Self::parse_unusual(text);
        }
        let mut number = 0_u64;
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return Self::parse_unusual(text);
            }
            number = number * 10 + u64::from(digit);
        }
        if !negative {
            Ok(Self::Uint(number))
        } else if number <= i64::MIN.unsigned_abs() {
            Ok(Self::Int(0_i64.wrapping_sub_unsigned(number)))
        } else {
            Ok(Self::Float(-(number as f64)))
        }
    }

    #[cold]
    fn parse_unusual(text: &[u8]) -> Result<Self, Fault> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(Fault::Missing);
        }
        let text = std::str::from_utf8(text).map_err(|_| Fault::NotANumber)?;
        text.parse()
            .map(Self::Int)
            .or_else(|_| text.parse().map(Self::Uint))
            .or_else(|_| text.parse().map(Self::Float))
            .map_err(|_| Fault::NotANumber)
    }

    fn is_nan(self) -> bool {
        matches!(self, Self::Float(number) if number.is_nan())
    }
}

/// A type that numbers are converted to.
pub(super) trait Element: Copy + Default {
    /// Bytes in a file.
    const SIZE: usize;
    /// What NaN becomes in a value of this type, if anything.
    const NAN: Option<Self>;

    /// The number as this type, if it fits.
    fn from_number(number: Number) -> Result<Self, Fault>;

    /// Writes it in little-endian order.
    fn write(self, out: &mut [u8]);

    /// As [`Self::from_number`], but NaN stands for a missing label.
    #[inline]
    fn value(number: Number) -> Result<Self, Fault> {
        match Self::NAN {
            Some(nan) if number.is_nan() => Ok(nan),
            _ => Self::from_number(number),
        }
    }
}

macro_rules! integer {
    ($type:ty, $nan:expr, $range:literal) => {
        impl Element for $type {
            const SIZE: usize = size_of::<Self>();
            const NAN: Option<Self> = $nan;

            #[inline]
            fn from_number(number: Number) -> Result<Self, Fault> {
                let out_of_range = Fault::OutOfRange($range);
                match number {
                    Number::Int(number) => Self::try_from(number).map_err(|_| out_of_range),
                    Number::Uint(number) => Self::try_from(number).map_err(|_| out_of_range),
                    Number::Float(number) if number.abs() > EXACT => Err(out_of_range),
                    Number::Float(number) if number.fract() == 0.0 => {
                        Self::try_from(number as i64).map_err(|_| out_of_range)
                    }
                    Number::Float(_) => Err(Fault::NotWhole),
                }
            }

            #[inline]
            fn write(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

integer!(u64, None, "a dense id");
integer!(i64, Some(-1), "i64");
integer!(i32, Some(-1), "i32");
integer!(i8, Some(-1), "i8");
integer!(u8, None, "u8");

macro_rules! float {
    ($type:ty, $from_f64:expr, $range:literal) => {
        impl Element for $type {
            const SIZE: usize = size_of::<Self>();
            const NAN: Option<Self> = Some(Self::NAN);

            #[inline]
            fn from_number(number: Number) -> Result<Self, Fault> {
                let wide = match number {
                    Number::Int(number) => number as f64,
                    Number::Uint(number) => number as f64,
                    Number::Float(number) => number,
                };
                let narrow: Self = $from_f64(wide);
                if narrow.is_infinite() && wide.is_finite() { Err(Fault::OutOfRange($range)) } else { Ok(narrow) }
            }

            #[inline]
            fn write(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

float!(f16, f16::from_f64, "f16");
float!(bf16, bf16::from_f64, "bf16");
float!(f32, |wide| wide as f32, "f32");
float!(f64, |wide| wide, "f64");
