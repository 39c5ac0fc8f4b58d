//! Members of different releases: the newest wire version that both speak is spoken, or the connection is refused in words.

use std::time::Duration;

use graphmill_client::{ConnectOptions, Loader, Remote, SeedList, Transport};
use graphmill_net::{Accepted, Endpoint, FrameReader, FrameWriter, Listener, Stream};
use graphmill_wire::proto::{self, Code};
use graphmill_wire::{Limits, Message, VERSION};

use crate::support::{Cluster, NODES, Opening, PATIENCE, Store, Wire, config, expected, hello, loading};

#[test]
fn a_server_speaks_the_newest_version_that_its_client_does_or_says_what_each_speaks() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let newest = u32::from(VERSION);
    let channel = cluster.open(0, Opening::default());
    // A client of this release, of one to come that still speaks this one, and of one long gone that did already.
    for (oldest_wire, newest_wire) in [(newest, newest), (newest, newest + 1), (newest, u32::MAX), (0, newest)] {
        let mut wire = cluster.run(async {
            let (wire, answer) =
                Wire::greet(&cluster.socket(0), proto::Hello { oldest_wire, newest_wire, ..hello() }).await;
            let Some(Message::Welcome(welcome)) = answer else { panic!("{answer:?}") };
            assert_eq!(welcome.wire, newest, "of {oldest_wire} to {newest_wire}");
            wire
        });
        cluster.run(async {
            wire.credit(channel, 0, &[0]).await;
            assert_eq!(u32::from(wire.next().await.unwrap().header.version), newest);
        });
    }
    for (oldest_wire, newest_wire) in [(newest + 1, newest + 2), (u32::MAX, u32::MAX), (0, newest - 1)] {
        cluster.run(async {
            let (mut wire, answer) =
                Wire::greet(&cluster.socket(0), proto::Hello { oldest_wire, newest_wire, ..hello() }).await;
            let Some(Message::Refused(refused)) = answer else { panic!("{answer:?}") };
            assert_eq!(refused.code(), Code::Mismatch);
            let words = format!("the client speaks wire versions {oldest_wire} to {newest_wire}, this server");
            assert!(refused.reason.contains(&words) && refused.reason.contains("upgrade"), "{}", refused.reason);
            assert!(wire.next().await.is_none());
        });
    }
}

/// A server of another release: a way to a real one, whose welcome it changes.
async fn other_release(target: Endpoint, change: fn(Message) -> Message) -> Endpoint {
    let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], None).await.unwrap();
    let endpoint = listener.local_endpoints()[0].clone();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let target = target.clone();
            tokio::spawn(async move {
                match accepted {
                    Accepted::Http { mut stream, .. } => {
                        let plane = graphmill_net::Plane::Control;
                        let mut far = graphmill_net::dial(&target, None, plane, PATIENCE).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
                    }
                    Accepted::Data { stream, .. } => carry(stream, &target, change).await,
                }
            });
        }
    });
    endpoint
}

async fn carry(near: Stream, target: &Endpoint, change: fn(Message) -> Message) {
    let far = graphmill_net::connect_data(target, None, PATIENCE).await.unwrap();
    let (near_reader, near_writer) = graphmill_net::split(near, graphmill_wire::GREETING, Limits::SERVER);
    let (far_reader, far_writer) = graphmill_net::split(far, graphmill_wire::GREETING, Limits::CLIENT);
    tokio::select! {
        () = frames(near_reader, far_writer, |message| message) => {}
        () = frames(far_reader, near_writer, change) => {}
    }
}

async fn frames(mut from: FrameReader, mut to: FrameWriter, change: fn(Message) -> Message) {
    while let Ok(Some(frame)) = from.next().await {
        let mut body = vec![0; frame.header.body as usize];
        if from.read_body(&mut body).await.is_err()
            || to.write(frame.header, &change(frame.message), &[&body]).await.is_err()
        {
            return;
        }
    }
}

fn load(cluster: &Cluster, change: fn(Message) -> Message, deadline: Duration) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let endpoint = cluster.run(other_release(cluster.socket(0), change));
    let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
    let remote = Remote::connect(&[endpoint], options).unwrap();
    let seeds = SeedList::Nodes((0..NODES).collect());
    let loader = Loader::remote(&remote, config(), seeds, loading(32)).unwrap();
    let batches = loader.epoch(0).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    Ok(batches.iter().map(|batch| (batch.id().g, batch.bytes().to_vec())).collect())
}

#[test]
fn a_client_speaks_the_version_that_its_server_chose_and_no_other_than_it_offered() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let wanted = expected(&store, &config(), SeedList::Nodes((0..NODES).collect()), &loading(32), 0);
    assert!(load(&cluster, |message| message, PATIENCE).unwrap() == wanted);
    let newer = |message| match message {
        Message::Welcome(welcome) => Message::Welcome(proto::Welcome { wire: u32::from(VERSION) + 1, ..welcome }),
        message => message,
    };
    let error = load(&cluster, newer, Duration::from_millis(500)).unwrap_err();
    assert!(error.contains(&format!("the server chose wire version {}", VERSION + 1)), "{error}");
    let refusing = |message| match message {
        Message::Welcome(_) => Message::Refused(proto::Refused {
            code: Code::Mismatch.into(),
            reason: "the client speaks wire versions 1 to 1, this server 3 to 4; upgrade the older one".to_owned(),
        }),
        message => message,
    };
    let error = load(&cluster, refusing, Duration::from_millis(500)).unwrap_err();
    assert!(error.contains("this server 3 to 4; upgrade the older one"), "{error}");
}
