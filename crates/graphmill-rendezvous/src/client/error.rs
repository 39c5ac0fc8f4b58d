//! Why a member does not get what it wants.

use std::time::Duration;

use graphmill_net::Endpoint;
use tonic::{Code, Status};

use crate::etcd::causes;

/// Why a member does not get what it wants.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The run is closed.
    #[error("run `{0}` is closed")]
    Closed(String),
    /// The run is closed, and this member was a spare that was never needed.
    #[error("run `{0}` is closed; this member was a spare")]
    Exit(String),
    /// It took too long.
    #[error("no round of run `{run}` was complete within {within:?}")]
    TimedOut {
        /// The run.
        run: String,
        /// The time that it had.
        within: Duration,
    },
    /// The coordinator has not heard of this member for longer than its lease.
    #[error("the coordinator has not heard of this member of run `{0}` for longer than its lease")]
    Lost(String),
    /// Rank 0 has died, or does not say where it is, and there was no time for another round.
    #[error("rank 0 of round {round} of run `{run}` has not said how it is reached")]
    NoMaster {
        /// The run.
        run: String,
        /// The last round that was tried.
        round: u64,
    },
    /// This member has rank 0, and has no port to tell the others.
    #[error("there is no port for rank 0: {0}")]
    Host(String),
    /// The member has left while it was joining.
    #[error("this member of run `{0}` has left while it was joining")]
    Left(String),
    /// Another call is joining.
    #[error("this member of run `{0}` is joining already; make one call at a time, or a member for each")]
    Joining(String),
    /// The coordinator cannot be reached.
    #[error("cannot {doing}: no coordinator answers at {at}: {reason}")]
    Unavailable {
        /// What was tried.
        doing: &'static str,
        /// Where.
        at: String,
        /// Why not.
        reason: String,
    },
    /// The coordinator answers, but it stands by or cannot keep the run.
    #[error("cannot {doing}: the coordinator at {at} does not serve: {reason}")]
    Unserved {
        /// What was tried.
        doing: &'static str,
        /// Where.
        at: String,
        /// Why not.
        reason: String,
    },
    /// The coordinator refuses.
    #[error("cannot {doing}: {reason}")]
    Refused {
        /// What was asked.
        doing: &'static str,
        /// Why not.
        reason: String,
    },
    /// No member of the run has joined yet.
    #[error("cannot {doing}: {reason}")]
    NoRun {
        /// What was asked.
        doing: &'static str,
        /// Which run.
        reason: String,
    },
    /// The token is missing or wrong, or a certificate is.
    #[error("cannot {doing}: {reason}")]
    Denied {
        /// What was asked.
        doing: &'static str,
        /// Why not.
        reason: String,
    },
    /// A value did not come in time.
    #[error("{0}")]
    NoValue(String),
    /// The round is long over, and its store with it.
    #[error("{0}")]
    NoRound(String),
    /// A key is missing.
    #[error("{0}")]
    NoKey(String),
}

impl Error {
    /// What a coordinator answers.
    pub(super) fn refused(doing: &'static str, status: &Status) -> Self {
        let reason = status.message().to_owned();
        match status.code() {
            Code::DeadlineExceeded => Self::NoValue(reason),
            Code::Aborted => Self::NoRound(reason),
            Code::FailedPrecondition => Self::NoKey(reason),
            Code::NotFound => Self::NoRun { doing, reason },
            Code::Unauthenticated | Code::PermissionDenied => Self::Denied { doing, reason },
            _ => Self::Refused { doing, reason },
        }
    }

    /// What comes in place of an answer.
    pub(super) fn unavailable(doing: &'static str, endpoint: &Endpoint, status: &Status) -> Self {
        let (at, reason) = (endpoint.to_string(), causes(status));
        // What comes from the transport has a cause; what a coordinator says has not.
        if status.code() == Code::Unavailable && std::error::Error::source(status).is_none() {
            return Self::Unserved { doing, at, reason };
        }
        Self::Unavailable { doing, at, reason }
    }
}
