//! Records in etcd, which several coordinators share: one of them leads and writes, the others stand by.
//!
//! ```text
//! PREFIX/leader               the leader's address, under a lease
//! PREFIX/runs/RUN/token       changes with every write of the run
//! PREFIX/runs/RUN/KEY         a record
//! ```
//! Every write is a transaction that names the leader's key as the leader has made it, and the run's token: a leader that has
//! lost its lease without knowing writes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{KeepError, Token, Written};
use crate::records::{Changes, Records};

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, rust_2018_idioms, unused_qualifications)]
mod api {
    tonic::include_proto!("etcdserverpb");
}

use api::compare::{CompareTarget, TargetUnion};
use api::kv_client::KvClient;
use api::lease_client::LeaseClient;
use api::request_op::Request;
use api::response_op::Response;
use api::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest,
};

/// How long a leader that is gone stays the leader, in seconds.
const LEASE: i64 = 5;
/// How often a standby looks whether it may lead.
const LOOK: Duration = Duration::from_millis(250);
/// How long etcd may take for an answer.
const ANSWER: Duration = Duration::from_secs(3);
/// The most changes in a transaction; etcd takes 128 operations.
const OPERATIONS: usize = 100;

/// A cluster of etcd, and where in it runs are kept.
#[derive(Debug, Clone)]
pub struct Etcd {
    kv: KvClient<Channel>,
    lease: LeaseClient<Channel>,
    prefix: String,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// This coordinator; its key was made at this revision.
    Here(i64),
    /// Another one, at this address.
    Elsewhere(String),
    /// Nobody knows.
    Unknown(String),
}

impl Etcd {
    /// The cluster at addresses (`http://host:port`); connects when it is used.
    ///
    /// # Errors
    /// When an address is none.
    pub fn new(addresses: &[String], prefix: &str) -> Result<Self, KeepError> {
        let endpoint = |address: &String| {
            let endpoint = tonic::transport::Endpoint::from_shared(address.clone())
                .map_err(|error| KeepError::Etcd(format!("`{address}` is no address: {error}")))?;
            Ok(endpoint.connect_timeout(ANSWER).timeout(ANSWER).http2_keep_alive_interval(ANSWER))
        };
        let endpoints = addresses.iter().map(endpoint).collect::<Result<Vec<_>, KeepError>>()?;
        if endpoints.is_empty() {
            return Err(KeepError::Etcd("no address of etcd was given".to_owned()));
        }
        // A node that is gone is left out by the balancer.
        let channel = Channel::balance_list(endpoints.into_iter());
        let (kv, lease) = (KvClient::new(channel.clone()), LeaseClient::new(channel));
        Ok(Self { kv, lease, prefix: prefix.trim_matches('/').to_owned() })
    }

    /// Keeps trying to lead as long as somebody listens, and tells who does.
    pub fn campaign(&self, address: String) -> watch::Receiver<Leader> {
        let (sender, receiver) = watch::channel(Leader::Unknown("etcd has not answered yet".to_owned()));
        let etcd = self.clone();
        tokio::spawn(async move {
            while !sender.is_closed() {
                let leader = match etcd.try_to_lead(&address).await {
                    Ok((leader, None)) => leader,
                    Ok((leader, Some(lease))) => {
                        tracing::info!(address, "leads");
                        sender.send_replace(leader);
                        let reason = tokio::select! {
                            reason = etcd.keep_leading(lease) => reason,
                            () = sender.closed() => {
                                // Whoever stands by need not wait for the lease to end.
                                let _ = etcd.lease.clone().lease_revoke(LeaseRevokeRequest { id: lease }).await;
                                return;
                            }
                        };
                        tracing::warn!(address, reason, "leads no more");
                        Leader::Unknown(reason)
                    }
                    Err(error) => Leader::Unknown(error.to_string()),
                };
                sender.send_if_modified(|known| std::mem::replace(known, leader.clone()) != leader);
                tokio::time::sleep(LOOK).await;
            }
        });
        receiver
    }

    /// Makes the leader's key if there is none; with the lease that it is under.
    async fn try_to_lead(&self, address: &str) -> Result<(Leader, Option<i64>), KeepError> {
        let key = self.leader_key();
        let read = read_op(&key, Vec::new());
        let looked = self.transact(Vec::new(), vec![read.clone()], Vec::new()).await?;
        if let Some(leader) = looked.found.first() {
            return Ok((Leader::Elsewhere(String::from_utf8_lossy(&leader.value).into_owned()), None));
        }
        let granted = self.lease.clone().lease_grant(LeaseGrantRequest { ttl: LEASE }).await.map_err(failed)?;
        let lease = granted.into_inner().id;
        let absent = created(&key, 0);
        let put = RequestOp {
            request: Some(Request::RequestPut(PutRequest { key, value: address.as_bytes().to_vec(), lease })),
        };
        let tried = self.transact(vec![absent], vec![put], vec![read]).await?;
        if tried.succeeded {
            return Ok((Leader::Here(tried.revision), Some(lease)));
        }
        let _ = self.lease.clone().lease_revoke(LeaseRevokeRequest { id: lease }).await;
        let leader = tried.found.first().map(|leader| String::from_utf8_lossy(&leader.value).into_owned());
        Ok((leader.map_or_else(|| Leader::Unknown("the leader has just gone".to_owned()), Leader::Elsewhere), None))
    }

    /// Ends when the lease does, and says why.
    async fn keep_leading(&self, lease: i64) -> String {
        let mut kept = std::time::Instant::now();
        let limit = Duration::from_secs(LEASE as u64);
        loop {
            tokio::time::sleep(limit / 5).await;
            let request = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
            let renewed = async {
                let mut answers = self.lease.clone().lease_keep_alive(request).await?.into_inner();
                answers.message().await
            };
            match renewed.await {
                Ok(Some(answer)) if answer.ttl > 0 => kept = std::time::Instant::now(),
                Ok(_) => return "its lease has ended".to_owned(),
                Err(error) if kept.elapsed() > limit => return format!("its lease was not kept up: {error}"),
                // Another node of etcd may answer.
                Err(_) => {}
            }
        }
    }

    /// The records of a run, if there are any, with their token.
    async fn read(&self, run: &str) -> Result<Option<(Records, Token)>, KeepError> {
        let (folder, token_key) = (self.folder(run), self.token_key(run));
        let read = self.transact(Vec::new(), vec![read_op(&folder, after(&folder))], Vec::new()).await?;
        let Some(token) = read.found.iter().find(|found| found.key == token_key).map(|found| found.mod_revision) else {
            return Ok(None);
        };
        let records = read.found.into_iter().filter(|found| found.key != token_key);
        let records =
            records.map(|found| (String::from_utf8_lossy(&found.key[folder.len()..]).into_owned(), found.value));
        Ok(Some((records.collect(), token as Token)))
    }

    /// Changes records of a run, as the leader that was made at a revision.
    async fn write(
        &self,
        run: &str,
        changes: Changes,
        token: Option<Token>,
        leader: i64,
    ) -> Result<Written, KeepError> {
        let (folder, token_key) = (self.folder(run), self.token_key(run));
        let mut newest = token.unwrap_or_default() as i64;
        // The record of the run itself stands last, so that what it says is there.
        for piece in changes.chunks(OPERATIONS) {
            let guard = vec![created(&self.leader_key(), leader), modified(&token_key, newest)];
            let change = |(key, value): &(String, Option<Vec<u8>>)| {
                let key = [folder.as_slice(), key.as_bytes()].concat();
                RequestOp {
                    request: Some(match value {
                        Some(value) => Request::RequestPut(PutRequest { key, value: value.clone(), lease: 0 }),
                        None => Request::RequestDeleteRange(DeleteRangeRequest { key }),
                    }),
                }
            };
            let mut operations: Vec<_> = piece.iter().map(change).collect();
            let put = PutRequest { key: token_key.clone(), value: Vec::new(), lease: 0 };
            operations.push(RequestOp { request: Some(Request::RequestPut(put)) });
            let done = self.transact(guard, operations, Vec::new()).await?;
            if !done.succeeded {
                return Ok(Written::Stale(self.read(run).await?));
            }
            newest = done.revision;
        }
        Ok(Written::Set(newest as Token))
    }

    async fn transact(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<Done, KeepError> {
        let answered =
            self.kv.clone().txn(TxnRequest { compare, success, failure }).await.map_err(failed)?.into_inner();
        let found = answered.responses.into_iter().filter_map(|response| match response.response {
            Some(Response::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        });
        let revision = answered.header.unwrap_or_default().revision;
        Ok(Done { succeeded: answered.succeeded, revision, found: found.flatten().collect() })
    }

    fn leader_key(&self) -> Vec<u8> {
        format!("{}/leader", self.prefix).into_bytes()
    }

    fn folder(&self, run: &str) -> Vec<u8> {
        format!("{}/runs/{run}/", self.prefix).into_bytes()
    }

    fn token_key(&self, run: &str) -> Vec<u8> {
        [self.folder(run).as_slice(), b"token"].concat()
    }
}

/// What came of a transaction.
struct Done {
    succeeded: bool,
    revision: i64,
    found: Vec<api::KeyValue>,
}

/// A run's records in etcd, written by the leader.
#[derive(Debug)]
pub struct EtcdKeeper {
    etcd: Arc<Etcd>,
    run: String,
    leader: i64,
}

impl EtcdKeeper {
    /// The records of a run, for the leader whose key was made at a revision.
    pub fn new(etcd: Arc<Etcd>, run: &str, leader: i64) -> Self {
        Self { etcd, run: run.to_owned(), leader }
    }

    pub(super) async fn read(&self) -> Result<Option<(Records, Token)>, KeepError> {
        self.etcd.read(&self.run).await
    }

    pub(super) async fn write(&mut self, changes: Changes, token: Option<Token>) -> Result<Written, KeepError> {
        self.etcd.write(&self.run, changes, token, self.leader).await
    }
}

fn read_op(key: &[u8], range_end: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(RangeRequest { key: key.to_vec(), range_end })) }
}

/// The key after all that begin so.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    // Prefixes end with a slash, which is not the last byte there is.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// That a key was made at a revision; 0 if there is none.
fn created(key: &[u8], revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Create.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Compare::default()
    }
}

/// That a key was changed last at a revision; 0 if there is none.
fn modified(key: &[u8], revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
fn failed(status: Status) -> KeepError {
    let reason = match status.code() {
        Code::Unavailable => format!("no node of it answers: {}", status.message()),
        _ => status.message().to_owned(),
    };
    KeepError::Etcd(reason)
}
