//! The key-value stores of a run's rounds, and who waits for values in them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::calls::{Call, Calls};
use crate::coordinator::Refused;
use crate::records::{self, Changes};
use crate::task::{LONGEST_WAIT, Reply};
use crate::values::{ValueError, Values};

/// The most calls that wait for values of a run.
const WAITERS: usize = 16_384;
/// The bytes of the keys that they wait for, together.
const WAITING_BYTES: usize = 64 << 20;
/// What a key that is waited for takes beside its text.
const KEY_BYTES: usize = size_of::<String>();
/// The most keys that a call names.
const KEYS: usize = 4_096;
/// The bytes of the values that one answer has: twice what a round can hold, so that only who names keys many times gets there.
const ANSWER_BYTES: usize = 2 << 20;
/// How many keys that did not come are named.
const NAMED: usize = 8;

/// What is asked of a round's store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Set these.
    Set(Vec<(String, Vec<u8>)>),
    /// The values of these, when all are there.
    Get(Vec<String>, Duration),
    /// Tell when all of these are there.
    Wait(Vec<String>, Duration),
    /// Tell whether all of these are there.
    Check(Vec<String>),
    /// Add to this.
    Add(String, i64),
    /// Set this if it has a value.
    CompareSet(String, Vec<u8>, Vec<u8>),
    /// Remove these.
    Delete(Vec<String>),
    /// Append to these.
    Append(Vec<(String, Vec<u8>)>),
    /// Count those that begin so.
    Count(String),
}

impl Operation {
    /// How many keys it names.
    fn keys(&self) -> usize {
        match self {
            Self::Set(entries) | Self::Append(entries) => entries.len(),
            Self::Get(keys, _) | Self::Wait(keys, _) | Self::Check(keys) | Self::Delete(keys) => keys.len(),
            Self::Add(..) | Self::CompareSet(..) | Self::Count(_) => 1,
        }
    }

    /// What was answered when it was done, with this number.
    fn answered(self, number: i64) -> Stored {
        match self {
            Self::CompareSet(_, _, value) => Stored { values: vec![value], yes: true, number },
            _ => Stored { number, ..Stored::default() },
        }
    }
}

/// What a store answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Values, in the order of their keys.
    pub values: Vec<Vec<u8>>,
    /// A sum, or a count.
    pub number: i64,
    /// Whether it is so.
    pub yes: bool,
}

/// An answer that may be given when everything is kept.
pub(crate) type Ready = (Reply<Stored>, Stored);

/// The stores of a run.
#[derive(Default)]
pub(crate) struct Stores {
    values: BTreeMap<u64, Values>,
    calls: BTreeMap<u64, Calls>,
    waiters: Vec<Waiter>,
    /// The bytes of what they wait for.
    waiting_bytes: usize,
    /// When the first of them has waited long enough, and whether one may have been served already.
    earliest: Option<Instant>,
    unserved: bool,
}

/// Somebody who waits for values.
struct Waiter {
    round: u64,
    keys: Vec<String>,
    /// Whether the values themselves are wanted.
    values: bool,
    until: Instant,
    reply: Reply<Stored>,
}

impl Waiter {
    fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.len() + KEY_BYTES).sum()
    }
}

impl Stores {
    pub(crate) fn new(values: BTreeMap<u64, Values>, calls: BTreeMap<u64, Calls>) -> Self {
        Self { values, calls, ..Self::default() }
    }

    /// Does something with the store of a round, and notes what is to be kept; the answer, unless it is refused or waits.
    pub(crate) fn ask(
        &mut self,
        round: u64,
        operation: Operation,
        call: Option<Call>,
        reply: Reply<Stored>,
        pending: &mut Changes,
    ) -> Option<Ready> {
        match self.try_ask(round, operation, call, pending) {
            Ok(Asked::Done(stored)) => Some((reply, stored)),
            Ok(Asked::Waits { keys, values, within }) => {
                let until = Instant::now() + within.min(LONGEST_WAIT);
                if let Err((reply, refused)) = self.wait(Waiter { round, keys, values, until, reply }) {
                    let _ = reply.send(Err(refused));
                }
                None
            }
            Err(refused) => {
                let _ = reply.send(Err(refused));
                None
            }
        }
    }

    fn try_ask(
        &mut self,
        round: u64,
        operation: Operation,
        call: Option<Call>,
        pending: &mut Changes,
    ) -> Result<Asked, Refused> {
        if operation.keys() > KEYS {
            let refused = format!("a call names {} keys; {KEYS} are possible", operation.keys());
            return Err(Refused::Invalid(refused));
        }
        let operation = match operation {
            Operation::Get(keys, within) => return Ok(Asked::Waits { keys, values: true, within }),
            Operation::Wait(keys, within) => return Ok(Asked::Waits { keys, values: false, within }),
            operation => operation,
        };
        if let Some(number) = call.and_then(|call| self.calls.get(&round)?.done(call)) {
            return Ok(Asked::Done(operation.answered(number)));
        }
        let values = self.values.entry(round).or_default();
        let mut changed = Vec::new();
        let stored = change(values, operation, &mut changed)?;
        if changed.is_empty() {
            return Ok(Asked::Done(stored));
        }
        pending.extend(changed.iter().map(|key| records::value_change(round, key, values.get(key))));
        self.unserved = true;
        if let Some(call) = call {
            let calls = self.calls.entry(round).or_default();
            for caller in calls.note(call, stored.number) {
                pending.push(records::calls_change(round, caller, calls.of(caller)));
            }
        }
        Ok(Asked::Done(stored))
    }

    fn wait(&mut self, waiter: Waiter) -> Result<(), (Reply<Stored>, Refused)> {
        let bytes = self.waiting_bytes + waiter.bytes();
        if self.waiters.len() >= WAITERS || bytes > WAITING_BYTES {
            let refused = format!(
                "{} calls wait for values of this run already; {WAITERS} can, for keys of {WAITING_BYTES} bytes together",
                self.waiters.len()
            );
            return Err((waiter.reply, Refused::Exhausted(refused)));
        }
        self.waiting_bytes = bytes;
        self.waiters.push(waiter);
        self.unserved = true;
        Ok(())
    }

    /// The answers for who waits for values that are there now. Whoever has waited long enough is told so.
    pub(crate) fn serve(&mut self) -> Vec<Ready> {
        let now = Instant::now();
        if !std::mem::take(&mut self.unserved) && self.earliest.is_none_or(|until| now < until) {
            return Vec::new();
        }
        let empty = Values::default();
        let (mut served, mut index) = (Vec::new(), 0);
        while let Some(waiter) = self.waiters.get(index) {
            let values = self.values.get(&waiter.round).unwrap_or(&empty);
            if waiter.reply.is_closed() || waiter.until <= now || values.has_all(&waiter.keys) {
                served.push(self.waiters.swap_remove(index));
            } else {
                index += 1;
            }
        }
        self.earliest = self.waiters.iter().map(|waiter| waiter.until).min();
        let mut ready = Vec::new();
        for waiter in served {
            self.waiting_bytes -= waiter.bytes();
            let values = self.values.get(&waiter.round).unwrap_or(&empty);
            match found(values, &waiter) {
                Ok(stored) => ready.push((waiter.reply, stored)),
                Err(refused) => drop(waiter.reply.send(Err(refused))),
            }
        }
        ready
    }

    /// When somebody has waited long enough, at the earliest.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Whether somebody waits for values.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// The values of a round, and their bytes.
    pub(crate) fn size(&self, round: u64) -> (usize, usize) {
        self.values.get(&round).map_or((0, 0), |values| (values.len(), values.bytes()))
    }

    /// Forgets the rounds before this one, and notes what is not to be kept any more.
    pub(crate) fn forget_before(&mut self, oldest: u64, pending: &mut Changes) {
        let kept = self.values.split_off(&oldest);
        for (round, values) in std::mem::replace(&mut self.values, kept) {
            pending.extend(values.keys().map(|key| records::value_change(round, key, None)));
        }
        let kept = self.calls.split_off(&oldest);
        for (round, calls) in std::mem::replace(&mut self.calls, kept) {
            pending.extend(calls.callers().map(|caller| records::calls_change(round, caller, None)));
        }
    }
}

/// What becomes of a call.
enum Asked {
    Done(Stored),
    Waits { keys: Vec<String>, values: bool, within: Duration },
}

/// What somebody has waited for, if all of it is there.
fn found(values: &Values, waiter: &Waiter) -> Result<Stored, Refused> {
    let missing: Vec<_> = waiter.keys.iter().filter(|key| values.get(key).is_none()).map(String::as_str).collect();
    if !missing.is_empty() {
        let named = format!("`{}`", missing[..missing.len().min(NAMED)].join("`, `"));
        let others = missing.len().saturating_sub(NAMED);
        return Err(Refused::TimedOut(if others == 0 { named } else { format!("{named} and {others} others") }));
    }
    let wanted = || waiter.keys.iter().filter(|_| waiter.values).filter_map(|key| values.get(key));
    let bytes: usize = wanted().map(<[u8]>::len).sum();
    if bytes > ANSWER_BYTES {
        let refused = format!("an answer would have {bytes} bytes; {ANSWER_BYTES} are possible, so ask for fewer keys");
        return Err(Refused::Exhausted(refused));
    }
    Ok(Stored { values: wanted().map(<[u8]>::to_vec).collect(), yes: true, number: 0 })
}

/// Does something with values, and notes the keys that it changes: all of it, or nothing.
fn change(values: &mut Values, operation: Operation, changed: &mut Vec<String>) -> Result<Stored, ValueError> {
    let mut stored = Stored::default();
    match operation {
        Operation::Set(entries) => {
            changed.extend(entries.iter().map(|(key, _)| key.clone()));
            values.set_all(entries)?;
        }
        Operation::Append(entries) => {
            values.append(&entries)?;
            changed.extend(entries.into_iter().map(|(key, _)| key));
        }
        Operation::Add(key, amount) => {
            stored.number = values.add(&key, amount)?;
            changed.push(key);
        }
        Operation::CompareSet(key, expected, value) => {
            stored.yes = values.compare_set(&key, &expected, value)?;
            stored.values.push(values.get(&key).unwrap_or_default().to_vec());
            if stored.yes {
                changed.push(key);
            }
        }
        Operation::Delete(keys) => {
            for key in keys {
                if values.delete(&key) {
                    stored.number += 1;
                    changed.push(key);
                }
            }
        }
        Operation::Check(keys) => stored.yes = values.has_all(&keys),
        Operation::Count(prefix) => stored.number = values.count(&prefix) as i64,
        Operation::Get(..) | Operation::Wait(..) => {}
    }
    Ok(stored)
}
