//! However the bytes of a connection come in pieces, its reader finds in them the frames that are there, and the same end.
//!
//! The first byte of an input says how large the pieces are, the second what is done with bodies.

#![no_main]

mod corpus;
mod seeds;

use graphmill_net::{Error, Stream, split};
use graphmill_wire::{HEADER, Header, Limits, Message, VERSION};
use libfuzzer_sys::fuzz_target;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

const LIMITS: Limits = Limits { head: 16 << 10, body: 1 << 16 };

/// Whether the body of a frame is read; else the reader skips it.
fn is_read(number: usize, bodies: u8) -> bool {
    bodies >> (number % 8) & 1 == 1
}

/// How a connection ended.
#[derive(Debug, PartialEq)]
enum End {
    /// After a frame.
    Clean,
    /// Inside one.
    CutOff,
    /// At something that is not a frame.
    Garbage,
}

type Frames = (Vec<(Header, Message, Option<Vec<u8>>)>, End);

/// The frames in bytes that lie in memory.
fn expected(mut bytes: &[u8], bodies: u8) -> Frames {
    let mut frames = Vec::new();
    let end = loop {
        if bytes.is_empty() {
            break End::Clean;
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { break End::CutOff };
        let Ok(header) = Header::decode(header, VERSION, LIMITS) else { break End::Garbage };
        let Some((head, rest)) = rest.split_at_checked(header.head as usize) else { break End::CutOff };
        let Ok(message) = Message::decode(header.kind, head) else { break End::Garbage };
        let body = rest.get(..header.body as usize);
        let is_read = is_read(frames.len(), bodies);
        frames.push((header, message, body.filter(|_| is_read).map(<[u8]>::to_vec)));
        if body.is_none() {
            break End::CutOff;
        }
        bytes = &rest[header.body as usize..];
    };
    (frames, end)
}

/// The frames that come over a socket.
async fn received(bytes: &[u8], piece: usize, bodies: u8) -> Frames {
    let (mut near, far) = UnixStream::pair().unwrap();
    let (mut reader, _writer) = split(Stream::Unix(far), VERSION, LIMITS);
    let send = async {
        for piece in bytes.chunks(piece) {
            // The reader may have given up.
            if near.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(near);
    };
    let receive = async {
        let mut frames = Vec::new();
        let end = loop {
            let is_here = reader.is_next_here();
            let frame = match reader.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    assert!(!is_here, "a frame that is here is not the end");
                    break End::Clean;
                }
                Err(Error::Frame(_)) => break End::Garbage,
                Err(Error::Truncated { .. } | Error::SpeaksTls) => break End::CutOff,
                Err(other) => panic!("{other}"),
            };
            assert!(frame.fd.is_none());
            let mut body = None;
            if is_read(frames.len(), bodies) {
                let mut room = vec![0; frame.header.body as usize];
                // Into memory that is there, or that is taken as bytes come.
                let read = match frames.len() % 2 {
                    0 => reader.read_body(&mut room).await.map(|()| room),
                    _ => reader.read_whole_body(&|_| {}).await,
                };
                match read {
                    Ok(read) => body = Some(read),
                    Err(Error::Truncated { part: "body" }) => {
                        frames.push((frame.header, frame.message, None));
                        break End::CutOff;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            frames.push((frame.header, frame.message, body));
        };
        drop(reader);
        (frames, end)
    };
    tokio::join!(send, receive).1
}

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
}

/// All frames in one connection, and each alone.
fn inputs() -> Vec<Vec<u8>> {
    let frames = seeds::frames();
    let all = [&[200, 0b0101_0101][..], &frames.concat()].concat();
    let one = |(number, frame): (usize, Vec<u8>)| [&[number as u8, 0xff][..], &frame].concat();
    std::iter::once(all).chain(frames.into_iter().enumerate().map(one)).collect()
}

fuzz_target!(init: corpus::write_to_corpus(&inputs()), |input: &[u8]| {
    let [piece, bodies, bytes @ ..] = input else { return };
    // Many small pieces are slow, and find no more than a few.
    let piece = usize::from(*piece) * usize::from(*piece) / 4 + 1 + bytes.len() / 64;
    let found = RUNTIME.with(|runtime| runtime.block_on(received(bytes, piece, *bodies)));
    assert_eq!(found, expected(bytes, *bodies));
});
