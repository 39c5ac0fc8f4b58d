//! The control plane of one server.

use std::sync::Mutex;
use std::time::Duration;

use graphmill_net::{Endpoint, Plane, RefusalNote, Useless};
use graphmill_sample::law;
use graphmill_wire::proto::dataset_service_client::DatasetServiceClient;
use graphmill_wire::proto::{DescribeRequest, DescribeResponse};
use hyper_util::rt::TokioIo;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::ConnectOptions;
use super::inbox::lock;
use crate::{Error, Result};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest manifest that is read.
const LONGEST_MANIFEST: usize = 64 << 20;

/// What requests travel over, with what each of them carries.
pub(crate) type ControlTransport = InterceptedService<Channel, Credentials>;

/// A server's control plane; connects when it is first used, and again when it must.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    pub(crate) endpoint: Endpoint,
    transport: ControlTransport,
    /// Why the server does not talk to this client at all, if that was seen on the last connection.
    refusal: RefusalNote,
}

/// What every request carries: the token, the law, the graph.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    token: Option<graphmill_net::Token>,
    fingerprint: Option<String>,
}

impl tonic::service::Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        let invalid = |_| Status::invalid_argument("a token has characters that cannot be sent");
        let metadata = request.metadata_mut();
        if let Some(token) = &self.token {
            let mut value: tonic::metadata::MetadataValue<_> =
                format!("Bearer {}", token.reveal()).parse().map_err(invalid)?;
            value.set_sensitive(true);
            metadata.insert("authorization", value);
        }
        metadata.insert("graphmill-law", law::VERSION.into());
        if let Some(fingerprint) = &self.fingerprint {
            metadata.insert("graphmill-fingerprint", fingerprint.parse().map_err(invalid)?);
        }
        Ok(request)
    }
}

impl Control {
    /// The control plane at an address; to be made inside the runtime.
    pub(crate) fn new(endpoint: Endpoint, options: &ConnectOptions, fingerprint: Option<String>) -> Self {
        let (address, tls, refusal) = (endpoint.clone(), options.tls.clone(), RefusalNote::default());
        let noted = refusal.clone();
        let connector = tower::service_fn(move |_| {
            let (address, tls, refusal) = (address.clone(), tls.clone(), noted.clone());
            async move {
                let stream = graphmill_net::dial(&address, tls.as_ref(), Plane::Control, CONNECT).await?;
                graphmill_net::Result::Ok(TokioIo::new(refusal.watch(stream)))
            }
        });
        // The authority is for logs; where to connect is the connector's business.
        let channel = tonic::transport::Endpoint::from_static("http://graphmill")
            .connect_timeout(CONNECT)
            .timeout(options.deadline)
            .connect_with_connector_lazy(connector);
        let credentials = Credentials { token: options.token.clone(), fingerprint };
        Self { endpoint, transport: InterceptedService::new(channel, credentials), refusal }
    }

    pub(crate) fn transport(&self) -> ControlTransport {
        self.transport.clone()
    }

    /// Why a call failed, in words.
    pub(crate) fn error(&self, doing: &str, status: &Status) -> Error {
        let (server, doing) = (self.endpoint.to_string(), doing.to_owned());
        let useless = graphmill_net::Error::certificate(status).map(Useless::Denied);
        match useless.or_else(|| self.refusal.read()) {
            Some(Useless::Denied(reason)) => return Error::Denied { server, doing, reason },
            Some(Useless::Stranger(reason)) => return Error::Refused { server, doing, reason },
            None => {}
        }
        // What the transport says of a server that is not there hides the reason at the end of a chain.
        let mut reason = status.message().to_owned();
        let mut cause = std::error::Error::source(status);
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !reason.contains(&text) {
                reason = format!("{reason}: {text}");
            }
            cause = inner.source();
        }
        // What the transport says, and not the server, has a source. Of a connection that a server ends as it stops, it says that
        // there is something wrong inside, which is no refusal.
        let broken = std::error::Error::source(status).is_some();
        match status.code() {
            _ if broken => Error::Unavailable { server, doing, reason },
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                Error::Unavailable { server, doing, reason }
            }
            Code::Unauthenticated | Code::PermissionDenied => Error::Denied { server, doing, reason },
            _ => Error::Refused { server, doing, reason },
        }
    }
}

/// The partitions that servers have, each as far as it answers in time. All are asked at once.
pub(super) async fn partitions(controls: &[Control], within: Duration) -> Vec<Option<Vec<u32>>> {
    let ask = |control: &Control| {
        let control = control.clone();
        tokio::spawn(async move {
            let mut service =
                DatasetServiceClient::new(control.transport()).max_decoding_message_size(LONGEST_MANIFEST);
            let described = tokio::time::timeout(within, service.describe(DescribeRequest {})).await.ok()?.ok()?;
            Some(described.into_inner().partitions)
        })
    };
    let asked: Vec<_> = controls.iter().map(ask).collect();
    let mut told = Vec::with_capacity(asked.len());
    for answer in asked {
        told.push(answer.await.ok().flatten());
    }
    told
}

/// What the dataset is, from the first server that answers. All are asked at once, so that a dead one costs nothing; while
/// none answers, they are asked again until the deadline.
pub(super) async fn describe(controls: &[Control], deadline: Duration) -> Result<DescribeResponse> {
    // Why it did not work so far.
    let last = Mutex::new(String::new());
    let attempt = async {
        loop {
            let mut asked = tokio::task::JoinSet::new();
            for control in controls {
                let control = control.clone();
                asked.spawn(async move {
                    // The manifest of a graph in many partitions is long.
                    let mut service =
                        DatasetServiceClient::new(control.transport()).max_decoding_message_size(LONGEST_MANIFEST);
                    let described = service.describe(DescribeRequest {}).await;
                    described
                        .map(tonic::Response::into_inner)
                        .map_err(|status| control.error("describe its dataset", &status))
                });
            }
            while let Some(answered) = asked.join_next().await {
                match answered {
                    Ok(Ok(described)) => return Ok(described),
                    Ok(Err(Error::Unavailable { reason, server, .. })) => {
                        *lock(&last) = format!("{server}: {reason}");
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(error) => return Err(Error::servers(error.to_string())),
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    match tokio::time::timeout(deadline, attempt).await {
        Ok(described) => described,
        Err(_) => Err(Error::Unavailable {
            server: controls.iter().map(|control| control.endpoint.to_string()).collect::<Vec<_>>().join(", "),
            doing: "describe its dataset".to_owned(),
            reason: format!("no server answered within {} s ({})", deadline.as_secs_f64(), lock(&last)),
        }),
    }
}
