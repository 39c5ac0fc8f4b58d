//! Loaders: from a dataset, a sampler configuration and seeds to epochs of batches.
//!
//! A [`Loader`] is embedded: it samples on threads of its own process. Which batches there are, and in which order, does not
//! depend on the threads, only on seeds, options and epoch (`docs/sampling.md`, section 2).

mod error;
mod loader;
mod seeds;

pub use error::{Error, Result};
pub use loader::{Batches, Loader, Options, Report, State};
pub use seeds::SeedList;
