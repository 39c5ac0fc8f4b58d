//! Where a run is, as people write it.

use std::str::FromStr;

use graphmill_net::Endpoint;

/// The port of a coordinator, where none is said.
const PORT: u16 = 4300;

/// Coordinators, and a run: `host:port,host:port/run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where coordinators are; one of them serves.
    pub endpoints: Vec<Endpoint>,
    /// The run, if one is named.
    pub run: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = match text.split_once("://") {
            None => text,
            Some(("graphmill", rest)) => rest,
            Some((scheme, _)) => {
                return Err(format!("`{scheme}://` is not known; a run is written graphmill://HOST:PORT/RUN"));
            }
        };
        let (addresses, run) = match rest.split_once('/') {
            Some((addresses, run)) => (addresses, Some(run).filter(|run| !run.is_empty())),
            None => (rest, None),
        };
        let endpoint = |address: &str| {
            // An empty host is this one.
            let address = if address.is_empty() { "127.0.0.1" } else { address };
            let bare_v6 = address.matches(':').count() > 1 && !address.contains(']');
            let has_port = !bare_v6 && address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            let address = match (bare_v6, has_port) {
                (true, _) => format!("[{address}]:{PORT}"),
                (false, true) => address.to_owned(),
                (false, false) => format!("{address}:{PORT}"),
            };
            address.parse::<Endpoint>().map_err(|error| error.to_string())
        };
        let endpoints = addresses.split(',').map(|address| endpoint(address.trim())).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, run: run.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_addresses_and_a_run() {
        let read = |text: &str| {
            let target: Target = text.parse()?;
            let endpoints: Vec<String> = target.endpoints.iter().map(ToString::to_string).collect();
            Ok::<_, String>((endpoints.join(" "), target.run.unwrap_or_default()))
        };
        let rows = [
            ("127.0.0.1:4300/train", "127.0.0.1:4300", "train"),
            ("graphmill://a:1,b:2/run 7", "a:1 b:2", "run 7"),
            ("host", "host:4300", ""),
            ("", "127.0.0.1:4300", ""),
            ("[::1]:99/r", "[::1]:99", "r"),
            ("::1", "[::1]:4300", ""),
            ("[::1]", "[::1]:4300", ""),
        ];
        for (text, endpoints, run) in rows {
            assert_eq!(read(text), Ok((endpoints.to_owned(), run.to_owned())), "{text}");
        }
        for wrong in ["http://host:1", "host:65536", "host:port", "host:"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
