//! Who says half of something, or nothing at all, holds up nobody.

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Remote, SeedList, Transport};
use graphmill_net::Plane;
use graphmill_wire::{Header, Kind, Message, PREFACE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Cluster, NODES, PATIENCE, Store, bytes, config, expected, hello, loading};

#[test]
fn half_a_request_is_let_go_on_every_plane() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, |options| graphmill_server::Options {
        watch_listen: Some("127.0.0.1:0".parse().unwrap()),
        ..options
    });
    let greeting = Message::Hello(hello()).encode();
    let head = Header { head: greeting.len() as u32, ..Header::new(Kind::Hello) }.encode();
    let halves: [&[u8]; 8] = [
        b"",
        &PREFACE[..5],
        &PREFACE,
        &[&PREFACE[..], &head[..]].concat(),
        &[&PREFACE[..], &head[..], &greeting[..3]].concat(),
        b"GET /metr",
        b"GET /metrics HTTP/1.1\r\nhost: gra",
        b"PRI * HTTP/2.0\r\n",
    ];
    let places = [cluster.addresses()[0].clone(), cluster.socket(0), cluster.watch_endpoint(0)];
    let ends: Vec<_> = places
        .iter()
        .flat_map(|place| halves.map(|half| (place.clone(), half.to_vec())))
        .map(|(place, half)| {
            cluster.spawn(async move {
                let mut stream = graphmill_net::dial(&place, None, Plane::Data, PATIENCE).await.unwrap();
                stream.write_all(&half).await.unwrap();
                stream.flush().await.unwrap();
                // Whether it is told why or not, the server hangs up.
                let mut told = Vec::new();
                let _ = stream.read_to_end(&mut told).await;
            })
        })
        .collect();
    for end in ends {
        cluster.run(end).unwrap();
    }
    let remote = cluster.connect(Transport::Socket);
    assert_eq!(remote.manifest().parts, 1);
}

#[test]
fn a_first_server_that_is_frozen_does_not_cost_the_deadline() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::replicas(&store.path, 2);
    let proxy = cluster.proxy(0);
    proxy.freeze();
    let deadline = 3 * PATIENCE;
    let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
    let began = Instant::now();
    let remote = Remote::connect(&[proxy.endpoint.clone(), cluster.socket(1)], options).unwrap();
    let seeds = SeedList::Nodes((0..NODES).collect());
    let loader = Loader::remote(&remote, config(), seeds.clone(), loading(16)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds, &loading(16), 0));
    drop((loader, remote));
    assert!(began.elapsed() + Duration::from_secs(1) < deadline, "{:?}", began.elapsed());
}
