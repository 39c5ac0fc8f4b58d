//! Certificates let in whom they should.

use graphmill_net::{ClientTls, Error, Listener, ServerTls, connect_data};
use graphmill_wire::{Header, Kind, Message, proto};

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
