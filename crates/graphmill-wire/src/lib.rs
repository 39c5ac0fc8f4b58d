//! What members of a cluster say to each other, specified in `docs/wire.md`: the frames of the data plane and the messages
//! of the control plane. Nothing here touches a socket.
//!
//! A [`Header`] says how long a frame is and what it is about; a [`Message`] is its decoded head; [`mod@read`]
//! lays out the bodies of the dataset service. `graphmill-codec` does the same for sampler queries and batches.

mod error;
mod header;
mod message;
pub mod read;
mod version;

/// The messages of `proto/graphmill/v1`, as generated.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, rust_2018_idioms, unused_qualifications)]
pub mod proto {
    tonic::include_proto!("graphmill.v1");

    /// The description of all messages and services, for reflection.
    pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/graphmill.v1.bin"));
}

pub use error::{Error, Result};
pub use header::{Header, Kind, Limits, PREFACE};
pub use message::Message;
pub use version::{GREETING, OLDEST, VERSION, agree, chosen};

/// The bytes of a header.
pub const HEADER: usize = 48;
/// The protocol's name in a TLS handshake.
pub const ALPN: &[u8] = b"graphmill/1";
