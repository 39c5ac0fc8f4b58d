//! The dataset as Python holds it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use graphmill_client::{ConnectOptions, Original, Rows, Transport};
use graphmill_graph::{DType, EdgeTypeName, Split, Storage};
use graphmill_net::{ClientTls, Endpoint, Token};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString};

use crate::arrays::{Arrays, Memory, ids};
use crate::errors::{Error, Result};
use crate::loader::Loader;
use crate::owned::Owned;
use crate::store::{Owner, Store};
use crate::wait::{compute, wait};

/// A dataset of this process or of storage servers.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Dataset {
    store: Owned<Arc<Store>>,
}

type Triple = (String, String, String);

/// Who signs the servers' certificates; a certificate to show, and its key.
pub(crate) type TlsFiles = (PathBuf, Option<PathBuf>, Option<PathBuf>);

/// What is shown to servers, and how they are told from somebody else.
#[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
pub(crate) fn credentials(
    token: Option<String>,
    token_file: Option<PathBuf>,
    tls: Option<TlsFiles>,
) -> Result<(Option<Token>, Option<ClientTls>)> {
    let token = match token_file {
        Some(path) => Some(Token::from_file(&path)?),
        None => token.map(Token::new).transpose()?,
    };
    let tls = match &tls {
        Some((ca, cert, key)) => Some(ClientTls::load(ca, cert.as_deref().zip(key.as_deref()))?),
        None => None,
    };
    Ok((token, tls))
}

/// Opens a dataset of this machine.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
pub(crate) fn open(py: Python<'_>, path: PathBuf, storage: &str) -> PyResult<Dataset> {
    let storage = match storage {
        "mmap" => Storage::Mmap,
        "ram" => Storage::Ram,
        other => return Err(PyValueError::new_err(format!("storage is \"mmap\" or \"ram\", found {other:?}"))),
    };
    let store = compute(py, || Store::open(&path, storage))?;
    Ok(Dataset { store: Owned::new(Arc::new(store)) })
}

/// Connects to storage servers.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "named by the caller")]
#[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
pub(crate) fn connect(
    py: Python<'_>,
    servers: Vec<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    tls: Option<TlsFiles>,
    transport: &str,
    timeout: f64,
    run: String,
    worker: String,
) -> PyResult<Dataset> {
    let transport = match transport {
        "auto" => Transport::Auto,
        "tcp" => Transport::Socket,
        "unix" => Transport::UnixSocket,
        "shm" => Transport::SharedMemory,
        other => {
            let text = format!("transport is \"auto\", \"tcp\", \"unix\" or \"shm\", found {other:?}");
            return Err(PyValueError::new_err(text));
        }
    };
    let deadline = Duration::try_from_secs_f64(timeout).ok().filter(|deadline| !deadline.is_zero());
    let deadline = deadline.ok_or_else(|| PyValueError::new_err(format!("timeout is {timeout}, expected seconds")))?;
    let prepare = || -> Result<_> {
        let endpoints: Vec<Endpoint> = servers.iter().map(|text| text.parse()).collect::<graphmill_net::Result<_>>()?;
        let (token, tls) = credentials(token, token_file, tls)?;
        Ok((endpoints, ConnectOptions { token, tls, transport, deadline, run, worker }))
    };
    let (endpoints, options) = prepare()?;
    let store = wait(py, || {}, move || Store::connect(&endpoints, options))?;
    Ok(Dataset { store: Owned::new(Arc::new(store)) })
}

#[pymethods]
impl Dataset {
    /// What it is, as JSON.
    fn describe(&self) -> PyResult<String> {
        Ok(self.store()?.describe().to_string())
    }

    fn node_ids<'py>(
        &self,
        py: Python<'py>,
        split: Option<&str>,
        node_type: Option<String>,
        rank: Option<u32>,
        world_size: Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let split = split.map(str::parse::<Split>).transpose().map_err(Error::from)?;
        let ids = self.ask(py, move |store| store.node_ids(node_type.as_deref(), split, rank, world_size))?;
        array(py, signed(ids))
    }

    fn node_features<'py>(
        &self,
        py: Python<'py>,
        name: String,
        node_type: Option<String>,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.features(py, Owner::Node(node_type), name, wanted)
    }

    fn edge_features<'py>(
        &self,
        py: Python<'py>,
        name: String,
        edge_type: Option<Triple>,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.features(py, Owner::Edge(edge_type.map(EdgeTypeName::from)), name, wanted)
    }

    fn labels<'py>(
        &self,
        py: Python<'py>,
        node_type: Option<String>,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = wanted.map(ids).transpose()?;
        rows(py, self.ask(py, move |store| store.labels(node_type.as_deref(), wanted))?)
    }

    /// Sources and targets.
    fn edge_index<'py>(
        &self,
        py: Python<'py>,
        edge_type: Option<Triple>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let edge_type = edge_type.map(EdgeTypeName::from);
        let (sources, targets) = self.ask(py, move |store| store.edge_index(edge_type.as_ref()))?;
        Ok((array(py, signed(sources))?, array(py, signed(targets))?))
    }

    /// Numbers, or strings.
    fn original_ids<'py>(
        &self,
        py: Python<'py>,
        node_type: Option<String>,
        wanted: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let wanted = ids(wanted)?;
        let found = self.ask(py, move |store| store.original_ids(node_type.as_deref(), &wanted))?;
        let list = PyList::empty(py);
        for original in found {
            match original {
                Original::Int(id) => list.append(id)?,
                Original::String(id) => list.append(id)?,
            }
        }
        Ok(list)
    }

    /// The ids of nodes by what they were called; -1 where there is none.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        node_type: Option<String>,
        keys: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keys = keys.iter().map(|key| original(&key)).collect::<PyResult<Vec<_>>>()?;
        let found = self.ask(py, move |store| store.lookup(node_type.as_deref(), &keys))?;
        array(py, found.into_iter().map(|id| id.map_or(-1, u64::cast_signed)).collect())
    }

    fn partition_ids<'py>(
        &self,
        py: Python<'py>,
        node_type: Option<String>,
        wanted: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = ids(wanted)?;
        array(py, self.ask(py, move |store| store.partition_ids(node_type.as_deref(), &wanted))?)
    }

    /// A loader: see [`Loader`].
    #[pyo3(signature = (config, seeds, *, output, positions, batch_size, shuffle, drop_last, threads, ordered, prefetch, rank, world_size, even))]
    #[expect(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "named by the caller")]
    fn loader(
        &self,
        py: Python<'_>,
        config: &str,
        seeds: &Bound<'_, PyAny>,
        output: &str,
        positions: bool,
        batch_size: usize,
        shuffle: bool,
        drop_last: bool,
        threads: usize,
        ordered: bool,
        prefetch: usize,
        rank: u32,
        world_size: u32,
        even: Option<bool>,
    ) -> PyResult<Loader> {
        let options = graphmill_client::Options {
            batch_size,
            shuffle,
            drop_last,
            // Never on the thread that looks for signals.
            threads: threads.max(1),
            ordered,
            prefetch,
            rank,
            world_size,
            even,
        };
        let config = serde_json::from_str(config)
            .map_err(|error| PyValueError::new_err(format!("the sampler cannot be configured: {error}")))?;
        let seeds = crate::loader::seeds(seeds)?;
        let tensors = output != "numpy";
        Loader::make(py, self.shared()?, config, seeds, options, tensors, positions)
    }
}

impl Dataset {
    fn shared(&self) -> PyResult<&Arc<Store>> {
        self.store.get("this dataset")
    }

    fn store(&self) -> PyResult<&Store> {
        Ok(self.shared()?)
    }

    /// Asks the store, wherever it is.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        ask(py, self.shared()?, call)
    }

    fn features<'py>(
        &self,
        py: Python<'py>,
        owner: Owner,
        name: String,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = wanted.map(ids).transpose()?;
        rows(py, self.ask(py, move |store| store.features(&owner, &name, wanted))?)
    }
}

/// Asks a store: on a thread of its own where others must be waited for.
pub(crate) fn ask<T: Send + 'static>(
    py: Python<'_>,
    store: &Arc<Store>,
    call: impl FnOnce(&Store) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    if !store.is_remote() {
        return compute(py, || call(store));
    }
    let store = Arc::clone(store);
    wait(py, || {}, move || call(&store))
}

fn rows(py: Python<'_>, rows: Rows) -> PyResult<Bound<'_, PyAny>> {
    let Rows { dtype, shape, bytes } = rows;
    Arrays::numpy(py)?.whole(py, Memory::of(bytes, Vec::as_mut_slice), dtype, &shape)
}

fn array(py: Python<'_>, words: Vec<i64>) -> PyResult<Bound<'_, PyAny>> {
    let shape = [words.len() as u64];
    Arrays::numpy(py)?.whole(py, Memory::of_words(words), DType::I64, &shape)
}

fn original(key: &Bound<'_, PyAny>) -> PyResult<Original> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(Original::String(text.to_str()?.to_owned()));
    }
    match key.cast::<PyInt>() {
        Ok(number) => Ok(Original::Int(number.extract()?)),
        Err(_) => Err(PyValueError::new_err(format!("{key} is neither a number nor a string"))),
    }
}

/// Ids as Python's arrays have them; the same memory.
fn signed(ids: Vec<u64>) -> Vec<i64> {
    ids.into_iter().map(u64::cast_signed).collect()
}
