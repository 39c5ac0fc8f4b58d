//! A listener tells the planes apart, and no connection holds up another.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use graphmill_net::{Endpoint, ListenOptions, Listener, Plane, Stream, connect_data, dial};
use graphmill_wire::PREFACE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::support::{Authority, PATIENCE, accept_data, accept_http, loopback};

const HTTP1: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n";
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads until the other side ends, however it does.
async fn ended(stream: &mut Stream) {
    let _ = timeout(PATIENCE, stream.read(&mut [0])).await.expect("the end of the connection in time");
}

#[tokio::test]
async fn the_first_byte_tells_frames_from_http_and_nothing_of_it_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let endpoints = [loopback(), Endpoint::Unix(directory.path().join("socket"))];
    let listener = Listener::bind(&endpoints, None).await.unwrap();
    for endpoint in listener.local_endpoints() {
        for request in [HTTP1, HTTP2] {
            let mut client = dial(endpoint, None, Plane::Control, PATIENCE).await.unwrap();
            client.write_all(&request[..3]).await.unwrap();
            let mut server = accept_http(&listener).await;
            client.write_all(&request[3..]).await.unwrap();
            let mut found = vec![0; request.len()];
            server.read_exact(&mut found).await.unwrap();
            assert_eq!(found, request);
            server.write_all(b"answer").await.unwrap();
            let mut answer = [0; 6];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        }
        let mut client = connect_data(endpoint, None, PATIENCE).await.unwrap();
        client.write_all(b"after the preface").await.unwrap();
        let (mut server, peer) = accept_data(&listener).await;
        let mut found = [0; 17];
        server.read_exact(&mut found).await.unwrap();
        assert_eq!(&found, b"after the preface");
        if matches!(endpoint, Endpoint::Unix(_)) {
            assert_eq!(peer.uid, Some(rustix::process::getuid().as_raw()));
            assert_eq!(peer.pid, Some(std::process::id() as i32));
        }
    }
}

#[tokio::test]
async fn under_tls_the_protocols_name_tells() {
    let authority = Authority::new();
    let listener = Listener::bind(&[loopback()], Some(authority.server(None))).await.unwrap();
    let (endpoint, tls) = (&listener.local_endpoints()[0], authority.client(None));
    for (plane, request) in [(Plane::Watch, HTTP1), (Plane::Control, HTTP2)] {
        let (client, mut server) = tokio::join!(dial(endpoint, Some(&tls), plane, PATIENCE), accept_http(&listener));
        let mut client = client.unwrap();
        client.write_all(request).await.unwrap();
        client.flush().await.unwrap();
        let mut found = vec![0; request.len()];
        server.read_exact(&mut found).await.unwrap();
        assert_eq!(found, request);
    }
    let (client, (_, peer)) = tokio::join!(connect_data(endpoint, Some(&tls), PATIENCE), accept_data(&listener));
    client.unwrap();
    assert!(!peer.certificate);
}

#[tokio::test]
async fn silent_connections_hold_up_nobody() {
    let authority = Authority::new();
    let options = ListenOptions { greeting: Duration::from_secs(3600), ..ListenOptions::default() };
    for (server, client) in [(None, None), (Some(authority.server(None)), Some(authority.client(None)))] {
        let listener = Listener::bind_with(&[loopback()], server, options).await.unwrap();
        let endpoint = &listener.local_endpoints()[0];
        let mut silent = Vec::new();
        for said in [&b""[..], &PREFACE[..1], &PREFACE[..7]] {
            let mut stream = dial(endpoint, None, Plane::Data, PATIENCE).await.unwrap();
            stream.write_all(said).await.unwrap();
            silent.push(stream);
        }
        let connecting = connect_data(endpoint, client.as_ref(), PATIENCE);
        let (connected, _) = tokio::join!(connecting, accept_data(&listener));
        connected.unwrap();
    }
}

#[tokio::test]
async fn a_silent_connection_is_dropped_in_time() {
    let authority = Authority::new();
    let options = ListenOptions { greeting: Duration::from_millis(50), ..ListenOptions::default() };
    for server in [None, Some(authority.server(None))] {
        let listener = Listener::bind_with(&[loopback()], server, options).await.unwrap();
        for said in [&b""[..], &PREFACE[..1], &PREFACE[..7]] {
            let mut stream = dial(&listener.local_endpoints()[0], None, Plane::Data, PATIENCE).await.unwrap();
            stream.write_all(said).await.unwrap();
            ended(&mut stream).await;
        }
    }
}

#[tokio::test]
async fn half_a_tls_handshake_is_dropped_in_time() {
    let options = ListenOptions { greeting: Duration::from_millis(50), ..ListenOptions::default() };
    let listener = Listener::bind_with(&[loopback()], Some(Authority::new().server(None)), options).await.unwrap();
    // The header of a handshake of 512 bytes, and the first of them.
    for said in [&b"\x16"[..], b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
        let mut stream = dial(&listener.local_endpoints()[0], None, Plane::Data, PATIENCE).await.unwrap();
        stream.write_all(said).await.unwrap();
        ended(&mut stream).await;
    }
}

#[tokio::test]
async fn a_wrong_preface_is_dropped() {
    let listener = Listener::bind(&[loopback()], None).await.unwrap();
    let mut wrong = dial(&listener.local_endpoints()[0], None, Plane::Data, PATIENCE).await.unwrap();
    wrong.write_all(b"\x8bGMULL\r\n").await.unwrap();
    ended(&mut wrong).await;
    assert!(timeout(Duration::from_millis(50), listener.accept()).await.is_err());
}

#[tokio::test]
async fn connections_too_many_are_dropped_until_there_is_room() {
    let options = ListenOptions { greeting: Duration::from_secs(3600), waiting: 2 };
    let listener = Listener::bind_with(&[loopback()], None, options).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    let first = dial(endpoint, None, Plane::Data, PATIENCE).await.unwrap();
    let _second = dial(endpoint, None, Plane::Data, PATIENCE).await.unwrap();
    ended(&mut dial(endpoint, None, Plane::Data, PATIENCE).await.unwrap()).await;
    drop(first);
    // Until the listener has noticed, it may drop some more.
    let connecting = async {
        loop {
            let mut client = connect_data(endpoint, None, PATIENCE).await.unwrap();
            ended(&mut client).await;
        }
    };
    tokio::select! {
        () = connecting => {}
        _ = accept_data(&listener) => {}
    }
}

#[tokio::test]
async fn a_port_in_use_is_refused_with_its_address() {
    let listener = Listener::bind(&[loopback()], None).await.unwrap();
    let endpoint = listener.local_endpoints()[0].clone();
    let error = Listener::bind(&[loopback(), endpoint.clone()], None).await.unwrap_err().to_string();
    assert!(error.contains(&format!("cannot listen on {endpoint}")) && error.contains("in use"), "{error}");
    drop(listener);
    // The sockets are closed when the tasks that have them are, which the runtime does as soon as it can.
    for _ in 0..100 {
        if Listener::bind(std::slice::from_ref(&endpoint), None).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the port was never free again");
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_unix_socket_is_for_its_user_alone_and_goes_with_its_listener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/socket");
    let listener = Listener::bind(&[Endpoint::Unix(path.clone())], None).await.unwrap();
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let endpoint = Endpoint::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(std::slice::from_ref(&endpoint), None).await.unwrap();

    let refused = Listener::bind(std::slice::from_ref(&endpoint), None).await.unwrap_err().to_string();
    assert!(refused.contains("another process listens there"), "{refused}");
    let _client = connect_data(&endpoint, None, PATIENCE).await.unwrap();
    accept_data(&listener).await;

    std::fs::remove_file(&path).unwrap();
    let next = Listener::bind(std::slice::from_ref(&endpoint), None).await.unwrap();
    drop(listener);
    assert!(path.exists(), "it removed the socket of another");
    drop(next);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_file_in_the_way_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    std::fs::write(&path, "precious").unwrap();
    let refused = Listener::bind(&[Endpoint::Unix(path.clone())], None).await.unwrap_err().to_string();
    assert!(refused.contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn of_many_that_find_a_socket_left_behind_one_listens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    for _ in 0..20 {
        // Left behind: bound, and nobody listens.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let endpoint = Endpoint::Unix(path.clone());
        let binding: Vec<_> = (0..8)
            .map(|_| {
                let endpoint = endpoint.clone();
                tokio::spawn(async move { Listener::bind(&[endpoint], None).await })
            })
            .collect();
        let mut bound = Vec::new();
        for one in binding {
            bound.extend(one.await.unwrap());
        }
        assert_eq!(bound.len(), 1);
        connect_data(&endpoint, None, PATIENCE).await.unwrap();
        drop(bound);
        assert!(!path.exists());
    }
}
