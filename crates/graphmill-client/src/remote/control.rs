//! The control plane of one server.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use graphmill_net::{Endpoint, Plane, Stream};
use graphmill_sample::law;
use graphmill_wire::proto::dataset_service_client::DatasetServiceClient;
use graphmill_wire::proto::{DescribeRequest, DescribeResponse};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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
    /// Why the server does not talk to this client at all, if that was seen on the last connection. The client's part of a
    /// TLS handshake is over before the server has looked at its certificate, so it is only seen when reading, and what
    /// reads hides the reason.
    refused: Arc<Mutex<Option<String>>>,
}

/// A connection that notes why it was refused.
struct Noting {
    stream: Stream,
    refused: Arc<Mutex<Option<String>>>,
    /// Whether anything was read.
    answered: bool,
}

impl AsyncRead for Noting {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        let refused = match &polled {
            Poll::Ready(Err(error)) => graphmill_net::Error::certificate(error),
            Poll::Ready(Ok(())) if !self.answered => {
                self.answered = true;
                self.stream.check_answer(&into.filled()[before..]).err().map(|error| error.to_string())
            }
            _ => None,
        };
        if refused.is_some() {
            *lock(&self.refused) = refused;
        }
        polled
    }
}

impl AsyncWrite for Noting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
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
        let (address, tls, refused) = (endpoint.clone(), options.tls.clone(), Arc::default());
        let noted = Arc::clone(&refused);
        let connector = tower::service_fn(move |_| {
            let (address, tls, refused) = (address.clone(), tls.clone(), Arc::clone(&noted));
            async move {
                *lock(&refused) = None;
                let stream = graphmill_net::dial(&address, tls.as_ref(), Plane::Control, CONNECT).await?;
                graphmill_net::Result::Ok(TokioIo::new(Noting { stream, refused, answered: false }))
            }
        });
        // The authority is for logs; where to connect is the connector's business.
        let channel = tonic::transport::Endpoint::from_static("http://graphmill")
            .connect_timeout(CONNECT)
            .timeout(options.deadline)
            .connect_with_connector_lazy(connector);
        let credentials = Credentials { token: options.token.clone(), fingerprint };
        Self { endpoint, transport: InterceptedService::new(channel, credentials), refused }
    }

    pub(crate) fn transport(&self) -> ControlTransport {
        self.transport.clone()
    }

    /// Why a call failed, in words.
    pub(crate) fn error(&self, doing: &str, status: &Status) -> Error {
        let server = self.endpoint.to_string();
        let refused = graphmill_net::Error::certificate(status).or_else(|| lock(&self.refused).clone());
        if let Some(reason) = refused {
            return Error::Refused { server, doing: doing.to_owned(), reason };
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
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                Error::Unavailable { server, doing: doing.to_owned(), reason }
            }
            _ => Error::Refused { server, doing: doing.to_owned(), reason },
        }
    }
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
                    Err(error) => return Err(Error::options(error.to_string())),
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
