//! A member of a run as Python holds it, and the key-value stores of its rounds.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graphmill_rendezvous::client::{self, ConnectOptions, Connection, Master, Timeouts};
use graphmill_rendezvous::{Settings, Target};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::runtime::{Builder, Runtime};

use crate::dataset::{TlsFiles, credentials};
use crate::errors::{Error, of_panic};
use crate::owned::Owned;
use crate::wait::receive;

/// The time to take leave in, when a signal ends a wait.
const FAREWELL: Duration = Duration::from_secs(1);
/// The longest time that makes sense: a century.
const LONGEST: f64 = 100.0 * 365.0 * 86_400.0;

/// What keeps leases up and carries calls, one for all members of this process; a forked child gets its own.
fn runtime(_: Python<'_>) -> PyResult<Arc<Runtime>> {
    // Locked under the interpreter's lock alone, so nobody has it locked when Python forks.
    static RUNTIME: Mutex<Option<Owned<Arc<Runtime>>>> = Mutex::new(None);
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = kept.as_ref().filter(|runtime| runtime.is_here()) {
        return runtime.get("this runtime").cloned();
    }
    let made = Builder::new_multi_thread().worker_threads(1).thread_name("graphmill-rendezvous").enable_all().build();
    let made = made.map_err(|error| PyRuntimeError::new_err(format!("there is no thread for a run: {error}")))?;
    let made = Arc::new(made);
    *kept = Some(Owned::new(Arc::clone(&made)));
    Ok(made)
}

/// Waits for an answer, with an eye on signals; when one ends the wait, so does the call.
fn answer<T, F>(py: Python<'_>, runtime: &Runtime, call: F) -> PyResult<Result<T, client::Error>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, client::Error>> + Send + 'static,
{
    let (sender, receiver) = sync_channel(1);
    let called = runtime.spawn(call);
    let abort = called.abort_handle();
    runtime.spawn(async move {
        // Nobody listens any more when a signal came.
        let _ = sender.send(called.await);
    });
    let received = receive(py, &Mutex::new(receiver)).inspect_err(|_| abort.abort())?;
    match received {
        Some(Ok(answered)) => Ok(answered),
        Some(Err(ended)) => Err(match ended.try_into_panic() {
            Ok(panic) => of_panic(panic.as_ref()),
            Err(ended) => of_panic(&ended.to_string()),
        }),
        None => Err(of_panic(&"a call ended without a word")),
    }
}

/// Asks Python for the port of rank 0, beside the thread that keeps leases up; what Python raises is noted.
async fn port(host: Arc<Py<PyAny>>, raised: Arc<Mutex<Option<PyErr>>>) -> Result<u16, client::Error> {
    let asked = tokio::task::spawn_blocking(move || Python::attach(|py| host.call0(py)?.extract::<u16>(py)));
    let asked = asked.await.unwrap_or_else(|ended| Err(of_panic(&ended.to_string())));
    asked.map_err(|error| {
        let reason = error.to_string();
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        client::Error::Host(reason)
    })
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    // A time is sent in whole milliseconds.
    if (0.001..=LONGEST).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(PyValueError::new_err(format!("{name} is {value}, expected seconds, above 0")))
}

/// A member of a run.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Member {
    kept: Owned<(Arc<Runtime>, Arc<client::Member>)>,
}

#[pymethods]
impl Member {
    #[new]
    #[pyo3(signature = (url, run, local_addr, *, min_nodes, max_nodes, expected, join_timeout, last_call_timeout, close_timeout, heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt, stable_ranks, token, token_file, tls))]
    #[expect(clippy::too_many_arguments, reason = "named by the caller")]
    fn new(
        py: Python<'_>,
        url: &str,
        run: Option<String>,
        local_addr: &str,
        min_nodes: u32,
        max_nodes: u32,
        expected: Option<u32>,
        join_timeout: f64,
        last_call_timeout: f64,
        close_timeout: f64,
        heartbeat_timeout: f64,
        keep_alive_interval: f64,
        keep_alive_max_attempt: u32,
        stable_ranks: bool,
        token: Option<String>,
        token_file: Option<PathBuf>,
        tls: Option<TlsFiles>,
    ) -> PyResult<Self> {
        let target: Target = url.parse().map_err(PyValueError::new_err)?;
        let run = match (target.run.clone(), run) {
            (Some(named), Some(run)) if named != run => {
                return Err(PyValueError::new_err(format!("the run is `{run}`, but `{named}` in {url}; name it once")));
            }
            (named, run) => run.or(named).unwrap_or_default(),
        };
        let settings = Settings {
            min: min_nodes,
            max: max_nodes,
            last_call: seconds("last_call_timeout", last_call_timeout)?,
            keep_alive: seconds("keep_alive_interval", keep_alive_interval)?,
            missed: keep_alive_max_attempt,
            stable_ranks,
            expected,
        };
        let timeouts = Timeouts {
            join: seconds("join_timeout", join_timeout)?,
            close: seconds("close_timeout", close_timeout)?,
            answer: seconds("heartbeat_timeout", heartbeat_timeout)?,
        };
        let (token, tls) = credentials(token, token_file, tls)?;
        let runtime = runtime(py)?;
        let connection = {
            let _inside = runtime.enter();
            let opened = Connection::open(&target.place, &ConnectOptions { token, tls });
            opened.map_err(|error| PyValueError::new_err(error.to_string()))?
        };
        let member = client::Member::new(connection, &run, local_addr, settings, timeouts)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { kept: Owned::new((runtime, Arc::new(member))) })
    }

    /// The round, this member's rank, how many take part, the round's store, and how rank 0 is reached; a member that has rank 0
    /// is asked for a port.
    fn next_rendezvous(
        &self,
        py: Python<'_>,
        host: Py<PyAny>,
        timeout: f64,
    ) -> PyResult<(u64, u32, u32, Store, String, u16)> {
        let (runtime, member) = self.get()?;
        let (joining, within) = (Arc::clone(member), seconds("timeout", timeout)?);
        let (host, raised) = (Arc::new(host), Arc::new(Mutex::new(None)));
        let port = {
            let raised = Arc::clone(&raised);
            move || port(Arc::clone(&host), Arc::clone(&raised))
        };
        match answer(py, runtime, async move { joining.next_rendezvous_hosted(within, port).await }) {
            Ok(joined) => {
                if let Some(raised) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    return Err(raised);
                }
                let joined = joined.map_err(Error::from)?;
                let store = Store { kept: Owned::new((Arc::clone(runtime), joined.store)) };
                let Master { address, port } = joined.master;
                Ok((joined.round, joined.rank, joined.world_size, store, address, port))
            }
            Err(signal) => {
                // The others are not to wait for a member that has gone.
                let leave = async { tokio::time::timeout(FAREWELL, member.leave()).await };
                let _ = py.detach(|| runtime.block_on(leave));
                Err(signal)
            }
        }
    }

    fn is_lost(&self) -> PyResult<bool> {
        Ok(self.get()?.1.is_lost())
    }

    fn num_nodes_waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |member| async move { member.num_nodes_waiting().await })
    }

    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |member| async move { member.is_closed().await })
    }

    fn set_closed(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |member| async move { member.set_closed().await })
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |member| async move { member.leave().await })
    }

    fn shutdown(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |member| async move { Ok(member.shutdown().await) })
    }

    /// The run's name.
    #[getter]
    fn run(&self) -> PyResult<String> {
        Ok(self.get()?.1.run().to_owned())
    }

    /// Who it is: address, process and counter.
    #[getter]
    fn node(&self) -> PyResult<(String, u32, u32)> {
        let node = self.get()?.1.node();
        Ok((node.address.clone(), node.process, node.counter))
    }
}

impl Member {
    fn get(&self) -> PyResult<&(Arc<Runtime>, Arc<client::Member>)> {
        self.kept.get("this member of a run")
    }

    fn ask<T, F>(&self, py: Python<'_>, call: impl FnOnce(Arc<client::Member>) -> F) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, client::Error>> + Send + 'static,
    {
        let (runtime, member) = self.get()?;
        Ok(answer(py, runtime, call(Arc::clone(member)))?.map_err(Error::from)?)
    }
}

/// The key-value store of a round.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(crate) struct Store {
    kept: Owned<(Arc<Runtime>, client::Store)>,
}

#[pymethods]
impl Store {
    fn set(&self, py: Python<'_>, entries: Vec<(String, Vec<u8>)>) -> PyResult<()> {
        self.ask(py, |store| async move { store.set(entries).await })
    }

    fn append(&self, py: Python<'_>, entries: Vec<(String, Vec<u8>)>) -> PyResult<()> {
        self.ask(py, |store| async move { store.append(entries).await })
    }

    fn get<'py>(&self, py: Python<'py>, keys: Vec<String>, timeout: f64) -> PyResult<Bound<'py, PyList>> {
        let within = seconds("timeout", timeout)?;
        let values = self.ask(py, |store| async move { store.get(keys, within).await })?;
        PyList::new(py, values.iter().map(|value| PyBytes::new(py, value)))
    }

    fn wait(&self, py: Python<'_>, keys: Vec<String>, timeout: f64) -> PyResult<()> {
        let within = seconds("timeout", timeout)?;
        self.ask(py, |store| async move { store.wait(keys, within).await })
    }

    fn check(&self, py: Python<'_>, keys: Vec<String>) -> PyResult<bool> {
        self.ask(py, |store| async move { store.check(keys).await })
    }

    fn add(&self, py: Python<'_>, key: String, amount: i64) -> PyResult<i64> {
        self.ask(py, |store| async move { store.add(key, amount).await })
    }

    fn compare_set<'py>(
        &self,
        py: Python<'py>,
        key: String,
        expected: Vec<u8>,
        value: Vec<u8>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let stored = self.ask(py, |store| async move { store.compare_set(key, expected, value).await })?;
        Ok(PyBytes::new(py, &stored))
    }

    fn delete(&self, py: Python<'_>, keys: Vec<String>) -> PyResult<i64> {
        self.ask(py, |store| async move { store.delete(keys).await })
    }

    fn count(&self, py: Python<'_>, prefix: String) -> PyResult<i64> {
        self.ask(py, |store| async move { store.count(prefix).await })
    }
}

impl Store {
    fn ask<T, F>(&self, py: Python<'_>, call: impl FnOnce(client::Store) -> F) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, client::Error>> + Send + 'static,
    {
        let (runtime, store) = self.kept.get("this store")?;
        Ok(answer(py, runtime, call(store.clone()))?.map_err(Error::from)?)
    }
}
