//! The side of those who ask a coordinator: a [`Connection`] to it, and a [`Member`] of a run with the [`Store`]s of its rounds.

mod connection;
mod error;
mod master;
mod member;
mod store;

pub use connection::{ConnectOptions, Connection};
pub use error::Error;
pub use master::Master;
pub use member::{Joined, Member, Timeouts};
pub use store::Store;
