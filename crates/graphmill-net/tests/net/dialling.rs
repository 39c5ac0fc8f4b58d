//! Errors of connecting name the address and the reason.

use std::time::Duration;

use graphmill_net::{Endpoint, Listener, Plane, connect_data, dial};
use tokio::net::TcpListener;

use crate::support::{Authority, PATIENCE, accept_data};

#[tokio::test]
async fn nobody_there_is_said_with_the_address() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: Endpoint = free.local_addr().unwrap().to_string().parse().unwrap();
    drop(free);
    let error = connect_data(&endpoint, None, PATIENCE).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot connect to {endpoint}: ")) && error.contains("refused"), "{error}");

    let endpoint: Endpoint = "unix:/nonexistent/socket".parse().unwrap();
    let error = connect_data(&endpoint, None, PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("unix:/nonexistent/socket") && error.contains("No such file"), "{error}");

    let endpoint: Endpoint = "graphmill.invalid:1".parse().unwrap();
    let error = dial(&endpoint, None, Plane::Data, PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("graphmill.invalid:1"), "{error}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_at_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: Endpoint = silent.local_addr().unwrap().to_string().parse().unwrap();
    let tls = Authority::new().client(None);
    let error = dial(&endpoint, Some(&tls), Plane::Data, Duration::from_millis(50)).await.unwrap_err().to_string();
    assert!(error.contains("no answer within 50ms"), "{error}");
}

#[tokio::test]
async fn names_are_looked_up() {
    let listener = Listener::bind(&["localhost:0".parse().unwrap()], None).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    assert!(endpoint.to_string().starts_with("localhost:") && endpoint.to_string() != "localhost:0");
    let (client, (_, peer)) = tokio::join!(connect_data(endpoint, None, PATIENCE), accept_data(&listener));
    client.unwrap();
    assert!(peer.address.starts_with("127.0.0.1:") || peer.address.starts_with("[::1]:"), "{peer:?}");
    assert_eq!((peer.uid, peer.pid, peer.certificate), (None, None, false));
}
