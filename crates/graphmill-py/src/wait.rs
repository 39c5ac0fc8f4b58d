//! Work beside the interpreter: without its lock, with an eye on signals, and with panics caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::marker::Ungil;
use pyo3::prelude::*;

use crate::errors::{Error, Result, of_panic};

/// How long a signal may go unnoticed.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

/// Whether somebody still waits for what is being done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    given_up: Arc<AtomicBool>,
}

impl Wanted {
    /// Ends work that nobody waits for any more.
    pub(crate) fn check(&self) -> Result<()> {
        if self.given_up.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// The flag that is set when nobody waits any more.
    pub(crate) fn given_up(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.given_up)
    }
}

/// Computes what is soon done, without the interpreter's lock.
pub(crate) fn compute<T: Ungil + Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Ungil + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    Ok(done.map_err(|panic| of_panic(panic.as_ref()))??)
}

/// Does what may take long on a thread of its own, while this one looks for signals. When one ends the wait, the work is told,
/// and left alone after so long: it ends by itself, by a deadline or after one pass over what it reads.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    tidying: Duration,
    work: impl FnOnce(&Wanted) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let wanted = Wanted::default();
    let told = wanted.clone();
    let thread = move || {
        // Nobody listens any more when a signal came.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(|| work(&told))));
    };
    std::thread::Builder::new()
        .name("graphmill-wait".to_owned())
        .spawn(thread)
        .map_err(|error| PyRuntimeError::new_err(format!("there is no thread to wait on: {error}")))?;
    let receiver = Mutex::new(receiver);
    match receive(py, &receiver) {
        Ok(Some(done)) => Ok(done.map_err(|panic| of_panic(panic.as_ref()))??),
        Ok(None) => Err(of_panic(&"a thread ended without a word")),
        Err(signal) => {
            wanted.given_up.store(true, Ordering::Relaxed);
            let _ = py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(tidying));
            Err(signal)
        }
    }
}

/// What is sent, unless a signal comes first; nothing if it never will be.
///
/// The receiver is for the calling thread alone, which letting go of the interpreter's lock cannot know: hence the mutex.
pub(crate) fn receive<T: Send>(py: Python<'_>, receiver: &Mutex<Receiver<T>>) -> PyResult<Option<T>> {
    loop {
        let received = py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SLICE));
        match received {
            Ok(done) => return Ok(Some(done)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}
