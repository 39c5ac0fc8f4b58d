//! The samplers: machines without I/O over a graph view, the batches they make, and the driver that runs a machine
//! beside the data.
//!
//! `docs/sampling.md` specifies what a batch is. A [`Config`] says what is wanted, a [`Plan`] is a configuration checked
//! against a dataset, a [`Machine`] follows a plan and asks questions, a [`View`] answers them, and a [`Sampler`] brings
//! machine and view together. This crate knows nothing of threads, sockets or files.

mod batch;
mod cache;
mod config;
mod epoch;
mod error;
mod exchange;
pub mod law;
mod machine;
mod memory;
mod partitioned;
mod places;
mod plan;
mod room;
mod row_cache;
mod sampler;
mod seeds;
mod split;
mod view;

pub use batch::{Batch, Buffer, Entry, Field, Layout, Pool, Slot, TensorView};
pub use config::{Budget, Config, Expand, Fanouts, Hops, Negatives, Ppr, Supervision, Task, TypeFanouts};
pub use epoch::{Cuts, Cutting, SeedCuts, SeedOrder};
pub use error::{Error, Result};
pub use exchange::{Answer, Ask, IdVec, Need, Take};
pub use law::BatchId;
pub use machine::{Machine, Pairs, Seeds, Step};
pub use partitioned::PartitionLists;
pub use plan::Plan;
pub use room::{grow, make_room, room};
pub use row_cache::{CacheRoom, KeptRows, RowCache};
pub use sampler::{Sampler, Times};
pub use seeds::{Cut, SeedList};
pub use split::{RowSplit, Share, Split};
pub use view::{AnswerScratch, Gather, Source, View};
