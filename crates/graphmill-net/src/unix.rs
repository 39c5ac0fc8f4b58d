//! What Unix sockets can do beyond streams: carry descriptors, tell who is there, look without taking.
#![allow(unsafe_code)]

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::ready;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, recv, recvmsg, sendmsg, shutdown,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::task::coop::consume_budget;

/// Parts that are sent at once; the system takes no more than 1,024.
const PARTS: usize = 1024;

/// The receiving direction of a connection.
///
/// Tokio watches its sockets for bytes and for room. A Unix socket has room again, to the system, whenever the other side has read
/// something: whoever waits for an answer is woken by the question's arrival. So these are watched for bytes alone, and for
/// room only when there is none.
#[derive(Debug)]
pub(crate) struct UnixReader {
    socket: Option<Arc<OwnedFd>>,
    watched: Option<AsyncFd<Arc<OwnedFd>>>,
}

/// The sending direction of a connection. When it is dropped the other side sees the end.
#[derive(Debug)]
pub(crate) struct UnixWriter {
    socket: Option<Arc<OwnedFd>>,
}

/// The two directions of a connection.
pub(crate) fn split(stream: UnixStream) -> (UnixReader, UnixWriter) {
    // One that the runtime cannot let go of is as good as gone.
    let socket = stream.into_std().ok().map(|socket| Arc::new(socket.into()));
    (UnixReader { socket: socket.clone(), watched: None }, UnixWriter { socket })
}

impl UnixReader {
    /// Reads some bytes, and the descriptor that came with one of them. Further descriptors are closed.
    ///
    /// The kernel never reads past the end of a message that carries descriptors, so the one returned came with the last
    /// message of which these bytes have a part. Dropping the future loses nothing.
    pub(crate) async fn receive(&mut self, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let watched = match &mut self.watched {
            Some(watched) => watched,
            none => none.insert(watch(Arc::clone(of(self.socket.as_ref())?), Interest::READABLE)?),
        };
        poll_fn(|context| {
            loop {
                let mut ready = ready!(watched.poll_read_ready(context))?;
                let mut received = None;
                let tried = ready.try_io(|socket| {
                    let (bytes, descriptor) = received.insert(receive_now(socket.get_ref(), into)?);
                    // Less than there was room for, and no descriptor to stop at: that was all there is. Saying so spares
                    // the call that would find it out.
                    let all = (1..into.len()).contains(bytes) && descriptor.is_none();
                    if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                });
                match (received, tried) {
                    (Some(received), _) => return Ok(received).into(),
                    (None, Ok(Err(error))) => return Err(error).into(),
                    (None, _) => {}
                }
            }
        })
        .await
    }
}

impl UnixWriter {
    /// Writes some bytes of some parts. Returns how many were taken.
    pub(crate) async fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let parts = &parts[..parts.len().min(PARTS)];
        self.send(|socket| Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)).await
    }

    /// Writes some bytes, with a descriptor riding on the first. Returns how many were taken, at least one.
    pub(crate) async fn write_with_fd(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        self.send(|socket| send_now(socket, bytes, descriptor)).await
    }

    /// Ends this direction.
    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        Ok(shutdown(of(self.socket.as_ref())?, Shutdown::Write)?)
    }

    /// Sends as soon as there is room.
    async fn send(&self, mut send: impl FnMut(&OwnedFd) -> io::Result<usize>) -> io::Result<usize> {
        let socket = of(self.socket.as_ref())?;
        // Whose reader is as fast as this must let others go on, too.
        consume_budget().await;
        match send(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
        // A descriptor of its own, for each is watched but once.
        let watched = watch(Arc::new(socket.try_clone()?), Interest::WRITABLE)?;
        watched.async_io(Interest::WRITABLE, |socket| send(socket)).await
    }
}

impl Drop for UnixWriter {
    fn drop(&mut self) {
        // One that has ended already is fine.
        let _ = self.shutdown();
    }
}

fn of(socket: Option<&Arc<OwnedFd>>) -> io::Result<&Arc<OwnedFd>> {
    socket.ok_or_else(|| io::ErrorKind::NotConnected.into())
}

fn watch(socket: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an owned descriptor stays open, and the same, until its last owner is gone, and what is returned is one.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

fn receive_now(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for further in descriptors {
                descriptor.get_or_insert(further);
            }
        }
    }
    Ok((received.bytes, descriptor))
}

fn send_now(socket: &OwnedFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(fits, "the space was made for one descriptor");
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// The first byte to come, which is left where it is; `None` when the connection ends before.
pub(crate) async fn peek(stream: &UnixStream) -> io::Result<Option<u8>> {
    stream
        .async_io(Interest::READABLE, || {
            let mut byte = [0];
            let (_, found) = recv(stream, &mut byte, RecvFlags::PEEK)?;
            Ok((found > 0).then_some(byte[0]))
        })
        .await
}
