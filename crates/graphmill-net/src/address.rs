//! Where a member listens.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, Result};

/// An address as people write it: `host:port`, `[::1]:port` or `unix:/path`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A host, by name or number (an IPv6 number without its brackets), and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port; zero lets the system choose one to listen on.
        port: u16,
    },
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

impl Endpoint {
    /// Whether only processes of this host can be at the other end. A name other than `localhost` is not looked up.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                let number = host.parse::<IpAddr>().map(|number| number.to_canonical());
                host.eq_ignore_ascii_case("localhost") || number.is_ok_and(|number| number.is_loopback())
            }
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason| Error::Address { text: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(wrong("the path must be absolute")) };
        }
        if text.contains("://") {
            return Err(wrong("it has a scheme"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
        let port = port.parse().map_err(|_| wrong("the port is not a number up to 65535"))?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(number) if number.parse::<std::net::Ipv6Addr>().is_err() => {
                return Err(wrong("there is no IPv6 address between the brackets"));
            }
            Some(number) => number,
            None if host.contains(':') => return Err(wrong("an IPv6 address needs brackets")),
            None if host.is_empty() => return Err(wrong("it has no host")),
            None if host.contains(|c: char| c == '/' || c == '@' || c.is_whitespace() || c.is_control()) => {
                return Err(wrong("the host has characters that no host has"));
            }
            None => host,
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        for text in
            ["localhost:80", "10.0.0.1:0", "[::1]:65535", "storage-0.graph.svc:7171", "unix:/run/graphmill/socket"]
        {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        for (text, reason) in [
            ("localhost", "no port"),
            ("localhost:", "not a number"),
            ("localhost:65536", "not a number"),
            (":80", "no host"),
            ("::1:80", "needs brackets"),
            ("[localhost]:80", "between the brackets"),
            ("http://localhost:80", "scheme"),
            ("a b:80", "characters"),
            ("unix:socket", "absolute"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn only_this_host_is_loopback() {
        for text in ["localhost:1", "LocalHost:1", "127.3.2.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/a"] {
            assert!(text.parse::<Endpoint>().unwrap().is_loopback(), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "localhost.example.org:1", "10.0.0.1:1"] {
            assert!(!text.parse::<Endpoint>().unwrap().is_loopback(), "{text}");
        }
    }
}
