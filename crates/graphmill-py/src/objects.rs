//! A connector to the object store as Python holds it. Keys are their texts here.

use std::cell::Cell;
use std::time::Duration;

use graphmill_objects::{self as objects, Config, Connector, Interrupt, Key, Object, PutOptions};
use pyo3::exceptions::PyValueError;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView, PyTuple};

use crate::arrays::Memory;
use crate::bytes::Bytes;
use crate::errors::{Error, Result, of_objects};
use crate::wait;

thread_local! {
    /// Whether this thread makes a call, and so can raise what a handler does.
    static CALLING: Cell<bool> = const { Cell::new(false) };
    /// What the handler of a signal raised while this thread waited.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Whether a signal ends the wait of this thread; so does the end of the interpreter.
fn interrupted() -> bool {
    if !CALLING.get() {
        return false;
    }
    let checked = Python::try_attach(|py| py.check_signals().err());
    checked.is_none_or(|raised| {
        let ends = raised.is_some();
        RAISED.set(raised);
        ends
    })
}

/// Makes a call without the interpreter's lock, in this thread: nothing is handed over to another, which would take longer than
/// a small object does.
fn call<T: Ungil + Send>(py: Python<'_>, work: impl FnOnce() -> objects::Result<T> + Ungil + Send) -> PyResult<T> {
    // The handler of a signal may make a call while another waits.
    let outer = CALLING.replace(true);
    let done = wait::compute(py, || Ok(work()?));
    CALLING.set(outer);
    done.map_err(|error| RAISED.take().unwrap_or(error))
}

/// A way to the objects of a server.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct ObjectConnector {
    connector: Connector,
}

#[pymethods]
impl ObjectConnector {
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<Self> {
        let config = Config::from_json(config).map_err(Error::from)?;
        // May start a server, which takes its time and other locks than those of connections.
        let open =
            move |_: &_| -> Result<Connector> { Ok(Connector::open_with(config, Some(Interrupt::new(interrupted)))?) };
        Ok(Self { connector: wait::wait(py, Duration::ZERO, open)? })
    }

    fn config(&self) -> String {
        self.connector.config().to_json()
    }

    #[pyo3(signature = (*parts, ttl = None))]
    fn put(&self, py: Python<'_>, parts: &Bound<'_, PyTuple>, ttl: Option<f64>) -> PyResult<String> {
        let (parts, options) = (bytes(parts.iter())?, options(ttl)?);
        let parts = slices(&parts);
        call(py, || Ok(self.connector.put_with(&parts, options)?.to_string()))
    }

    #[pyo3(signature = (key, *parts, ttl = None))]
    fn set(&self, py: Python<'_>, key: &str, parts: &Bound<'_, PyTuple>, ttl: Option<f64>) -> PyResult<()> {
        let (parts, options) = (bytes(parts.iter())?, options(ttl)?);
        let parts = slices(&parts);
        call(py, || self.connector.set(&key.parse()?, &parts, options))
    }

    /// A key or an exception for each.
    fn put_batch<'py>(
        &self,
        py: Python<'py>,
        objects: Vec<Bound<'py, PyAny>>,
        ttl: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (objects, options) = (bytes(objects.into_iter())?, options(ttl)?);
        let objects = slices(&objects);
        let put = call(py, || self.connector.put_batch(&objects, options))?;
        let each = put.into_iter().map(|key| match key {
            Ok(key) => Ok(key.to_string().into_pyobject(py)?.into_any()),
            Err(error) => Ok(exception(py, &error)),
        });
        PyList::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    fn get<'py>(&self, py: Python<'py>, key: &str, wait: f64) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let (key, wait) = (parse(key)?, seconds("wait", wait)?);
        let got = call(py, || self.connector.get_waiting(&key, wait))?;
        got.map(|object| view(py, object)).transpose()
    }

    /// A buffer, nothing or an exception for each.
    fn get_batch<'py>(&self, py: Python<'py>, keys: Vec<String>) -> PyResult<Bound<'py, PyList>> {
        let keys = keys.into_iter().map(|key| parse(&key)).collect::<PyResult<Vec<Key>>>()?;
        let keys: Vec<&Key> = keys.iter().collect();
        let got = call(py, || self.connector.get_batch(&keys, Duration::ZERO))?;
        let each = got.into_iter().map(|object| match object {
            Ok(Some(object)) => Ok(view(py, object)?.into_any()),
            Ok(None) => Ok(py.None().into_bound(py)),
            Err(error) => Ok(exception(py, &error)),
        });
        PyList::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    fn exists(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        call(py, || self.connector.exists(&key.parse()?))
    }

    fn evict(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        call(py, || self.connector.evict(&key.parse()?))
    }

    fn new_key(&self, py: Python<'_>) -> PyResult<String> {
        call(py, || Ok(self.connector.new_key()?.to_string()))
    }

    /// JSON.
    fn stat(&self, py: Python<'_>) -> PyResult<String> {
        let stat = call(py, || self.connector.stat())?;
        serde_json::to_string(&stat).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn close(&self, py: Python<'_>, kill_server: bool) -> PyResult<()> {
        call(py, || self.connector.close(kill_server))
    }
}

/// Id, size, location and generation of a key.
#[pyfunction]
pub(crate) fn object_key(key: &str) -> PyResult<(String, Option<u64>, String, u64)> {
    let key = parse(key)?;
    Ok((key.id.to_string(), key.size, key.location.to_string(), key.generation))
}

/// Runs a server that a connector started, until nobody uses it.
#[pyfunction]
pub(crate) fn serve_spawned_objects(py: Python<'_>) -> PyResult<()> {
    wait::compute(py, || Ok(objects::serve_spawned()?))
}

fn parse(key: &str) -> PyResult<Key> {
    Ok(key.parse::<Key>().map_err(Error::from)?)
}

fn bytes<'py>(objects: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<Vec<Bytes<'py>>> {
    objects.map(|object| Bytes::of(&object)).collect()
}

fn slices<'a>(objects: &'a [Bytes<'_>]) -> Vec<&'a [u8]> {
    objects.iter().map(Bytes::as_slice).collect()
}

/// An object's memory, as Python reads and writes it; nobody else sees what is written.
fn view(py: Python<'_>, object: Object) -> PyResult<Bound<'_, PyMemoryView>> {
    let memory = Bound::new(py, Memory::of(object, Object::bytes_mut))?;
    PyMemoryView::from(memory.as_any())
}

fn exception<'py>(py: Python<'py>, error: &objects::Error) -> Bound<'py, PyAny> {
    of_objects(error).into_value(py).into_bound(py).into_any()
}

fn options(ttl: Option<f64>) -> PyResult<PutOptions> {
    Ok(PutOptions { ttl: ttl.map(|ttl| seconds("ttl", ttl)).transpose()? })
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    // As long as the store's own times.
    const LONGEST: f64 = 365.0 * 86_400.0;
    if (0.0..=LONGEST).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(PyValueError::new_err(format!("{name} is {value}, expected seconds, from 0 to a year")))
}
