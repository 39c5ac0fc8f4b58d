//! Who says half of something, or nothing at all, holds up nobody.

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Error, Loader, Remote, SeedList, Transport};
use graphmill_net::{Endpoint, Plane};
use graphmill_wire::{Header, Kind, Message, PREFACE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

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
    let halves: [&[u8]; 9] = [
        b"",
        &PREFACE[..5],
        &PREFACE,
        &[&PREFACE[..], &head[..]].concat(),
        &[&PREFACE[..], &head[..], &greeting[..3]].concat(),
        b"GET /metr",
        b"GET /metrics HTTP/1.1\r\nhost: gra",
        b"PRI * HTTP/2.0\r\n",
        // All of one, and never another.
        b"GET /healthz HTTP/1.1\r\nhost: graphmill\r\n\r\n",
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
fn a_call_that_stops_in_the_midst_of_what_it_asks_is_ended() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let place = cluster.socket(0);
    // A frame of HTTP/2 on the first stream of a client.
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let (settings, headers, data, rst_stream) = (4, 1, 0, 3);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/graphmill.v1.DatasetService/Describe"),
        (":authority", "graphmill"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let literal = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let fields: Vec<u8> =
        fields.iter().flat_map(|(name, value)| [vec![0], literal(name), literal(value)].concat()).collect();
    // A message of 16 bytes is announced, and one of them comes.
    let said = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(settings, 0, 0, &[]),
        frame(headers, 4, 1, &fields),
        frame(data, 0, 1, &[0, 0, 0, 0, 16, 10]),
    ]
    .concat();
    let ended = cluster.spawn(async move {
        let mut stream = graphmill_net::dial(&place, None, Plane::Control, PATIENCE).await.unwrap();
        stream.write_all(&said).await.unwrap();
        stream.flush().await.unwrap();
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            stream.read_exact(&mut payload).await.unwrap();
            let (kind, flags, about) = (head[3], head[4], head[8]);
            let ends = kind == rst_stream || (kind == headers && flags & 1 == 1);
            if about == 1 && ends {
                return;
            }
        }
    });
    cluster.run(async { tokio::time::timeout(3 * PATIENCE, ended).await }).unwrap().unwrap();
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

#[test]
fn a_port_that_is_somebody_elses_is_told_at_once() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::prepare(&store.path, 1, |options| options);
    // A web server, a shell, and one that says what it hears.
    for answer in [&b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.7\r\n", b""] {
        let listener = cluster.run(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let stranger = cluster.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut heard = vec![0; 1024];
                let read = stream.read(&mut heard).await.unwrap_or(0);
                let said = if answer.is_empty() { &heard[..read] } else { answer };
                // Whoever connected may have left.
                let _ = stream.write_all(said).await;
                let _ = stream.read(&mut heard).await;
            }
        });
        let options = ConnectOptions { deadline: 3 * PATIENCE, ..ConnectOptions::default() };
        let began = Instant::now();
        let error = Remote::connect(std::slice::from_ref(&endpoint), options).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&endpoint.to_string()) && text.contains("something else listens there"), "{text}");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        stranger.abort();
    }
}

#[test]
fn a_server_that_hangs_up_on_a_request_has_not_refused_it() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::prepare(&store.path, 1, |options| options);
    // As HTTP/2 says it: all is well, or something is wrong inside, and no request was taken.
    for code in [0, 2] {
        let listener = cluster.run(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let leaving = cluster.spawn(async move {
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, code];
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut vec![0; 1024]).await;
                let _ = stream.write_all(&[&settings[..], &go_away[..]].concat()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        let options = ConnectOptions { deadline: Duration::from_millis(600), ..ConnectOptions::default() };
        let error = Remote::connect(std::slice::from_ref(&endpoint), options).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "code {code}: {error}");
        leaving.abort();
    }
}
