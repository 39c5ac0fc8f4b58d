//! Errors of encoding and decoding.

/// Result of decoding a frame's head or body.
pub type Result<T> = std::result::Result<T, Error>;

/// Reasons why a frame cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The frame's head and body contradict each other, or the request.
    #[error(transparent)]
    Frame(#[from] graphmill_wire::Error),
    /// There is not enough memory for the decoded values.
    #[error(transparent)]
    Memory(#[from] graphmill_sample::Error),
}

impl Error {
    pub(crate) fn content(reason: impl Into<String>) -> Self {
        Self::Frame(graphmill_wire::Error::Content(reason.into()))
    }
}
