//! Descriptors ride on frames over Unix sockets.

use std::fs::File;
use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use graphmill_net::{Error, FrameReader, MappedSlot, SharedSlot, Stream, split};
use graphmill_wire::{Header, Kind, Limits, Message, VERSION, proto};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::net::UnixStream;

use crate::support::{Transport, frames};

fn slot(number: u32) -> Message {
    Message::Slot(proto::Slot { slot: number, bytes: 4096 })
}

#[tokio::test]
async fn every_slot_comes_with_its_own_descriptor_among_other_frames() {
    let (client, server) = Transport::Unix.connect().await;
    let ((mut reader, _keep), (_, mut writer)) = (frames(client), frames(server));
    let body = vec![9; 40_000];
    let sending = async {
        for number in 0..200u32 {
            // Frames of many lengths, so that slots begin everywhere in what is read at once.
            let before = &body[..(number as usize * 977) % body.len()];
            let rows = Message::Rows(proto::Rows { row_bytes: 1, ..proto::Rows::default() });
            writer.write(Header::new(Kind::Rows), &rows, &[before]).await.unwrap();
            let mut shared = SharedSlot::create(4096).unwrap();
            shared.bytes_mut().fill(number as u8);
            writer.write_with_fd(Header::new(Kind::Slot), &slot(number), shared.fd()).await.unwrap();
            if number % 3 == 0 {
                let ping = Message::Ping(proto::Ping {});
                writer.write(Header::new(Kind::Ping), &ping, &[]).await.unwrap();
            }
        }
        writer.shutdown().await.unwrap();
    };
    let receiving = async {
        let mut slots = 0;
        while let Some(incoming) = reader.next().await.unwrap() {
            assert_eq!(incoming.fd.is_some(), incoming.header.kind == Kind::Slot);
            if let Some(fd) = incoming.fd {
                assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
                assert_eq!(incoming.message, slot(slots));
                let mapped = MappedSlot::map(fd, 4096).unwrap();
                assert!(mapped.bytes().iter().all(|&byte| byte == slots as u8));
                slots += 1;
            }
        }
        assert_eq!(slots, 200);
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn a_descriptor_goes_to_the_frame_that_says_so_and_not_to_one_like_it() {
    let (client, server) = Transport::Unix.connect().await;
    let ((mut reader, _keep), (_, mut writer)) = (frames(client), frames(server));
    let plain = Message::Object(proto::Object { found: true, ..proto::Object::default() });
    let mapped = Message::Object(proto::Object { found: true, slot: Some(1), bytes: 4096 });
    let shared = SharedSlot::create(4096).unwrap();
    // All of it is there before the first is read.
    for _ in 0..3 {
        writer.push(Header::new(Kind::Object), &plain, b"small").unwrap();
        writer.write_with_fd(Header::new(Kind::Object), &mapped, shared.fd()).await.unwrap();
        writer.push(Header::new(Kind::Object), &plain, b"small").unwrap();
    }
    let mut found = Vec::new();
    for _ in 0..8 {
        found.push(reader.next().await.unwrap().unwrap().fd.is_some());
    }
    assert_eq!(found, [false, true, false, false, true, false, false, true]);
}

#[tokio::test]
async fn only_unix_sockets_carry_descriptors() {
    for transport in [Transport::Tcp, Transport::Tls] {
        let (client, _server) = transport.connect().await;
        let (_, mut writer) = frames(client);
        let shared = SharedSlot::create(4096).unwrap();
        let refused = writer.write_with_fd(Header::new(Kind::Slot), &slot(0), shared.fd()).await;
        assert!(matches!(refused, Err(Error::NoDescriptors)));
    }
}

/// A reader, the socket that it reads from, and a pipe: whoever has a copy of its writing end keeps its reader waiting.
fn watched() -> (FrameReader, UnixStream, File, OwnedFd) {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let (reader, _) = split(Stream::Unix(receiver), VERSION, Limits::CLIENT);
    let (from, to) = std::io::pipe().unwrap();
    (reader, sender, OwnedFd::from(from).into(), to.into())
}

/// Sends bytes with copies of a descriptor.
fn send(socket: &UnixStream, bytes: &[u8], descriptor: &OwnedFd, copies: usize) {
    let descriptors = vec![descriptor.as_fd(); copies];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let head = message.encode();
    let header = Header { head: head.len() as u32, ..Header::new(message.kind()) };
    [&header.encode(), head.as_slice()].concat()
}

/// Returns once every copy of the pipe's writing end is closed.
fn assert_all_closed(mut from: File, to: OwnedFd) {
    drop(to);
    assert_eq!(from.read(&mut [0]).unwrap(), 0);
}

#[tokio::test]
async fn descriptors_too_many_for_a_frame_are_closed() {
    let (mut reader, sender, from, to) = watched();
    send(&sender, &bytes_of(&slot(1)), &to, 8);
    let incoming = reader.next().await.unwrap().unwrap();
    assert!(incoming.fd.is_some());
    drop(incoming);
    assert_all_closed(from, to);
}

#[tokio::test]
async fn descriptors_on_other_frames_are_closed_and_never_taken_for_a_slots() {
    let (mut reader, sender, from, to) = watched();
    let ping = bytes_of(&Message::Ping(proto::Ping {}));
    for _ in 0..20 {
        send(&sender, &ping, &to, 2);
        assert!(reader.next().await.unwrap().unwrap().fd.is_none());
    }
    for byte in &ping {
        send(&sender, &[*byte], &to, 1);
    }
    assert!(reader.next().await.unwrap().unwrap().fd.is_none());
    sender.try_write(&bytes_of(&slot(1))).unwrap();
    assert!(reader.next().await.unwrap().unwrap().fd.is_none());
    assert_all_closed(from, to);
}
