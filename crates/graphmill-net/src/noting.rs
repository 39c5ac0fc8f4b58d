//! Why a server does not talk to a client at all.
//!
//! The client's part of a TLS handshake is over before the server has looked at its certificate, so a refusal is only seen when
//! reading, and what reads hides the reason.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Error, Stream};

/// Why a connection is of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Useless {
    /// The server does not let this client in: a certificate, or TLS on one side alone.
    Denied(String),
    /// There is something else than a server.
    Stranger(String),
}

impl From<Error> for Useless {
    fn from(error: Error) -> Self {
        let reason = error.to_string();
        if matches!(error, Error::Stranger) { Self::Stranger(reason) } else { Self::Denied(reason) }
    }
}

/// Why the last connection for control was of no use, if it was not.
#[derive(Debug, Clone, Default)]
pub struct RefusalNote(Arc<Mutex<Option<Useless>>>);

impl RefusalNote {
    /// A new connection, whose refusal is noted here.
    pub fn watch(&self, stream: Stream) -> Noting {
        self.write(None);
        Noting { stream, note: self.clone(), answered: false }
    }

    /// The reason, if there is one.
    pub fn read(&self) -> Option<Useless> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, reason: Option<Useless>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

/// A connection that notes why it was refused.
#[derive(Debug)]
pub struct Noting {
    stream: Stream,
    note: RefusalNote,
    /// Whether anything was read.
    answered: bool,
}

impl AsyncRead for Noting {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        let refused = match &polled {
            Poll::Ready(Err(error)) => Error::certificate(error).map(Useless::Denied),
            Poll::Ready(Ok(())) if !self.answered => {
                self.answered = true;
                self.stream.check_answer(&into.filled()[before..]).err().map(Useless::from)
            }
            _ => None,
        };
        if refused.is_some() {
            self.note.write(refused);
        }
        polled
    }
}

impl AsyncWrite for Noting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
