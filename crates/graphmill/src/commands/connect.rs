//! The flags of commands that talk to servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use graphmill_client::{ConnectOptions, Remote, Servers};
use graphmill_net::{ClientTls, Token};

/// How servers are reached.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// A server's address, repeated for several; or a run, as graphmill://HOST:PORT/RUN
    #[arg(value_name = "ADDRESS|URL", required = true, env = "GRAPHMILL_SERVERS", value_delimiter = ',')]
    servers: Vec<String>,

    /// A file with the servers' token
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Who signs the servers' certificates; they are then reached over TLS
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// The certificate to show to them, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"], env = "GRAPHMILL_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    deadline: f64,
}

impl ConnectArgs {
    pub(crate) fn connect(&self) -> anyhow::Result<Arc<Remote>> {
        let identity = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        let options = ConnectOptions {
            token: self.token_file.as_ref().map(|path| Token::from_file(path)).transpose()?,
            tls: self.tls_ca.as_ref().map(|ca| ClientTls::load(ca, identity)).transpose()?,
            deadline: Duration::try_from_secs_f64(self.deadline).unwrap_or(Duration::from_secs(10)),
            ..ConnectOptions::default()
        };
        Ok(Remote::connect_to(&Servers::parse(&self.servers)?, options)?)
    }
}
