//! A connection that must say in time which HTTP it speaks.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use graphmill_net::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What HTTP/2 begins with; whatever is not this is HTTP/1.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail if too little came for too long. Whoever reads looks at the beginning for as long as it may
/// become HTTP/2, and has no patience of its own before it knows.
#[derive(Debug)]
pub(super) struct Beginning {
    stream: Stream,
    /// What is still to come until it is HTTP/2, and until when; nothing once it is clear.
    unclear: Option<(&'static [u8], Pin<Box<Sleep>>)>,
}

impl Beginning {
    pub(super) fn new(stream: Stream, patience: Duration) -> Self {
        Self { stream, unclear: Some((HTTP2, Box::pin(sleep(patience)))) }
    }
}

impl AsyncRead for Beginning {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, into);
        let Some((awaited, late)) = &mut this.unclear else { return read };
        if read.is_pending() {
            ready!(late.as_mut().poll(cx));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "it did not say in time what it speaks")));
        }
        let came = &into.filled()[before..];
        match awaited.strip_prefix(came) {
            Some(rest @ [_, ..]) if !came.is_empty() => *awaited = rest,
            _ => this.unclear = None,
        }
        read
    }
}

impl AsyncWrite for Beginning {
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
