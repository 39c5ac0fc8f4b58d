//! A connection, whatever carries it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// An open connection.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP, from either side.
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
            Stream::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_read(cx, into))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => Pin::new(inner).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}

/// What a socket may hold on its way, where the system grants it: a batch is tens of megabytes, and a small buffer makes it
/// many wake-ups.
const BUFFER: u32 = 4 << 20;

/// Asks for large buffers. Must come before connecting or listening, when the window's scale is chosen. A host whose limit is
/// lower is left alone: a size that was asked for stays fixed, while its own choice grows past that limit.
pub(crate) fn enlarge_tcp(socket: &TcpSocket) {
    let grants = |limit: &str| {
        let text = std::fs::read_to_string(limit).unwrap_or_default();
        text.trim_end().parse::<u32>().is_ok_and(|limit| limit >= BUFFER)
    };
    // Only speed is lost when the system refuses.
    if grants("/proc/sys/net/core/rmem_max") {
        let _ = socket.set_recv_buffer_size(BUFFER);
    }
    if grants("/proc/sys/net/core/wmem_max") {
        let _ = socket.set_send_buffer_size(BUFFER);
    }
}

/// The same for a Unix socket, whose buffers never grow by themselves.
pub(crate) fn enlarge_unix(socket: &UnixStream) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, BUFFER as usize);
}
