//! Both ends of connections, and certificates.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use graphmill_net::{
    Accepted, ClientTls, Endpoint, FrameReader, FrameWriter, Listener, PeerInfo, ServerTls, Stream, connect_data, split,
};
use graphmill_wire::{Limits, VERSION};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// Long enough for a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn loopback() -> Endpoint {
    "127.0.0.1:0".parse().unwrap()
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Transport {
    Tcp,
    Unix,
    Tls,
}

impl Transport {
    pub(crate) const ALL: [Self; 3] = [Self::Tcp, Self::Unix, Self::Tls];

    /// The client's and the server's end of a new connection.
    pub(crate) async fn connect(self) -> (Stream, Stream) {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let (endpoint, server, client) = match self {
            Self::Tcp => (loopback(), None, None),
            Self::Unix => (Endpoint::Unix(directory.path().join("socket")), None, None),
            Self::Tls => (loopback(), Some(authority.server(None)), Some(authority.client(None))),
        };
        let listener = Listener::bind(&[endpoint], server).await.unwrap();
        let connecting = connect_data(&listener.local_endpoints()[0], client.as_ref(), PATIENCE);
        let (client, server) = tokio::join!(connecting, accept_data(&listener));
        (client.unwrap(), server.0)
    }
}

pub(crate) async fn accept(listener: &Listener) -> Accepted {
    tokio::time::timeout(PATIENCE, listener.accept()).await.expect("a connection in time").unwrap()
}

pub(crate) async fn accept_data(listener: &Listener) -> (Stream, PeerInfo) {
    match accept(listener).await {
        Accepted::Data { stream, peer } => (stream, peer),
        other @ Accepted::Http { .. } => panic!("not a data connection: {other:?}"),
    }
}

pub(crate) async fn accept_http(listener: &Listener) -> Stream {
    match accept(listener).await {
        Accepted::Http { stream, .. } => stream,
        other @ Accepted::Data { .. } => panic!("not HTTP: {other:?}"),
    }
}

pub(crate) fn frames(stream: Stream) -> (FrameReader, FrameWriter) {
    split(stream, VERSION, Limits::SERVER)
}

/// Somebody who signs certificates, and a directory of them.
pub(crate) struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A server's side, which asks clients for certificates of an authority if one is given.
    pub(crate) fn server(&self, clients: Option<&Self>) -> ServerTls {
        let (cert, key) = self.issue("127.0.0.1");
        ServerTls::load(&cert, &key, clients.map(Self::path).as_deref()).unwrap()
    }

    /// A client's side that trusts this authority, with a certificate of an authority if one is given.
    pub(crate) fn client(&self, identity: Option<&Self>) -> ClientTls {
        let identity = identity.map(|authority| authority.issue("someone"));
        let identity = identity.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        ClientTls::load(&self.path(), identity).unwrap()
    }

    /// The files of a new certificate and its key.
    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.sign(&CertificateParams::new([name.to_owned()]).unwrap())
    }

    /// The same, of a certificate that was good long ago.
    pub(crate) fn issue_expired(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let write = |file: &str, content: String| {
            let path = self.directory.path().join(Path::new(file));
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        };
        (write("cert.pem", cert.pem()), write("key.pem", key.serialize_pem()))
    }
}
