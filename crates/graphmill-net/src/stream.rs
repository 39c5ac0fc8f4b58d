//! A connection, whatever carries it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
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

impl Stream {
    /// Has the system ask now and then whether the other side is still there, so that one that vanished without a word is
    /// noticed within a minute or so. Processes of this host cannot vanish like that.
    ///
    /// # Errors
    /// When the connection has ended already.
    pub fn keep_alive(&self) -> io::Result<()> {
        let stream = match self {
            Self::Unix(_) => return Ok(()),
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
        Ok(sockopt::set_tcp_keepcnt(stream, 3)?)
    }

    /// What is wrong with a connection for control that was answered with these first bytes, if they tell.
    ///
    /// # Errors
    /// When the other side answers in TLS and this side does not speak it, or not in HTTP/2.
    pub fn check_answer(&self, first: &[u8]) -> crate::Result<()> {
        /// What the fourth byte of a server's first frame says: these are its settings.
        const SETTINGS: u8 = 4;
        match first {
            [crate::tls::TLS_ALERT, ..] if !matches!(self, Self::Tls(_)) => Err(crate::Error::SpeaksTls),
            [_, _, _, kind, ..] if *kind != SETTINGS => Err(crate::Error::Stranger),
            _ => Ok(()),
        }
    }
}

/// What may be under way on this host at a time; the system doubles it, for what it adds to each piece.
///
/// What was sent is read by another core within microseconds. A long queue, which the system would let grow to megabytes, only
/// sees to it that it has gone to memory by then; a short one is read from the caches.
const UNDER_WAY: usize = 256 << 10;

/// Has a Unix socket send as much at a time as is best here.
pub(crate) fn tune_unix(socket: &UnixStream) {
    // Only speed is lost where the system grants less.
    let _ = sockopt::set_socket_send_buffer_size(socket, UNDER_WAY);
}

/// Has nothing that is sent wait for more to come, and on this host bounds what is under way. Elsewhere the system finds out how
/// much the way there takes.
///
/// # Errors
/// When the connection is broken.
pub(crate) fn tune_tcp(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    // One's own address leads here too.
    let ends = socket.local_addr().and_then(|here| Ok((here.ip(), socket.peer_addr()?.ip())));
    if ends.is_ok_and(|(here, there)| there == here || there.to_canonical().is_loopback()) {
        let _ = sockopt::set_socket_send_buffer_size(socket, UNDER_WAY);
    }
    Ok(())
}
