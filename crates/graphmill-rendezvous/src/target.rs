//! Where a run is, as people write it.

use std::fmt;
use std::str::FromStr;

use graphmill_net::Endpoint;

use crate::etcd::{EtcdUrl, with_port};

/// The port of a coordinator, where none is said.
const PORT: u16 = 4300;

/// Coordinators, and a run: `host:port,host:port/run`, `unix:/path//run`, or `etcd://host:port/run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where coordinators are.
    pub place: Place,
    /// The run, if one is named.
    pub run: Option<String>,
}

/// Where coordinators are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At these addresses; one of them serves.
    At(Vec<Endpoint>),
    /// Where etcd says that the one is which leads.
    Etcd(EtcdUrl),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = match text.split_once("://") {
            None => text,
            Some(("graphmill", rest)) => rest,
            Some(("etcd", _)) => {
                let mut url: EtcdUrl = text.parse()?;
                let run = Some(std::mem::take(&mut url.path)).filter(|run| !run.is_empty());
                return Ok(Self { place: Place::Etcd(url), run });
            }
            Some((scheme, _)) => {
                return Err(format!(
                    "`{scheme}://` is not known; a run is written graphmill://HOST:PORT/RUN or etcd://HOST:PORT/RUN"
                ));
            }
        };
        // A socket's path has slashes of its own.
        let end = if rest.starts_with("unix:") { "//" } else { "/" };
        let (addresses, run) = match rest.split_once(end) {
            Some((addresses, run)) => (addresses, Some(run).filter(|run| !run.is_empty())),
            None => (rest, None),
        };
        let endpoint = |address: &str| {
            let address = address.trim();
            let address = if address.starts_with("unix:") { address.to_owned() } else { with_port(address, PORT) };
            address.parse::<Endpoint>().map_err(|error| error.to_string())
        };
        let endpoints = addresses.split(',').map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { place: Place::At(endpoints), run: run.map(str::to_owned) })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(endpoints) => {
                f.write_str(&endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Self::Etcd(url) => write!(f, "etcd://{}", url.nodes.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_addresses_and_a_run() {
        let read = |text: &str| {
            let target: Target = text.parse()?;
            Ok::<_, String>((target.place.to_string(), target.run.unwrap_or_default()))
        };
        let rows = [
            ("127.0.0.1:4300/train", "127.0.0.1:4300", "train"),
            ("graphmill://a:1,b:2/run 7", "a:1, b:2", "run 7"),
            ("a/b/c", "a:4300", "b/c"),
            ("host", "host:4300", ""),
            ("host/", "host:4300", ""),
            ("", "127.0.0.1:4300", ""),
            ("[::1]:99/r", "[::1]:99", "r"),
            ("::1", "[::1]:4300", ""),
            ("[::1]", "[::1]:4300", ""),
            ("unix:/run/socket", "unix:/run/socket", ""),
            ("unix:/run/socket//train", "unix:/run/socket", "train"),
            ("graphmill://unix:/a,unix:/b//train", "unix:/a, unix:/b", "train"),
            ("etcd://a,b:1/train", "etcd://a:2379,b:1", "train"),
            ("etcd://a?prefix=p", "etcd://a:2379", ""),
        ];
        for (text, place, run) in rows {
            assert_eq!(read(text), Ok((place.to_owned(), run.to_owned())), "{text}");
        }
        for wrong in [
            "http://host:1",
            "host:65536",
            "host:port",
            "host:",
            "ho st:1",
            "[host]:1",
            "unix:socket",
            "etcd://a?b=1",
            "a:1,b:x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
