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
    Put(proto::Put),
    Get(proto::Get),
    Object(proto::Object),
    Has(proto::Has),
    Evict(proto::Evict),
    Done(proto::Done),
    Reserve(proto::Reserve),
    List(proto::List),
    Listing(proto::Listing),
    Stop(proto::Stop),
}

/// Does the same to the Protobuf message inside, whichever it is.
macro_rules! inside {
    ($message:expr, $inner:ident => $call:expr) => {
        match $message {
            Message::Hello($inner) => $call,
            Message::Welcome($inner) => $call,
            Message::Refused($inner) => $call,
            Message::Credit($inner) => $call,
            Message::Batch($inner) => $call,
            Message::Failed($inner) => $call,
            Message::Lost($inner) => $call,
            Message::Slot($inner) => $call,
            Message::Return($inner) => $call,
            Message::Ask($inner) => $call,
            Message::Answer($inner) => $call,
            Message::Gather($inner) => $call,
            Message::Rows($inner) => $call,
            Message::Ping($inner) => $call,
            Message::Pong($inner) => $call,
            Message::Read($inner) => $call,
            Message::Reading($inner) => $call,
            Message::Put($inner) => $call,
            Message::Get($inner) => $call,
            Message::Object($inner) => $call,
            Message::Has($inner) => $call,
            Message::Evict($inner) => $call,
            Message::Done($inner) => $call,
            Message::Reserve($inner) => $call,
            Message::List($inner) => $call,
            Message::Listing($inner) => $call,
            Message::Stop($inner) => $call,
        }
    };
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
            Self::Put(_) => Kind::Put,
            Self::Get(_) => Kind::Get,
            Self::Object(_) => Kind::Object,
            Self::Has(_) => Kind::Has,
            Self::Evict(_) => Kind::Evict,
            Self::Done(_) => Kind::Done,
            Self::Reserve(_) => Kind::Reserve,
            Self::List(_) => Kind::List,
            Self::Listing(_) => Kind::Listing,
            Self::Stop(_) => Kind::Stop,
        }
    }

    /// How many bytes it has.
    pub fn encoded_len(&self) -> usize {
        inside!(self, message => message.encoded_len())
    }

    /// Appends its bytes.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        inside!(self, message => message.encode_raw(bytes));
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.encode_to(&mut bytes);
        bytes
    }

    /// Whether a descriptor rides on the first byte of its frame.
    pub fn has_descriptor(&self) -> bool {
        match self {
            Self::Slot(_) => true,
            Self::Put(put) => put.memory,
            Self::Object(object) => object.slot.is_some(),
            _ => false,
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
            Kind::Put => Self::Put(proto::Put::decode(head)?),
            Kind::Get => Self::Get(proto::Get::decode(head)?),
            Kind::Object => Self::Object(proto::Object::decode(head)?),
            Kind::Has => Self::Has(proto::Has::decode(head)?),
            Kind::Evict => Self::Evict(proto::Evict::decode(head)?),
            Kind::Done => Self::Done(proto::Done::decode(head)?),
            Kind::Reserve => Self::Reserve(proto::Reserve::decode(head)?),
            Kind::List => Self::List(proto::List::decode(head)?),
            Kind::Listing => Self::Listing(proto::Listing::decode(head)?),
            Kind::Stop => Self::Stop(proto::Stop::decode(head)?),
        })
    }
}
