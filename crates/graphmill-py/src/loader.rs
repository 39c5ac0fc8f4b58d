//! Loaders and the batches of their epochs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::Poll;
use std::time::Duration;

use graphmill_client::{Batches as Epoch, Loader as Client, Options, SeedList, Standing, State};
use graphmill_sample::{Batch, Config};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::arrays::{Arrays, ids, words};
use crate::errors::{Error, of_panic};
use crate::handing::{Handing, Positions};
use crate::owned::Owned;
use crate::store::{Seeds, Store};
use crate::wait::{SLICE, compute, wait};

/// Epochs of batches.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Loader {
    client: Owned<Arc<Client>>,
    store: Owned<Arc<Store>>,
    handing: Arc<Handing>,
}

/// The batches of one epoch.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Batches {
    iteration: Owned<Iteration>,
    handing: Arc<Handing>,
}

struct Iteration {
    /// A lock that is only ever tried: two threads at once are a mistake of the caller's.
    epoch: Mutex<Epoch>,
    /// Beside the lock: others may ask how far it is while one waits, and so may the handlers of signals.
    standing: Standing,
    closed: AtomicBool,
}

impl Loader {
    pub(crate) fn make(
        py: Python<'_>,
        store: &Arc<Store>,
        config: Config,
        seeds: Seeds,
        options: Options,
        tensors: bool,
        positions: bool,
    ) -> PyResult<Self> {
        if tensors {
            Arrays::torch(py)?;
        }
        let shared = Arc::clone(store);
        let (loader, positions) = wait(py, Duration::ZERO, move |_| {
            let cuts = match &seeds {
                Seeds::Listed(list) if positions => Some(shared.cuts(&config, list, &options)?),
                _ => None,
            };
            let positions = cuts.map(|cuts| Positions { cuts, seed: config.seed });
            Ok((shared.loader(config, seeds, options)?, positions))
        })?;
        let handing = Arc::new(Handing::new(py, loader.plan(), tensors, positions)?);
        Ok(Self { client: Owned::new(Arc::new(loader)), store: Owned::new(Arc::clone(store)), handing })
    }

    fn client(&self) -> PyResult<&Arc<Client>> {
        self.client.get("this loader")
    }

    /// Begins an epoch; servers may be asked which partitions they have.
    fn batches(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&Client) -> graphmill_client::Result<Epoch> + Send + 'static,
    ) -> PyResult<Batches> {
        let client = Arc::clone(self.client()?);
        let epoch = if self.store.get("this loader")?.is_remote() {
            wait(py, Duration::ZERO, move |_| Ok(begin(&client)?))?
        } else {
            compute(py, move || Ok(begin(&client)?))?
        };
        let (standing, closed) = (epoch.standing().clone(), AtomicBool::new(false));
        let iteration = Iteration { epoch: Mutex::new(epoch), standing, closed };
        Ok(Batches { iteration: Owned::new(iteration), handing: Arc::clone(&self.handing) })
    }
}

#[pymethods]
impl Loader {
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.client()?.len())
    }

    /// The batches of an epoch.
    fn epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<Batches> {
        self.batches(py, move |client| Ok(client.epoch(epoch)))
    }

    /// The batches that a state has not seen.
    fn resume(&self, py: Python<'_>, state: &str) -> PyResult<Batches> {
        let state: State = serde_json::from_str(state)
            .map_err(|_| PyValueError::new_err("this is not the state of a loader: give what state_dict returned"))?;
        self.batches(py, move |client| client.resume(&state))
    }

    /// The state before an epoch's first batch, as JSON.
    fn state(&self, epoch: u64) -> PyResult<String> {
        text(&self.client()?.state(epoch))
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let taken = loop {
            if self.iteration()?.closed.load(Ordering::Relaxed) {
                return Err(PyValueError::new_err("this loader is closed"));
            }
            let ready = self.with_epoch(py, |epoch| epoch.ready(SLICE))?;
            // Before a batch is taken, so that it comes with the next call, and without the lock: a handler may want the state.
            py.check_signals()?;
            if ready && let Poll::Ready(taken) = self.with_epoch(py, |epoch| self.take(epoch))? {
                break taken;
            }
        };
        let Some(Taken { round, batch, positions }) = taken else { return Ok(None) };
        let batch = batch.map_err(Error::from)?;
        // A server may send anything that looks like a batch.
        let handed = catch_unwind(AssertUnwindSafe(|| self.handing.hand_over(py, round, batch, positions)));
        handed.map_err(|panic| of_panic(panic.as_ref()))?.map(Some)
    }

    /// The batch of this round has reached whoever asked for it. Set and not called: after a call Python looks for signals, and
    /// Ctrl-C would come between the batch being counted and being handed out.
    #[setter]
    fn handed_out(&self, round: u64) -> PyResult<()> {
        self.iteration()?.standing.hand_out(round);
        Ok(())
    }

    /// Ends whoever waits for a batch.
    fn close(&self) {
        // Nobody waits in a forked child.
        if let Ok(iteration) = self.iteration() {
            iteration.closed.store(true, Ordering::Relaxed);
        }
    }

    /// How many are left.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.iteration()?.standing.left())
    }

    /// Where the epoch stands, as JSON.
    fn state(&self) -> PyResult<String> {
        text(&self.iteration()?.standing.state())
    }
}

/// A batch of a round, with the places of its seeds in the seed list if they are wanted.
struct Taken {
    round: u64,
    batch: graphmill_client::Result<Batch>,
    positions: Option<Vec<i64>>,
}

impl Batches {
    fn iteration(&self) -> PyResult<&Iteration> {
        self.iteration.get("this iterator")
    }

    /// Does something with the epoch, which no other thread may use meanwhile, without the interpreter's lock.
    fn with_epoch<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut Epoch) -> T + Send) -> PyResult<T> {
        let mut epoch = match self.iteration()?.epoch.try_lock() {
            Ok(epoch) => epoch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let reason = "another thread waits for this iterator's next batch; give each its own";
                return Err(PyRuntimeError::new_err(reason));
            }
        };
        let epoch = &mut *epoch;
        py.detach(|| catch_unwind(AssertUnwindSafe(|| call(epoch)))).map_err(|panic| of_panic(panic.as_ref()))
    }

    /// The next batch, if it is there; nothing at the end.
    fn take(&self, epoch: &mut Epoch) -> Poll<Option<Taken>> {
        if !epoch.ready(Duration::ZERO) {
            return Poll::Pending;
        }
        Poll::Ready(epoch.next_round().map(|(round, batch)| {
            let positions = batch.as_ref().ok().and_then(|batch| self.handing.positions(batch.id()));
            Taken { round, batch, positions }
        }))
    }
}

fn text(state: &State) -> PyResult<String> {
    serde_json::to_string(state).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// The seeds that Python names: `None` for all, the name of a split, `"edges"`, ids, or sources, targets and classes.
pub(crate) fn seeds(seeds: &Bound<'_, PyAny>) -> PyResult<Seeds> {
    if seeds.is_none() {
        return Ok(Seeds::All);
    }
    if let Ok(name) = seeds.cast::<PyString>() {
        return match name.to_str()? {
            "edges" => Ok(Seeds::Edges),
            split => Ok(Seeds::Split(split.parse().map_err(Error::from)?)),
        };
    }
    if let Ok((src, dst, classes)) = seeds.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>() {
        let classes = classes.as_ref().map(words).transpose()?;
        return Ok(Seeds::Listed(SeedList::Pairs { src: ids(&src)?, dst: ids(&dst)?, classes }));
    }
    Ok(Seeds::Listed(SeedList::Nodes(ids(seeds)?)))
}
