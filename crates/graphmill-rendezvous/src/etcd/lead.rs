//! Who of several coordinators leads: the one whose key is there, under a lease.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::api::request_op::Request;
use super::api::{
    DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RequestOp,
};
use super::{Etcd, created, read_op};
use crate::keeper::KeepError;

/// How long a leader that is gone stays the leader, in seconds.
const LEASE: i64 = 5;
/// How often a standby looks whether it may lead.
const LOOK: Duration = Duration::from_millis(250);

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
    /// Where the coordinator is that leads, if one does.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn leader(&self) -> Result<Option<String>, KeepError> {
        let looked = self.transact(Vec::new(), vec![read_op(&self.leader_key(), Vec::new())], Vec::new()).await?;
        Ok(looked.found.first().map(|leader| String::from_utf8_lossy(&leader.value).into_owned()))
    }

    /// Keeps trying to lead as long as somebody listens, and tells who does.
    pub fn campaign(&self, address: String) -> watch::Receiver<Leader> {
        let (sender, receiver) = watch::channel(Leader::Unknown("etcd has not answered yet".to_owned()));
        let etcd = self.clone();
        tokio::spawn(async move {
            while !sender.is_closed() {
                let leader = match etcd.try_to_lead(&address).await {
                    Ok((leader, None)) => leader,
                    Ok((leader, Some((lease, asked)))) => {
                        tracing::info!(address, "leads");
                        sender.send_replace(leader);
                        let reason = tokio::select! {
                            reason = etcd.keep_leading(lease, asked) => reason,
                            () = sender.closed() => {
                                // Whoever stands by need not wait for the lease to end.
                                etcd.revoke(lease).await;
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

    /// Takes the key away that was made at a revision, so that another leads at once. To be called by a process that ends: it does
    /// not try to lead again.
    pub(crate) async fn resign(&self, revision: i64) {
        let key = DeleteRangeRequest { key: self.leader_key(), range_end: Vec::new() };
        let remove = RequestOp { request: Some(Request::RequestDeleteRange(key)) };
        if let Err(error) = self.transact(vec![self.led_since(revision)], vec![remove], Vec::new()).await {
            tracing::warn!(%error, "etcd was not told; the lease of this leader ends by itself");
        }
    }

    /// Makes the leader's key if there is none; with the lease that it is under, and when that was asked for.
    async fn try_to_lead(&self, address: &str) -> Result<(Leader, Option<(i64, Instant)>), KeepError> {
        if let Some(leader) = self.leader().await? {
            return Ok((Leader::Elsewhere(leader), None));
        }
        let asked = Instant::now();
        let granted = self.call(|| {
            let mut lease = self.lease.clone();
            async move { lease.lease_grant(LeaseGrantRequest { ttl: LEASE }).await }
        });
        let lease = granted.await?.id;
        let key = self.leader_key();
        let (absent, read) = (created(&key, 0), read_op(&key, Vec::new()));
        let put = PutRequest { key, value: address.as_bytes().to_vec(), lease };
        let put = RequestOp { request: Some(Request::RequestPut(put)) };
        let tried = self.transact(vec![absent], vec![put], vec![read]).await?;
        if tried.succeeded {
            return Ok((Leader::Here(tried.revision), Some((lease, asked))));
        }
        self.revoke(lease).await;
        let leader = tried.found.first().map(|leader| String::from_utf8_lossy(&leader.value).into_owned());
        Ok((leader.map_or_else(|| Leader::Unknown("the leader has just gone".to_owned()), Leader::Elsewhere), None))
    }

    /// Ends when the lease does, which was asked for at that time, and says why. A leader that hears nothing ends before etcd lets
    /// another lead.
    async fn keep_leading(&self, lease: i64, mut kept: Instant) -> String {
        let limit = Duration::from_secs(LEASE as u64);
        loop {
            tokio::time::sleep(limit / 5).await;
            let (asked, left) = (Instant::now(), limit.saturating_sub(kept.elapsed()));
            let renewed = self.call(|| {
                let mut client = self.lease.clone();
                let request = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
                async move {
                    let mut answers = client.lease_keep_alive(request).await?.into_inner();
                    Ok(tonic::Response::new(answers.message().await?))
                }
            });
            // Another node of etcd may answer while there is time.
            let failed = match tokio::time::timeout((limit / 5).min(left), renewed).await {
                Ok(Ok(Some(answer))) if answer.ttl > 0 => {
                    kept = asked;
                    continue;
                }
                Ok(Ok(_)) => return "its lease has ended".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "etcd does not answer".to_owned(),
            };
            if kept.elapsed() + limit / 5 >= limit {
                return format!("its lease was not kept up: {failed}");
            }
        }
    }

    async fn revoke(&self, lease: i64) {
        // It ends by itself if this fails.
        let _ = self
            .call(|| {
                let mut client = self.lease.clone();
                async move { client.lease_revoke(LeaseRevokeRequest { id: lease }).await }
            })
            .await;
    }
}
