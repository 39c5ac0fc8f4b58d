//! Finding out what a connection is for.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use graphmill_wire::PREFACE;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::stream::{tune_tcp, tune_unix};
use crate::{Plane, ServerTls, Stream, unix};

/// A connection that has said what it is for.
#[derive(Debug)]
pub enum Accepted {
    /// The data plane. The preface was read and is right; a `HELLO` comes next.
    Data {
        /// The connection.
        stream: Stream,
        /// Who is there.
        peer: PeerInfo,
    },
    /// The control or watch plane: HTTP, of which nothing was read.
    Http {
        /// The connection.
        stream: Stream,
        /// Who is there.
        peer: PeerInfo,
    },
}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    /// Its address, or `unix` and its process: for logs.
    pub address: String,
    /// The user, if it came over a Unix socket.
    pub uid: Option<u32>,
    /// The process, if it came over a Unix socket and can be seen from here.
    pub pid: Option<i32>,
    /// Whether it showed a certificate that the server's authorities signed.
    pub certificate: bool,
}

/// A connection fresh from the system.
pub(super) enum Socket {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Finds out what connections are for, and hands them on.
#[derive(Clone)]
pub(super) struct Greeter {
    tls: Option<TlsAcceptor>,
    patience: Duration,
    accepted: mpsc::Sender<Accepted>,
}

impl Greeter {
    pub(super) fn new(tls: Option<ServerTls>, patience: Duration, accepted: mpsc::Sender<Accepted>) -> Self {
        Self { tls: tls.map(|tls| TlsAcceptor::from(tls.config)), patience, accepted }
    }

    /// Greets one connection; its place is free again when it was handed on.
    pub(super) async fn greet(self, socket: Socket, place: OwnedSemaphorePermit) {
        let peer = match PeerInfo::of(&socket) {
            Ok(peer) => peer,
            Err(error) => return tracing::debug!(%error, "dropping a connection: nobody is there any more"),
        };
        let address = peer.address.clone();
        match timeout(self.patience, self.recognise(socket, peer)).await {
            // Fails only when the listener is gone, and everything with it.
            Ok(Ok(accepted)) => drop(self.accepted.send(accepted).await),
            Ok(Err(error)) => tracing::debug!(%address, %error, "dropping a connection"),
            Err(_) => tracing::debug!(%address, "dropping a connection that did not say what it is for"),
        }
        drop(place);
    }

    async fn recognise(&self, socket: Socket, mut peer: PeerInfo) -> io::Result<Accepted> {
        let (mut stream, data) = match (socket, &self.tls) {
            (Socket::Tcp(stream, _), Some(tls)) => {
                tune_tcp(&stream)?;
                let stream = tls.accept(stream).await.inspect_err(|error| {
                    tracing::warn!(address = %peer.address, %error, "refusing a connection: the TLS handshake failed");
                })?;
                let session = stream.get_ref().1;
                peer.certificate = session.peer_certificates().is_some();
                let data = session.alpn_protocol() == Some(Plane::Data.alpn());
                (Stream::Tls(Box::new(stream.into())), data)
            }
            (Socket::Tcp(stream, _), None) => {
                tune_tcp(&stream)?;
                let mut first = [0];
                let found = stream.peek(&mut first).await? > 0;
                (Stream::Tcp(stream), is_data(found.then_some(first[0]))?)
            }
            (Socket::Unix(stream), _) => {
                tune_unix(&stream);
                let first = unix::peek(&stream).await?;
                (Stream::Unix(stream), is_data(first)?)
            }
        };
        if !data {
            return Ok(Accepted::Http { stream, peer });
        }
        read_preface(&mut stream).await?;
        Ok(Accepted::Data { stream, peer })
    }
}

impl PeerInfo {
    fn of(socket: &Socket) -> io::Result<Self> {
        match socket {
            Socket::Tcp(_, address) => {
                let address = SocketAddr::new(address.ip().to_canonical(), address.port()).to_string();
                Ok(Self { address, uid: None, pid: None, certificate: false })
            }
            Socket::Unix(stream) => {
                let peer = stream.peer_cred()?;
                // A process of another container has no number here.
                let pid = peer.pid().filter(|&pid| pid > 0);
                let address = pid.map_or_else(|| "unix".to_owned(), |pid| format!("unix (process {pid})"));
                Ok(Self { address, uid: Some(peer.uid()), pid, certificate: false })
            }
        }
    }
}

/// Whether a first byte is that of the data plane.
fn is_data(first: Option<u8>) -> io::Result<bool> {
    first.map(|first| first == PREFACE[0]).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut found = [0; PREFACE.len()];
    stream.read_exact(&mut found).await?;
    if found == PREFACE {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the preface of a data connection is wrong"))
    }
}
