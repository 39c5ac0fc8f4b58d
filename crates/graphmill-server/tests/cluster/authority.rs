//! Certificates for the tests.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use graphmill_net::{ClientTls, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

/// Somebody who signs certificates, and a folder of them.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = graphmill_testing::tempdir();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
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

    /// A server's side whose certificate was good long ago.
    pub(crate) fn expired_server(&self) -> ServerTls {
        let (cert, key) = self.sign(&expired("127.0.0.1"));
        ServerTls::load(&cert, &key, None).unwrap()
    }

    /// A client's side whose certificate was good long ago.
    pub(crate) fn expired_client(&self) -> ClientTls {
        let (cert, key) = self.sign(&expired("someone"));
        ClientTls::load(&self.path(), Some((&cert, &key))).unwrap()
    }

    /// The files of a new certificate and its key.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.sign(&CertificateParams::new([name.to_owned()]).unwrap())
    }

    fn sign(&self, params: &CertificateParams) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_path, key_path) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        std::fs::write(&cert_path, cert.pem()).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key_path, PermissionsExt::from_mode(0o600)).unwrap();
        (cert_path, key_path)
    }
}

fn expired(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    params
}
