//! The Python package's Rust half: datasets and loaders, here or on storage servers, members of runs and the
//! object store, for `python/graphmill`.
//!
//! This module speaks in plain things (ids, arrays, JSON); what a user of Python sees is made of them by the package. The
//! rules of this wall: whatever waits or computes is done without the interpreter's lock; waits are cut into slices, so that
//! signals are seen; nothing of a parent's threads is touched in a forked child; and no panic becomes an exception of Rust's
//! kind.

mod arrays;
mod bytes;
mod dataset;
mod errors;
mod handing;
mod linked;
mod loader;
mod making;
mod objects;
mod owned;
mod rendezvous;
mod store;
mod wait;

use pyo3::prelude::*;

/// The native half of the package `graphmill`.
#[pymodule]
fn _graphmill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<arrays::Memory>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<loader::Batches>()?;
    module.add_class::<objects::ObjectConnector>()?;
    module.add_class::<rendezvous::Member>()?;
    module.add_class::<rendezvous::Store>()?;
    module.add("RendezvousClosed", module.py().get_type::<errors::RendezvousClosed>())?;
    module.add("RendezvousGracefulExit", module.py().get_type::<errors::RendezvousGracefulExit>())?;
    module.add("RendezvousTimeout", module.py().get_type::<errors::RendezvousTimeout>())?;
    module.add_function(wrap_pyfunction!(dataset::open, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::connect, module)?)?;
    module.add_function(wrap_pyfunction!(making::ingest, module)?)?;
    module.add_function(wrap_pyfunction!(objects::object_key, module)?)?;
    module.add_function(wrap_pyfunction!(objects::serve_spawned_objects, module)?)?;
    Ok(())
}
