//! The object store: blobs in memory that processes and hosts share, specified in `docs/objects.md`.
//!
//! A [`Connector`] puts bytes and gets a [`Key`]; whoever has the key gets the bytes, as an [`Object`]. They are in the memory
//! of an object [`Server`], which a connector finds ([`wait_server`]) or starts ([`spawn_server`]), and which ends by itself when
//! nobody uses it; or in a Redis server.

mod backend;
mod config;
mod connector;
mod error;
mod interrupt;
mod key;
mod life;
mod object;
mod process;
mod redis;
mod server;
mod wire;

pub use config::{Config, ServerConfig, Spawn};
pub use connector::{Connector, PutOptions};
pub use error::{Error, ErrorKind, Result};
pub use interrupt::Interrupt;
pub use key::{Key, Location, ObjectId};
pub use life::{ServerInfo, default_address, spawn_server, wait_server};
pub use object::{Entry, Object, Stat};
pub use server::{Server, serve_spawned, start_server};
pub use wire::AsyncConnector;
