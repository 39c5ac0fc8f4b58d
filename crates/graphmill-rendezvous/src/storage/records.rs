//! A registry as records, each under a key: how it is kept. One record per server, so that none grows with the run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::registry::{LEASES, PARTS, SERVERS, Server, Terms};
use crate::records::{Corrupt, Records, json, parse};

/// The version of the records.
const VERSION: u32 = 1;

const TERMS: &str = "storage";
const SERVER: &str = "server/";

/// A registry that was kept: what its servers agree on, and the servers by address.
pub type Kept = (Option<Terms>, BTreeMap<String, Server>);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermsRecord {
    version: u32,
    terms: Terms,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerRecord {
    incarnation: u64,
    lease: Duration,
    fixed: bool,
    alive: bool,
    assigned: BTreeSet<u32>,
    serving: BTreeSet<u32>,
    former: BTreeSet<u32>,
}

/// The record of what servers agree on.
pub fn terms_change(terms: &Terms) -> (String, Option<Vec<u8>>) {
    (TERMS.to_owned(), Some(json(&TermsRecord { version: VERSION, terms: terms.clone() })))
}

/// The record of a server.
pub fn server_change(address: &str, server: Option<&Server>) -> (String, Option<Vec<u8>>) {
    let record = server.map(|server| {
        let Server { incarnation, lease, fixed, assigned, serving, former, heard } = server.clone();
        json(&ServerRecord { incarnation, lease, fixed, alive: heard.is_some(), assigned, serving, former })
    });
    (format!("{SERVER}{address}"), record)
}

/// Reads what was kept; nothing if nothing was.
///
/// # Errors
/// When a record cannot be read, or says what cannot be.
pub fn read(records: &Records) -> Result<Kept, Corrupt> {
    let (mut terms, mut servers) = (None, BTreeMap::new());
    for (key, record) in records {
        if key == TERMS {
            let TermsRecord { version, terms: kept } = parse(key, record)?;
            if version != VERSION {
                return Err(Corrupt::new(key, format!("it has version {version}, this release reads {VERSION}")));
            }
            if kept.parts == 0 || kept.parts > PARTS || kept.replicas == 0 {
                return Err(Corrupt::new(key, format!("{} replicas of {} partitions", kept.replicas, kept.parts)));
            }
            terms = Some(kept);
        } else if let Some(address) = key.strip_prefix(SERVER) {
            let ServerRecord { incarnation, lease, fixed, alive, assigned, serving, former } = parse(key, record)?;
            if !LEASES.contains(&lease) {
                return Err(Corrupt::new(key, format!("its lease is {lease:?}")));
            }
            let heard = alive.then_some(Duration::ZERO);
            let server = Server { incarnation, lease, fixed, assigned, serving, former, heard };
            servers.insert(address.to_owned(), server);
        } else {
            return Err(Corrupt::new(key, "it is not known"));
        }
    }
    let parts = terms.as_ref().map_or(0, |terms: &Terms| terms.parts);
    let stray = |server: &Server| {
        let sets = [&server.assigned, &server.serving, &server.former];
        sets.into_iter().filter_map(BTreeSet::last).any(|&partition| partition >= parts)
    };
    if let Some((address, _)) = servers.iter().find(|(_, server)| stray(server)) {
        return Err(Corrupt::new(&format!("{SERVER}{address}"), format!("it has a partition beyond {parts}")));
    }
    if servers.len() > SERVERS {
        return Err(Corrupt::new(SERVER, format!("there are {} servers", servers.len())));
    }
    Ok((terms, servers))
}
