//! The flags of commands that talk to an object server.

use std::path::PathBuf;

use graphmill_objects::{Config, Connector, default_address};

/// How a server is reached.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// The server: host:port, `unix:/path` or `redis://host:port` [default: the user's own]
    #[arg(long, value_name = "ADDRESS", env = "GRAPHMILL_OBJECTS")]
    address: Option<String>,

    /// A file with the server's token, or the password of Redis
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Who signs the server's certificate; it is then reached over TLS
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// The certificate to show to it, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"], env = "GRAPHMILL_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Seconds to wait for an answer, and for each 16 MiB one more
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    deadline: f64,
}

impl ConnectArgs {
    pub(crate) fn connect(&self) -> anyhow::Result<Connector> {
        let config = Config {
            address: self.address.clone().unwrap_or_else(default_address),
            token_file: self.token_file.clone(),
            tls_ca: self.tls_ca.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            deadline: self.deadline,
            ..Config::default()
        };
        Ok(Connector::open(config)?)
    }
}
