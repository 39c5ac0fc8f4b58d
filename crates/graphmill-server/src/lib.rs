//! The storage server: some partitions of a graph, sampled fairly for everyone who asks.
//!
//! A [`Server`] listens on one address for three planes (`docs/wire.md`). Clients open backends and channels over the
//! control plane and name the batches they want over the data plane; the [`scheduler`] says whose batch is next; workers
//! run the sampler's machine, whose questions about nodes of other partitions go to peers.

mod asking;
mod backlog;
mod budget;
mod cluster;
mod connection;
mod core;
mod credits;
mod dataset;
mod http;
mod job;
mod life;
mod limits;
mod machinery;
mod meeting;
mod metrics;
mod outlet;
mod questions;
mod queue;
mod refusal;
mod registry;
mod rows;
mod sampling;
pub mod scheduler;
mod seeds;
mod server;
mod strays;
mod sync;
mod work;

pub use http::HttpServer;
pub use limits::Limits;
pub use meeting::{OpenPartitions, Rendezvous};
pub use refusal::Refusal;
pub use server::{Leftovers, Options, Server, StartError};
