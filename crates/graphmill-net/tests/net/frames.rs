//! What is sent arrives, over every transport.

use std::time::Duration;

use graphmill_net::Error;
use graphmill_wire::{Header, Kind, Message, proto};
use tokio::io::AsyncWriteExt as _;

use crate::support::{Transport, frames};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place * 31 + place / 251) as u8).collect()
}

fn rows(row_bytes: usize) -> Message {
    Message::Rows(proto::Rows { row_bytes: row_bytes as u64, ..proto::Rows::default() })
}

#[tokio::test]
async fn frames_of_every_size_arrive_as_they_were_sent() {
    const SIZES: [usize; 11] = [0, 1, 2, 47, 48, 16_383, 16_384, 16_385, 300_000, 20_000_000, 3];
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
        let sending = async {
            for (request, bytes) in SIZES.into_iter().enumerate() {
                let body = pattern(bytes);
                let (first, second) = body.split_at(bytes / 3);
                let header = Header { request: request as u64, g: 7, ..Header::new(Kind::Ping) };
                writer.write(header, &rows(bytes), &[&[], first, &[], second, &[]]).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        };
        let receiving = async {
            for (request, bytes) in SIZES.into_iter().enumerate() {
                let incoming = reader.next().await.unwrap().unwrap();
                let header = incoming.header;
                assert_eq!((header.kind, header.request, header.g), (Kind::Rows, request as u64, 7));
                assert_eq!(header.body, bytes as u64);
                assert_eq!(incoming.message, rows(bytes));
                let mut body = vec![0; bytes];
                reader.read_body(&mut body).await.unwrap();
                assert!(body == pattern(bytes), "{transport:?}, {bytes} bytes");
            }
            assert!(reader.next().await.unwrap().is_none());
        };
        tokio::join!(sending, receiving);
    }
}

#[tokio::test]
async fn long_heads_and_crowds_of_small_frames_arrive() {
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
        let heads: Vec<usize> = [0, 1, 2, 3, 5].iter().cycle().take(2000).copied().chain([5_000, 100_000, 1]).collect();
        let credit = |numbers: usize| Message::Credit(proto::Credit { g: (0..numbers as u64).collect() });
        let sending = async {
            for &numbers in &heads {
                writer.write(Header::new(Kind::Credit), &credit(numbers), &[]).await.unwrap();
            }
        };
        let receiving = async {
            for &numbers in &heads {
                assert_eq!(reader.next().await.unwrap().unwrap().message, credit(numbers));
            }
        };
        tokio::join!(sending, receiving);
    }
}

#[tokio::test]
async fn both_directions_flow_at_once() {
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let flow = |stream| async {
            let (mut reader, mut writer) = frames(stream);
            let (body, mut room) = (pattern(1_000_000), vec![0; 1_000_000]);
            let sending = async {
                for _ in 0..20 {
                    writer.write(Header::new(Kind::Rows), &rows(1), &[&body]).await.unwrap();
                }
            };
            let receiving = async {
                for _ in 0..20 {
                    reader.next().await.unwrap().unwrap();
                    reader.read_body(&mut room).await.unwrap();
                    assert!(room == body);
                }
            };
            tokio::join!(sending, receiving);
        };
        tokio::join!(flow(client), flow(server));
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_skipped() {
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
        let sending = async {
            for request in 0..6 {
                let body = pattern(request * 100_000);
                let header = Header { request: request as u64, ..Header::new(Kind::Rows) };
                writer.write(header, &rows(1), &[&body]).await.unwrap();
            }
        };
        let receiving = async {
            for request in 0..6 {
                let header = reader.next().await.unwrap().unwrap().header;
                assert_eq!(header.request, request);
                if request == 3 {
                    let refused = reader.read_body(&mut [0; 5]).await;
                    assert!(matches!(refused, Err(Error::Room { body: 300_000, room: 5 })));
                    reader.skip_body().await.unwrap();
                    reader.read_body(&mut []).await.unwrap();
                }
            }
        };
        tokio::join!(sending, receiving);
    }
}

#[tokio::test]
async fn a_reader_that_is_interrupted_anywhere_goes_on() {
    for transport in Transport::ALL {
        let (mut client, server) = transport.connect().await;
        let (mut reader, _keep) = frames(server);
        let mut bytes = Vec::new();
        for request in 0..3 {
            let head = Message::Credit(proto::Credit { g: vec![request] }).encode();
            let header = Header { head: head.len() as u32, body: 10, request, ..Header::new(Kind::Credit) };
            bytes.extend(header.encode());
            bytes.extend(head);
            bytes.extend(pattern(10));
        }
        let sending = async {
            for byte in bytes {
                client.write_all(&[byte]).await.unwrap();
                client.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
            client
        };
        let receiving = async {
            for request in 0..3 {
                let incoming = loop {
                    if let Ok(next) = tokio::time::timeout(Duration::from_micros(50), reader.next()).await {
                        break next.unwrap().unwrap();
                    }
                };
                assert_eq!(incoming.message, Message::Credit(proto::Credit { g: vec![request] }));
            }
        };
        tokio::join!(sending, receiving);
    }
}

#[tokio::test]
async fn a_writer_whose_other_side_takes_nothing_gives_up() {
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let (_, mut writer) = frames(client);
        writer.set_stall(Duration::from_millis(100));
        let body = vec![0; 64 << 20];
        let sent = writer.write(Header::new(Kind::Rows), &rows(1), &[&body]).await;
        assert!(matches!(sent, Err(Error::Stalled(_))), "{transport:?}: {sent:?}");
        let sent = writer.write(Header::new(Kind::Ping), &Message::Ping(proto::Ping {}), &[]).await;
        assert!(matches!(sent, Err(Error::CutOff)), "{transport:?}: {sent:?}");
        drop(server);
    }
}

#[tokio::test]
async fn a_write_that_was_dropped_halfway_cuts_off() {
    let (client, _server) = Transport::Tcp.connect().await;
    let (_, mut writer) = frames(client);
    let body = vec![0; 64 << 20];
    let (header, message) = (Header::new(Kind::Rows), rows(1));
    let sent = tokio::time::timeout(Duration::from_millis(100), writer.write(header, &message, &[&body])).await;
    assert!(sent.is_err());
    assert!(matches!(writer.write(header, &message, &[]).await, Err(Error::CutOff)));
}

#[tokio::test]
async fn a_head_that_nobody_would_accept_is_not_sent() {
    let (client, server) = Transport::Tcp.connect().await;
    let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
    let long = Message::Failed(proto::Failed { code: 0, reason: "x".repeat(2 << 20) });
    let refused = writer.write(Header::new(Kind::Failed), &long, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("accepted are 1048576"), "{refused}");
    writer.write(Header::new(Kind::Ping), &Message::Ping(proto::Ping {}), &[]).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().header.kind, Kind::Ping);
}

#[tokio::test]
async fn versions_can_change_after_the_handshake() {
    let (client, server) = Transport::Tcp.connect().await;
    let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
    let ping = Message::Ping(proto::Ping {});
    writer.write(Header::new(Kind::Ping), &ping, &[]).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().header.version, 1);
    writer.set_version(2);
    reader.set_version(2);
    writer.write(Header::new(Kind::Ping), &ping, &[]).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().header.version, 2);
    writer.set_version(3);
    writer.write(Header::new(Kind::Ping), &ping, &[]).await.unwrap();
    assert!(reader.next().await.unwrap_err().to_string().contains("wire version 3, expected 2"));
}

#[tokio::test]
async fn frames_that_wait_are_sent_together_and_before_later_ones() {
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
        let header = |request| Header { request, ..Header::new(Kind::Ping) };
        for request in 0..5 {
            writer.push(header(request), &rows(3), &pattern(3)).unwrap();
        }
        assert!(writer.waiting() > 5 * 48);
        assert!(tokio::time::timeout(Duration::from_millis(50), reader.next()).await.is_err(), "nothing is sent yet");
        writer.write(header(5), &rows(7), &[&pattern(7)]).await.unwrap();
        writer.push(header(6), &rows(0), &[]).unwrap();
        writer.flush().await.unwrap();
        assert_eq!(writer.waiting(), 0);
        for request in 0..7 {
            let frame = reader.next().await.unwrap().unwrap();
            assert_eq!(frame.header.request, request, "{transport:?}");
            let mut body = vec![0; frame.header.body as usize];
            reader.read_body(&mut body).await.unwrap();
            assert_eq!(body, pattern(body.len()));
            if request < 4 {
                assert!(reader.is_next_here(), "{transport:?}: it came with the others");
            }
        }
        assert!(!reader.is_next_here());
    }
}

#[tokio::test]
async fn whoever_watches_is_told_every_byte() {
    use std::sync::atomic::{AtomicU64, Ordering};
    for transport in Transport::ALL {
        let (client, server) = transport.connect().await;
        let ((mut reader, _keep), (_, mut writer)) = (frames(server), frames(client));
        let (body, sent, came) = (pattern(3_000_000), AtomicU64::new(0), AtomicU64::new(0));
        let count = |counter: &AtomicU64, bytes| {
            counter.fetch_add(bytes, Ordering::Relaxed);
        };
        let (message, head) = (rows(9), 48 + rows(9).encode().len() as u64);
        let (watch_sent, watch_came) = (|bytes| count(&sent, bytes), |bytes| count(&came, bytes));
        let sending = async {
            writer.write_watched(Header::new(Kind::Ping), &message, &[&body], &watch_sent).await.unwrap();
        };
        let receiving = async {
            reader.next().await.unwrap().unwrap();
            let mut room = vec![0; body.len()];
            reader.read_body_watched(&mut room, &watch_came).await.unwrap();
            assert!(room == body);
        };
        tokio::join!(sending, receiving);
        assert_eq!((sent.into_inner(), came.into_inner()), (3_000_000 + head, 3_000_000), "{transport:?}");
    }
}
