//! Where servers are, as people write it.

use graphmill_net::Endpoint;
use graphmill_rendezvous::client::Connection;
use graphmill_rendezvous::storage::{self, Following, Incomplete};
use graphmill_rendezvous::{Target, client};

use super::ConnectOptions;
use super::roster::serving;
use crate::{Error, Result};

/// Storage servers: at their addresses, or through the coordinator of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Servers {
    /// At these addresses.
    At(Vec<Endpoint>),
    /// Those that serve a run.
    Run(Target),
}

impl Servers {
    /// Addresses, or one URL of a run: `graphmill://HOST:PORT/RUN`, or `etcd://HOST:PORT/RUN`.
    ///
    /// # Errors
    /// When an address is none, or a URL names no run or is not alone.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        if !texts.iter().any(|text| text.contains("://")) {
            let parse = |text: &&str| text.parse::<Endpoint>().map_err(|error| Error::servers(error.to_string()));
            return Ok(Self::At(texts.iter().map(parse).collect::<Result<_>>()?));
        }
        // Several coordinators are written with commas, and whoever splits at commas gets them in pieces.
        let target: Target = texts.join(",").parse().map_err(Error::servers)?;
        if target.run.is_none() {
            return Err(Error::servers("which run? write graphmill://HOST:PORT/RUN"));
        }
        Ok(Self::Run(target))
    }

    /// The addresses of servers; those of a run when every partition is served, with what tells of changes. To be called
    /// inside the runtime.
    pub(super) async fn find(&self, options: &ConnectOptions) -> Result<(Vec<Endpoint>, Option<Following>)> {
        let Target { place, run } = match self {
            Self::At(addresses) => return Ok((addresses.clone(), None)),
            Self::Run(target) => target,
        };
        let run = run.as_deref().unwrap_or_default();
        let reaching = client::ConnectOptions { token: options.token.clone(), tls: options.tls.clone() };
        let connection = Connection::open(place, &reaching).map_err(|error| Error::servers(error.to_string()))?;
        let following = storage::follow(connection, run);
        match following.complete(run, options.deadline).await {
            Ok(status) => Ok((serving(&status), Some(following))),
            Err(Incomplete::Late(reason)) => Err(Error::Late {
                what: "servers for all partitions".to_owned(),
                seconds: options.deadline.as_secs_f64(),
                reason,
            }),
            Err(Incomplete::Refused(error)) => {
                let (server, doing) = (place.to_string(), format!("tell the servers of run `{run}`"));
                let reason = error.to_string();
                Err(match error {
                    client::Error::Denied { .. } => Error::Denied { server, doing, reason },
                    _ => Error::Refused { server, doing, reason },
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_addresses_or_a_run() {
        let run = |texts: &[&str]| match Servers::parse(texts) {
            Ok(Servers::Run(target)) => (target.place.to_string(), target.run.unwrap_or_default()),
            other => panic!("{other:?}"),
        };
        let train = |place: &str| (place.to_owned(), "train".to_owned());
        assert_eq!(run(&["graphmill://a:1/train"]), train("a:1"));
        assert_eq!(run(&["graphmill://a:1,b:2/train"]), train("a:1, b:2"));
        assert_eq!(run(&["graphmill://a:1", "b:2/train"]), train("a:1, b:2"));
        assert_eq!(run(&["etcd://a:1", "b:2/train"]), train("etcd://a:1,b:2"));
        assert!(matches!(Servers::parse(&["a:1", "b:2"]), Ok(Servers::At(addresses)) if addresses.len() == 2));
        for (wrong, words) in [("graphmill://a:1", "which run?"), ("http://a:1/r", "is not known"), ("a", "a")] {
            let error = Servers::parse(&[wrong]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
