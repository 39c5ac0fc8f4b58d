//! Which server serves which partition (`docs/rendezvous.md`, "Storage"): the registry of a run.
//!
//! [`Registry`] is all of it as a machine without clock, threads or network. Nothing in it depends on the order of a map or on
//! anything but what servers said, so that a coordinator that takes over goes on as the one before would have.

mod client;
mod records;
mod registry;
mod task;
mod wire;

pub use client::{Following, Incomplete, Registration, follow, keep_registered, missing};
pub use records::{Kept, read, server_change, terms_change};
pub use registry::{Arrival, LEASES, PARTS, Registry, SERVERS, Server, Terms, Unfit};
pub use task::Status;
pub(crate) use task::{Command, Handle, Place};
pub(crate) use wire::{arrival, partitions, to_status};
