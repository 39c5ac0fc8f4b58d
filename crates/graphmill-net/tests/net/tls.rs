//! Certificates let in whom they should.

use graphmill_net::{ClientTls, Error, Listener, ServerTls, connect_data};
use graphmill_wire::{Header, Kind, Message, PREFACE, proto};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Authority, PATIENCE, accept_data, frames, loopback};

#[tokio::test]
async fn mutual_tls_lets_in_its_own_and_nobody_else() {
    let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let listener = Listener::bind(&[loopback()], Some(servers.server(Some(&clients)))).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    for identity in [None, Some(&strangers), Some(&servers)] {
        let tls = servers.client(identity);
        // The client's part of the handshake may be over before the server looks at its certificate.
        if let Ok(stream) = connect_data(endpoint, Some(&tls), PATIENCE).await {
            let refused = frames(stream).0.next().await;
            assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");
        }
    }
    let tls = servers.client(Some(&clients));
    let (client, (server, peer)) = tokio::join!(connect_data(endpoint, Some(&tls), PATIENCE), accept_data(&listener));
    assert!(peer.certificate, "the first that got in is the one with the right certificate");
    let ((mut reader, _keep), (_, mut writer)) = (frames(client.unwrap()), frames(server));
    writer.write(Header::new(Kind::Pong), &Message::Pong(proto::Pong {}), &[]).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().header.kind, Kind::Pong);
}

#[tokio::test]
async fn a_client_refuses_a_server_that_it_does_not_trust() {
    let (servers, strangers) = (Authority::new(), Authority::new());
    let listener = Listener::bind(&[loopback()], Some(servers.server(None))).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    let error = connect_data(endpoint, Some(&strangers.client(None)), PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains(&endpoint.to_string()) && error.contains("TLS handshake failed"), "{error}");

    let (cert, key) = servers.issue("another.example.org");
    let tls = ServerTls::load(&cert, &key, None).unwrap();
    let listener = Listener::bind(&[loopback()], Some(tls)).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    let error = connect_data(endpoint, Some(&servers.client(None)), PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn one_side_with_tls_and_one_without_do_not_meet() {
    let authority = Authority::new();
    let listener = Listener::bind(&[loopback()], Some(authority.server(None))).await.unwrap();
    let plain = connect_data(&listener.local_endpoints()[0], None, PATIENCE).await.unwrap();
    let refused = frames(plain).0.next().await;
    assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");

    let listener = Listener::bind(&[loopback()], None).await.unwrap();
    let accepting = async { drop(listener.accept().await) };
    let tls = authority.client(None);
    let (refused, ()) = tokio::join!(connect_data(&listener.local_endpoints()[0], Some(&tls), PATIENCE), accepting);
    assert!(refused.unwrap_err().to_string().contains("TLS handshake failed"));
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_by_both_sides() {
    let authority = Authority::new();
    let (cert, key) = authority.issue_expired("127.0.0.1");
    let listener = Listener::bind(&[loopback()], Some(ServerTls::load(&cert, &key, None).unwrap())).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    let error = connect_data(endpoint, Some(&authority.client(None)), PATIENCE).await.unwrap_err();
    assert!(Error::certificate(&error).is_some_and(|reason| reason.contains("expired")), "{error}");

    let listener = Listener::bind(&[loopback()], Some(authority.server(Some(&authority)))).await.unwrap();
    let (cert, key) = authority.issue_expired("someone");
    let tls = ClientTls::load(&authority.path(), Some((&cert, &key))).unwrap();
    let error = match connect_data(&listener.local_endpoints()[0], Some(&tls), PATIENCE).await {
        // The client's part of the handshake may be over before the server looks at its certificate.
        Ok(stream) => frames(stream).0.next().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(Error::certificate(&error).is_some_and(|reason| reason.contains("CertificateExpired")), "{error}");
}

/// The first words of a client that knows nothing newer than a version of TLS, with ciphers of its time.
fn client_hello(version: [u8; 2]) -> Vec<u8> {
    let rest = [&[7; 32][..], &[0], &[0, 6, 0xc0, 0x13, 0x00, 0x2f, 0x00, 0x0a], &[1, 0]].concat();
    let hello = [&version[..], &rest].concat();
    let handshake = [&[1, 0, 0, hello.len() as u8][..], &hello].concat();
    [&[22, 3, 1, 0, handshake.len() as u8][..], &handshake].concat()
}

/// What a listener answers to bytes until it hangs up, which it does in time.
async fn answer(listener: &Listener, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(listener.local_endpoints()[0].to_string()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the end of the connection in time");
    answer
}

#[tokio::test]
async fn nobody_is_talked_down_to_an_old_version_of_tls() {
    let authority = Authority::new();
    let listener = Listener::bind(&[loopback()], Some(authority.server(None))).await.unwrap();
    for version in [[3, 0], [3, 1], [3, 2]] {
        let answer = answer(&listener, &client_hello(version)).await;
        // A fatal alert, handshake_failure or protocol_version, and nothing of a handshake.
        assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, 40 | 70]), "{version:?}: {answer:?}");
    }
}

#[tokio::test]
async fn whatever_else_is_spoken_on_a_port_with_tls_ends_there() {
    let authority = Authority::new();
    let listener = Listener::bind(&[loopback()], Some(authority.server(None))).await.unwrap();
    let foreign: [&[u8]; 8] = [
        &PREFACE,
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        b"EHLO here\r\n",
        &[0xff; 4096],
    ];
    for bytes in foreign {
        let answer = answer(&listener, bytes).await;
        // An alert, or nothing: never a word of the protocols behind it.
        assert!(answer.is_empty() || answer[0] == 21, "{bytes:?}: {answer:?}");
    }
    // It goes on.
    let tls = authority.client(None);
    let (client, _server) =
        tokio::join!(connect_data(&listener.local_endpoints()[0], Some(&tls), PATIENCE), accept_data(&listener));
    client.unwrap();
}

#[test]
fn files_that_are_not_what_they_should_be_are_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (cert, key) = authority.issue("127.0.0.1");
    let missing = key.with_file_name("missing.pem");
    let (_, other_key) = other.issue("127.0.0.1");
    let refusals = [
        (ServerTls::load(&missing, &key, None).map(drop), &missing),
        (ServerTls::load(&cert, &cert, None).map(drop), &cert),
        (ServerTls::load(&key, &key, None).map(drop), &key),
        (ServerTls::load(&cert, &other_key, None).map(drop), &other_key),
        (ServerTls::load(&cert, &key, Some(&missing)).map(drop), &missing),
        (ClientTls::load(&key, None).map(drop), &key),
        (ClientTls::load(&authority.path(), Some((&cert, &other_key))).map(drop), &other_key),
    ];
    for (refused, path) in refusals {
        match refused {
            Err(Error::File { path: named, .. }) => assert_eq!(&named, path),
            other => panic!("{} was not refused: {other:?}", path.display()),
        }
    }
}
