//! How rank 0 of a round is reached: it says so in the round's store, and the others read it there.

use std::time::Duration;

use super::{Error, Store};

/// The key, which Python's members read too.
const KEY: &str = "graphmill/master";

/// An address and a port of rank 0, the same for all participants of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// How its host is reached.
    pub address: String,
    /// A port of it.
    pub port: u16,
}

impl Master {
    pub(super) async fn publish(&self, store: &Store) -> Result<(), Error> {
        let set = store.set(vec![(KEY.to_owned(), format!("{} {}", self.port, self.address).into_bytes())]);
        match set.await {
            // The others have gone on without this member, and nobody reads it.
            Err(Error::NoRound(_)) => Ok(()),
            set => set,
        }
    }

    /// What rank 0 has said, or nothing if it does not within the time.
    pub(super) async fn read(store: &Store, within: Duration) -> Result<Option<Self>, Error> {
        let values = match store.get(vec![KEY.to_owned()], within).await {
            Err(Error::NoValue(_) | Error::NoRound(_)) => return Ok(None),
            values => values?,
        };
        let said = values.first().map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
        let parsed = said.split_once(' ').and_then(|(port, address)| Some((port.parse().ok()?, address.to_owned())));
        let Some((port, address)) = parsed else {
            let reason = format!("rank 0 has said `{said}`, which is no port and address");
            return Err(Error::Refused { doing: "reach rank 0", reason });
        };
        Ok(Some(Self { address, port }))
    }
}

/// A port that nobody has now.
pub(super) fn free_port() -> Result<u16, Error> {
    let bound = std::net::TcpListener::bind(("0.0.0.0", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| Error::Host(error.to_string()))
}
