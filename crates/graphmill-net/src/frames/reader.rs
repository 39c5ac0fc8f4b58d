//! Receiving frames.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use graphmill_wire::{HEADER, Header, Limits, Message};
use tokio::io::AsyncReadExt as _;

use super::{ReadHalf, Watch};
use crate::tls::TLS_ALERT;
use crate::{Error, Result};

/// What is read ahead, so that a small frame costs no system call of its own. A body that is longer than what was read ahead
/// goes straight to where it belongs.
const READ_AHEAD: usize = 16 << 10;
/// How much of a new buffer is taken at a time.
const STEP: usize = 1 << 20;
/// Descriptors that wait for their frame; an honest sender needs two.
const WAITING: usize = 4;

/// A frame that has come, up to its body.
#[derive(Debug)]
pub struct Incoming {
    /// Its header.
    pub header: Header,
    /// Its decoded head.
    pub message: Message,
    /// The descriptor that came with the first byte over a Unix socket, if its message says that one does.
    pub fd: Option<OwnedFd>,
}

/// The receiving direction of a data connection.
///
/// Nothing here times out; wrap a call where that is wanted. A future that is dropped loses no bytes of the stream: `next`
/// goes on where it was, and what is left of a body is skipped. After an error the connection cannot go on.
#[derive(Debug)]
pub struct FrameReader {
    half: ReadHalf,
    version: u8,
    limits: Limits,
    /// Bytes that were read ahead lie at `ahead`.
    buffer: Vec<u8>,
    ahead: Range<usize>,
    /// What is left of the body of the last frame.
    body: u64,
    /// How many bytes came from the stream since the preface.
    received: u64,
    /// Descriptors in the order in which they came, each with the part of the stream that was read with it.
    descriptors: VecDeque<(Range<u64>, OwnedFd)>,
}

impl FrameReader {
    pub(super) fn new(half: ReadHalf, version: u8, limits: Limits) -> Self {
        let buffer = vec![0; READ_AHEAD];
        Self { half, version, limits, buffer, ahead: 0..0, body: 0, received: 0, descriptors: VecDeque::new() }
    }

    /// Expects frames of another version from here on: the one that the handshake agreed on.
    pub fn set_version(&mut self, version: u8) {
        self.version = version;
    }

    /// Accepts frames within other limits from here on: those for somebody who is known.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The next frame; `None` if the connection ended after the last one. Its body follows by [`Self::read_body`]; a body
    /// that nobody read is skipped.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is not a frame within the limits.
    pub async fn next(&mut self) -> Result<Option<Incoming>> {
        self.skip_body().await?;
        self.shrink();
        if !self.read_ahead(HEADER, "header").await? {
            return Ok(None);
        }
        let header = *self.buffer[self.ahead.clone()].first_chunk().expect("a header was read ahead");
        let header = Header::decode(&header, self.version, self.limits)?;
        let bytes = HEADER + header.head as usize;
        self.read_ahead(bytes, "head").await?;
        let head = self.ahead.start + HEADER..self.ahead.start + bytes;
        let message = Message::decode(header.kind, &self.buffer[head])?;
        let fd = self.descriptor(message.has_descriptor());
        self.ahead.start += bytes;
        self.body = header.body;
        Ok(Some(Incoming { header, message, fd }))
    }

    /// Whether the next frame, up to its body, was read ahead: then `next` does not wait.
    pub fn is_next_here(&self) -> bool {
        let Some(header) = self.buffer[self.ahead.clone()].first_chunk().filter(|_| self.body == 0) else {
            return false;
        };
        // What cannot be read is found out at once too.
        Header::decode(header, self.version, self.limits)
            .map_or(true, |header| self.ahead.len() - HEADER >= header.head as usize)
    }

    /// Reads the body of the frame that `next` returned. The room must be exactly as large as the header says.
    ///
    /// # Errors
    /// When the connection breaks, or the room has another size.
    pub async fn read_body(&mut self, room: &mut [u8]) -> Result<()> {
        self.read_body_watched(room, &|_| {}).await
    }

    /// The same, telling how many bytes came with each step.
    ///
    /// # Errors
    /// As for [`Self::read_body`].
    pub async fn read_body_watched(&mut self, room: &mut [u8], watch: Watch<'_>) -> Result<()> {
        if room.len() as u64 != self.body {
            return Err(Error::Room { body: self.body, room: room.len() as u64 });
        }
        self.fill(room, watch).await
    }

    /// Reads the body of the frame that `next` returned into a buffer of its own. Its memory is taken as the bytes come: to
    /// announce many costs the sender nothing, and so must cost nothing here.
    ///
    /// # Errors
    /// When the connection breaks, or there is no memory for so many bytes.
    pub async fn read_whole_body(&mut self, watch: Watch<'_>) -> Result<Vec<u8>> {
        let no_memory = || Error::Io { action: "make room for a body", source: io::ErrorKind::OutOfMemory.into() };
        let mut body = Vec::new();
        let bytes = usize::try_from(self.body).map_err(|_| no_memory())?;
        body.try_reserve_exact(bytes).map_err(|_| no_memory())?;
        while body.len() < bytes {
            let came = body.len();
            body.resize(bytes.min(came + STEP), 0);
            self.fill(&mut body[came..], watch).await?;
        }
        Ok(body)
    }

    /// Reads so many bytes of a body as there is room for.
    async fn fill(&mut self, room: &mut [u8], watch: Watch<'_>) -> Result<()> {
        let ahead = self.ahead.len().min(room.len());
        let (first, mut room) = room.split_at_mut(ahead);
        first.copy_from_slice(&self.buffer[self.ahead.start..][..ahead]);
        self.ahead.start += ahead;
        self.body -= ahead as u64;
        watch(ahead as u64);
        while !room.is_empty() {
            let (bytes, descriptor) = self.half.read(room).await.map_err(Error::io("read the body of a frame"))?;
            if bytes == 0 {
                return Err(Error::Truncated { part: "body" });
            }
            self.note(bytes, descriptor);
            self.body -= bytes as u64;
            watch(bytes as u64);
            room = &mut room[bytes..];
        }
        Ok(())
    }

    /// Reads what is left of a body and forgets it.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn skip_body(&mut self) -> Result<()> {
        while self.body > 0 {
            if !self.read_ahead(1, "body").await? {
                return Err(Error::Truncated { part: "body" });
            }
            let skipped = (self.ahead.len() as u64).min(self.body);
            self.ahead.start += skipped as usize;
            self.body -= skipped;
        }
        Ok(())
    }

    /// Has so many bytes read ahead; says no if the connection ended and there is none at all.
    async fn read_ahead(&mut self, bytes: usize, part: &'static str) -> Result<bool> {
        while self.ahead.len() < bytes {
            self.buffer.copy_within(self.ahead.clone(), 0);
            self.ahead = 0..self.ahead.len();
            // By what has come, and not by what was announced.
            let room = bytes.min(2 * self.ahead.len()).max(READ_AHEAD);
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
            let read = self.half.read(&mut self.buffer[self.ahead.end..room]).await;
            let (bytes, descriptor) = read.map_err(Error::io("read a frame"))?;
            if bytes == 0 {
                return match &self.buffer[self.ahead.clone()] {
                    [] => Ok(false),
                    // An alert is all that it answers to what is not TLS, and shorter than a header.
                    [TLS_ALERT, ..] => Err(Error::SpeaksTls),
                    _ => Err(Error::Truncated { part }),
                };
            }
            self.note(bytes, descriptor);
            self.ahead.end += bytes;
        }
        Ok(true)
    }

    /// Gives the memory of a long head back.
    fn shrink(&mut self) {
        if self.buffer.len() > READ_AHEAD && self.ahead.len() <= READ_AHEAD {
            self.buffer.copy_within(self.ahead.clone(), 0);
            self.ahead = 0..self.ahead.len();
            self.buffer.truncate(READ_AHEAD);
            self.buffer.shrink_to_fit();
        }
    }

    /// Counts what came. A descriptor too many is closed.
    fn note(&mut self, bytes: usize, descriptor: Option<OwnedFd>) {
        let before = self.received;
        self.received += bytes as u64;
        if let Some(descriptor) = descriptor.filter(|_| self.descriptors.len() < WAITING) {
            self.descriptors.push_back((before..self.received, descriptor));
        }
    }

    /// The descriptor of the frame that is next in the buffer. Those that came before its first byte belong to nothing.
    fn descriptor(&mut self, has_one: bool) -> Option<OwnedFd> {
        let first = self.received - self.ahead.len() as u64;
        while self.descriptors.front().is_some_and(|(read, _)| read.end <= first) {
            self.descriptors.pop_front();
        }
        let (read, _) = self.descriptors.front()?;
        let its_own = has_one && read.start <= first;
        if its_own { self.descriptors.pop_front().map(|(_, descriptor)| descriptor) } else { None }
    }
}

impl ReadHalf {
    /// Reads some bytes, none at the end of the stream. Dropping the future loses nothing.
    async fn read(&mut self, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        match self {
            Self::Tcp(half) => Ok((half.read(into).await?, None)),
            Self::Unix(half) => half.receive(into).await,
            Self::Tls(half) => match half.read(into).await {
                // The other side left without a word. Frames say themselves where they end, so nothing can be missed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok((0, None)),
                read => Ok((read?, None)),
            },
        }
    }
}
