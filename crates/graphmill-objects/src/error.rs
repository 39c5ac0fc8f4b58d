//! What a caller is told when an object could not be put or got.

use std::time::Duration;

use graphmill_wire::proto::Code;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No answer came within the deadline. The server may be busy, or the network slow.
    #[error("cannot {doing}: no answer from {at} within {within:?}; is the server busy, or the deadline too short?")]
    Timeout {
        /// What was being done.
        doing: &'static str,
        /// The server.
        at: String,
        /// The time that it had.
        within: Duration,
    },
    /// Nobody answers, or the connection broke: the server is gone, and its objects with it.
    #[error("cannot {doing}: no object server at {at}: {reason}")]
    Unreachable {
        /// What was being done.
        doing: &'static str,
        /// The server.
        at: String,
        /// What was found.
        reason: String,
    },
    /// An object is larger than its server takes.
    #[error(
        "cannot put an object of {bytes} bytes: {at} takes at most {limit}; raise its object limit, or cut the object"
    )]
    TooLarge {
        /// The object's size.
        bytes: u64,
        /// The limit.
        limit: u64,
        /// The server.
        at: String,
    },
    /// There is no room for an object, also after waiting for some.
    #[error("cannot put an object: {0}; evict some, raise the budget, or let the server evict")]
    OverBudget(String),
    /// A text is no key, or a key cannot be used here.
    #[error("{text:?} is not a key that can be used: {reason}")]
    BadKey {
        /// The key, or its beginning.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The token or the certificate is missing or wrong.
    #[error("cannot {doing}: {at} denies access: {reason}")]
    Denied {
        /// What was being done.
        doing: &'static str,
        /// The server.
        at: String,
        /// What it says.
        reason: String,
    },
    /// The server says no, for a reason that it gives.
    #[error("cannot {doing}: {at} refuses: {reason}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The server.
        at: String,
        /// What it says.
        reason: String,
    },
    /// A server could not be started.
    #[error("cannot start an object server at {at}: {reason}")]
    Start {
        /// Where it should be.
        at: String,
        /// Why not.
        reason: String,
    },
    /// A configuration cannot be right.
    #[error("{0}")]
    Config(String),
    /// The caller's own [`Interrupt`](crate::Interrupt) ended the wait.
    #[error("cannot {doing}: interrupted")]
    Interrupted {
        /// What was being done.
        doing: &'static str,
    },
}

/// What kind of error it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "`Error` says what each is")]
pub enum ErrorKind {
    Timeout,
    Unreachable,
    TooLarge,
    OverBudget,
    BadKey,
    Denied,
    Refused,
    Start,
    Config,
    Interrupted,
}

impl ErrorKind {
    /// Its name in `docs/objects.md`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::TooLarge => "too_large",
            Self::OverBudget => "over_budget",
            Self::BadKey => "bad_key",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Start => "start",
            Self::Config => "config",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Error {
    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::OverBudget(_) => ErrorKind::OverBudget,
            Self::BadKey { .. } => ErrorKind::BadKey,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::Start { .. } => ErrorKind::Start,
            Self::Config(_) => ErrorKind::Config,
            Self::Interrupted { .. } => ErrorKind::Interrupted,
        }
    }

    pub(crate) fn unreachable(doing: &'static str, at: &str, reason: impl Into<String>) -> Self {
        Self::Unreachable { doing, at: at.to_owned(), reason: reason.into() }
    }

    pub(crate) fn refused(doing: &'static str, at: &str, reason: impl Into<String>) -> Self {
        Self::Refused { doing, at: at.to_owned(), reason: reason.into() }
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is for map_err")]
    pub(crate) fn config(reason: impl ToString) -> Self {
        Self::Config(reason.to_string())
    }

    /// What a server's code and words mean here.
    pub(crate) fn from_server(doing: &'static str, at: &str, code: Code, reason: String) -> Self {
        let at = at.to_owned();
        match code {
            Code::Denied => Self::Denied { doing, at, reason },
            Code::OverBudget => Self::OverBudget(reason),
            Code::Unavailable => Self::Unreachable { doing, at, reason },
            Code::TooLarge | Code::Invalid | Code::Mismatch | Code::Internal => Self::Refused { doing, at, reason },
        }
    }

    /// What a broken connection means here.
    pub(crate) fn from_net(doing: &'static str, at: &str, error: &graphmill_net::Error) -> Self {
        let (at, reason) = (at.to_owned(), error.to_string());
        match error {
            graphmill_net::Error::Certificate(_) | graphmill_net::Error::SpeaksTls => {
                Self::Denied { doing, at, reason }
            }
            graphmill_net::Error::Frame(_) => Self::Refused { doing, at, reason },
            graphmill_net::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => {
                Self::Refused { doing, at, reason }
            }
            _ => Self::Unreachable { doing, at, reason },
        }
    }
}
