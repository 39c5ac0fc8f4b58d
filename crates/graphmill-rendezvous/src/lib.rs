//! Elastic rendezvous (`docs/rendezvous.md`): who takes part in a run, with which rank, in which round.
//!
//! [`Run`] is the whole of it as a machine without clock, threads or network: members say what they want, and it tells them
//! what came of it. [`storage::Registry`] is the same for the servers of a run's dataset.

pub mod calls;
pub mod client;
mod coordinator;
pub mod etcd;
mod finder;
pub mod join;
pub mod keeper;
mod lease;
mod machine;
mod node;
pub mod records;
pub mod service;
mod settings;
pub mod state;
pub mod storage;
mod stores;
mod target;
mod task;
pub mod values;

pub use coordinator::{Coordinator, Keeping, Refused};
pub use machine::{Effect, Event, Outcome, Run};
pub use node::Node;
pub use settings::{InvalidSettings, Settings, check_run};
pub use stores::{Operation, Stored};
pub use target::{Place, Target};
pub use task::Status;
