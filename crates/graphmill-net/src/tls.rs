//! TLS: certificates from files, and which plane a connection is for.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::{Error, Result, read_secret};

/// What a connection is for. Under TLS it is told by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// Frames.
    Data,
    /// gRPC.
    Control,
    /// HTTP/1.1, for people and their probes.
    Watch,
}

impl Plane {
    /// The protocol's name in a TLS handshake.
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Data => graphmill_wire::ALPN,
            Self::Control => b"h2",
            Self::Watch => b"http/1.1",
        }
    }
}

/// The first byte of what a server that speaks TLS answers to a client that does not. No frame begins with it, nor HTTP/2.
pub(crate) const TLS_ALERT: u8 = 0x15;

/// What a server needs for TLS.
#[derive(Debug, Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    mutual: bool,
}

impl ServerTls {
    /// Reads a certificate chain and its key from PEM files. With authorities for clients, only a client with a certificate
    /// that one of them signed gets in.
    ///
    /// # Errors
    /// When a file cannot be read, or does not hold what it should.
    pub fn load(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::file(cert, &error))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider());
                builder.with_client_cert_verifier(verifier.build().map_err(|error| Error::file(path, &error))?)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| Error::file(key, &format!("it does not belong to {}: {error}", cert.display())))?;
        config.alpn_protocols = [Plane::Data, Plane::Control, Plane::Watch].map(|plane| plane.alpn().to_vec()).into();
        // Connections live long, so resuming sessions saves little; and a client that has sent its last frame and closes
        // without having read a ticket would reset the connection, and the frame with it.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), mutual: client_ca.is_some() })
    }

    /// Whether clients must show a certificate.
    pub fn is_mutual(&self) -> bool {
        self.mutual
    }
}

/// What a client needs for TLS.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: ClientConfig,
}

impl ClientTls {
    /// Reads the authorities that may have signed a server's certificate, and the client's own certificate chain and key if
    /// it has one, from PEM files.
    ///
    /// # Errors
    /// When a file cannot be read, or does not hold what it should.
    pub fn load(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self> {
        let verifier = WebPkiServerVerifier::builder_with_provider(authorities(ca)?, provider());
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::file(ca, &error))?
            .with_webpki_verifier(verifier.build().map_err(|error| Error::file(ca, &error))?);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|error| Error::file(key, &format!("it does not belong to {}: {error}", cert.display())))?,
        };
        Ok(Self { config })
    }

    pub(crate) fn config(&self, plane: Plane) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![plane.alpn().to_vec()];
        Arc::new(config)
    }
}

/// What is wrong with a certificate, if an error of TLS says so.
pub(crate) fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    use rustls::{AlertDescription as Alert, Error};
    match error.downcast_ref()? {
        Error::InvalidCertificate(reason) => {
            Some(format!("the server's certificate is not trusted: {reason}; check the authority that is trusted here"))
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            Some("the server wants a certificate, and none was given; give one that its authority signed".to_owned())
        }
        Error::AlertReceived(
            alert @ (Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError),
        ) => Some(format!(
            "the server does not accept the certificate that it was given ({alert:?}); give one that its authority signed"
        )),
        _ => None,
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| Error::file(path, &error))?;
    }
    Ok(Arc::new(store))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let found = found.map_err(|error| Error::file(path, &error))?;
    if found.is_empty() { Err(Error::file(path, "there is no certificate in it")) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read_secret(path)?).map_err(|error| Error::file(path, &error))
}
