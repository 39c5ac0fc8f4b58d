//! Sending frames.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use graphmill_wire::{HEADER, Header, Limits, Message};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::WriteHalf;
use crate::{Error, Result, unix};

/// How long the other side may take nothing before a write fails, unless set otherwise.
pub const STALL: Duration = Duration::from_secs(30);

/// The sending direction of a data connection.
///
/// A future that is dropped may leave half a frame on the wire. Nothing can follow that, so later writes fail at once.
#[derive(Debug)]
pub struct FrameWriter {
    half: WriteHalf,
    version: u8,
    stall: Duration,
    /// Header and head of the frame that is being written.
    beginning: Vec<u8>,
    /// Whether a frame was begun and not ended.
    inside: bool,
}

impl FrameWriter {
    pub(super) fn new(half: WriteHalf, version: u8) -> Self {
        Self { half, version, stall: STALL, beginning: Vec::new(), inside: false }
    }

    /// Writes frames of another version from here on: the one that the handshake agreed on.
    pub fn set_version(&mut self, version: u8) {
        self.version = version;
    }

    /// Changes how long the other side may take nothing before a write fails.
    pub fn set_stall(&mut self, stall: Duration) {
        self.stall = stall;
    }

    /// Sends a frame, whose body is all parts one after the other. Of the header only `request`, `channel`, `epoch` and `g`
    /// are looked at; the rest follows from message and body.
    ///
    /// # Errors
    /// When the connection breaks or stalls, an earlier write did not end, or the head is longer than anyone accepts; only
    /// after the last the connection can go on.
    pub async fn write(&mut self, header: Header, message: &Message, body: &[&[u8]]) -> Result<()> {
        self.begin(header, message, body.iter().map(|part| part.len() as u64).sum())?;
        let mut parts = Vec::with_capacity(1 + body.len());
        parts.push(IoSlice::new(&self.beginning));
        parts.extend(body.iter().map(|part| IoSlice::new(part)));
        self.half.write_all(&mut parts, self.stall).await?;
        self.inside = false;
        Ok(())
    }

    /// Sends a frame without a body, with a descriptor riding on its first byte. Over a Unix socket only.
    ///
    /// # Errors
    /// As for [`Self::write`], and when it is not a Unix socket.
    pub async fn write_with_fd(&mut self, header: Header, message: &Message, fd: BorrowedFd<'_>) -> Result<()> {
        if !matches!(self.half, WriteHalf::Unix(_)) {
            return Err(Error::NoDescriptors);
        }
        self.begin(header, message, 0)?;
        let sent = self.half.send(&self.beginning, fd, self.stall).await?;
        self.half.write_all(&mut [IoSlice::new(&self.beginning[sent..])], self.stall).await?;
        self.inside = false;
        Ok(())
    }

    /// Ends this direction: the other side sees a clean end after the last frame.
    ///
    /// # Errors
    /// When the connection is broken already, or stalls.
    pub async fn shutdown(&mut self) -> Result<()> {
        self.inside = true;
        let ended = async {
            match &mut self.half {
                WriteHalf::Tcp(half) => half.shutdown().await,
                WriteHalf::Unix(half) => half.shutdown().await,
                WriteHalf::Tls(half) => half.shutdown().await,
            }
        };
        progress(self.stall, "end a connection", ended).await
    }

    /// Lays out header and head.
    fn begin(&mut self, header: Header, message: &Message, body: u64) -> Result<()> {
        if self.inside {
            return Err(Error::CutOff);
        }
        let head = message.encode();
        let limit = Limits::CLIENT.head;
        let length = u32::try_from(head.len())
            .ok()
            .filter(|&length| length <= limit)
            .ok_or(graphmill_wire::Error::TooLong { part: "head", bytes: head.len() as u64, limit: limit.into() })?;
        let header = Header { version: self.version, kind: message.kind(), head: length, body, ..header };
        self.beginning.clear();
        self.beginning.reserve(HEADER + head.len());
        self.beginning.extend_from_slice(&header.encode());
        self.beginning.extend_from_slice(&head);
        self.inside = true;
        Ok(())
    }
}

impl WriteHalf {
    async fn write_all(&mut self, mut parts: &mut [IoSlice<'_>], stall: Duration) -> Result<()> {
        const ACTION: &str = "send a frame";
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let written = async {
                match self {
                    Self::Tcp(half) => half.write_vectored(parts).await,
                    Self::Unix(half) => half.write_vectored(parts).await,
                    Self::Tls(half) => half.write_vectored(parts).await,
                }
            };
            let written = progress(stall, ACTION, written).await?;
            if written == 0 {
                return Err(Error::io(ACTION)(io::ErrorKind::WriteZero.into()));
            }
            IoSlice::advance_slices(&mut parts, written);
        }
        match self {
            // What TLS has encrypted and not sent yet is bounded, so this is one step.
            Self::Tls(half) => progress(stall, ACTION, half.flush()).await,
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }

    async fn send(&mut self, bytes: &[u8], fd: BorrowedFd<'_>, stall: Duration) -> Result<usize> {
        match self {
            Self::Unix(half) => progress(stall, "send a descriptor", unix::send(half.as_ref(), bytes, fd)).await,
            Self::Tcp(_) | Self::Tls(_) => Err(Error::NoDescriptors),
        }
    }
}

/// One step of sending, which must not take longer than a stall.
async fn progress<T>(stall: Duration, action: &'static str, step: impl Future<Output = io::Result<T>>) -> Result<T> {
    match timeout(stall, step).await {
        Ok(done) => done.map_err(Error::io(action)),
        Err(_) => Err(Error::Stalled(stall)),
    }
}
