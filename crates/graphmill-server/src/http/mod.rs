//! The planes that are HTTP: gRPC for control, plain pages for whoever watches.

mod alone;
mod beginning;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use graphmill_net::{Stream, Token};
use graphmill_wire::proto;
use graphmill_wire::proto::dataset_service_server::DatasetServiceServer;
use graphmill_wire::proto::sampling_service_server::SamplingServiceServer;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tonic::service::{Routes, interceptor::InterceptedService};
use tonic::{Request, Status};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::Refusal;
use crate::connection::{same_graph, same_law};
use crate::core::Core;
use crate::dataset::DatasetApi;
use crate::sampling::SamplingApi;
use crate::scheduler::Activity;
pub use alone::HttpServer;
use beginning::Beginning;

/// The largest request over the control plane: a chunk of seeds, a list of ids.
const LARGEST: usize = 64 << 20;

/// How long a client may take to say half a request to its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may be silent before it is asked whether it is there, and before it answers; and how long in the midst of
/// what it asks.
const SILENCE: Duration = Duration::from_secs(10);

/// How long somebody who is turned away may take to hear it.
const TURNING_AWAY: Duration = Duration::from_secs(1);

/// Everything that is served over HTTP on the main address.
pub(crate) fn router(
    core: &Arc<Core>,
    token: Option<Token>,
    health: HealthServer<impl Health>,
    services: Routes,
) -> Result<Router, tonic_reflection::server::Error> {
    let guard = Guard { core: Arc::clone(core), token };
    let sampling = SamplingServiceServer::new(SamplingApi::new(Arc::clone(core))).max_decoding_message_size(LARGEST);
    let dataset = DatasetServiceServer::new(DatasetApi::new(Arc::clone(&core.cluster)))
        .max_decoding_message_size(LARGEST)
        .max_encoding_message_size(LARGEST);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTION)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let routes = services
        .add_service(InterceptedService::new(sampling, guard.clone()))
        .add_service(InterceptedService::new(dataset, guard))
        .add_service(health)
        .add_service(reflection);
    Ok(routes.into_axum_router().merge(watch(core)))
}

/// What needs no token: numbers, and whether the server is well.
pub(crate) fn watch(core: &Arc<Core>) -> Router {
    let pages = Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz));
    pages.with_state(Arc::clone(core))
}

async fn healthz(State(core): State<Arc<Core>>) -> (StatusCode, &'static str) {
    if core.is_stopping() { (StatusCode::SERVICE_UNAVAILABLE, "stopping\n") } else { (StatusCode::OK, "ok\n") }
}

async fn metrics(State(core): State<Arc<Core>>) -> impl IntoResponse {
    let channels = core.registry.channels();
    let (mut runnable, mut parked, mut starved, mut bytes) = (0, 0, 0, 0);
    for seen in channels.iter().filter_map(|channel| core.work.scheduler(|scheduler| scheduler.seen(channel.id))) {
        runnable += i64::from(seen.activity == Activity::Runnable);
        parked += i64::from(seen.activity == Activity::Parked);
        starved += i64::from(seen.activity == Activity::Starved);
        bytes += seen.buffered_bytes;
    }
    let (gauges, backends) = (&core.metrics, core.registry.backends());
    gauges.channels.set(channels.len() as i64);
    gauges.runnable.set(runnable);
    gauges.parked.set(parked);
    gauges.starved.set(starved);
    gauges.connections.set(core.connections.load(Ordering::Relaxed) as i64);
    gauges.memory_bytes.set(core.budget.taken() as i64);
    gauges.memory_budget.set(core.budget.total() as i64);
    gauges.row_cache_bytes.set(core.cluster.row_caches.used() as i64);
    gauges.buffered_bytes.set(bytes as i64);
    gauges.backends.set(backends.len() as i64);
    gauges.clients.set(core.registry.clients() as i64);
    gauges.running.set(core.work.scheduler(|scheduler| scheduler.running()) as i64);
    gauges.scratch_bytes.set(backends.iter().map(|backend| backend.scratch_bytes()).sum::<usize>() as i64);
    match core.metrics.page(&channels) {
        Ok(page) => Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], page)),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Serves HTTP on a connection until it ends.
pub(crate) async fn serve(stream: Stream, router: Router) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // A client that says half a request and no more is let go.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(SILENCE).keep_alive_timeout(SILENCE);
    let stream = TokioIo::new(Beginning::new(stream, PATIENCE));
    let router = router.layer(RequestBodyTimeoutLayer::new(SILENCE));
    let served = builder.serve_connection_with_upgrades(stream, TowerToHyperService::new(router)).await;
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

/// Tells whoever is there that this server takes no more, over whichever HTTP it speaks, and hangs up.
pub(crate) async fn turn_away(stream: Stream, refusal: Refusal) {
    let status = Status::from(refusal.clone());
    let answer = move |request: axum::extract::Request| {
        let is_grpc =
            request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let answer = if is_grpc {
            status.clone().into_http::<axum::body::Body>()
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n")).into_response()
        };
        std::future::ready(answer)
    };
    let _ = tokio::time::timeout(TURNING_AWAY, serve(stream, Router::new().fallback(answer))).await;
}

/// Lets in who has the token, and who means this law and this graph.
#[derive(Clone)]
struct Guard {
    core: Arc<Core>,
    token: Option<Token>,
}

impl tonic::service::Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let text = |name: &str| request.metadata().get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = &self.token {
            let given = text("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
            if !token.matches(given) {
                return Err(Refusal::denied("the token is missing or wrong; give both sides the same one").into());
            }
        }
        if let Some(law) = text("graphmill-law") {
            same_law(law.parse().map_err(|_| Refusal::invalid(format!("`{law}` is no law version")))?)?;
        }
        if let Some(fingerprint) = text("graphmill-fingerprint") {
            same_graph(self.core.cluster.dataset.fingerprint(), fingerprint)?;
        }
        Ok(request)
    }
}
