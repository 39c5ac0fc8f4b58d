//! What can go wrong between two members.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Endpoint, tls};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a connection could not be made, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A text is not an address.
    #[error("{text:?} is not an address: {reason}; give HOST:PORT or unix:/PATH")]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A file of certificates, a key or a token cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A token that could not be sent.
    #[error("the token cannot be used: {0}")]
    Token(&'static str),
    /// An address cannot be listened on.
    #[error("cannot listen on {endpoint}: {reason}")]
    Listen {
        /// The address.
        endpoint: Endpoint,
        /// Why not, and what to do.
        reason: String,
    },
    /// The listener's tasks are gone: the runtime that it was made in stops.
    #[error("listening has ended because its runtime stops")]
    Stopped,
    /// No connection to an address.
    #[error("cannot connect to {endpoint}: {reason}")]
    Dial {
        /// The address.
        endpoint: Endpoint,
        /// Why not.
        reason: String,
    },
    /// One side does not accept the other's certificate.
    #[error("{0}")]
    Certificate(String),
    /// The other side answered in TLS, which this side does not speak.
    #[error("the server speaks TLS, and this side does not; say which authority signed its certificate")]
    SpeaksTls,
    /// The other side answered, but not in HTTP/2.
    #[error("something else listens there: it does not speak HTTP/2, as servers of graphmill do")]
    Stranger,
    /// The other side sent something that is not a frame of this protocol.
    #[error(transparent)]
    Frame(#[from] graphmill_wire::Error),
    /// The system failed a read or write; usually the other side is gone.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The connection ended where a frame had not.
    #[error("the connection ended inside the {part} of a frame; the other side is gone")]
    Truncated {
        /// `header`, `head` or `body`.
        part: &'static str,
    },
    /// The other side does not take what is sent to it.
    #[error("a frame could not be sent: the other side has taken nothing for {0:?}")]
    Stalled(Duration),
    /// An earlier write stopped inside a frame, by an error or because its future was dropped.
    #[error("nothing can be sent any more: an earlier frame was cut off; connect again")]
    CutOff,
    /// The room for a body is not as large as the body.
    #[error("a frame's body has {body} bytes, but room was made for {room}")]
    Room {
        /// What is left of the body.
        body: u64,
        /// What was given.
        room: u64,
    },
    /// Only a Unix socket carries descriptors.
    #[error("a descriptor can only be sent over a unix socket")]
    NoDescriptors,
}

impl Error {
    pub(crate) fn file(path: &Path, reason: &(impl Display + ?Sized)) -> Self {
        Self::File { path: path.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn listen(endpoint: &Endpoint, reason: &(impl Display + ?Sized)) -> Self {
        Self::Listen { endpoint: endpoint.clone(), reason: reason.to_string() }
    }

    pub(crate) fn dial(endpoint: &Endpoint, reason: &(impl Display + ?Sized)) -> Self {
        Self::Dial { endpoint: endpoint.clone(), reason: reason.to_string() }
    }

    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match Self::certificate(&source) {
            Some(reason) => Self::Certificate(reason),
            None => Self::Io { action, source },
        }
    }

    /// What is wrong with a certificate, if that is why something failed, however far down. Trying again will not help.
    pub fn certificate(error: &(dyn std::error::Error + 'static)) -> Option<String> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(Self::Certificate(reason)) = error.downcast_ref() {
                return Some(reason.clone());
            }
            // What an error of the system carries is not its source.
            let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let found = carried.map_or_else(|| tls::refusal(error), |carried| tls::refusal(carried));
            if found.is_some() {
                return found;
            }
            cause = error.source();
        }
        None
    }
}
