//! Encodes sampler queries, query results and batch layouts as frame heads and bodies.
//!
//! `docs/wire.md` specifies the bytes. [`query`] converts between the sampler's types and the frames that servers exchange;
//! [`batch`] converts the layout of a batch. This crate connects `graphmill-sample` and `graphmill-wire`, which do not depend
//! on each other, and performs no I/O.

pub mod batch;
mod error;
pub mod query;

pub use error::{Error, Result};
