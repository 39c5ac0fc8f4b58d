//! What clients and peers send, damaged and cut off: every answer is a frame, every connection ends, and the server goes on.

use graphmill_client::{Loader, SeedList, Transport};
use graphmill_net::Error;
use graphmill_wire::proto::{self, Role};
use graphmill_wire::read::{self, Request as _};
use graphmill_wire::{GREETING, Header, Kind, Limits, Message};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use tokio::io::AsyncWriteExt as _;

use crate::support::{Cluster, NODES, Opening, PATIENCE, Store, bytes, config, expected, hello, loading};

fn frame(header: Header, message: &Message, body: &[u8]) -> Vec<u8> {
    let head = message.encode();
    let header = Header { kind: message.kind(), head: head.len() as u32, body: body.len() as u64, ..header };
    [&header.encode(), &head[..], body].concat()
}

/// What a client sends: a greeting, credits, signs of life, slots.
fn of_client(channel: u64) -> Vec<u8> {
    let header = Header { channel, ..Header::new(Kind::Ping) };
    let credit = |g: &[u64]| Message::Credit(proto::Credit { g: g.to_vec() });
    let messages = [
        Message::Hello(hello()),
        credit(&[0, 1]),
        Message::Ping(proto::Ping {}),
        Message::Return(proto::Return { returned: vec![0], retired: vec![1] }),
        credit(&[2]),
    ];
    messages.iter().flat_map(|message| frame(header, message, &[])).collect()
}

/// What another server sends: a greeting, and questions of every kind.
fn of_peer() -> Vec<u8> {
    let ids: Vec<u8> = [0u64, 5, 9].iter().flat_map(|id| id.to_le_bytes()).collect();
    let request = proto::NodeIdsRequest::default();
    let questions = [
        (Message::Hello(proto::Hello { role: Role::Peer.into(), ..hello() }), Vec::new()),
        (Message::Ask(proto::Ask { ids: 3, ..Default::default() }), ids.clone()),
        (Message::Gather(proto::Gather { ids: 3, ..Default::default() }), ids),
        (Message::Read(proto::NodeIdsRequest::head(vec![0])), read::body(&request)),
        (Message::Ping(proto::Ping {}), Vec::new()),
    ];
    let header = |request| Header { request, ..Header::new(Kind::Ping) };
    (0..).zip(&questions).flat_map(|(request, (message, body))| frame(header(request), message, body)).collect()
}

/// Sends bytes after a preface, waits for so many frames, hangs up, and reads to the end.
async fn send(cluster: &Cluster, stream: &[u8], awaited: usize) {
    let mut connection = graphmill_net::connect_data(&cluster.socket(0), None, PATIENCE).await.unwrap();
    // The server may hang up in the middle.
    let _ = connection.write_all(stream).await;
    let (mut reader, mut writer) = graphmill_net::split(connection, GREETING, Limits::CLIENT);
    let mut frames = 0;
    loop {
        if frames == awaited {
            let _ = writer.shutdown().await;
        }
        match tokio::time::timeout(PATIENCE, reader.next()).await.expect("an answer or an end in time") {
            Ok(Some(_)) => frames += 1,
            Ok(None) | Err(Error::Io { .. } | Error::Truncated { .. }) => break,
            Err(other) => panic!("the server sent what is no frame: {other}"),
        }
    }
    assert!(frames >= awaited, "{frames} frames came");
}

#[test]
fn streams_that_are_damaged_or_cut_off_are_answered_or_ended_and_harm_nobody_else() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening::default());
    let streams = [of_client(channel), of_peer()];
    for stream in &streams {
        // Undamaged, each of its five questions has an answer.
        cluster.run(send(&cluster, stream, 5));
    }
    let damage = proptest::collection::vec((any::<Index>(), any::<u8>()), 0..4);
    let cut = prop_oneof![Just(None), any::<Index>().prop_map(Some)];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    let run = runner.run(&(prop::bool::ANY, damage, cut), |(peer, damage, cut)| {
        let mut stream = streams[usize::from(peer)].clone();
        for (place, byte) in damage {
            let place = place.index(stream.len());
            stream[place] = byte;
        }
        if let Some(cut) = cut {
            stream.truncate(cut.index(stream.len()));
        }
        cluster.run(send(&cluster, &stream, 0));
        Ok(())
    });
    run.unwrap();
    let seeds = || SeedList::Nodes((0..NODES).collect());
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), loading(64)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &loading(64), 0));
}
