//! Signs of life over a real connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use graphmill_net::Endpoint;
use graphmill_rendezvous::client::{Member, Timeouts};
use graphmill_rendezvous::{Coordinator, Keeping, Settings, service};
use graphmill_server::HttpServer;
use tonic::service::Routes;

use crate::serving::{LONG, connect, until};

/// A coordinator that never answers the first heartbeats, though its connections are well; and how many it was asked.
async fn deaf_to(first: usize) -> (HttpServer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let routes = Routes::new(service::service(Coordinator::new(Keeping::Memory).unwrap(), None));
    let heard = Arc::clone(&asked);
    let router = routes.into_axum_router().layer(from_fn(move |request: Request, next: Next| {
        let is_heartbeat = request.uri().path().ends_with("/KeepAlive");
        let deaf = is_heartbeat && heard.fetch_add(1, Ordering::Relaxed) < first;
        async move { if deaf { std::future::pending().await } else { next.run(request).await } }
    }));
    let listen: Endpoint = "127.0.0.1:0".parse().unwrap();
    let server = HttpServer::start(&[listen], None, false, false, Routes::from(router)).await.unwrap();
    (server, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_is_not_answered_is_given_up_in_its_time_and_the_next_is_sent() {
    let (server, asked) = deaf_to(2).await;
    let settings = Settings { keep_alive: Duration::from_millis(50), missed: 1000, ..Settings::new(1, 1) };
    let timeouts = Timeouts { join: LONG, close: LONG, answer: Duration::from_millis(200) };
    let address = server.endpoints()[0].to_string();
    let member = Member::new(connect(&address), "deaf", "127.0.0.1", settings, timeouts).unwrap();
    member.next_rendezvous().await.unwrap();
    until("a heartbeat that is answered", async || member.heartbeats() > 0).await;
    assert!(asked.load(Ordering::Relaxed) > 2, "the first were given up, not waited for");
    assert!(!member.is_lost(), "who misses a few is not dead");
}
