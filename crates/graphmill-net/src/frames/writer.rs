//! Sending frames.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use graphmill_wire::{HEADER, Header, Limits, Message};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{Watch, WriteHalf};
use crate::{Error, Result};

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
    /// Frames that wait to be sent, and header and head of the one that is being written.
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
    /// are looked at; the rest follows from message and body. Frames that wait are sent before it.
    ///
    /// # Errors
    /// When the connection breaks or stalls, an earlier write did not end, or the head is longer than anyone accepts; only
    /// after the last the connection can go on.
    pub async fn write(&mut self, header: Header, message: &Message, body: &[&[u8]]) -> Result<()> {
        self.write_watched(header, message, body, &|_| {}).await
    }

    /// The same, telling how many bytes were taken in each step.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub async fn write_watched(
        &mut self,
        header: Header,
        message: &Message,
        body: &[&[u8]],
        watch: Watch<'_>,
    ) -> Result<()> {
        self.begin(header, message, body.iter().map(|part| part.len() as u64).sum())?;
        self.inside = true;
        if let [part] = body {
            self.half.write_all(&mut [IoSlice::new(&self.beginning), IoSlice::new(part)], self.stall, watch).await?;
        } else {
            let parts = std::iter::once(&self.beginning[..]).chain(body.iter().copied());
            self.half.write_all(&mut parts.map(IoSlice::new).collect::<Vec<_>>(), self.stall, watch).await?;
        }
        self.ended();
        Ok(())
    }

    /// Lets a frame wait, to be sent together with others by [`Self::flush`] or the next write. Nothing is sent here.
    ///
    /// # Errors
    /// When an earlier write did not end, or the head is longer than anyone accepts.
    pub fn push(&mut self, header: Header, message: &Message, body: &[u8]) -> Result<()> {
        self.begin(header, message, body.len() as u64)?;
        self.beginning.extend_from_slice(body);
        Ok(())
    }

    /// The bytes of the frames that wait.
    pub fn waiting(&self) -> usize {
        self.beginning.len()
    }

    /// Sends the frames that wait.
    ///
    /// # Errors
    /// When the connection breaks or stalls, or an earlier write did not end.
    pub async fn flush(&mut self) -> Result<()> {
        if self.inside {
            return Err(Error::CutOff);
        }
        if self.beginning.is_empty() {
            return Ok(());
        }
        self.inside = true;
        self.half.write_all(&mut [IoSlice::new(&self.beginning)], self.stall, &|_| {}).await?;
        self.ended();
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
        // Its first byte must be the first of a message to the system.
        self.flush().await?;
        self.begin(header, message, 0)?;
        self.inside = true;
        let sent = self.half.send(&self.beginning, fd, self.stall).await?;
        self.half.write_all(&mut [IoSlice::new(&self.beginning[sent..])], self.stall, &|_| {}).await?;
        self.ended();
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
                WriteHalf::Unix(half) => half.shutdown(),
                WriteHalf::Tls(half) => half.shutdown().await,
            }
        };
        progress(self.stall, "end a connection", ended).await
    }

    /// Lays out header and head, behind what waits.
    fn begin(&mut self, header: Header, message: &Message, body: u64) -> Result<()> {
        if self.inside {
            return Err(Error::CutOff);
        }
        let bytes = message.encoded_len();
        let limit = Limits::CLIENT.head;
        let head = u32::try_from(bytes).ok().filter(|&head| head <= limit).ok_or(graphmill_wire::Error::TooLong {
            part: "head",
            bytes: bytes as u64,
            limit: limit.into(),
        })?;
        let header = Header { version: self.version, kind: message.kind(), head, body, ..header };
        self.beginning.reserve(HEADER + bytes);
        self.beginning.extend_from_slice(&header.encode());
        message.encode_to(&mut self.beginning);
        Ok(())
    }

    /// Everything was sent.
    fn ended(&mut self) {
        self.inside = false;
        self.beginning.clear();
    }
}

impl WriteHalf {
    async fn write_all(&mut self, mut parts: &mut [IoSlice<'_>], stall: Duration, watch: Watch<'_>) -> Result<()> {
        const ACTION: &str = "send a frame";
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let written = async {
                match self {
                    Self::Tcp(half) => half.write_vectored(parts).await,
                    Self::Unix(half) => half.write(parts).await,
                    Self::Tls(half) => half.write_vectored(parts).await,
                }
            };
            let written = progress(stall, ACTION, written).await?;
            if written == 0 {
                return Err(Error::io(ACTION)(io::ErrorKind::WriteZero.into()));
            }
            watch(written as u64);
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
            Self::Unix(half) => progress(stall, "send a descriptor", half.write_with_fd(bytes, fd)).await,
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
