//! Calls of the control plane whose messages are any bytes.
//!
//! An input is a list of calls: a byte that says of what, the length in two bytes, little-endian, and the message.

use bytes::{Buf, BufMut, Bytes};
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

/// The most calls of an input.
const MOST: usize = 16;

/// The calls in an input.
pub fn calls(mut input: &[u8]) -> Vec<(u8, &[u8])> {
    let mut calls = Vec::new();
    while let [method, low, high, rest @ ..] = input
        && calls.len() < MOST
    {
        let (message, after) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        calls.push((*method, message));
        input = after;
    }
    calls
}

/// The input that is some calls.
pub fn input(calls: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Vec<u8> {
    let one =
        |(method, message): (u8, Vec<u8>)| [&[method][..], &(message.len() as u16).to_le_bytes(), &message].concat();
    calls.into_iter().flat_map(one).collect()
}

/// Sends messages, and gives back the first of the answer.
pub async fn call<S>(service: S, path: &'static str, messages: Vec<Bytes>) -> Result<Bytes, Status>
where
    S: GrpcService<tonic::body::Body>,
    S::Error: std::fmt::Debug,
    S::ResponseBody: tonic::codegen::Body<Data = Bytes> + Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError>,
{
    let mut grpc = Grpc::new(service).max_decoding_message_size(64 << 20);
    grpc.ready().await.map_err(|_| Status::unavailable("the service is gone")).unwrap();
    let request = Request::new(tokio_stream::iter(messages));
    let answer = grpc.streaming(request, PathAndQuery::from_static(path), Plain).await?;
    let mut parts = answer.into_inner();
    let first = parts.message().await?;
    // A watch goes on for ever; every other answer has an end.
    for _ in 0..64 {
        if path.contains("/Watch") || parts.message().await?.is_none() {
            break;
        }
    }
    Ok(first.unwrap_or_default())
}

/// Bytes as they are.
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
