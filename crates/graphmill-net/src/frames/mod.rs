//! Frames over a stream: `docs/wire.md`, "A data connection".

mod reader;
mod writer;

use graphmill_wire::Limits;
use tokio::net::{TcpStream, tcp};
use tokio_rustls::TlsStream;

pub use reader::{FrameReader, Incoming};
pub use writer::{FrameWriter, STALL};

use crate::Stream;
use crate::unix::{self, UnixReader, UnixWriter};

/// Somebody who is told, step by step, how many bytes were moved.
pub type Watch<'a> = &'a (dyn Fn(u64) + Sync);

/// The two directions of a connection after its preface, for frames of a version. `limits` is what this side accepts.
///
/// When the writer is dropped the other side sees the end of the connection, except under TLS, where the connection stays
/// until both halves are gone or [`FrameWriter::shutdown`] was called.
pub fn split(stream: Stream, version: u8, limits: Limits) -> (FrameReader, FrameWriter) {
    let (read, write) = match stream {
        Stream::Tcp(stream) => {
            let (read, write) = stream.into_split();
            (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
        }
        Stream::Unix(stream) => {
            let (read, write) = unix::split(stream);
            (ReadHalf::Unix(read), WriteHalf::Unix(write))
        }
        Stream::Tls(stream) => {
            let (read, write) = tokio::io::split(*stream);
            (ReadHalf::Tls(read), WriteHalf::Tls(write))
        }
    };
    (FrameReader::new(read, version, limits), FrameWriter::new(write, version))
}

#[derive(Debug)]
enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(UnixReader),
    Tls(tokio::io::ReadHalf<TlsStream<TcpStream>>),
}

#[derive(Debug)]
enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(UnixWriter),
    Tls(tokio::io::WriteHalf<TlsStream<TcpStream>>),
}
