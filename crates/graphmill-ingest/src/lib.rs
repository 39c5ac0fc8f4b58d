//! Everything that makes a dataset.
//!
//! [`ingest::ingest`] reads foreign files as a `graph.toml` describes them, [`generate::generate`] makes graphs from a
//! seed, [`partition::partition`] cuts a dataset into parts. All three write through one `lists` builder and
//! [`graphmill_graph::DatasetWriter`], report to a [`Job`] and stop when it is cancelled. Memory is bounded by a flag,
//! whatever the size of the input. [`download::download`] brings a dataset that lies elsewhere to this machine.

pub mod download;
mod error;
pub mod generate;
pub mod ingest;
pub mod input;
mod lists;
pub mod partition;
mod progress;
mod sort;
mod store;
mod tables;

pub use error::{Error, Result};
pub use lists::Layout;
pub use progress::{Job, Observer, Silent, Stage, StageObserver, Unit};
