//! What is not a frame is an error, and nothing worse.

use graphmill_net::{Error, Stream, split};
use graphmill_wire::{Header, Kind, Limits, Message, VERSION, proto};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::support::{PATIENCE, Transport, frames};

fn frame(message: &Message, body: &[u8]) -> Vec<u8> {
    let head = message.encode();
    let header = Header { head: head.len() as u32, body: body.len() as u64, ..Header::new(message.kind()) };
    [&header.encode(), head.as_slice(), body].concat()
}

/// Reads all frames and their bodies, as far as it gets.
async fn read_all(bytes: &[u8], limits: Limits) -> Result<usize, Error> {
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let (mut reader, _keep) = split(Stream::Unix(receiver), VERSION, limits);
    let sending = async move { drop(sender.write_all(bytes).await) };
    let receiving = async move {
        let mut frames = 0;
        while let Some(incoming) = reader.next().await? {
            assert!(incoming.header.body <= limits.body, "a body beyond the limits got through");
            if incoming.header.body % 3 != 0 {
                let mut body = vec![0; incoming.header.body as usize];
                reader.read_body(&mut body).await?;
            }
            frames += 1;
        }
        Ok(frames)
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(sending, receiving).1 }).await.expect("an end in time")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[tokio::test]
async fn a_frame_that_is_cut_off_is_an_error_and_never_half_a_frame() {
    let bytes = frame(&Message::Lost(proto::Lost { reason: "it rains".to_owned() }), &[1; 100]);
    let head = bytes.len() - 100;
    for cut in 0..bytes.len() {
        let part = match read_all(&bytes[..cut], Limits::SERVER).await {
            Err(Error::Truncated { part }) => part,
            other => {
                assert!(cut == 0 && other.is_ok_and(|frames| frames == 0));
                continue;
            }
        };
        let expected = if cut < 48 {
            "header"
        } else if cut < head {
            "head"
        } else {
            "body"
        };
        assert_eq!(part, expected, "cut off after {cut} bytes");
    }
    assert_eq!(read_all(&bytes, Limits::SERVER).await.unwrap(), 1);
}

#[tokio::test]
async fn the_end_of_a_connection_is_clean_between_frames_only() {
    let bytes = frame(&Message::Ping(proto::Ping {}), &[]);
    for transport in Transport::ALL {
        for (sent, clean) in [(bytes.len(), true), (bytes.len() - 1, false)] {
            let (mut client, server) = transport.connect().await;
            client.write_all(&bytes).await.unwrap();
            client.write_all(&bytes[..sent]).await.unwrap();
            client.flush().await.unwrap();
            drop(client);
            let (mut reader, _keep) = frames(server);
            assert!(reader.next().await.unwrap().is_some());
            if clean {
                assert!(reader.next().await.unwrap().is_some());
                assert!(reader.next().await.unwrap().is_none(), "{transport:?}");
            } else {
                assert!(matches!(reader.next().await, Err(Error::Truncated { part: "header" })), "{transport:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_header_announces_beyond_the_limits_is_refused_before_it_comes() {
    let limits = Limits { head: 100, body: 1000 };
    for (head, body, reason) in [
        (101, 0, "head has 101 bytes"),
        (u32::MAX, 0, "head has"),
        (0, 1001, "body has 1001"),
        (0, u64::MAX, "body has"),
    ] {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let (mut reader, _keep) = split(Stream::Unix(receiver), VERSION, limits);
        sender.write_all(&Header { head, body, ..Header::new(Kind::Ping) }.encode()).await.unwrap();
        let refused = tokio::time::timeout(PATIENCE, reader.next()).await.expect("an answer without waiting for more");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
        assert!(reader.next().await.is_err(), "an error stays");
    }
}

#[tokio::test]
async fn a_body_takes_memory_as_it_comes_and_one_that_no_machine_has_is_an_error() {
    let limits = Limits { body: u64::MAX, ..Limits::CLIENT };
    let message = Message::Ping(proto::Ping {});
    for bytes in [0, 1, 16 << 10, 1 << 20, (3 << 20) + 1] {
        let content: Vec<u8> = (0..bytes).map(|place: usize| place as u8).collect();
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let (mut reader, _keep) = split(Stream::Unix(receiver), VERSION, limits);
        let sent = frame(&message, &content);
        let receive = async {
            reader.next().await.unwrap().unwrap();
            reader.read_whole_body(&|_| {}).await.unwrap()
        };
        let (sent, received) = tokio::join!(sender.write_all(&sent), receive);
        sent.unwrap();
        assert!(received == content, "{bytes}");
    }
    for body in [u64::MAX, 1 << 60] {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let (mut reader, _keep) = split(Stream::Unix(receiver), VERSION, limits);
        sender.write_all(&Header { body, ..Header::new(Kind::Ping) }.encode()).await.unwrap();
        reader.next().await.unwrap().unwrap();
        let error = reader.read_whole_body(&|_| {}).await.unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory),
            "{error}"
        );
    }
}

#[tokio::test]
async fn long_heads_are_read_among_short_ones() {
    let reasons = [3, 500_000, 0, 1_000_000, 20_000, 20_000, 5].map(|length| "r".repeat(length));
    let heads = reasons.map(|reason| Message::Lost(proto::Lost { reason }));
    let bytes: Vec<u8> = heads.iter().flat_map(|head| frame(head, b"body")).collect();
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let (mut reader, _keep) = split(Stream::Unix(receiver), VERSION, Limits::SERVER);
    let receive = async {
        for head in &heads {
            let incoming = reader.next().await.unwrap().unwrap();
            assert!(incoming.message == *head);
            let mut body = [0; 4];
            reader.read_body(&mut body).await.unwrap();
            assert_eq!(&body, b"body");
        }
    };
    let (sent, ()) = tokio::join!(sender.write_all(&bytes), receive);
    sent.unwrap();
}

#[tokio::test]
async fn an_http_answer_is_not_a_frame() {
    let error = read_all(&b"HTTP/1.1 400 Bad Request\r\n".repeat(3), Limits::CLIENT).await.unwrap_err();
    assert!(error.to_string().contains("wire version 72, expected 1"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_make_a_reader_panic_or_hang(bytes: Vec<u8>) {
        let _ = block_on(read_all(&bytes, Limits::SERVER));
    }

    #[test]
    fn no_damage_to_frames_makes_a_reader_panic_or_hang(
        bodies in proptest::collection::vec(0usize..20_000, 1..6),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut: prop::sample::Index,
    ) {
        let heads = [
            Message::Rows(proto::Rows { row_bytes: 4, ..proto::Rows::default() }),
            Message::Ping(proto::Ping {}),
            Message::Slot(proto::Slot { slot: 3, bytes: 7 }),
            Message::Credit(proto::Credit { g: (0..50).collect() }),
        ];
        let whole = bodies.iter().zip(heads.iter().cycle()).flat_map(|(&body, head)| frame(head, &vec![7; body]));
        let mut bytes: Vec<u8> = whole.collect();
        prop_assert_eq!(block_on(read_all(&bytes, Limits::SERVER)).unwrap(), bodies.len());
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = block_on(read_all(&bytes, Limits { head: 1 << 10, body: 1 << 16 }));
    }
}
