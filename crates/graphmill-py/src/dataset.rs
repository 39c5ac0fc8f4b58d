//! The dataset as Python holds it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use graphmill_client::{AnchorLabels, ConnectOptions, Original, Padded, Rows, Servers, Transport};
use graphmill_graph::{DType, Direction, EdgeTypeName, Split, Storage};
use graphmill_net::{ClientTls, Token};
use graphmill_sample::make_room;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString};

use crate::arrays::{Arrays, Memory, ids};
use crate::errors::{Error, Result};
use crate::linked::Supervision;
use crate::loader::Loader;
use crate::owned::Owned;
use crate::store::{Owner, Store};
use crate::wait::{Wanted, compute, wait};

/// So many nodes or edges of a dataset here are read at once, without a thread that could be left alone.
const FEW: usize = 1024;

/// A dataset of this process or of storage servers.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Dataset {
    store: Owned<Arc<Store>>,
}

type Triple = (String, String, String);

/// Anchors, their labels, and their negative labels if there are any.
type LabelRows<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

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
pub(crate) fn open(py: Python<'_>, path: PathBuf, storage: &str) -> PyResult<Dataset> {
    let storage = match storage {
        "mmap" => Storage::Mmap,
        "ram" => Storage::Ram,
        other => return Err(PyValueError::new_err(format!("storage is \"mmap\" or \"ram\", found {other:?}"))),
    };
    let store = wait(py, Duration::ZERO, move |_| Store::open(&path, storage))?;
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
        let servers = Servers::parse(&servers)?;
        let (token, tls) = credentials(token, token_file, tls)?;
        Ok((servers, ConnectOptions { token, tls, transport, deadline, run, worker }))
    };
    let (servers, options) = prepare()?;
    let store = wait(py, Duration::ZERO, move |_| Store::connect(&servers, options))?;
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
        let ids = self.ask(py, None, move |store, _| store.node_ids(node_type.as_deref(), split, rank, world_size))?;
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
        let ids = wanted.map(ids).transpose()?;
        let count = ids.as_ref().map(Vec::len);
        rows(py, self.ask(py, count, move |store, wanted| store.labels(node_type.as_deref(), ids, wanted))?)
    }

    /// Sources and targets as the rows of one array.
    fn edge_index<'py>(&self, py: Python<'py>, edge_type: Option<Triple>) -> PyResult<Bound<'py, PyAny>> {
        let edge_type = edge_type.map(EdgeTypeName::from);
        let call = move |store: &Store, _: &Wanted| {
            let (mut both, targets) = store.edges(edge_type.as_ref())?;
            make_room(&mut both, "edges", targets.len() as u64)?;
            both.extend(targets);
            Ok(both)
        };
        let both = self.ask(py, None, call)?;
        let shape = [2, both.len() as u64 / 2];
        Arrays::numpy(py)?.whole(py, Memory::of_words(signed(both)), DType::I64, &shape)
    }

    /// Where the neighbours of each node begin, and the neighbours: targets of sources, or sources of targets.
    fn adjacency<'py>(
        &self,
        py: Python<'py>,
        edge_type: Option<Triple>,
        by_source: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let edge_type = edge_type.map(EdgeTypeName::from);
        let call = move |store: &Store, _: &Wanted| store.adjacency(edge_type.as_ref(), by_source);
        let (offsets, neighbors) = self.ask(py, None, call)?;
        Ok((array(py, signed(offsets))?, array(py, signed(neighbors))?))
    }

    /// Numbers, or strings.
    fn original_ids<'py>(
        &self,
        py: Python<'py>,
        node_type: Option<String>,
        wanted: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let ids = ids(wanted)?;
        let count = Some(ids.len());
        let found = self.ask(py, count, move |store, _| store.original_ids(node_type.as_deref(), &ids))?;
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
        let count = Some(keys.len());
        let found = self.ask(py, count, move |store, _| store.lookup(node_type.as_deref(), &keys))?;
        array(py, found.into_iter().map(|id| id.map_or(-1, u64::cast_signed)).collect())
    }

    fn partition_ids<'py>(
        &self,
        py: Python<'py>,
        node_type: Option<String>,
        wanted: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = ids(wanted)?;
        let count = Some(ids.len());
        array(py, self.ask(py, count, move |store, _| store.partition_ids(node_type.as_deref(), &ids))?)
    }

    fn edge_partition_ids<'py>(
        &self,
        py: Python<'py>,
        edge_type: Option<Triple>,
        wanted: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (edge_type, ids) = (edge_type.map(EdgeTypeName::from), ids(wanted)?);
        let count = Some(ids.len());
        array(py, self.ask(py, count, move |store, _| store.edge_partition_ids(edge_type.as_ref(), &ids))?)
    }

    /// How many edges begin at nodes, or end there.
    fn degrees<'py>(
        &self,
        py: Python<'py>,
        edge_type: Option<Triple>,
        outward: bool,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let direction = if outward { Direction::Out } else { Direction::In };
        let (edge_type, ids) = (edge_type.map(EdgeTypeName::from), wanted.map(ids).transpose()?);
        // Where lists are not stored in this direction, few nodes take as long as all of them.
        let call = move |store: &Store, wanted: &Wanted| store.degrees(edge_type.as_ref(), direction, ids, wanted);
        array(py, signed(self.ask(py, None, call)?))
    }

    /// Anchors with rows of labels.
    #[expect(clippy::too_many_arguments, reason = "named by the caller")]
    fn anchor_labels<'py>(
        &self,
        py: Python<'py>,
        split: Option<&str>,
        positive: Option<Triple>,
        negative: Option<Triple>,
        max_labels: Option<u32>,
        rank: Option<u32>,
        world_size: Option<u32>,
    ) -> PyResult<LabelRows<'py>> {
        let split = split.map(str::parse::<Split>).transpose().map_err(Error::from)?;
        let [positive, negative] = [positive, negative].map(|name| name.map(EdgeTypeName::from));
        let supervision = Supervision { split, positive, negative, max_labels };
        let call = move |store: &Store, wanted: &Wanted| store.anchor_labels(&supervision, rank, world_size, wanted);
        let AnchorLabels { anchors, positives, negatives } = self.ask(py, None, call)?;
        let negatives = negatives.map(|rows| padded(py, rows)).transpose()?;
        Ok((array(py, signed(anchors))?, padded(py, positives)?, negatives))
    }

    /// A loader: see [`Loader`].
    #[pyo3(signature = (config, seeds, *, output, positions, batch_size, shuffle, drop_last, seed_order, threads, ordered, prefetch, rank, world_size, even))]
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
        seed_order: &str,
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
            seed_order: seed_order.parse().map_err(PyValueError::new_err::<String>)?,
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

    /// Asks the store, wherever it is, about so many nodes or edges, or about all of them.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        count: Option<usize>,
        call: impl FnOnce(&Store, &Wanted) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let store = self.shared()?;
        if !store.is_remote() && count.is_some_and(|count| count <= FEW) {
            return compute(py, || call(store, &Wanted::default()));
        }
        let store = Arc::clone(store);
        wait(py, Duration::ZERO, move |wanted| call(&store, wanted))
    }

    fn features<'py>(
        &self,
        py: Python<'py>,
        owner: Owner,
        name: String,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = wanted.map(ids).transpose()?;
        let count = ids.as_ref().map(Vec::len);
        rows(py, self.ask(py, count, move |store, wanted| store.features(&owner, &name, ids, wanted))?)
    }
}

fn rows(py: Python<'_>, rows: Rows) -> PyResult<Bound<'_, PyAny>> {
    let Rows { dtype, shape, bytes } = rows;
    Arrays::numpy(py)?.whole(py, Memory::of(bytes, Vec::as_mut_slice), dtype, &shape)
}

fn array(py: Python<'_>, words: Vec<i64>) -> PyResult<Bound<'_, PyAny>> {
    let shape = [words.len() as u64];
    Arrays::numpy(py)?.whole(py, Memory::of_words(words), DType::I64, &shape)
}

fn padded(py: Python<'_>, rows: Padded) -> PyResult<Bound<'_, PyAny>> {
    let shape = [rows.rows as u64, rows.width as u64];
    Arrays::numpy(py)?.whole(py, Memory::of_words(rows.ids), DType::I64, &shape)
}

fn original(key: &Bound<'_, PyAny>) -> PyResult<Original> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(Original::String(text.to_str()?.to_owned()));
    }
    match key.cast::<PyInt>() {
        Ok(number) => {
            let large = |_| PyValueError::new_err(format!("{number} is larger than ids of an input can be"));
            Ok(Original::Int(number.extract().map_err(large)?))
        }
        Err(_) => Err(PyValueError::new_err(format!("{} is neither a number nor a string", key.repr()?))),
    }
}

/// Ids as Python's arrays have them; the same memory.
fn signed(ids: Vec<u64>) -> Vec<i64> {
    ids.into_iter().map(u64::cast_signed).collect()
}
