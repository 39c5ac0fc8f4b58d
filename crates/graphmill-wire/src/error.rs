//! What can be wrong with a frame.

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes are not a frame of this protocol. A connection on which that happens cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The version is not the one agreed on.
    #[error("a frame has wire version {found}, expected {expected}; upgrade the older member")]
    Version {
        /// What it has.
        found: u8,
        /// What was agreed on.
        expected: u8,
    },
    /// A server chose a version that it was not offered.
    #[error("the server chose wire version {found}, offered were {oldest} to {newest}")]
    Chosen {
        /// What it chose.
        found: u32,
        /// The oldest that was offered.
        oldest: u8,
        /// The newest that was offered.
        newest: u8,
    },
    /// There is no such kind of frame.
    #[error("a frame has the unknown kind {0}")]
    Kind(u8),
    /// A reserved byte is set.
    #[error("a frame has reserved bytes that are not zero")]
    Reserved,
    /// Head or body is longer than this side accepts.
    #[error("a frame's {part} has {bytes} bytes, accepted are {limit}")]
    TooLong {
        /// `head` or `body`.
        part: &'static str,
        /// What the header says.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The head is not the Protobuf message that belongs to the kind.
    #[error("the head of a frame cannot be read")]
    Head(#[from] prost::DecodeError),
    /// The head contradicts itself, the body, or what was asked.
    #[error("a frame contradicts itself: {0}")]
    Content(String),
}

impl Error {
    pub(crate) fn content(reason: impl Into<String>) -> Self {
        Self::Content(reason.into())
    }
}
