//! A coordinator behind its real port, and members of runs.
// Each test uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_net::{Endpoint, ServerTls, Token};
use graphmill_rendezvous::client::{ConnectOptions, Connection, Joined, Member, Timeouts};
use graphmill_rendezvous::{Coordinator, Keeping, Settings, Target, service};
use graphmill_server::HttpServer;

/// Longer than anything takes.
pub const LONG: Duration = Duration::from_secs(30);

/// A coordinator that serves until it is dropped.
pub struct Serving {
    server: HttpServer,
    pub coordinator: Arc<Coordinator>,
}

impl Serving {
    pub async fn start(keeping: Keeping) -> Self {
        Self::guarded("127.0.0.1:0", keeping, None, None).await
    }

    pub async fn guarded(listen: &str, keeping: Keeping, token: Option<Token>, tls: Option<ServerTls>) -> Self {
        let coordinator = Coordinator::new(keeping).unwrap();
        let has_token = token.is_some();
        let routes = tonic::service::Routes::new(service::service(Arc::clone(&coordinator), token));
        let listen: Endpoint = listen.parse().unwrap();
        let server = HttpServer::start(&[listen], tls, has_token, false, routes).await.unwrap();
        Self { server, coordinator }
    }

    pub fn address(&self) -> String {
        self.server.endpoints()[0].to_string()
    }

    pub fn socket(&self) -> SocketAddr {
        self.address().parse().unwrap()
    }
}

/// Settings with a lease of two seconds and a short last call.
pub fn brisk(min: u32, max: u32) -> Settings {
    Settings {
        keep_alive: Duration::from_millis(200),
        missed: 10,
        last_call: Duration::from_secs(1),
        ..Settings::new(min, max)
    }
}

pub fn timeouts(join: Duration) -> Timeouts {
    Timeouts { join, close: Duration::from_secs(2), answer: Duration::from_secs(2) }
}

pub fn connect(url: &str) -> Connection {
    Connection::open(&url.parse::<Target>().unwrap().place, &ConnectOptions::default()).unwrap()
}

pub fn member(url: &str, run: &str, settings: &Settings, join: Duration) -> Member {
    Member::new(connect(url), run, "127.0.0.1", settings.clone(), timeouts(join)).unwrap()
}

/// All join at once; what came of it, in their order.
pub async fn join_all(members: &[&Member]) -> Vec<(u64, u32, u32)> {
    let joins = members.iter().map(async |member| {
        let Joined { round, rank, world_size, .. } = member.next_rendezvous().await.unwrap();
        (round, rank, world_size)
    });
    futures_util::future::join_all(joins).await
}

/// Waits until something is so.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < LONG, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
