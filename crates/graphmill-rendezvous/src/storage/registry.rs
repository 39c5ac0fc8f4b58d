//! The registry as a machine: what servers say goes in, who has what comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state::Time;

/// The most servers of a run, those that are only remembered among them.
pub const SERVERS: usize = 4_096;
/// The most partitions.
pub const PARTS: u32 = 65_536;
/// How long a lease may be.
pub const LEASES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The longest address, and the longest fingerprint.
const LONGEST: usize = 256;

/// What all servers of a run must agree on; the first one settles it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The dataset's content.
    pub fingerprint: String,
    /// The version of the law of determinism.
    pub law: u64,
    /// Partitions of the dataset.
    pub parts: u32,
    /// Servers that each partition is placed on.
    pub replicas: u32,
    /// Servers that partitions are shared out among.
    pub servers: u32,
}

/// A server that registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Where it is reached, and who it is.
    pub address: String,
    /// Another one after each start.
    pub incarnation: u64,
    /// What it believes to be agreed on.
    pub terms: Terms,
    /// How long it may be silent.
    pub lease: Duration,
    /// The partitions that it wants, and no others; none leaves it to the registry.
    pub wanted: BTreeSet<u32>,
    /// The partitions that it serves already.
    pub serving: BTreeSet<u32>,
}

/// A server, as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Which start of it.
    pub incarnation: u64,
    /// How long it may be silent.
    pub lease: Duration,
    /// Whether it named its partitions, and takes no others.
    pub fixed: bool,
    /// What it is to serve.
    pub assigned: BTreeSet<u32>,
    /// What it serves.
    pub serving: BTreeSet<u32>,
    /// What it had when it was here before.
    pub former: BTreeSet<u32>,
    /// When it was heard of; nothing if it is gone, and only remembered.
    pub heard: Option<Time>,
}

/// Why a server cannot be in a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It makes no sense, or is not what the others have.
    #[error("{0}")]
    Invalid(String),
    /// There is no room.
    #[error("there are {SERVERS} servers already, the most of a run")]
    Full,
}

/// The servers of a run.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    terms: Option<Terms>,
    servers: BTreeMap<String, Server>,
    /// When leases end, so that the dead are found without a look at the living.
    ends: BTreeSet<(Time, String)>,
    /// Servers whose records have changed.
    touched: BTreeSet<String>,
    /// Whether anything has changed that others are to hear of.
    changed: bool,
}

impl Terms {
    /// The most partitions that a server takes.
    pub fn share(&self) -> usize {
        let all = u64::from(self.parts) * u64::from(self.replicas);
        all.div_ceil(u64::from(self.servers.max(1))).min(self.parts.into()) as usize
    }

    /// These, with what was left open filled in.
    fn checked(mut self) -> Result<Self, Unfit> {
        let Self { parts, replicas, .. } = self;
        if parts == 0 || parts > PARTS {
            return invalid(format!("a dataset has 1 to {PARTS} partitions, not {parts}"));
        }
        if replicas == 0 || replicas as usize > SERVERS {
            return invalid(format!("a partition is placed on 1 to {SERVERS} servers, not {replicas}"));
        }
        if self.fingerprint.is_empty() || self.fingerprint.len() > LONGEST {
            return invalid(format!("a fingerprint of {} bytes is none", self.fingerprint.len()));
        }
        if self.servers == 0 {
            self.servers = parts;
        }
        Ok(self)
    }

    /// In what others differ, in words.
    fn difference(&self, theirs: &Self) -> Option<String> {
        let rows = [
            ("the dataset", self.fingerprint.clone(), theirs.fingerprint.clone()),
            ("the law version", self.law.to_string(), theirs.law.to_string()),
            ("the number of partitions", self.parts.to_string(), theirs.parts.to_string()),
            ("the number of replicas", self.replicas.to_string(), theirs.replicas.to_string()),
            ("the number of servers", self.servers.to_string(), theirs.servers.to_string()),
        ];
        let differing = rows.into_iter().filter(|(_, ours, theirs)| ours != theirs);
        let words: Vec<_> =
            differing.map(|(what, ours, theirs)| format!("{what} is {ours} there, {theirs} here")).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

impl Registry {
    /// A registry that was kept somewhere: every lease begins anew.
    pub fn restored(terms: Option<Terms>, servers: BTreeMap<String, Server>, now: Time) -> Self {
        let mut registry = Self { terms, servers, ..Self::default() };
        for (address, server) in &mut registry.servers {
            if server.heard.is_some() {
                server.heard = Some(now);
                registry.ends.insert((now + server.lease, address.clone()));
            }
        }
        registry
    }

    /// What its servers agree on.
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// All servers by address, those among them that are only remembered.
    pub fn servers(&self) -> &BTreeMap<String, Server> {
        &self.servers
    }

    /// Servers whose leases run.
    pub fn living(&self) -> impl Iterator<Item = (&String, &Server)> {
        self.servers.iter().filter(|(_, server)| server.heard.is_some())
    }

    /// Partitions that nobody serves.
    pub fn missing(&self) -> Vec<u32> {
        let served: BTreeSet<u32> = self.living().flat_map(|(_, server)| server.serving.iter().copied()).collect();
        let parts = self.terms.as_ref().map_or(0, |terms| terms.parts);
        (0..parts).filter(|partition| !served.contains(partition)).collect()
    }

    /// When a lease ends, at the earliest, if it is not renewed.
    pub fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// The servers whose records have changed since this was asked last.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// Whether there is anything to tell others since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// A server comes, or comes back; the partitions that are its own.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn register(&mut self, arrival: Arrival, now: Time) -> Result<BTreeSet<u32>, Unfit> {
        self.pass(now);
        let Arrival { address, incarnation, terms, lease, wanted, serving } = arrival;
        if address.is_empty() || address.len() > LONGEST || address.chars().any(char::is_control) {
            return invalid(format!("a server's address has 1 to {LONGEST} bytes and no control characters"));
        }
        if !LEASES.contains(&lease) {
            return invalid(format!("a server's lease is 0.1 s to an hour, not {lease:?}"));
        }
        let terms = terms.checked()?;
        if let Some(partition) = wanted.iter().chain(&serving).find(|&&partition| partition >= terms.parts) {
            return invalid(format!("there is no partition {partition} of {}", terms.parts));
        }
        self.agree(terms)?;
        self.make_room(&address)?;
        let before = self.servers.remove(&address);
        let (mut assigned, former) = match before {
            Some(known) => {
                if let Some(heard) = known.heard {
                    self.ends.remove(&(heard + known.lease, address.clone()));
                }
                (known.assigned, known.former)
            }
            None => Default::default(),
        };
        let fixed = !wanted.is_empty();
        if fixed {
            assigned = wanted;
        } else {
            assigned.extend(&serving);
        }
        let server = Server { incarnation, lease, fixed, assigned, serving, former, heard: Some(now) };
        self.ends.insert((now + lease, address.clone()));
        self.servers.insert(address.clone(), server);
        self.touch(&address);
        self.assign();
        Ok(self.servers.get(&address).map(|server| server.assigned.clone()).unwrap_or_default())
    }

    /// A server is alive, and serves these partitions; whether it is known.
    pub fn renew(&mut self, address: &str, incarnation: u64, serving: BTreeSet<u32>, now: Time) -> bool {
        self.pass(now);
        let parts = self.terms.as_ref().map_or(0, |terms| terms.parts);
        let Some(server) = self.servers.get_mut(address).filter(|server| server.incarnation == incarnation) else {
            return false;
        };
        let Some(heard) = server.heard.replace(now) else {
            server.heard = None;
            return false;
        };
        self.ends.remove(&(heard + server.lease, address.to_owned()));
        self.ends.insert((now + server.lease, address.to_owned()));
        if server.serving != serving && serving.iter().all(|&partition| partition < parts) {
            server.serving = serving;
            self.touch(address);
        }
        true
    }

    /// A server goes.
    pub fn remove(&mut self, address: &str, incarnation: u64, now: Time) {
        self.pass(now);
        if self.servers.get(address).is_some_and(|server| server.incarnation == incarnation) && self.bury(address) {
            self.assign();
        }
    }

    /// Time has passed: leases that have ended are over.
    pub fn pass(&mut self, now: Time) {
        let mut buried = false;
        while let Some((end, address)) = self.ends.first().cloned()
            && end < now
        {
            self.ends.pop_first();
            buried |= self.bury(&address);
        }
        if buried {
            self.assign();
        }
    }

    /// A server is not here any more, and only remembered; whether it was here.
    fn bury(&mut self, address: &str) -> bool {
        let Some(server) = self.servers.get_mut(address) else { return false };
        let Some(heard) = server.heard.take() else { return false };
        self.ends.remove(&(heard + server.lease, address.to_owned()));
        server.former = std::mem::take(&mut server.assigned);
        server.serving.clear();
        self.touch(address);
        true
    }

    /// Fails unless terms are this registry's; those of the first server are.
    fn agree(&mut self, terms: Terms) -> Result<(), Unfit> {
        if self.living().next().is_none() {
            let same = |known: &Terms| (&known.fingerprint, known.parts) == (&terms.fingerprint, terms.parts);
            if !self.terms.as_ref().is_some_and(same) {
                // What was remembered is of another dataset.
                self.touched.extend(std::mem::take(&mut self.servers).into_keys());
            }
            self.terms = Some(terms);
            return Ok(());
        }
        match self.terms.as_ref().and_then(|ours| ours.difference(&terms)) {
            Some(difference) => invalid(format!("the run has other servers: {difference}")),
            None => Ok(()),
        }
    }

    /// Makes room for one more; somebody who is gone is forgotten for it, if need be.
    fn make_room(&mut self, address: &str) -> Result<(), Unfit> {
        if self.servers.contains_key(address) || self.servers.len() < SERVERS {
            return Ok(());
        }
        let gone = self.servers.iter().find(|(_, server)| server.heard.is_none()).map(|(address, _)| address.clone());
        let gone = gone.ok_or(Unfit::Full)?;
        self.servers.remove(&gone);
        self.touched.insert(gone);
        Ok(())
    }

    /// Gives partitions that too few servers have to servers that have room.
    fn assign(&mut self) {
        let Some(terms) = &self.terms else { return };
        let (replicas, share) = (terms.replicas, terms.share());
        let mut counts = vec![0u32; terms.parts as usize];
        for (_, server) in self.servers.iter().filter(|(_, server)| server.heard.is_some()) {
            server.assigned.iter().for_each(|&partition| counts[partition as usize] += 1);
        }
        let has_room = |server: &Server| server.heard.is_some() && !server.fixed && server.assigned.len() < share;
        let mut takers: Vec<(&String, &mut Server)> =
            self.servers.iter_mut().filter(|(_, server)| has_room(server)).collect();
        let mut taken = Vec::new();
        // What a server had before comes first: it may be on its disk, or in its cache.
        for (address, server) in &mut takers {
            for partition in server.former.clone() {
                let is_free = counts[partition as usize] < replicas && !server.assigned.contains(&partition);
                if is_free && server.assigned.len() < share {
                    server.assigned.insert(partition);
                    counts[partition as usize] += 1;
                    taken.push((*address).clone());
                }
            }
        }
        takers.retain(|(_, server)| server.assigned.len() < share);
        let mut needed: BTreeSet<(u32, u32)> =
            (0..).zip(&counts).filter(|(_, count)| **count < replicas).map(|(part, count)| (*count, part)).collect();
        while let Some((count, partition)) = needed.pop_first() {
            let candidates = takers.iter_mut().filter(|(_, server)| !server.assigned.contains(&partition));
            // They are in the order of their addresses.
            let Some((address, server)) = candidates.min_by_key(|(_, server)| server.assigned.len()) else { continue };
            server.assigned.insert(partition);
            taken.push((*address).clone());
            if count + 1 < replicas {
                needed.insert((count + 1, partition));
            }
            takers.retain(|(_, server)| server.assigned.len() < share);
            if takers.is_empty() {
                break;
            }
        }
        for address in &taken {
            self.touch(address);
        }
    }

    fn touch(&mut self, address: &str) {
        self.touched.insert(address.to_owned());
        self.changed = true;
    }
}

fn invalid<T>(reason: String) -> Result<T, Unfit> {
    Err(Unfit::Invalid(reason))
}
