//! A registry's words as they travel.

use std::collections::BTreeSet;
use std::time::Duration;

use graphmill_wire::proto::{RegisterServerRequest, StorageServer, StorageSettings, StorageStatus};

use super::registry::{Arrival, PARTS, Terms};
use super::task::Status;
use crate::coordinator::Refused;

/// A server that registers.
pub(crate) fn arrival(request: RegisterServerRequest) -> Result<Arrival, Refused> {
    let settings = request.settings.ok_or_else(|| Refused::Invalid("a server says what it serves".to_owned()))?;
    let StorageSettings { fingerprint, law, parts, replicas, servers } = settings;
    Ok(Arrival {
        address: request.address,
        incarnation: request.incarnation,
        terms: Terms { fingerprint, law, parts, replicas, servers },
        lease: Duration::from_millis(request.lease_ms),
        wanted: partitions(request.wanted)?,
        serving: partitions(request.serving)?,
    })
}

/// A list of partitions, of which there can only be so many.
pub(crate) fn partitions(list: Vec<u32>) -> Result<BTreeSet<u32>, Refused> {
    if list.len() > PARTS as usize {
        return Err(Refused::Invalid(format!("{} partitions are named, there are at most {PARTS}", list.len())));
    }
    Ok(list.into_iter().collect())
}

pub(crate) fn settings(terms: &Terms) -> StorageSettings {
    let Terms { fingerprint, law, parts, replicas, servers } = terms.clone();
    StorageSettings { fingerprint, law, parts, replicas, servers }
}

pub(crate) fn to_status(run: &str, status: Status) -> StorageStatus {
    let servers = status.servers.into_iter().map(|(address, server, age)| StorageServer {
        address,
        incarnation: server.incarnation,
        assigned: server.assigned.into_iter().collect(),
        serving: server.serving.into_iter().collect(),
        age_ms: age.as_millis() as u64,
    });
    StorageStatus {
        run: run.to_owned(),
        settings: status.terms.as_ref().map(settings),
        servers: servers.collect(),
        missing: status.missing,
    }
}
