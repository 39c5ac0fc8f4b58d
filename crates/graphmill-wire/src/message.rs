//! The head of a frame, decoded.

use prost::Message as _;

use crate::{Kind, Result, proto};

/// What a frame says.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/wire.md has a line for each")]
pub enum Message {
    Hello(proto::Hello),
    Welcome(proto::Welcome),
    Refused(proto::Refused),
    Credit(proto::Credit),
    Batch(proto::BatchHead),
    Failed(proto::Failed),
    Lost(proto::Lost),
    Slot(proto::Slot),
    Return(proto::Return),
    Ask(proto::Ask),
    Answer(proto::Answer),
    Gather(proto::Gather),
    Rows(proto::Rows),
    Ping(proto::Ping),
    Pong(proto::Pong),
    Read(proto::Read),
    Reading(proto::Reading),
}

impl Message {
    /// The kind of its frame.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Welcome(_) => Kind::Welcome,
            Self::Refused(_) => Kind::Refused,
            Self::Credit(_) => Kind::Credit,
            Self::Batch(_) => Kind::Batch,
            Self::Failed(_) => Kind::Failed,
            Self::Lost(_) => Kind::Lost,
            Self::Slot(_) => Kind::Slot,
            Self::Return(_) => Kind::Return,
            Self::Ask(_) => Kind::Ask,
            Self::Answer(_) => Kind::Answer,
            Self::Gather(_) => Kind::Gather,
            Self::Rows(_) => Kind::Rows,
            Self::Ping(_) => Kind::Ping,
            Self::Pong(_) => Kind::Pong,
            Self::Read(_) => Kind::Read,
            Self::Reading(_) => Kind::Reading,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(message) => message.encode_to_vec(),
            Self::Welcome(message) => message.encode_to_vec(),
            Self::Refused(message) => message.encode_to_vec(),
            Self::Credit(message) => message.encode_to_vec(),
            Self::Batch(message) => message.encode_to_vec(),
            Self::Failed(message) => message.encode_to_vec(),
            Self::Lost(message) => message.encode_to_vec(),
            Self::Slot(message) => message.encode_to_vec(),
            Self::Return(message) => message.encode_to_vec(),
            Self::Ask(message) => message.encode_to_vec(),
            Self::Answer(message) => message.encode_to_vec(),
            Self::Gather(message) => message.encode_to_vec(),
            Self::Rows(message) => message.encode_to_vec(),
            Self::Ping(message) => message.encode_to_vec(),
            Self::Pong(message) => message.encode_to_vec(),
            Self::Read(message) => message.encode_to_vec(),
            Self::Reading(message) => message.encode_to_vec(),
        }
    }

    /// Reads the head of a frame of some kind.
    ///
    /// # Errors
    /// When it is not the kind's message.
    pub fn decode(kind: Kind, head: &[u8]) -> Result<Self> {
        Ok(match kind {
            Kind::Hello => Self::Hello(proto::Hello::decode(head)?),
            Kind::Welcome => Self::Welcome(proto::Welcome::decode(head)?),
            Kind::Refused => Self::Refused(proto::Refused::decode(head)?),
            Kind::Credit => Self::Credit(proto::Credit::decode(head)?),
            Kind::Batch => Self::Batch(proto::BatchHead::decode(head)?),
            Kind::Failed => Self::Failed(proto::Failed::decode(head)?),
            Kind::Lost => Self::Lost(proto::Lost::decode(head)?),
            Kind::Slot => Self::Slot(proto::Slot::decode(head)?),
            Kind::Return => Self::Return(proto::Return::decode(head)?),
            Kind::Ask => Self::Ask(proto::Ask::decode(head)?),
            Kind::Answer => Self::Answer(proto::Answer::decode(head)?),
            Kind::Gather => Self::Gather(proto::Gather::decode(head)?),
            Kind::Rows => Self::Rows(proto::Rows::decode(head)?),
            Kind::Ping => Self::Ping(proto::Ping::decode(head)?),
            Kind::Pong => Self::Pong(proto::Pong::decode(head)?),
            Kind::Read => Self::Read(proto::Read::decode(head)?),
            Kind::Reading => Self::Reading(proto::Reading::decode(head)?),
        })
    }
}
