//! Rust memory as numpy arrays and torch tensors, without a copy.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_int;

use graphmill_graph::DType;
use graphmill_sample::room;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use pyo3::{ffi, intern};

use crate::errors::Error;
use crate::owned::Owned;

/// Memory that arrays lie in. It is given back when the last of them is gone.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Memory {
    address: usize,
    len: usize,
    /// Whoever the memory belongs to; it never moves, and nobody else looks at it while this is there.
    _owner: Owned<Box<dyn Any + Send + Sync>>,
}

impl Memory {
    /// Memory of an owner, which has it at the same place for as long as it lives.
    pub(crate) fn of<T: Send + Sync + 'static>(mut owner: T, bytes: impl FnOnce(&mut T) -> &mut [u8]) -> Self {
        let (address, len) = {
            let bytes = bytes(&mut owner);
            (bytes.as_mut_ptr() as usize, bytes.len())
        };
        Self { address, len, _owner: Owned::new(Box::new(owner)) }
    }

    /// Memory of words; the vector's elements stay where they are when it moves.
    pub(crate) fn of_words(words: Vec<i64>) -> Self {
        Self::of(words, |words| bytemuck::cast_slice_mut(words))
    }
}

#[pymethods]
impl Memory {
    /// SAFETY: called by the interpreter with a view to fill, which keeps this object, and so the memory, alive until it is
    /// released. The bytes are writable: they are the batch's own, or a private copy of its pages, and Rust does not look at
    /// them any more (they were borrowed mutably when this was made, and the owner is only dropped).
    #[expect(clippy::needless_pass_by_value, reason = "the shape of a slot")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        let (address, len) = (memory.address as *mut std::ffi::c_void, memory.len.cast_signed());
        // SAFETY: `view` is the interpreter's, and the memory is as long as said.
        if unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) } == 0 {
            return Ok(());
        }
        Err(PyErr::fetch(slf.py()))
    }

    fn __len__(&self) -> usize {
        self.len
    }
}

/// What arrays are made with.
pub(crate) struct Arrays {
    ndarray: Py<PyType>,
    dtypes: [Py<PyAny>; DType::ALL.len()],
    /// `torch.from_numpy` and `torch.bfloat16`, where tensors are wanted.
    torch: Option<(Py<PyAny>, Py<PyAny>)>,
}

impl Arrays {
    /// Numpy arrays.
    pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Self> {
        static ARRAYS: PyOnceLock<Arrays> = PyOnceLock::new();
        ARRAYS.get_or_try_init(py, || Self::new(py, None))
    }

    /// Torch tensors.
    pub(crate) fn torch(py: Python<'_>) -> PyResult<&Self> {
        static ARRAYS: PyOnceLock<Arrays> = PyOnceLock::new();
        ARRAYS.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            Self::new(py, Some((torch.getattr("from_numpy")?.unbind(), torch.getattr("bfloat16")?.unbind())))
        })
    }

    fn new(py: Python<'_>, torch: Option<(Py<PyAny>, Py<PyAny>)>) -> PyResult<Self> {
        let numpy = py.import("numpy")?;
        let dtype = |name| Ok::<_, PyErr>(numpy.getattr("dtype")?.call1((name,))?.unbind());
        let mut dtypes = Vec::with_capacity(DType::ALL.len());
        for element in DType::ALL {
            dtypes.push(dtype(numpy_name(element))?);
        }
        let dtypes = dtypes.try_into().map_err(|_| PyValueError::new_err("an element type has no name"))?;
        Ok(Self { ndarray: numpy.getattr("ndarray")?.cast_into::<PyType>()?.unbind(), dtypes, torch })
    }

    /// An array of a shape in memory, at an offset.
    pub(crate) fn at<'py>(
        &self,
        memory: &Bound<'py, Memory>,
        dtype: DType,
        shape: &[u64],
        offset: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shape = PyTuple::new(memory.py(), shape)?;
        self.make(memory, dtype, (shape, self.element(memory.py(), dtype), memory, offset))
    }

    /// Two rows of words that lie apart, as one array.
    pub(crate) fn pair<'py>(
        &self,
        memory: &Bound<'py, Memory>,
        first: usize,
        second: usize,
        len: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        if len == 0 {
            return self.at(memory, DType::I64, &[2, 0], first);
        }
        let strides = (second.wrapping_sub(first), DType::I64.size());
        self.make(memory, DType::I64, ((2, len), self.element(memory.py(), DType::I64), memory, first, strides))
    }

    /// A whole memory as an array.
    pub(crate) fn whole<'py>(
        &self,
        py: Python<'py>,
        memory: Memory,
        dtype: DType,
        shape: &[u64],
    ) -> PyResult<Bound<'py, PyAny>> {
        self.at(&Bound::new(py, memory)?, dtype, shape, 0)
    }

    fn element<'py>(&self, py: Python<'py>, dtype: DType) -> Bound<'py, PyAny> {
        self.dtypes[dtype as usize].bind(py).clone()
    }

    fn make<'py>(
        &self,
        memory: &Bound<'py, Memory>,
        dtype: DType,
        arguments: impl pyo3::call::PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = memory.py();
        let array = self.ndarray.bind(py).call1(arguments)?;
        let Some((from_numpy, bfloat16)) = &self.torch else { return Ok(array) };
        let tensor = from_numpy.bind(py).call1((array,))?;
        if dtype == DType::BF16 { tensor.call_method1(intern!(py, "view"), (bfloat16,)) } else { Ok(tensor) }
    }
}

/// What numpy calls an element type; it has no bf16, so that its bits stand for it.
fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "<f2",
        DType::BF16 => "<u2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
    }
}

/// Ids from Python: an array of 64-bit integers.
pub(crate) fn ids(array: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let ids = words(array)?;
    array.py().detach(|| match ids.iter().find(|&&id| id < 0) {
        Some(id) => Err(PyValueError::new_err(format!("{id} is not an id; ids count from 0"))),
        None => Ok(ids.into_iter().map(i64::cast_unsigned).collect()),
    })
}

/// Numbers from Python: an array of 64-bit integers.
pub(crate) fn words(array: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    /// So many are copied in a millisecond or so; then other threads run.
    const AT_ONCE: usize = 1 << 20;
    let py = array.py();
    let buffer = PyBuffer::<i64>::get(array)?;
    let mut words: Vec<i64> = room("numbers", buffer.item_count() as u64).map_err(Error::from)?;
    let start = buffer.as_slice_ptr().ok_or_else(|| PyValueError::new_err("numbers lie apart, expected one array"))?;
    while words.len() < buffer.item_count() {
        let count = AT_ONCE.min(buffer.item_count() - words.len());
        // SAFETY: the buffer keeps so many numbers in one piece until it is dropped, and there is room for all of them. Python
        // code does not run meanwhile; who writes from elsewhere while this call reads gets what that gives.
        unsafe {
            let from = start.cast::<i64>().as_ptr().add(words.len());
            std::ptr::copy_nonoverlapping(from, words.as_mut_ptr().add(words.len()), count);
            words.set_len(words.len() + count);
        }
        py.check_signals()?;
        py.detach(|| ());
    }
    Ok(words)
}
