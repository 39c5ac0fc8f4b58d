//! How connectors and servers are told what to do: plain data, the same in Rust, Python and JSON.

use std::path::PathBuf;
use std::time::Duration;

use graphmill_net::{ClientTls, Endpoint, ServerTls, Token};
use serde::{Deserialize, Serialize};

use crate::key::Location;
use crate::life::default_address;
use crate::{Error, Result};

/// The longest time that can be asked for: a year, in seconds.
const LONGEST: f64 = 365.0 * 86_400.0;
/// What a Redis address begins with.
const REDIS: &str = "redis://";

/// How a connector finds its server and treats it. `docs/objects.md` has a line for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `HOST:PORT`, `unix:/PATH` or `redis://...`.
    pub address: String,
    /// A file with the server's token.
    pub token_file: Option<PathBuf>,
    /// Who signs the server's certificate; it is then reached over TLS.
    pub tls_ca: Option<PathBuf>,
    /// The certificate to show to it.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// Seconds within which a call must be answered.
    pub deadline: f64,
    /// Seconds within which a server must take a connection; where none does, one is started.
    pub wait: f64,
    /// Seconds for which a put waits for room.
    pub put_wait: f64,
    /// Whether large objects may go through shared memory.
    pub shared_memory: bool,
    /// How to start a server where there is none; without it none is started.
    pub spawn: Option<Spawn>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: default_address(),
            token_file: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            deadline: 30.0,
            wait: 0.1,
            put_wait: 2.0,
            shared_memory: true,
            spawn: None,
        }
    }
}

/// How a server is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spawn {
    /// A program and its arguments; empty for this program's own `objects serve --spawned`, or the `graphmill` on the path.
    pub command: Vec<String>,
    /// Seconds within which it must answer.
    pub deadline: f64,
    /// What it is told. Where it listens, if that is left open, is the connector's address; a linger time it always has.
    pub server: ServerConfig,
}

impl Default for Spawn {
    fn default() -> Self {
        Self { command: Vec::new(), deadline: 10.0, server: ServerConfig::default() }
    }
}

/// How a server is run. `docs/objects.md` has a line for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where to listen; empty for the user's own socket.
    pub listen: Vec<String>,
    /// Bytes that all objects may take.
    pub budget: u64,
    /// Bytes that one object may have; a quarter of the budget if left open.
    pub object_limit: Option<u64>,
    /// Seconds after which an object that names no time itself is gone.
    pub ttl: Option<f64>,
    /// Whether a put may take the room of objects that were not used lately.
    pub evict: bool,
    /// Seconds without a connection after which it ends; without it, one that no connector starts runs until it is stopped.
    pub linger: Option<f64>,
    /// A file with the token that clients must know.
    pub token_file: Option<PathBuf>,
    /// Its certificate.
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key.
    pub tls_key: Option<PathBuf>,
    /// Who signs the certificates of clients; then they must have one.
    pub tls_client_ca: Option<PathBuf>,
    /// Whether it may listen beyond this host without token and certificates.
    pub insecure: bool,
    /// Whether clients on this host may share memory.
    pub shared_memory: bool,
    /// Threads for connections.
    pub threads: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            budget: 1 << 30,
            object_limit: None,
            ttl: None,
            evict: false,
            linger: None,
            token_file: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            insecure: false,
            shared_memory: true,
            threads: 1,
        }
    }
}

impl Config {
    /// A connector to an address, with everything else as it is by default.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), ..Self::default() }
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// When it is not a configuration.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::config(format!("a connector's configuration: {error}")))
    }

    /// Writes JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it has only texts, numbers and lists")
    }

    /// Where objects of this connector are.
    pub(crate) fn location(&self) -> Result<Location> {
        if self.address.starts_with(REDIS) {
            return crate::redis::location(&self.address);
        }
        let endpoint: Endpoint = self.address.parse().map_err(Error::config)?;
        Ok(match endpoint {
            Endpoint::Unix(path) => Location::Unix(path),
            Endpoint::Tcp { port: 0, .. } => {
                return Err(Error::config(format!("{} has no port: a connector needs one", self.address)));
            }
            Endpoint::Tcp { host, port } if self.tls_ca.is_some() => Location::Tls { host, port },
            Endpoint::Tcp { host, port } => Location::Tcp { host, port },
        })
    }

    pub(crate) fn tls(&self) -> Result<Option<ClientTls>> {
        let identity = pair(self.tls_cert.as_deref(), self.tls_key.as_deref())?;
        self.tls_ca.as_ref().map(|ca| ClientTls::load(ca, identity)).transpose().map_err(Error::config)
    }

    pub(crate) fn token(&self) -> Result<Option<Token>> {
        token(self.token_file.as_ref())
    }

    pub(crate) fn deadline(&self) -> Result<Duration> {
        seconds("deadline", self.deadline)
    }
}

impl ServerConfig {
    /// Reads JSON.
    ///
    /// # Errors
    /// When it is not a configuration.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::config(format!("a server's configuration: {error}")))
    }

    /// Writes JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it has only texts, numbers and lists")
    }

    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>> {
        if self.listen.is_empty() {
            return Ok(vec![default_address().parse().map_err(Error::config)?]);
        }
        self.listen.iter().map(|address| address.parse().map_err(Error::config)).collect()
    }

    pub(crate) fn object_limit(&self) -> u64 {
        self.object_limit.unwrap_or(self.budget / 4).min(self.budget)
    }

    pub(crate) fn tls(&self) -> Result<Option<ServerTls>> {
        let pair = pair(self.tls_cert.as_deref(), self.tls_key.as_deref())?;
        let load = |(cert, key)| ServerTls::load(cert, key, self.tls_client_ca.as_deref());
        pair.map(load).transpose().map_err(Error::config)
    }

    pub(crate) fn token(&self) -> Result<Option<Token>> {
        token(self.token_file.as_ref())
    }
}

fn token(file: Option<&PathBuf>) -> Result<Option<Token>> {
    file.map(|path| Token::from_file(path)).transpose().map_err(Error::config)
}

fn pair<'a, T: ?Sized>(cert: Option<&'a T>, key: Option<&'a T>) -> Result<Option<(&'a T, &'a T)>> {
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        _ => Err(Error::config("a certificate and its key belong together: give tls_cert and tls_key")),
    }
}

/// A time as it was written.
pub(crate) fn seconds(name: &str, seconds: f64) -> Result<Duration> {
    if !(0.0..=LONGEST).contains(&seconds) {
        return Err(Error::config(format!("{name} is {seconds}, expected seconds from 0 to {LONGEST}")));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_json_and_unknown_fields_are_refused() {
        let config = Config {
            address: "127.0.0.1:4200".to_owned(),
            token_file: Some("/t".into()),
            deadline: 0.25,
            spawn: Some(Spawn { command: vec!["a".to_owned(), "b c".to_owned()], ..Spawn::default() }),
            ..Config::default()
        };
        assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        assert_eq!(Config::from_json("{}").unwrap(), Config::default());
        assert!(Config::from_json(r#"{"adress": "x"}"#).unwrap_err().to_string().contains("adress"));
        assert!(ServerConfig::from_json(r#"{"budget": -1}"#).is_err());
    }

    #[test]
    fn times_that_no_clock_has_are_refused() {
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(seconds("deadline", wrong).unwrap_err().to_string().contains("deadline"), "{wrong}");
        }
    }
}
