//! What finds an object from anywhere, and how it is written.

use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use graphmill_net::Endpoint;

use crate::{Error, Result};

/// The longest key.
const LONGEST: usize = 1024;
/// What every key begins with.
const SCHEME: &str = "graphmill+";

/// The name of an object on its server: 128 bits that nobody else chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u128);

impl ObjectId {
    /// Its halves, as frames carry them.
    pub(crate) fn halves(self) -> (u64, u64) {
        ((self.0 >> 64) as u64, self.0 as u64)
    }

    pub(crate) fn from_halves(high: u64, low: u64) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ObjectId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let id = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        id.map(Self).ok_or_else(|| bad(text, "an id has 32 lower-case hexadecimal digits"))
    }
}

/// Where an object's server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// An object server over TCP.
    Tcp {
        /// Name or number; an IPv6 number without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// An object server over TLS.
    Tls {
        /// Name or number; an IPv6 number without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// An object server on this host.
    Unix(PathBuf),
    /// A Redis server.
    Redis {
        /// Name or number; an IPv6 number without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Which of its databases.
        database: u32,
    },
}

impl Location {
    /// What to dial; nothing for Redis, which is reached in its own way.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port } => {
                Some(Endpoint::Tcp { host: host.clone(), port: *port })
            }
            Self::Unix(path) => Some(Endpoint::Unix(path.clone())),
            Self::Redis { .. } => None,
        }
    }

    /// The transport's name, as in keys.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Tcp { .. } => "tcp",
            Self::Tls { .. } => "tls",
            Self::Unix(_) => "unix",
            Self::Redis { .. } => "redis",
        }
    }
}

impl fmt::Display for Location {
    /// The beginning of a key, without the slash before its id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}://", self.transport())?;
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port } | Self::Redis { host, port, .. } => {
                write!(f, "{}", Endpoint::Tcp { host: host.clone(), port: *port })
            }
            Self::Unix(path) => {
                for &byte in path.as_os_str().as_bytes() {
                    if is_plain(byte) { f.write_char(byte.into()) } else { write!(f, "%{byte:02X}") }?;
                }
                Ok(())
            }
        }
    }
}

/// What finds an object from any process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The object.
    pub id: ObjectId,
    /// Its bytes; not known when the key was made first.
    pub size: Option<u64>,
    /// Its server.
    pub location: Location,
    /// The start of the server that has it; 0 where that says nothing.
    pub generation: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.location, self.id)?;
        let mut mark = '?';
        let mut pair = |name: &str, value: fmt::Arguments<'_>| {
            let written = write!(f, "{mark}{name}={value}");
            mark = '&';
            written
        };
        if let Some(size) = self.size {
            pair("size", format_args!("{size}"))?;
        }
        if self.generation != 0 {
            pair("generation", format_args!("{:x}", self.generation))?;
        }
        match self.location {
            Location::Redis { database, .. } if database != 0 => pair("database", format_args!("{database}")),
            _ => Ok(()),
        }
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.len() > LONGEST {
            return Err(bad(text, "it is longer than 1024 characters"));
        }
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| bad(text, "it does not begin with graphmill+"))?;
        let (transport, rest) = rest.split_once("://").ok_or_else(|| bad(text, "it has no transport"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (address, id) = place.rsplit_once('/').ok_or_else(|| bad(text, "it has no id"))?;
        let id = id.parse().map_err(|_| bad(text, "its id has not 32 lower-case hexadecimal digits"))?;
        let (mut size, mut generation, mut database) = (None, 0, 0);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let number = |value: &str, radix| {
                u64::from_str_radix(value, radix).map_err(|_| bad(text, "a number in it cannot be read"))
            };
            match pair.split_once('=') {
                Some(("size", value)) => size = Some(number(value, 10)?),
                Some(("generation", value)) => generation = number(value, 16)?,
                Some(("database", value)) => {
                    database = u32::try_from(number(value, 10)?).map_err(|_| bad(text, "there is no such database"))?;
                }
                _ => return Err(bad(text, "it has a part other than size, generation and database")),
            }
        }
        let location = location(transport, address, database).map_err(|reason| bad(text, reason))?;
        let key = Self { id, size, location, generation };
        // One spelling: then keys can be compared as texts.
        if key.to_string() == text { Ok(key) } else { Err(bad(text, "it is not written as keys are")) }
    }
}

fn location(transport: &str, address: &str, database: u32) -> std::result::Result<Location, &'static str> {
    if transport == "unix" {
        let path = PathBuf::from(std::ffi::OsString::from_vec(unescaped(address)?));
        let sound = path.is_absolute() && !path.as_os_str().as_bytes().contains(&0);
        return if sound { Ok(Location::Unix(path)) } else { Err("its path is not absolute") };
    }
    let Ok(Endpoint::Tcp { host, port }) = address.parse::<Endpoint>() else {
        return Err("its address is not HOST:PORT");
    };
    match transport {
        "tcp" => Ok(Location::Tcp { host, port }),
        "tls" => Ok(Location::Tls { host, port }),
        "redis" => Ok(Location::Redis { host, port, database }),
        _ => Err("its transport is not tcp, tls, unix or redis"),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
}

fn unescaped(text: &str) -> std::result::Result<Vec<u8>, &'static str> {
    const WRONG: &str = "its path has characters that must be escaped";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(Some(*first).filter(|byte| is_plain(*byte)).ok_or(WRONG)?);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2).ok_or(WRONG)?;
        let digits = std::str::from_utf8(digits).map_err(|_| WRONG)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| WRONG)?);
        rest = more;
    }
    Ok(bytes)
}

fn bad(text: &str, reason: &str) -> Error {
    const SHOWN: usize = 128;
    let shown: String = text.chars().take(SHOWN).collect();
    Error::BadKey { text: shown, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn locations() -> impl Strategy<Value = Location> {
        let host = prop_oneof!["[a-z][a-z0-9.-]{0,20}", Just("127.0.0.1".to_owned()), Just("::1".to_owned())];
        let path = proptest::collection::vec(1u8..=255, 0..100);
        prop_oneof![
            (host.clone(), any::<u16>()).prop_map(|(host, port)| Location::Tcp { host, port }),
            (host.clone(), any::<u16>()).prop_map(|(host, port)| Location::Tls { host, port }),
            (host, any::<u16>(), any::<u32>()).prop_map(|(host, port, database)| Location::Redis {
                host,
                port,
                database
            }),
            path.prop_map(|path| Location::Unix(
                PathBuf::from("/").join(std::ffi::OsString::from_vec([&b"/"[..], &path].concat()))
            )),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(id: u128, size: Option<u64>, generation: u64, location in locations()) {
            let key = Key { id: ObjectId(id), size, location, generation };
            prop_assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
        }

        #[test]
        fn what_is_read_is_written_the_same(text in "graphmill\\+(tcp|unix|tls|redis)://[a-z0-9:/.%?&=-]{0,90}") {
            if let Ok(key) = text.parse::<Key>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }

    #[test]
    fn keys_look_like_those_of_the_page() {
        let id = "00f1e2d3c4b5a69788796a5b4c3d2e1f";
        for text in [
            format!("graphmill+tcp://127.0.0.1:4200/{id}?size=1024&generation=5f0a7c31"),
            format!("graphmill+tls://[::1]:4200/{id}?generation=5f0a7c31"),
            format!("graphmill+unix:///run/user/1000/a%20b.sock/{id}?size=0&generation=1"),
            format!("graphmill+redis://127.0.0.1:6379/{id}?size=7&database=2"),
        ] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_a_reason() {
        let id = "00f1e2d3c4b5a69788796a5b4c3d2e1f";
        for (text, reason) in [
            (String::new(), "begin with"),
            ("graphmill+tcp:/x".to_owned(), "transport"),
            (format!("graphmill+udp://a:1/{id}"), "tcp, tls"),
            ("graphmill+tcp://a:1/12".to_owned(), "32"),
            (format!("graphmill+tcp://a:1/{}", id.to_uppercase()), "lower-case"),
            (format!("graphmill+tcp://a/{id}"), "HOST:PORT"),
            (format!("graphmill+tcp://a:1/{id}?size=x"), "number"),
            (format!("graphmill+tcp://a:1/{id}?size=01"), "written as keys are"),
            (format!("graphmill+tcp://a:1/{id}?generation=1&size=1"), "written as keys are"),
            (format!("graphmill+tcp://a:1/{id}?colour=1"), "a part other than"),
            (format!("graphmill+unix://a/{id}"), "absolute"),
            (format!("graphmill+unix:///%/{id}"), "escaped"),
            (format!("graphmill+unix:///{}/{id}", "a".repeat(2000)), "longer"),
        ] {
            let error = text.parse::<Key>().unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }
}
