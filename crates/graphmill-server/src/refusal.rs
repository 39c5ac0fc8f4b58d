//! Why a server says no: a code for programs, a sentence for people.

use graphmill_wire::proto::{self, Code};

/// A refusal, or the failure of one batch.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// What a program does about it.
    pub code: Code,
    /// What was being done, what was found, what to do.
    pub reason: String,
    /// Whether it is for want of room: the same server may have some in a moment.
    pub busy: bool,
}

/// What a refusal over gRPC carries if it is for want of room.
pub(crate) const BUSY: &str = "graphmill-busy";

impl Refusal {
    /// A refusal by its code.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), busy: false }
    }

    /// A limit is reached; worth another try, later and later.
    pub fn busy(reason: impl Into<String>) -> Self {
        Self { busy: true, ..Self::unavailable(reason) }
    }

    /// It would take more memory than there may ever be.
    pub fn over_budget(reason: impl Into<String>) -> Self {
        Self::new(Code::OverBudget, reason)
    }

    /// The request cannot be right.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::new(Code::Invalid, reason)
    }

    /// Token or certificate are missing or wrong.
    pub fn denied(reason: impl Into<String>) -> Self {
        Self::new(Code::Denied, reason)
    }

    /// Another law, graph or configuration.
    pub fn mismatch(reason: impl Into<String>) -> Self {
        Self::new(Code::Mismatch, reason)
    }

    /// Not now, or not here; worth another try.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, reason)
    }

    /// A bug, or damaged data.
    pub fn internal(reason: impl Into<String>) -> Self {
        Self::new(Code::Internal, reason)
    }

    /// A peer's answer cannot be read.
    pub(crate) fn of_answer(error: graphmill_codec::Error) -> Self {
        match error {
            graphmill_codec::Error::Memory(error) => error.into(),
            error @ graphmill_codec::Error::Frame(_) => Self::internal(error.to_string()),
        }
    }

    /// With words before the reason.
    #[must_use]
    pub fn while_doing(self, what: &str) -> Self {
        Self { reason: format!("{what}: {}", self.reason), ..self }
    }

    pub(crate) fn refused(&self) -> proto::Refused {
        proto::Refused { code: self.code.into(), reason: self.reason.clone() }
    }

    pub(crate) fn failed(&self) -> proto::Failed {
        proto::Failed { code: self.code.into(), reason: self.reason.clone() }
    }
}

impl From<graphmill_graph::Error> for Refusal {
    fn from(error: graphmill_graph::Error) -> Self {
        use graphmill_graph::Error;
        let code = match error {
            Error::Unknown { .. } | Error::OutOfRange { .. } => Code::Invalid,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<graphmill_sample::Error> for Refusal {
    fn from(error: graphmill_sample::Error) -> Self {
        use graphmill_sample::Error;
        let code = match error {
            Error::Dataset(error) => return error.into(),
            Error::Config { .. } | Error::TooLarge { .. } => Code::Invalid,
            Error::Memory { .. } => Code::OverBudget,
            Error::Unowned { .. } | Error::Stopped { .. } => Code::Unavailable,
            Error::Answer { .. } => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Refusal> for tonic::Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.code {
            Code::Invalid => tonic::Code::InvalidArgument,
            Code::Denied => tonic::Code::Unauthenticated,
            Code::Mismatch => tonic::Code::FailedPrecondition,
            Code::Unavailable => tonic::Code::Unavailable,
            Code::Internal => tonic::Code::Internal,
            Code::TooLarge | Code::OverBudget => tonic::Code::ResourceExhausted,
        };
        let mut status = Self::new(code, refusal.reason);
        if refusal.busy {
            status.metadata_mut().insert(BUSY, tonic::metadata::MetadataValue::from_static("1"));
        }
        status
    }
}
