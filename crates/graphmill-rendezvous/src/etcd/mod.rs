//! etcd, which coordinators share and where members find the one that leads.
//!
//! ```text
//! PREFIX/leader               the leader's address, under a lease
//! PREFIX/runs/RUN/...         a run, as its keeper has it
//! ```

mod lead;
mod url;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use graphmill_net::{Token, read_secret};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Response, Status};

use crate::keeper::KeepError;

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, rust_2018_idioms, unused_qualifications)]
pub(crate) mod api {
    tonic::include_proto!("etcdserverpb");
}

use api::auth_client::AuthClient;
use api::compare::{CompareTarget, TargetUnion};
use api::kv_client::KvClient;
use api::lease_client::LeaseClient;
use api::request_op::Request;
use api::response_op;
use api::{AuthenticateRequest, Compare, RangeRequest, RequestOp, TxnRequest};

pub use lead::Leader;
pub use url::EtcdUrl;
pub(crate) use url::{PREFIX, with_port};

/// How long a node of etcd may take for an answer.
const ANSWER: Duration = Duration::from_secs(3);
/// The largest answer: all records of a run.
const LARGEST: usize = 64 << 20;

/// A cluster of etcd, and where in it coordinators keep their runs.
#[derive(Debug, Clone)]
pub struct Etcd {
    kv: KvClient<Guarded>,
    lease: LeaseClient<Guarded>,
    auth: AuthClient<Channel>,
    login: Option<Arc<Login>>,
    pass: Pass,
    prefix: String,
}

type Guarded = InterceptedService<Channel, Pass>;

/// Who logs in.
#[derive(Debug)]
struct Login {
    user: String,
    password: Token,
}

/// What etcd gives to who has logged in; it goes with every call.
#[derive(Debug, Clone, Default)]
struct Pass(Arc<RwLock<Option<MetadataValue<Ascii>>>>);

impl tonic::service::Interceptor for Pass {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(pass) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            request.metadata_mut().insert("token", pass.clone());
        }
        Ok(request)
    }
}

impl Etcd {
    /// A cluster, and where in it runs are; connects when it is used. To be made inside a runtime.
    ///
    /// # Errors
    /// When a file of certificates or the password cannot be read.
    pub fn open(url: &EtcdUrl, prefix: &str) -> Result<Self, KeepError> {
        let read = |path: &std::path::PathBuf| {
            std::fs::read(path).map_err(|source| KeepError::Io { doing: "read", path: path.clone(), source })
        };
        let tls = match &url.ca {
            None => None,
            Some(ca) => {
                let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
                Some(match &url.identity {
                    Some((cert, key)) => {
                        let key = read_secret(key).map_err(|error| KeepError::Etcd(error.to_string()))?;
                        tls.identity(Identity::from_pem(read(cert)?, key))
                    }
                    None => tls,
                })
            }
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = |node: &String| {
            let wrong = |error: tonic::transport::Error| {
                KeepError::Etcd(format!("`{node}` cannot be used: {}", causes(&error)))
            };
            let endpoint = Channel::from_shared(format!("{scheme}://{node}"))
                .map_err(|error| KeepError::Etcd(error.to_string()))?;
            let endpoint = endpoint.connect_timeout(ANSWER).timeout(ANSWER);
            let endpoint = endpoint.http2_keep_alive_interval(ANSWER).keep_alive_timeout(ANSWER);
            match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(wrong),
                None => Ok(endpoint),
            }
        };
        let endpoints = url.nodes.iter().map(endpoint).collect::<Result<Vec<_>, KeepError>>()?;
        let login = match &url.login {
            None => None,
            Some((user, file)) => {
                let password = Token::from_file(file).map_err(|error| KeepError::Etcd(error.to_string()))?;
                Some(Arc::new(Login { user: user.clone(), password }))
            }
        };
        // A node that is gone is left out by the balancer.
        let channel = Channel::balance_list(endpoints.into_iter());
        let pass = Pass::default();
        Ok(Self {
            kv: KvClient::with_interceptor(channel.clone(), pass.clone()).max_decoding_message_size(LARGEST),
            lease: LeaseClient::with_interceptor(channel.clone(), pass.clone()),
            auth: AuthClient::new(channel),
            login,
            pass,
            prefix: prefix.trim_matches('/').to_owned(),
        })
    }

    /// Calls, as who has logged in if that is asked for.
    async fn call<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, KeepError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let called = async {
            let Some(login) = &self.login else { return call().await.map_err(|status| failed(&status)) };
            if self.pass.0.read().unwrap_or_else(PoisonError::into_inner).is_none() {
                self.log_in(login).await?;
            }
            match call().await {
                // What was given has ended, or users have changed since.
                Err(status) if has_expired(&status) => {
                    self.log_in(login).await?;
                    call().await.map_err(|status| failed(&status))
                }
                answered => answered.map_err(|status| failed(&status)),
            }
        };
        match tokio::time::timeout(2 * ANSWER, called).await {
            Ok(answered) => answered.map(Response::into_inner),
            Err(_) => Err(KeepError::Etcd(format!("no node of it answers within {:?}", 2 * ANSWER))),
        }
    }

    async fn log_in(&self, login: &Login) -> Result<(), KeepError> {
        let Login { user, password } = login;
        let request = AuthenticateRequest { name: user.clone(), password: password.reveal().to_owned() };
        let refused = |reason: &str| KeepError::Etcd(format!("cannot log in as `{user}`: {reason}"));
        let given = self.auth.clone().authenticate(request).await.map_err(|status| refused(status.message()))?;
        let mut pass: MetadataValue<Ascii> =
            given.into_inner().token.parse().map_err(|_| refused("it gave something that cannot be sent"))?;
        pass.set_sensitive(true);
        *self.pass.0.write().unwrap_or_else(PoisonError::into_inner) = Some(pass);
        Ok(())
    }

    pub(crate) async fn transact(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<Done, KeepError> {
        let request = TxnRequest { compare, success, failure };
        let answered = self.call(|| {
            let (mut kv, request) = (self.kv.clone(), request.clone());
            async move { kv.txn(request).await }
        });
        let answered = answered.await?;
        let found = answered.responses.into_iter().filter_map(|response| match response.response {
            Some(response_op::Response::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        });
        let revision = answered.header.unwrap_or_default().revision;
        Ok(Done { succeeded: answered.succeeded, revision, found: found.flatten().collect() })
    }

    /// That the leader is the one whose key was made at a revision.
    pub(crate) fn led_since(&self, revision: i64) -> Compare {
        created(&self.leader_key(), revision)
    }

    fn leader_key(&self) -> Vec<u8> {
        format!("{}/leader", self.prefix).into_bytes()
    }

    /// Before all keys of a run. Its name has no slash there, so that no run is inside another.
    pub(crate) fn folder(&self, run: &str) -> String {
        let run = run.replace('%', "%25").replace('/', "%2f");
        format!("{}/runs/{run}/", self.prefix)
    }
}

/// What came of a transaction.
pub(crate) struct Done {
    pub(crate) succeeded: bool,
    pub(crate) revision: i64,
    pub(crate) found: Vec<api::KeyValue>,
}

/// Reads a key, or all from it up to another.
pub(crate) fn read_op(key: &[u8], range_end: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(RangeRequest { key: key.to_vec(), range_end })) }
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
pub(crate) fn modified(key: &[u8], revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    }
}

/// Whether a call failed because what log-in gave does not count any more.
fn has_expired(status: &Status) -> bool {
    let message = status.message();
    message.contains("invalid auth token") || message.contains("revision of auth store is old")
}

fn failed(status: &Status) -> KeepError {
    let reason = match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled => format!("no node of it answers: {}", causes(status)),
        _ => status.message().to_owned(),
    };
    KeepError::Etcd(reason)
}

/// What an error says, down to the reason at the end of the chain.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let status = error.downcast_ref::<Status>();
    let mut reason = status.map_or_else(|| error.to_string(), |status| status.message().to_owned());
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = inner.source();
    }
    reason
}
