//! Taking connections, on any number of addresses.
//!
//! Every connection is greeted by a task of its own, which finds out what it is for, so that a slow one holds up nobody. The
//! number of such tasks is bounded; what is too much is dropped.

mod bind;
mod greet;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;

use bind::{SocketFile, bind_tcp, bind_unix};
pub use greet::{Accepted, PeerInfo};
use greet::{Greeter, Socket};

use crate::{Endpoint, Error, Result, ServerTls};

/// Connections that have said what they are for and are not yet accepted, before others must wait to be next.
const READY: usize = 16;
/// Pause after the system failed to give us a connection, for want of descriptors, say.
const PAUSE: Duration = Duration::from_millis(100);

/// How patient a listener is.
#[derive(Debug, Clone, Copy)]
pub struct ListenOptions {
    /// Within this time a connection must have said what it is for: its first bytes, and the TLS handshake.
    pub greeting: Duration,
    /// How many connections may be about to say so, or wait for being accepted. More are dropped.
    pub waiting: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { greeting: Duration::from_secs(5), waiting: 1024 }
    }
}

/// Addresses that are listened on. Dropping it closes them and removes its Unix sockets.
#[derive(Debug)]
pub struct Listener {
    endpoints: Vec<Endpoint>,
    accepted: Mutex<mpsc::Receiver<Accepted>>,
    /// Ends with the listener.
    _tasks: JoinSet<()>,
    _sockets: Vec<SocketFile>,
}

impl Listener {
    /// Listens on addresses; on TCP under TLS if it is given, on Unix sockets always plainly.
    ///
    /// The directory of a Unix socket is made if missing, for its owner alone, and so is the socket. One that a process left
    /// behind is replaced; one that is in use is refused.
    ///
    /// # Errors
    /// When one of the addresses cannot be listened on.
    pub async fn bind(endpoints: &[Endpoint], tls: Option<ServerTls>) -> Result<Self> {
        Self::bind_with(endpoints, tls, ListenOptions::default()).await
    }

    /// The same, with another patience.
    ///
    /// # Errors
    /// When one of the addresses cannot be listened on.
    pub async fn bind_with(endpoints: &[Endpoint], tls: Option<ServerTls>, options: ListenOptions) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(READY);
        let greeter = Greeter::new(tls, options.greeting, sender);
        let room = Arc::new(Semaphore::new(options.waiting));
        let (mut real, mut tasks, mut sockets) = (Vec::new(), JoinSet::new(), Vec::new());
        for endpoint in endpoints {
            let wrong = |error: io::Error| Error::listen(endpoint, &error);
            let listening = match endpoint {
                Endpoint::Tcp { host, port } => {
                    let listener = bind_tcp(host, *port).await.map_err(wrong)?;
                    let port = listener.local_addr().map_err(wrong)?.port();
                    real.push(Endpoint::Tcp { host: host.clone(), port });
                    Listening::Tcp(listener)
                }
                Endpoint::Unix(path) => {
                    let (listener, file) = bind_unix(path).await.map_err(wrong)?;
                    sockets.push(file);
                    real.push(endpoint.clone());
                    Listening::Unix(listener)
                }
            };
            tasks.spawn(listening.serve(greeter.clone(), Arc::clone(&room)));
        }
        Ok(Self { endpoints: real, accepted: Mutex::new(receiver), _tasks: tasks, _sockets: sockets })
    }

    /// The addresses, in the order in which they were given, with the ports that the system chose.
    pub fn local_endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The next connection that has said what it is for. Dropping the future loses none.
    ///
    /// # Errors
    /// When the runtime stops.
    pub async fn accept(&self) -> Result<Accepted> {
        self.accepted.lock().await.recv().await.ok_or(Error::Stopped)
    }
}

enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    /// Takes connections for ever.
    async fn serve(self, greeter: Greeter, room: Arc<Semaphore>) {
        let mut greetings = JoinSet::new();
        let mut full = false;
        loop {
            while greetings.try_join_next().is_some() {}
            let socket = match self.accept().await {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection; trying again");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let place = Arc::clone(&room).try_acquire_owned();
            if !full && place.is_err() {
                tracing::warn!("dropping connections: too many have not said yet what they are for");
            }
            full = place.is_err();
            if let Ok(place) = place {
                greetings.spawn(greeter.clone().greet(socket, place));
            }
        }
    }

    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, address)| Socket::Tcp(stream, address)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}
