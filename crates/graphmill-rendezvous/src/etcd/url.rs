//! Where etcd is, as people write it.

use std::path::PathBuf;
use std::str::FromStr;

use graphmill_net::Endpoint;

/// etcd's port, where none is said.
const PORT: u16 = 2379;
/// Where runs are in etcd, where nothing else is said.
pub(crate) const PREFIX: &str = "graphmill";

/// A cluster of etcd, what is meant in it, and how to get in: `etcd://host:port,host:port/path?ca=FILE&user=NAME&...`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdUrl {
    /// The nodes, as `host:port`.
    pub nodes: Vec<String>,
    /// What follows: a prefix for coordinators, a run for members.
    pub path: String,
    /// `prefix`: where coordinators keep their runs, if that is not the path.
    pub prefix: Option<String>,
    /// `ca`: who signs the nodes' certificates; they are then reached over TLS.
    pub ca: Option<PathBuf>,
    /// `cert` and `key`: what is shown to nodes that want a certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// `user` and `password_file`.
    pub login: Option<(String, PathBuf)>,
}

impl FromStr for EtcdUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest =
            text.strip_prefix("etcd://").ok_or_else(|| format!("`{text}` is not written etcd://HOST:PORT/..."))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (nodes, path) = rest.split_once('/').unwrap_or((rest, ""));
        if nodes.contains('@') {
            return Err("a password does not belong into a URL; say user=NAME&password_file=FILE at its end".to_owned());
        }
        let node = |node: &str| match with_port(node.trim(), PORT).parse::<Endpoint>() {
            Ok(endpoint @ Endpoint::Tcp { .. }) => Ok(endpoint.to_string()),
            Ok(Endpoint::Unix(_)) => Err("etcd does not listen on a unix socket".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let mut url = Self {
            nodes: nodes.split(',').map(node).collect::<Result<_, _>>()?,
            path: path.trim_matches('/').to_owned(),
            ..Self::default()
        };
        let (mut cert, mut key, mut user, mut password) = (None, None, None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if value.is_empty() {
                return Err(format!("`{name}` has no value in {text}"));
            }
            match name {
                "prefix" => url.prefix = Some(value.trim_matches('/').to_owned()),
                "ca" => url.ca = Some(value.into()),
                "cert" => cert = Some(value.into()),
                "key" => key = Some(value.into()),
                "user" => user = Some(value.to_owned()),
                "password_file" => password = Some(value.into()),
                _ => {
                    let known = "prefix, ca, cert, key, user, password_file";
                    return Err(format!("`{name}` is not known in {text}; there are: {known}"));
                }
            }
        }
        url.identity = together("cert", cert, "key", key)?;
        url.login = together("user", user, "password_file", password)?;
        if url.identity.is_some() && url.ca.is_none() {
            return Err("cert and key are for TLS: say with ca who signs the certificates of etcd".to_owned());
        }
        Ok(url)
    }
}

fn together<A, B>(first: &str, a: Option<A>, second: &str, b: Option<B>) -> Result<Option<(A, B)>, String> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some((a, b))),
        (None, None) => Ok(None),
        _ => Err(format!("{first} and {second} belong together")),
    }
}

/// An address with a port, if it has none; an empty host is this one.
pub(crate) fn with_port(address: &str, port: u16) -> String {
    let address = if address.is_empty() { "127.0.0.1" } else { address };
    let bare_v6 = address.matches(':').count() > 1 && !address.contains(']');
    let has_port = !bare_v6 && address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match (bare_v6, has_port) {
        (true, _) => format!("[{address}]:{port}"),
        (false, true) => address.to_owned(),
        (false, false) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_nodes_a_path_and_the_way_in() {
        let url: EtcdUrl =
            "etcd://a,b:1,[::1]/runs/x?ca=/c.pem&cert=/m.pem&key=/m.key&user=me&password_file=/p&prefix=p/"
                .parse()
                .unwrap();
        assert_eq!(url.nodes, ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!((url.path.as_str(), url.prefix.as_deref()), ("runs/x", Some("p")));
        assert_eq!((url.ca, url.identity), (Some("/c.pem".into()), Some(("/m.pem".into(), "/m.key".into()))));
        assert_eq!(url.login, Some(("me".to_owned(), "/p".into())));
        let plain: EtcdUrl = "etcd://".parse().unwrap();
        assert_eq!(plain, EtcdUrl { nodes: vec!["127.0.0.1:2379".to_owned()], ..EtcdUrl::default() });
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        for (text, reason) in [
            ("http://a/", "etcd://"),
            ("etcd://me:secret@a/", "password_file"),
            ("etcd://a:port/", "not a number"),
            ("etcd://a/?cert=/c&ca=/a", "belong together"),
            ("etcd://a/?user=me", "belong together"),
            ("etcd://a/?cert=/c&key=/k", "ca"),
            ("etcd://a/?cq=1", "`cq` is not known"),
            ("etcd://a/?ca", "`ca` has no value"),
        ] {
            let error = text.parse::<EtcdUrl>().unwrap_err();
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        }
    }
}
