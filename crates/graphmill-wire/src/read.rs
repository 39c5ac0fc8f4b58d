//! Questions of the dataset service that one server asks another, as frames carry them: heads say what is wanted of the
//! answerer, bodies are the service's own messages.

use prost::Message;

use crate::proto::{
    LookupRequest, LookupResponse, NodeIdsRequest, NodeIdsResponse, OriginalIdsRequest, OriginalIdsResponse, Read,
    ReadMethod,
};
use crate::{Error, Result};

/// A request that a server may pass on.
pub trait Request: Message + Default {
    /// What it is called in a head.
    const METHOD: ReadMethod;
    /// What answers it.
    type Response: Message + Default;

    /// The head of a question to the owner of some partitions.
    fn head(partitions: Vec<u32>) -> Read {
        Read { method: Self::METHOD.into(), partitions, start: 0, count: 0 }
    }
}

impl Request for NodeIdsRequest {
    const METHOD: ReadMethod = ReadMethod::NodeIds;
    type Response = NodeIdsResponse;
}

impl Request for OriginalIdsRequest {
    const METHOD: ReadMethod = ReadMethod::OriginalIds;
    type Response = OriginalIdsResponse;
}

impl Request for LookupRequest {
    const METHOD: ReadMethod = ReadMethod::Lookup;
    type Response = LookupResponse;
}

/// The body of a question or an answer.
pub fn body(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

/// What a body says.
///
/// # Errors
/// When it is not such a message.
pub fn decode<M: Message + Default>(body: &[u8]) -> Result<M> {
    M::decode(body).map_err(|error| Error::content(format!("the body of a reading cannot be read: {error}")))
}
