//! Python's bytes-like objects as Rust's slices, without a copy.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The bytes of a Python object, which stays alive and keeps its size as long as this is there.
pub(crate) enum Bytes<'py> {
    /// By far the most frequent.
    Plain(Bound<'py, PyBytes>),
    Buffer(PyUntypedBuffer),
}

impl<'py> Bytes<'py> {
    /// Whatever offers its memory in one piece: `bytes`, `bytearray`, `memoryview`, arrays.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self::Plain(bytes.clone()));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.is_c_contiguous() {
            return Ok(Self::Buffer(buffer));
        }
        Err(PyBufferError::new_err(
            "its memory is not in one piece; copy it first, with `bytes` or `numpy.ascontiguousarray`",
        ))
    }

    /// May be read without the interpreter's lock.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes.as_bytes(),
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is in one piece, has that many bytes, and is neither moved nor freed before it is released,
            // which is when `self` is dropped. Whoever writes into an object that is being stored stores a mixture, as with
            // any system call that is given a Python buffer.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        }
    }
}
