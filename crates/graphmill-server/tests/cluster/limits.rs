//! What a server does when it has as much to do as it may: it says so, in words that are worth another try, and who is told
//! tries again until there is room.

use std::time::Duration;

use graphmill_client::{ConnectOptions, Error, Loader, Remote, SeedList, Transport};
use graphmill_net::{Endpoint, Plane};
use graphmill_server::{Limits, Options};
use graphmill_wire::proto::{Code, Hello, Role};
use graphmill_wire::{Header, Kind, Limits as WireLimits, Message, PREFACE};
use tokio::io::AsyncWriteExt as _;

use crate::memory::wide;
use crate::security::{metric, page};
use crate::support::{
    Cluster, NODES, Opening, PATIENCE, Store, Wire, bytes, config, eventually, expected, flat, hello, loading,
    open_backend, open_channel,
};

fn limited(limits: Limits) -> impl Fn(Options) -> Options {
    move |options| Options { limits, ..options }
}

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

fn refused(cluster: &Cluster, watch: &Endpoint, limit: &str) -> u64 {
    metric(&cluster.run(page(watch, None, "/metrics")).1, &format!("graphmill_refused_total{{limit=\"{limit}\"}}"))
}

#[test]
fn a_connection_too_many_is_told_so_on_every_plane_and_gets_in_when_another_leaves() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, |options| Options {
        watch_listen: Some("127.0.0.1:0".parse().unwrap()),
        ..limited(Limits { connections: 2, ..Limits::default() })(options)
    });
    let held = [cluster.wire(0, [7; 16]), cluster.wire(0, [8; 16])];
    let (_, answer) = cluster.run(Wire::greet(&cluster.socket(0), hello()));
    let Some(Message::Refused(refused_with)) = answer else { panic!("{answer:?}") };
    assert_eq!(refused_with.code(), Code::Unavailable);
    assert!(refused_with.reason.contains("--max-connections"), "{}", refused_with.reason);
    let (status, said) = cluster.run(page(&cluster.addresses()[0], None, "/healthz"));
    assert!(status == 503 && said.contains("--max-connections"), "{status} {said}");
    let status = cluster.run(async { open_backend(&mut cluster.control(0), "", &config()).await }).unwrap_err();
    assert!(status.code() == tonic::Code::Unavailable && status.message().contains("--max-connections"), "{status}");

    // A client is not let in before its deadline, and says why; then there is room, and it is.
    let connect = |deadline| {
        let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
        Remote::connect(&cluster.addresses(), options)
    };
    let error = connect(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("--max-connections"), "{error}");
    // Whoever watches has a way of its own.
    let watch = cluster.watch_endpoint(0);
    assert_eq!(cluster.run(page(&watch, None, "/healthz")).0, 200);
    assert!(refused(&cluster, &watch, "connections") >= 4);
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
    });
    let remote = connect(Duration::from_secs(20)).unwrap();
    let loader = Loader::remote(&remote, config(), seeds(), loading(16)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &loading(16), 0));
    leaving.join().unwrap();
}

#[test]
fn a_channel_too_many_is_told_so_and_opened_when_another_closes() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, limited(Limits { channels: 1, ..Limits::default() }));
    let connect = |deadline| {
        let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
        Remote::connect(&cluster.addresses(), options).unwrap()
    };
    let first = connect(Duration::from_secs(20));
    let only = Loader::remote(&first, config(), seeds(), loading(16)).unwrap();
    let error = Loader::remote(&connect(Duration::from_millis(300)), config(), seeds(), loading(16)).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. } | Error::Late { .. }), "{error}");
    if let Error::Unavailable { reason, .. } = &error {
        assert!(reason.contains("--max-channels"), "{error}");
    }
    assert!(refused(&cluster, &cluster.addresses()[0], "channels") >= 1);
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(only);
    });
    let second = connect(Duration::from_secs(20));
    let loader = Loader::remote(&second, config(), seeds(), loading(16)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &loading(16), 0));
    closing.join().unwrap();
}

/// Batches of half a megabyte, in a budget that lends room for 24 of them.
const BATCH: u64 = 8;
const TIGHT: Limits = Limits { connections: 1000, channels: 1000, memory: 16 << 20, row_cache: 0 };

#[test]
fn slow_readers_that_take_the_budget_are_told_and_a_reader_that_reads_gets_everything() {
    let store = Store::new(wide(), 1);
    let cluster = Cluster::start_with(&store.path, 1, limited(TIGHT));
    let opening = |client| Opening {
        config: flat(),
        nodes: 256,
        batch_size: BATCH,
        max_credits: 32,
        client,
        ..Opening::default()
    };
    // Nobody reads these: sockets take some, the server keeps as much as it may.
    let channels: Vec<(u8, u64)> = (1..=6).map(|number| (number, cluster.open(0, opening([number; 16])))).collect();
    let mut slow: Vec<(u64, Wire)> = channels
        .into_iter()
        .map(|(number, channel)| {
            let mut wire = cluster.wire(0, [number; 16]);
            cluster.run(wire.credit(channel, 0, &(0..32).collect::<Vec<_>>()));
            (channel, wire)
        })
        .collect();
    eventually("the budget is taken", || {
        let status = cluster.status(0);
        assert!(status.memory_bytes <= status.memory_budget, "{status:?}");
        status.starved > 0
    });
    // There is room left for who takes what it gets.
    let remote = cluster.connect(Transport::Socket);
    let all = SeedList::Nodes((0..256).collect());
    let loader = Loader::remote(&remote, flat(), all.clone(), loading(BATCH as usize)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &flat(), all, &loading(BATCH as usize), 0));

    // When they read at last, each has its batches, or was told to ask for them again; that goes on until it has all.
    eventually("some were told", || refused(&cluster, &cluster.addresses()[0], "memory") > 0);
    for (channel, wire) in &mut slow {
        cluster.run(async {
            let (mut left, mut told): (Vec<u64>, bool) = ((0..32).collect(), false);
            while !left.is_empty() {
                let frame = wire.next().await.unwrap();
                let g = frame.header.g;
                match frame.message {
                    Message::Batch(_) => left.retain(|one| *one != g),
                    Message::Failed(failed) => {
                        assert_eq!(failed.code(), Code::Unavailable, "{failed:?}");
                        assert!(failed.reason.contains("--memory-budget"), "{failed:?}");
                        told = true;
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        wire.credit(*channel, 0, &[g]).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
            // The body of the last batch: what nobody reads stays with the server.
            wire.reader.skip_body().await.unwrap();
            told
        });
    }
    eventually("all is given back", || cluster.status(0).memory_bytes <= TIGHT.memory / 4);
}

#[test]
fn what_can_never_fit_the_budget_is_an_error_at_once() {
    let store = Store::new(wide(), 1);
    let cluster = Cluster::start_with(&store.path, 1, limited(TIGHT));
    let remote = cluster.connect(Transport::Socket);
    let all = SeedList::Nodes((0..256).collect());
    let loader = Loader::remote(&remote, flat(), all, loading(256)).unwrap();
    let error = loader.epoch(0).next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Batch { fault: graphmill_client::Fault::Memory, .. }), "{error}");
    assert!(error.to_string().contains("--memory-budget"), "{error}");

    // So is a list of seeds; one that only has no room now may come again.
    let mut control = cluster.control(0);
    let listed = |nodes| Opening { config: flat(), nodes, batch_size: 8, ..Opening::default() };
    let status = cluster.run(async {
        let backend = open_backend(&mut control, "", &flat()).await.unwrap();
        open_channel(&mut control, backend, listed(2 << 20)).await.unwrap_err()
    });
    assert!(
        status.code() == tonic::Code::ResourceExhausted && status.message().contains("--memory-budget"),
        "{status}"
    );
    assert_eq!(refused(&cluster, &cluster.addresses()[0], "memory"), 0);
}

#[test]
fn a_peer_that_falls_silent_between_or_inside_frames_is_let_go() {
    let store = Store::homogeneous(1);
    let patience = Duration::from_millis(200);
    let cluster = Cluster::start_with(&store.path, 1, move |options| Options { patience, ..options });
    let greeting = Message::Hello(Hello { role: Role::Peer.into(), client: vec![8; 16], ..hello() }).encode();
    let greeting =
        [&PREFACE[..], &Header { head: greeting.len() as u32, ..Header::new(Kind::Hello) }.encode()[..], &greeting[..]]
            .concat();
    let question = Header { head: 8, body: 64, ..Header::new(Kind::Gather) }.encode();
    let ask = Message::Gather(graphmill_wire::proto::Gather::default()).encode();
    let head = Header { head: ask.len() as u32, body: 64, ..Header::new(Kind::Gather) }.encode();
    // Nothing, half a header, half a head, half a body.
    let halves = [Vec::new(), question[..9].to_vec(), question.to_vec(), [&head[..], &ask[..], &[0; 32]].concat()];
    for half in halves {
        cluster.run(async {
            let mut stream = graphmill_net::dial(&cluster.socket(0), None, Plane::Data, PATIENCE).await.unwrap();
            stream.write_all(&[&greeting[..], &half].concat()).await.unwrap();
            let (reader, writer) = graphmill_net::split(stream, graphmill_wire::GREETING, WireLimits::CLIENT);
            let mut wire = Wire { reader, writer };
            assert!(matches!(wire.next().await.unwrap().message, Message::Welcome(_)));
            let told = wire.refusal().await;
            assert!(told.reason.contains("said nothing") || told.reason.contains("did not arrive"), "{told:?}");
        });
    }
}
