//! Things that threads of this process work for, or that such threads may hold locks of.

use std::mem::ManuallyDrop;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Something that is of use in the process that made it, and nowhere else: a forked child has none of the threads, and locks
/// that they held stay locked there for ever. So a child neither uses it nor drops it.
#[derive(Debug)]
pub(crate) struct Owned<T: Send> {
    process: u32,
    value: ManuallyDrop<Option<T>>,
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(Some(value)) }
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// It, in the process that made it.
    pub(crate) fn get(&self, what: &str) -> PyResult<&T> {
        if !self.is_here() {
            return Err(PyRuntimeError::new_err(format!(
                "{what} belongs to process {}, of which this one is a fork; make a new one here",
                self.process
            )));
        }
        self.value.as_ref().ok_or_else(|| PyRuntimeError::new_err(format!("{what} is closed")))
    }
}

impl<T: Send> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // It may wait for threads, so others run meanwhile. At the interpreter's end there is no lock to be given up.
        let mut value = self.value.take();
        Python::try_attach(|py| {
            let value = value.take();
            py.detach(|| drop(value));
        });
        drop(value);
    }
}
