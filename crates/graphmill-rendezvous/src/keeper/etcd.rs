//! Records in etcd, which several coordinators share: one of them leads and writes, the others stand by.
//!
//! ```text
//! PREFIX/runs/RUN/token         changes with every write of the run
//! PREFIX/runs/RUN/KEY           a record
//! PREFIX/runs/RUN/pending       how many parts a write has that did not fit into one transaction
//! PREFIX/runs/RUN/pending/PART  a part of it
//! ```
//! Every write is a transaction that names the leader's key as the leader has made it, and the run's token: a leader that has
//! lost its lease without knowing writes nothing. What is too much for one transaction is written down aside first, and counts
//! from the moment at which all of it is there; whoever reads it finishes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use graphmill_wire::proto::{KeptChange, KeptChanges};
use prost::Message as _;

use super::{KeepError, Token, Written, apply};
use crate::etcd::api::request_op::Request;
use crate::etcd::api::{DeleteRangeRequest, PutRequest, RequestOp};
use crate::etcd::{Etcd, modified, read_op};
use crate::records::{Change, Changes, Records};

/// The most changes in a transaction; etcd takes 128 operations.
const OPERATIONS: usize = 100;
/// The most bytes in a transaction, unless one value has more; etcd takes 1.5 MiB.
const BYTES: usize = 256 << 10;

const TOKEN: &str = "token";
const PENDING: &str = "pending";
const PART: &str = "pending/";

/// A run's records in etcd, written by the leader.
#[derive(Debug)]
pub struct EtcdKeeper {
    etcd: Arc<Etcd>,
    folder: String,
    leader: i64,
}

impl EtcdKeeper {
    /// The records of a run, for the leader whose key was made at a revision.
    pub fn new(etcd: Arc<Etcd>, run: &str, leader: i64) -> Self {
        let folder = etcd.folder(run);
        Self { etcd, folder, leader }
    }

    /// The records, if there are any, with their token.
    pub(super) async fn read(&self) -> Result<Option<(Records, Token)>, KeepError> {
        let read = read_op(self.folder.as_bytes(), after(&self.folder));
        let read = self.etcd.transact(Vec::new(), vec![read], Vec::new()).await?;
        let (mut records, mut token) = (Records::new(), None);
        for found in read.found {
            let key = String::from_utf8_lossy(&found.key[self.folder.len()..]).into_owned();
            if key == TOKEN {
                token = Some(found.mod_revision);
            } else {
                records.insert(key, found.value);
            }
        }
        let Some(token) = token else { return Ok(None) };
        let mut parts = records.split_off(PART);
        records.append(&mut parts.split_off(&after_text(PART)));
        let Some(count) = records.remove(PENDING) else { return Ok(Some((records, token as Token))) };
        // Whoever wrote this has gone before it was done.
        let changes = pending(&parts, &count).ok_or_else(|| {
            KeepError::Etcd(format!("the unfinished write at `{}{PENDING}` cannot be read", self.folder))
        })?;
        apply(&mut records, &changes);
        let token = self.finish(&changes, token).await?.unwrap_or(token);
        Ok(Some((records, token as Token)))
    }

    /// Changes records, as the leader.
    pub(super) async fn write(&mut self, changes: Changes, token: Option<Token>) -> Result<Written, KeepError> {
        // etcd takes a key once in a transaction: what was written last counts.
        let changes: Changes = changes.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
        let mut newest = token.unwrap_or_default() as i64;
        let written = if pieces(&changes, OPERATIONS).len() <= 1 {
            self.guarded(changes.iter().map(|change| self.operation(change)).collect(), newest).await?
        } else {
            let parts = pieces(&changes, usize::MAX);
            for (number, part) in parts.iter().enumerate() {
                let mut operations = vec![self.operation(&(format!("{PART}{number:08}"), Some(encode(part))))];
                if number + 1 == parts.len() {
                    operations.push(self.operation(&(PENDING.to_owned(), Some(parts.len().to_string().into_bytes()))));
                }
                match self.guarded(operations, newest).await? {
                    Some(token) => newest = token,
                    None => return Ok(Written::Stale(self.read().await?)),
                }
            }
            self.finish(&changes, newest).await?
        };
        match written {
            Some(token) => Ok(Written::Set(token as Token)),
            None => Ok(Written::Stale(self.read().await?)),
        }
    }

    /// Removes everything, as the leader that knows the token.
    pub(super) async fn forget(self, token: Option<Token>) -> Result<(), KeepError> {
        let token_key = format!("{}{TOKEN}", self.folder).into_bytes();
        let guard = vec![self.etcd.led_since(self.leader), modified(&token_key, token.unwrap_or_default() as i64)];
        let range = DeleteRangeRequest { key: self.folder.clone().into_bytes(), range_end: after(&self.folder) };
        let remove = RequestOp { request: Some(Request::RequestDeleteRange(range)) };
        self.etcd.transact(guard, vec![remove], Vec::new()).await.map(drop)
    }

    /// Does what was written down aside; the new token, unless another leads.
    async fn finish(&self, changes: &Changes, mut token: i64) -> Result<Option<i64>, KeepError> {
        let pieces = pieces(changes, OPERATIONS);
        for (number, piece) in pieces.iter().enumerate() {
            let mut operations: Vec<_> = piece.iter().map(|change| self.operation(change)).collect();
            if number + 1 == pieces.len() {
                operations.push(self.operation(&(PENDING.to_owned(), None)));
                let parts = format!("{}{PART}", self.folder);
                let range = DeleteRangeRequest { range_end: after(&parts), key: parts.into_bytes() };
                operations.push(RequestOp { request: Some(Request::RequestDeleteRange(range)) });
            }
            match self.guarded(operations, token).await? {
                Some(newest) => token = newest,
                None => return Ok(None),
            }
        }
        Ok(Some(token))
    }

    /// A transaction for the leader that knows the token; the new one.
    async fn guarded(&self, mut operations: Vec<RequestOp>, token: i64) -> Result<Option<i64>, KeepError> {
        let token_key = format!("{}{TOKEN}", self.folder).into_bytes();
        let guard = vec![self.etcd.led_since(self.leader), modified(&token_key, token)];
        operations.push(self.operation(&(TOKEN.to_owned(), Some(Vec::new()))));
        let done = self.etcd.transact(guard, operations, Vec::new()).await?;
        Ok(done.succeeded.then_some(done.revision))
    }

    fn operation(&self, (key, value): &(String, Option<Vec<u8>>)) -> RequestOp {
        let key = format!("{}{key}", self.folder).into_bytes();
        RequestOp {
            request: Some(match value {
                Some(value) => Request::RequestPut(PutRequest { key, value: value.clone(), lease: 0 }),
                None => Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() }),
            }),
        }
    }
}

/// Changes in pieces that fit into a transaction each.
fn pieces(changes: &Changes, most: usize) -> Vec<&[Change]> {
    let (mut pieces, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, (key, value)) in changes.iter().enumerate() {
        let size = key.len() + value.as_ref().map_or(0, Vec::len);
        if at > begin && (bytes + size > BYTES || at - begin >= most) {
            pieces.push(&changes[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += size;
    }
    pieces.push(&changes[begin..]);
    pieces
}

fn encode(changes: &[(String, Option<Vec<u8>>)]) -> Vec<u8> {
    let change = |(key, value): &(String, Option<Vec<u8>>)| KeptChange { key: key.clone(), value: value.clone() };
    KeptChanges { changes: changes.iter().map(change).collect() }.encode_to_vec()
}

/// The changes that were written down in so many parts; nothing if that is not what they are.
fn pending(parts: &Records, count: &[u8]) -> Option<Changes> {
    let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
    let mut changes = Changes::new();
    for number in 0..count {
        let part = KeptChanges::decode(parts.get(&format!("{PART}{number:08}"))?.as_slice()).ok()?;
        changes.extend(part.changes.into_iter().map(|change| (change.key, change.value)));
    }
    Some(changes)
}

/// The key after all that begin so; what is asked ends with a slash.
fn after_text(prefix: &str) -> String {
    prefix.strip_suffix('/').map_or_else(String::new, |begin| format!("{begin}0"))
}

fn after(prefix: &str) -> Vec<u8> {
    after_text(prefix).into_bytes()
}
