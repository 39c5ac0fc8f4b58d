//! Transports: how frames and requests get from one member to another. Nothing here knows what a graph is.
//!
//! A [`Listener`] takes connections on TCP and Unix sockets, plain or under TLS, and tells the data plane from HTTP; [`dial`]
//! opens them. Either end is a [`Stream`], which HTTP libraries use as it is and which [`split`] turns into a [`FrameReader`]
//! and a [`FrameWriter`]. On one host a [`SharedSlot`] of the server becomes a [`MappedSlot`] of the client, so that batches
//! are not copied through a socket.

mod address;
mod dial;
mod eager;
mod error;
mod fork;
mod frames;
mod host;
mod listen;
mod mapping;
mod noting;
mod pagemap;
mod random;
mod received;
mod secret;
mod signals;
mod slots;
mod stream;
mod tls;
mod token;
mod unix;

/// What threads meet at. The models of `graphmill-server` compile what uses it with primitives of their own.
mod sync {
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

pub use address::Endpoint;
pub use dial::{connect_data, dial};
pub use eager::Eagerness;
pub use error::{Error, Result};
pub use fork::forks;
pub use frames::{FrameReader, FrameWriter, Incoming, STALL, Watch, split};
pub use host::host_id;
pub use listen::{Accepted, ListenOptions, Listener, PeerInfo};
pub use mapping::HUGE_PAGE;
pub use noting::{Noting, RefusalNote, Useless};
pub use pagemap::PageMap;
pub use random::random;
pub use received::{HeldSlot, ReceivedSlots};
pub use secret::read_secret;
pub use signals::{Stopping, stopping_signals};
pub use slots::{MappedSlot, SealedMemory, SharedSlot};
pub use stream::Stream;
pub use tls::{ClientTls, Plane, ServerTls};
pub use token::Token;
