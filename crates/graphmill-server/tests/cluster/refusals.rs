//! What cannot be right is refused with a reason, and the server goes on serving everyone else.

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Error, Loader, Options as Loading, Remote, SeedList, Transport};
use graphmill_net::{Endpoint, Plane, Token};
use graphmill_sample::law;
use graphmill_server::Options;
use graphmill_wire::proto::{self, Code, Role, StatusRequest};
use graphmill_wire::{Header, Kind, Message};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{
    Cluster, NODES, Opening, PATIENCE, Store, Wire, bytes, config, eventually, expected, hello, loading, open_backend,
};

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

/// Whether a server still does its work.
fn serves(cluster: &Cluster) {
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), loading(64)).unwrap();
    assert_eq!(bytes(loader.epoch(0)).len(), 4);
}

#[test]
fn a_greeting_that_does_not_fit_is_refused_with_a_code_and_a_reason() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let other_graph = "0123456789abcdef0123456789abcdef".to_owned();
    let cases = [
        (proto::Hello { law: law::VERSION + 1, ..hello() }, Code::Mismatch, "law version"),
        (proto::Hello { fingerprint: other_graph.clone(), ..hello() }, Code::Mismatch, other_graph.as_str()),
    ];
    for (hello, code, part) in cases {
        cluster.run(async {
            let (mut wire, answer) = Wire::greet(&cluster.socket(0), hello).await;
            let Some(Message::Refused(refused)) = answer else { panic!("{answer:?}") };
            assert_eq!(refused.code(), code);
            assert!(refused.reason.contains(part), "{}", refused.reason);
            assert!(wire.next().await.is_none(), "the connection ends after a refusal");
        });
    }
    serves(&cluster);
}

#[test]
fn without_the_token_nothing_is_told() {
    let store = Store::homogeneous(2);
    let token = || Token::new("open-sesame-please").unwrap();
    let cluster = Cluster::start_with(&store.path, 2, move |options| Options { token: Some(token()), ..options });
    for wrong in ["", "open-sesame"] {
        cluster.run(async {
            let hello = proto::Hello { token: wrong.to_owned(), ..hello() };
            let (_, answer) = Wire::greet(&cluster.socket(0), hello).await;
            let Some(Message::Refused(refused)) = answer else { panic!("{answer:?}") };
            assert_eq!(refused.code(), Code::Denied);
            assert!(refused.reason.contains("token") && !refused.reason.contains("sesame"), "{}", refused.reason);
        });
    }
    let mut control = cluster.control(0);
    let status = cluster.run(control.status(StatusRequest {})).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unauthenticated);

    let connect = |token| {
        Remote::connect(&cluster.addresses(), ConnectOptions { token, deadline: PATIENCE, ..Default::default() })
    };
    for wrong in [None, Some(Token::new("open-sesame").unwrap())] {
        let began = Instant::now();
        let error = connect(wrong).unwrap_err();
        assert!(matches!(error, Error::Denied { .. }) && error.to_string().contains("token"), "{error}");
        assert!(began.elapsed() < PATIENCE, "it will not become right by waiting");
    }
    // With it everything works, between the servers too.
    let remote = connect(Some(token())).unwrap();
    let loader = Loader::remote(&remote, config(), seeds(), loading(64)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &loading(64), 0));
}

#[test]
fn requests_that_mean_another_law_or_graph_are_refused() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    for (name, value, part) in [
        ("graphmill-law", "77", "law version 77"),
        ("graphmill-law", "x", "no law version"),
        ("graphmill-fingerprint", "abc", "the graph abc"),
    ] {
        let mut request = tonic::Request::new(StatusRequest {});
        request.metadata_mut().insert(name, value.parse().unwrap());
        let mut control = cluster.control(0);
        let status = cluster.run(control.status(request)).unwrap_err();
        assert!(status.message().contains(part), "{status}");
    }
}

#[test]
fn garbage_on_the_port_is_answered_or_dropped_and_harms_nobody() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let preface = graphmill_wire::PREFACE;
    let cases: [Vec<u8>; 14] = [
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"PING\r\n".to_vec(),
        b"EHLO here\r\n".to_vec(),
        // PostgreSQL, and MongoDB.
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f".to_vec(),
        b"\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xd4\x07\x00\x00".to_vec(),
        b"GET / HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n".to_vec(),
        b"POST /graphmill.v1.SamplingService/Status HTTP/1.1\r\ncontent-length: 5\r\n\r\n\0\xff\xff\xff\xff".to_vec(),
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(50),
        vec![0; 4096],
        vec![0xff; 4096],
        [&preface[..], &[0xff; 4096]].concat(),
        [&preface[..4], &[b'x'; 64]].concat(),
    ];
    for garbage in cases {
        cluster.run(async {
            let mut stream =
                graphmill_net::dial(&cluster.addresses()[0], None, Plane::Control, PATIENCE).await.unwrap();
            // The server may hang up before all of it is written.
            let _ = stream.write_all(&garbage).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "{garbage:?} is held on to");
        });
    }
    serves(&cluster);
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_anything_comes() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let long = [
        (Header { head: u32::MAX, ..Header::new(Kind::Ping) }, "head has 4294967295 bytes"),
        (Header { body: u64::MAX, ..Header::new(Kind::Ping) }, "body has"),
        (Header { version: 9, ..Header::new(Kind::Ping) }, "wire version 9"),
    ];
    for (header, part) in long {
        cluster.run(async {
            let mut stream = graphmill_net::connect_data(&cluster.socket(0), None, PATIENCE).await.unwrap();
            let greeting = Message::Hello(hello()).encode();
            let first = Header { head: greeting.len() as u32, ..Header::new(Kind::Hello) };
            stream.write_all(&[&first.encode()[..], &greeting[..], &header.encode()[..]].concat()).await.unwrap();
            let (reader, writer) =
                graphmill_net::split(stream, graphmill_wire::VERSION, graphmill_wire::Limits::CLIENT);
            let mut wire = Wire { reader, writer };
            assert!(matches!(wire.next().await.unwrap().message, Message::Welcome(_)));
            let refused = wire.refusal().await;
            assert_eq!(refused.code(), Code::Invalid);
            assert!(refused.reason.contains(part), "{}", refused.reason);
        });
    }
    serves(&cluster);
}

#[test]
fn more_than_a_greeting_is_not_taken_from_a_stranger() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    for (first, part) in [
        (Header { head: 4097, ..Header::new(Kind::Hello) }, "head has 4097 bytes, accepted are 4096"),
        (Header { body: 1, ..Header::new(Kind::Hello) }, "body has 1 bytes, accepted are 0"),
    ] {
        cluster.run(async {
            let mut stream = graphmill_net::connect_data(&cluster.socket(0), None, PATIENCE).await.unwrap();
            stream.write_all(&first.encode()).await.unwrap();
            let (reader, writer) =
                graphmill_net::split(stream, graphmill_wire::VERSION, graphmill_wire::Limits::CLIENT);
            let refused = Wire { reader, writer }.refusal().await;
            assert_eq!(refused.code(), Code::Invalid);
            assert!(refused.reason.contains(part), "{}", refused.reason);
        });
    }
    serves(&cluster);
}

#[test]
fn a_credit_that_cannot_be_served_is_refused() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let opening = Opening { nodes: 80, batch_size: 8, max_credits: 3, ..Opening::default() };
    let channel = cluster.open(0, opening.clone());
    // The last batch there is can be asked for, the one after it cannot.
    let mut wire = cluster.wire(0, opening.client);
    let refused = cluster.run(async {
        wire.credit(channel, 0, &[9]).await;
        assert_eq!(wire.batch().await, (0, 9));
        wire.credit(channel, 0, &[0, 10]).await;
        wire.refusal().await
    });
    assert_eq!(refused.code(), Code::Invalid);
    assert!(refused.reason.contains("batch 10") && refused.reason.contains("has 10"), "{}", refused.reason);

    let mut wire = cluster.wire(0, opening.client);
    let refused = cluster.run(async {
        wire.credit(channel, 1, &[0, 1, 2, 3]).await;
        wire.refusal().await
    });
    assert!(refused.reason.contains("more batches at once"), "{}", refused.reason);
    serves(&cluster);
}

#[test]
fn a_frame_that_has_no_place_is_refused() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let pong = || Message::Pong(proto::Pong {});
    let ask = || Message::Ask(proto::Ask::default());
    let credit = || Message::Credit(proto::Credit { g: vec![0] });
    let cases = [
        (Role::Client, pong(), "Pong"),
        (Role::Client, ask(), "Ask"),
        (Role::Client, Message::Hello(hello()), "Hello"),
        (Role::Peer, credit(), "Credit"),
    ];
    for (role, message, part) in cases {
        let mut wire = cluster.wire_with(0, proto::Hello { role: role.into(), ..hello() });
        let refused = cluster.run(async {
            wire.send(Header::new(message.kind()), message).await;
            wire.refusal().await
        });
        assert!(refused.code() == Code::Invalid && refused.reason.contains(part), "{}", refused.reason);
    }
    // A connection that does not begin with a greeting.
    let refused = cluster.run(async {
        let mut wire = Wire::connect(&cluster.socket(0)).await;
        wire.ping().await;
        wire.refusal().await
    });
    assert!(refused.reason.contains("Ping"), "{}", refused.reason);
    serves(&cluster);
}

#[test]
fn a_question_of_a_peer_that_makes_no_sense_fails_alone() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut wire = cluster.wire_with(0, proto::Hello { role: Role::Peer.into(), ..hello() });
    cluster.run(async {
        let questions = [
            Message::Ask(proto::Ask { edge_type: 99, ..Default::default() }),
            Message::Ask(proto::Ask { ids: 1 << 40, ..Default::default() }),
            Message::Gather(proto::Gather { feature: 99, ..Default::default() }),
            Message::Gather(proto::Gather { ids: u64::MAX, ..Default::default() }),
            Message::Read(proto::Read { partitions: vec![77], ..Default::default() }),
        ];
        for (request, question) in (1..).zip(questions) {
            let header = Header { request, ..Header::new(question.kind()) };
            wire.send(header, question.clone()).await;
            let answer = wire.next().await.unwrap();
            assert_eq!(answer.header.request, request);
            assert!(matches!(answer.message, Message::Failed(_)), "{question:?}: {:?}", answer.message);
        }
    });
    serves(&cluster);
}

#[test]
fn without_its_peers_a_server_says_which_partition_is_missing_and_whom_it_asked() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::prepare(&store.path, 2, |options| options);
    cluster.start_one(0);
    let mut control = cluster.control(0);
    let status = cluster.run(open_backend(&mut control, "", &config())).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let message = status.message();
    assert!(message.contains("partition 1 of 2"), "{message}");
    assert!(message.contains(&cluster.socket(1).to_string()), "{message}");
    assert!(cluster.status(0).backends.is_empty());
}

#[test]
fn a_peer_that_dies_in_mid_epoch_is_an_error_in_time_that_names_it() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::start(&store.path, 2);
    let deadline = Duration::from_millis(700);
    let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
    // Only the server that stays is known to the client.
    let remote = Remote::connect(&[cluster.socket(0)], options).unwrap();
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let mut batches = loader.epoch(0);
    batches.next().unwrap().unwrap();
    cluster.stop_one(1);
    let began = Instant::now();
    let error = batches.find_map(Result::err).expect("a batch needs the other half of the graph");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let text = error.to_string();
    assert!(text.contains("did not come within 0.7 s"), "{text}");
    assert!(text.contains("partition 1") || text.contains(&cluster.socket(1).to_string()), "{text}");
    // When it is there again, so are batches.
    cluster.start_one(1);
    eventually("the peer is back", || cluster.status(0).peers[0].connected);
    assert!(bytes(loader.epoch(1)) == expected(&store, &config(), seeds(), &loading(8), 1));
}

#[test]
fn when_all_servers_are_down_a_loader_says_so_in_time_and_names_them() {
    for ordered in [true, false] {
        let store = Store::homogeneous(2);
        let mut cluster = Cluster::start(&store.path, 2);
        let remote = cluster.connect_within(Duration::from_millis(500));
        let options = Loading { ordered, ..loading(8) };
        let loader = Loader::remote(&remote, config(), seeds(), options).unwrap();
        let mut batches = loader.epoch(0);
        batches.next().unwrap().unwrap();
        for server in 0..2 {
            cluster.stop_one(server);
        }
        let began = Instant::now();
        let error = batches.find_map(Result::err).expect("an error, not an epoch that ends early");
        assert!(began.elapsed() < PATIENCE);
        let text = error.to_string();
        for server in 0..2 {
            assert!(text.contains(&cluster.socket(server).to_string()), "{text}");
        }
    }
}

#[test]
fn when_no_server_is_there_connecting_fails_in_time_and_names_them() {
    let folder = graphmill_testing::tempdir();
    let addresses: Vec<Endpoint> = ["a.sock", "b.sock"].map(|name| Endpoint::Unix(folder.path().join(name))).to_vec();
    let options = ConnectOptions { deadline: Duration::from_millis(300), ..ConnectOptions::default() };
    let began = Instant::now();
    let text = Remote::connect(&addresses, options).unwrap_err().to_string();
    assert!(began.elapsed() < PATIENCE);
    assert!(text.contains("a.sock") && text.contains("b.sock") && text.contains("0.3 s"), "{text}");
}

#[test]
fn a_server_that_dies_in_mid_epoch_is_replaced_by_another_that_has_everything() {
    for (ordered, victim) in [(true, 0), (true, 1), (false, 0)] {
        let store = Store::homogeneous(2);
        let mut cluster = Cluster::replicas(&store.path, 2);
        let expected = expected(&store, &config(), seeds(), &loading(8), 0);
        let remote = cluster.connect_within(PATIENCE);
        let options = Loading { ordered, ..loading(8) };
        let loader = Loader::remote(&remote, config(), seeds(), options).unwrap();
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for batch in loader.epoch(0) {
            let batch = batch.unwrap();
            found.push((batch.id().g, batch.bytes().to_vec()));
            if found.len() == 6 {
                cluster.stop_one(victim);
            }
        }
        if !ordered {
            found.sort_unstable();
        }
        assert!(found == expected, "{} batches, expected {}", found.len(), expected.len());
        assert_eq!(bytes(loader.epoch(1)).len(), expected.len());
    }
}
