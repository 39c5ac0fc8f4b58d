//! A run as records, each under a key: how it is kept.
//!
//! One record per member and per value, so that a change writes what has changed and no record grows with the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::calls::Calls;
use crate::state::State;
use crate::values::Values;
use crate::{Node, Settings};

/// The version of the records.
const VERSION: u32 = 1;

/// What is kept, by key.
pub type Records = BTreeMap<String, Vec<u8>>;
/// Records that have changed; nothing where one is gone.
pub type Changes = Vec<Change>;
/// A record under its key, or that it is no more.
pub type Change = (String, Option<Vec<u8>>);

/// The latest round that is believed; rounds are counted on from it.
const LATEST: u64 = u64::MAX / 2;

const RUN: &str = "run";
const MEMBER: &str = "member/";
const VALUE: &str = "value/";
const CALLS: &str = "calls/";

/// The run itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunRecord {
    version: u32,
    settings: Settings,
    round: u64,
    complete: bool,
    #[serde(default)]
    world_size: u32,
    closed: bool,
    last_call: bool,
}

/// A member.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberRecord {
    node: Node,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    list: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<u32>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum List {
    Participant,
    Waiting,
    Redundant,
}

/// Why records are not a run's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kept record `{key}` cannot be read: {reason}")]
pub struct Corrupt {
    key: String,
    reason: String,
}

impl Corrupt {
    pub(crate) fn new(key: &str, reason: impl Into<String>) -> Self {
        Self { key: key.to_owned(), reason: reason.into() }
    }
}

/// A run that was kept.
#[derive(Debug)]
pub struct Kept {
    /// How its rounds are formed.
    pub settings: Settings,
    /// Who is where.
    pub state: State,
    /// The values of rounds.
    pub values: BTreeMap<u64, Values>,
    /// The calls that changed them.
    pub calls: BTreeMap<u64, Calls>,
}

/// The record of the run itself.
pub fn run_change(settings: &Settings, state: &State) -> (String, Option<Vec<u8>>) {
    let State { round, complete, world_size, closed, .. } = *state;
    let last_call = state.last_call.is_some();
    let record =
        RunRecord { version: VERSION, settings: settings.clone(), round, complete, world_size, closed, last_call };
    (RUN.to_owned(), Some(json(&record)))
}

/// The record of a member.
pub fn member_change(state: &State, node: &Arc<Node>) -> (String, Option<Vec<u8>>) {
    let key = format!("{MEMBER}{node}");
    let former = state.former.get(node).copied();
    let (list, rank) = match state.participants.get(node) {
        Some(rank) => (Some(List::Participant), *rank),
        None if state.waiting.contains(node) => (Some(List::Waiting), None),
        None if state.redundant.contains(node) => (Some(List::Redundant), None),
        None if former.is_none() => return (key, None),
        None => (None, None),
    };
    (key, Some(json(&MemberRecord { node: Node::clone(node), list, rank, former })))
}

/// The record of a value.
pub fn value_change(round: u64, key: &str, value: Option<&[u8]>) -> (String, Option<Vec<u8>>) {
    (format!("{VALUE}{round}/{key}"), value.map(<[u8]>::to_vec))
}

/// The record of a caller's latest calls to the store of a round.
pub(crate) fn calls_change(round: u64, caller: u64, answers: Option<&BTreeMap<u64, i64>>) -> (String, Option<Vec<u8>>) {
    (format!("{CALLS}{round}/{caller}"), answers.map(json))
}

/// Reads what was kept; nothing if nothing was.
///
/// # Errors
/// When a record cannot be read.
pub fn read(records: &Records) -> Result<Option<Kept>, Corrupt> {
    let Some(run) = records.get(RUN) else { return Ok(None) };
    let run: RunRecord = parse(RUN, run)?;
    if run.version != VERSION {
        let reason = format!("it has version {}, this release reads {VERSION}", run.version);
        return Err(Corrupt { key: RUN.to_owned(), reason });
    }
    let corrupt = |key: &str, reason: &str| Corrupt { key: key.to_owned(), reason: reason.to_owned() };
    run.settings.check().map_err(|error| corrupt(RUN, &error.to_string()))?;
    if run.round > LATEST {
        return Err(corrupt(RUN, "no run has had so many rounds"));
    }
    let mut state = State::default();
    (state.round, state.complete, state.closed) = (run.round, run.complete, run.closed);
    state.last_call = run.last_call.then_some(run.settings.last_call);
    let mut values: BTreeMap<u64, Values> = BTreeMap::new();
    let mut calls: BTreeMap<u64, Calls> = BTreeMap::new();
    for (key, record) in records {
        if let Some(name) = key.strip_prefix(MEMBER) {
            let MemberRecord { node, list, rank, former } = parse(key, record)?;
            if name != node.to_string() {
                return Err(corrupt(key, "it is about another member"));
            }
            let node = Arc::new(node);
            if let Some(former) = former {
                state.former.insert(Arc::clone(&node), former);
            }
            match list {
                Some(List::Participant) => drop(state.participants.insert(node, rank)),
                Some(List::Waiting) => drop(state.waiting.insert(node)),
                Some(List::Redundant) => drop(state.redundant.insert(node)),
                None => {}
            }
        } else if let Some(name) = key.strip_prefix(VALUE) {
            let (round, name) = in_round(key, name)?;
            let values = values.entry(round).or_default();
            values.set(name, record.clone()).map_err(|error| corrupt(key, &error.to_string()))?;
        } else if let Some(name) = key.strip_prefix(CALLS) {
            let (round, caller) = in_round(key, name)?;
            let caller = caller.parse().map_err(|_| corrupt(key, "its caller is no number"))?;
            if !calls.entry(round).or_default().restore(caller, parse(key, record)?) {
                return Err(corrupt(key, "it has more calls than are remembered"));
            }
        } else if key != RUN {
            return Err(corrupt(key, "it is not known"));
        }
    }
    state.world_size = run.world_size.max(state.participants.len() as u32);
    let left = u64::from(run.settings.max).checked_sub(state.participants.len() as u64);
    let left = left.ok_or_else(|| corrupt(RUN, "more take part than can"))?;
    if !state.complete && left == 0 {
        // It is completed with the last that can join; whoever came now would be one too many.
        return Err(corrupt(RUN, "all that can take part do, but its round is not complete"));
    }
    if state.complete {
        if state.participants.is_empty() {
            return Err(corrupt(RUN, "its round is complete, but nobody takes part"));
        }
        let mut ranks = BTreeSet::new();
        if !state.participants.values().all(|rank| rank.is_some_and(|rank| ranks.insert(rank))) {
            return Err(corrupt(RUN, "its round is complete, but a participant has no rank of its own"));
        }
    }
    Ok(Some(Kept { settings: run.settings, state, values, calls }))
}

/// The round in the name of a record, and what follows it.
fn in_round<'a>(key: &str, name: &'a str) -> Result<(u64, &'a str), Corrupt> {
    let (round, name) = name.split_once('/').ok_or_else(|| Corrupt::new(key, "it has no round"))?;
    Ok((round.parse().map_err(|_| Corrupt::new(key, "its round is no number"))?, name))
}

pub(crate) fn json(record: &impl Serialize) -> Vec<u8> {
    // Plain structs of numbers and strings; there is nothing in them that JSON does not have.
    serde_json::to_vec(record).unwrap_or_default()
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(key: &str, record: &'a [u8]) -> Result<T, Corrupt> {
    serde_json::from_slice(record).map_err(|error| Corrupt { key: key.to_owned(), reason: error.to_string() })
}
