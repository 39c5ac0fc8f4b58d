//! Opening connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use graphmill_wire::PREFACE;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::stream::{tune_tcp, tune_unix};
use crate::{ClientTls, Endpoint, Error, Plane, Result, Stream};

/// Connects to an address, for one plane. All of it, from the look-up of the name to the end of the TLS handshake, must be
/// done by the deadline. A Unix socket never uses TLS.
///
/// # Errors
/// When nobody answers there, or not as expected.
pub async fn dial(endpoint: &Endpoint, tls: Option<&ClientTls>, plane: Plane, deadline: Duration) -> Result<Stream> {
    match timeout(deadline, open(endpoint, tls, plane)).await {
        Ok(opened) => opened,
        Err(_) => Err(Error::dial(endpoint, &format!("no answer within {deadline:?}"))),
    }
}

/// Opens a data connection: connects and sends the preface. A `HELLO` comes next.
///
/// # Errors
/// When nobody answers there, or not as expected.
pub async fn connect_data(endpoint: &Endpoint, tls: Option<&ClientTls>, deadline: Duration) -> Result<Stream> {
    let mut stream = dial(endpoint, tls, Plane::Data, deadline).await?;
    let greeted = async {
        stream.write_all(&PREFACE).await?;
        stream.flush().await
    };
    greeted.await.map_err(|error| Error::dial(endpoint, &error))?;
    Ok(stream)
}

async fn open(endpoint: &Endpoint, tls: Option<&ClientTls>, plane: Plane) -> Result<Stream> {
    let (host, port) = match endpoint {
        Endpoint::Tcp { host, port } => (host, *port),
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| Error::dial(endpoint, &error))?;
            tune_unix(&stream);
            return Ok(Stream::Unix(stream));
        }
    };
    let stream = connect(host, port).await.map_err(|error| Error::dial(endpoint, &error))?;
    let Some(tls) = tls else { return Ok(Stream::Tcp(stream)) };
    let name = ServerName::try_from(host.clone()).map_err(|error| Error::dial(endpoint, &error))?;
    let handshake = TlsConnector::from(tls.config(plane)).connect(name, stream);
    let stream = handshake.await.map_err(|error| match Error::certificate(&error) {
        Some(reason) => Error::Certificate(format!("cannot connect to {endpoint}: the TLS handshake failed: {reason}")),
        None => Error::dial(endpoint, &format!("the TLS handshake failed: {error}")),
    })?;
    if stream.get_ref().1.alpn_protocol() != Some(plane.alpn()) {
        return Err(Error::dial(endpoint, "it speaks TLS, but is not a server of graphmill"));
    }
    Ok(Stream::Tls(Box::new(stream.into())))
}

/// Tries the addresses of a host one after the other. The error is that of the last.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in lookup_host((host, port)).await? {
        match connect_one(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn connect_one(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    let stream = socket.connect(address).await?;
    tune_tcp(&stream)?;
    Ok(stream)
}
