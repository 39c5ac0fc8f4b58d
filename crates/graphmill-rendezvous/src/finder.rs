//! Where coordinators are, and the connections to them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use graphmill_net::{Endpoint, Plane, RefusalNote, Token};
use graphmill_wire::proto::rendezvous_service_client::RendezvousServiceClient;
use hyper_util::rt::TokioIo;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::client::ConnectOptions;
use crate::etcd::Etcd;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) type Service = RendezvousServiceClient<InterceptedService<Channel, Credentials>>;

/// A coordinator to ask.
#[derive(Debug, Clone)]
pub(crate) struct Picked {
    pub(crate) endpoint: Endpoint,
    pub(crate) service: Service,
    /// Why it does not talk to this side at all, if that was seen.
    pub(crate) refusal: RefusalNote,
    /// How often another one was picked before.
    turn: usize,
}

/// Finds the coordinator to ask.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a connection has one, on the heap")]
pub(crate) enum Finder {
    /// One of these, of which one serves.
    Named {
        /// All of them.
        services: Vec<(Endpoint, Service, RefusalNote)>,
        /// Goes up whenever one does not answer.
        turn: AtomicUsize,
    },
    /// Whoever leads, as etcd knows.
    Led {
        /// Whom to ask.
        etcd: Etcd,
        /// How the leader is reached.
        options: ConnectOptions,
        /// Who it was when that was asked last.
        known: Mutex<Known>,
    },
}

/// The leader, as far as it is known. What is noted under an old turn could never be doubted again, so both have one lock.
#[derive(Debug, Default)]
pub(crate) struct Known {
    leader: Option<Picked>,
    /// Goes up whenever it does not answer.
    turn: usize,
}

impl Finder {
    pub(crate) fn named(endpoints: &[Endpoint], options: &ConnectOptions) -> Self {
        let service = |endpoint: &Endpoint| {
            let (service, refusal) = reach(endpoint, options);
            (endpoint.clone(), service, refusal)
        };
        Self::Named { services: endpoints.iter().map(service).collect(), turn: AtomicUsize::new(0) }
    }

    pub(crate) fn led(etcd: Etcd, options: &ConnectOptions) -> Self {
        Self::Led { etcd, options: options.clone(), known: Mutex::default() }
    }

    /// A coordinator to ask; or why there is none.
    pub(crate) async fn pick(&self) -> Result<Picked, String> {
        match self {
            Self::Named { services, turn } => {
                let turn = turn.load(Ordering::Relaxed);
                let named = services.get(turn % services.len().max(1)).cloned();
                let (endpoint, service, refusal) = named.ok_or("no coordinator was named")?;
                Ok(Picked { endpoint, service, refusal, turn })
            }
            Self::Led { etcd, options, known } => {
                if let Some(found) = lock(known).leader.clone() {
                    return Ok(found);
                }
                let address = etcd.leader().await.map_err(|error| error.to_string())?;
                let address = address.ok_or("no coordinator leads, says etcd; is one running there?")?;
                let endpoint: Endpoint = address.parse().map_err(|error: graphmill_net::Error| error.to_string())?;
                let (service, refusal) = reach(&endpoint, options);
                let mut known = lock(known);
                let turn = known.turn;
                Ok(known.leader.insert(Picked { endpoint, service, refusal, turn }).clone())
            }
        }
    }

    /// One does not answer, or does not serve: another is asked next, if nobody else has seen to that.
    pub(crate) fn doubt(&self, picked: &Picked) {
        let next = picked.turn.wrapping_add(1);
        match self {
            Self::Named { turn, .. } => {
                let _ = turn.compare_exchange(picked.turn, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            Self::Led { known, .. } => {
                let mut known = lock(known);
                if known.turn == picked.turn {
                    *known = Known { leader: None, turn: next };
                }
            }
        }
    }

    /// All that may be asked, in words.
    pub(crate) fn everywhere(&self) -> String {
        match self {
            Self::Named { services, .. } => {
                services.iter().map(|(endpoint, ..)| endpoint.to_string()).collect::<Vec<_>>().join(", ")
            }
            Self::Led { known, .. } => match &lock(known).leader {
                Some(picked) => picked.endpoint.to_string(),
                None => "where etcd knows".to_owned(),
            },
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A coordinator at an address; connects when it is used.
fn reach(endpoint: &Endpoint, options: &ConnectOptions) -> (Service, RefusalNote) {
    let (address, tls, refusal) = (endpoint.clone(), options.tls.clone(), RefusalNote::default());
    let noted = refusal.clone();
    let connector = tower::service_fn(move |_| {
        let (address, tls, refusal) = (address.clone(), tls.clone(), noted.clone());
        async move {
            let stream = graphmill_net::dial(&address, tls.as_ref(), Plane::Control, CONNECT).await?;
            graphmill_net::Result::Ok(TokioIo::new(refusal.watch(stream)))
        }
    });
    // A coordinator that is gone without a word is noticed by the keep-alive of the connection.
    let channel = tonic::transport::Endpoint::from_static("http://graphmill")
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(connector);
    (RendezvousServiceClient::with_interceptor(channel, Credentials(options.token.clone())), refusal)
}

/// Shows the token.
#[derive(Debug, Clone)]
pub(crate) struct Credentials(Option<Token>);

impl tonic::service::Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            let value = format!("Bearer {}", token.reveal()).parse();
            let mut value: tonic::metadata::MetadataValue<_> =
                value.map_err(|_| Status::invalid_argument("a token has characters that cannot be sent"))?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}
