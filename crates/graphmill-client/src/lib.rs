//! Loaders: from a dataset, a sampler configuration and seeds to epochs of batches.
//!
//! A [`Loader`] is embedded, and samples on threads of its own process, or remote, and receives what storage servers have
//! sampled. Which batches there are, and in which order, does not depend on that, nor on the number of threads or servers,
//! only on seeds, options and epoch (`docs/sampling.md`, section 2).

mod error;
mod loader;
mod remote;

pub use error::{Error, Fault, Result};
pub use graphmill_sample::SeedList;
pub use loader::{Batches, Loader, Options, Report, Standing, State};
pub use remote::{
    AnchorLabels, ConnectOptions, EdgeIndex, EdgeLayout, Meta, Original, Padded, PartitionBook, Remote, RemoteDataset,
    Rows, Seeding, ServerSlice, Servers, Shard, Traffic, Transport, compress, rank_slices,
};
