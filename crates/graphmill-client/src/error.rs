//! What can go wrong with a loader.

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a loader could not be made or resumed, or a batch not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option contradicts itself or another.
    #[error("the loader cannot be made: {reason}")]
    Options {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Servers are named wrongly, or cannot be asked from here.
    #[error("the servers cannot be asked: {reason}")]
    Servers {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The dataset refused.
    #[error(transparent)]
    Dataset(#[from] graphmill_graph::Error),
    /// The sampler refused.
    #[error(transparent)]
    Sample(#[from] graphmill_sample::Error),
    /// A server cannot be reached, or cannot do it now.
    #[error("server {server} cannot {doing}: {reason}")]
    Unavailable {
        /// Which.
        server: String,
        /// What it was asked.
        doing: String,
        /// What happened.
        reason: String,
    },
    /// A server refused.
    #[error("server {server} refused to {doing}: {reason}")]
    Refused {
        /// Which.
        server: String,
        /// What it was asked.
        doing: String,
        /// Why.
        reason: String,
    },
    /// A server does not let this client in: by its token, its certificate, or because it speaks no TLS. Trying again does not
    /// help.
    #[error("server {server} refused to {doing}: {reason}")]
    Denied {
        /// Which.
        server: String,
        /// What it was asked.
        doing: String,
        /// Why.
        reason: String,
    },
    /// A dataset was asked for what cannot be, or answered so.
    #[error("the dataset cannot be read: {reason}")]
    Request {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A batch could not be sampled on a server. Other batches are not affected.
    #[error("server {server}: {reason}")]
    Batch {
        /// Which.
        server: String,
        /// The epoch.
        epoch: u64,
        /// The batch.
        g: u64,
        /// Whose fault it is.
        fault: Fault,
        /// Why.
        reason: String,
    },
    /// Something did not come in time.
    #[error("{what} did not come within {seconds} s ({reason})")]
    Late {
        /// What.
        what: String,
        /// How long it was waited for.
        seconds: f64,
        /// How the servers do.
        reason: String,
    },
    /// A state belongs to other batches than this loader's.
    #[error("the state does not fit this loader: its {what} is {found}, expected {expected}")]
    State {
        /// Which part of it.
        what: &'static str,
        /// What the state says.
        found: String,
        /// What the loader has.
        expected: String,
    },
    /// A bug: sampling a batch panicked. Other batches are not affected.
    #[error("sampling batch {g} of epoch {epoch} panicked: {message}")]
    Panicked {
        /// The epoch.
        epoch: u64,
        /// The batch.
        g: u64,
        /// What it said.
        message: String,
    },
}

/// Why a batch could not be sampled on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What was asked for cannot be, or would be too large.
    Request,
    /// There was no memory for it.
    Memory,
    /// The dataset is damaged, or there is a bug.
    Server,
}

impl Error {
    pub(crate) fn servers(reason: impl Into<String>) -> Self {
        Self::Servers { reason: reason.into() }
    }

    pub(crate) fn options(reason: impl Into<String>) -> Self {
        Self::Options { reason: reason.into() }
    }

    pub(crate) fn request(reason: impl Into<String>) -> Self {
        Self::Request { reason: reason.into() }
    }
}
