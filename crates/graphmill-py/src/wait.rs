//! Work beside the interpreter: without its lock, with an eye on signals, and with panics caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::marker::Ungil;
use pyo3::prelude::*;

use crate::errors::{Result, of_panic};

/// How long a signal may go unnoticed.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

/// Computes without the interpreter's lock.
pub(crate) fn compute<T: Ungil + Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Ungil + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    Ok(done.map_err(|panic| of_panic(panic.as_ref()))??)
}

/// Does what waits for others on a thread of its own, while this one looks for signals. When one ends the wait, the work is
/// told by `cancel` and left alone: everything in it has a deadline.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    cancel: impl FnOnce(),
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let thread = move || {
        // Nobody listens any more when a signal came.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    };
    std::thread::Builder::new()
        .name("graphmill-wait".to_owned())
        .spawn(thread)
        .map_err(|error| PyRuntimeError::new_err(format!("there is no thread to wait on: {error}")))?;
    // The receiver is for this thread alone, which `detach` cannot know.
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            receiver.recv_timeout(SLICE)
        });
        match received {
            Ok(done) => return Ok(done.map_err(|panic| of_panic(panic.as_ref()))??),
            Err(RecvTimeoutError::Disconnected) => return Err(of_panic(&"a thread ended without a word")),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    cancel();
                    return Err(signal);
                }
            }
        }
    }
}
