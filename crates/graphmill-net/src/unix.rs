//! What Unix sockets can do beyond streams: carry descriptors, tell who is there, look without taking.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::ready;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Reads some bytes, and the descriptor that came with one of them. Further descriptors are closed.
///
/// The kernel never reads past the end of a message that carries descriptors, so the one returned came with the last message
/// of which these bytes have a part. Dropping the future loses nothing.
pub(crate) async fn receive(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    poll_fn(|context| {
        loop {
            ready!(stream.poll_read_ready(context))?;
            let mut received = None;
            let tried = stream.try_io(Interest::READABLE, || {
                let (bytes, descriptor) = received.insert(receive_now(stream, into)?);
                // Less than there was room for, and no descriptor to stop at: that was all there is. Saying so spares the
                // call that would find it out.
                let all = (1..into.len()).contains(bytes) && descriptor.is_none();
                if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (received, tried) {
                (Some(received), _) => return Ok(received).into(),
                (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Err(error).into(),
                (None, _) => {}
            }
        }
    })
    .await
}

fn receive_now(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
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

/// Writes some bytes, with a descriptor riding on the first. Returns how many were taken, at least one.
pub(crate) async fn send(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    poll_fn(|context| {
        loop {
            ready!(stream.poll_write_ready(context))?;
            match stream.try_io(Interest::WRITABLE, || send_now(stream, bytes, descriptor)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.into(),
            }
        }
    })
    .await
}

fn send_now(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(fits, "the space was made for one descriptor");
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
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
