//! Routes without a dataset behind them: what other services are served by.

use axum::Router;
use graphmill_net::{Accepted, Endpoint, Listener, ServerTls};
use graphmill_wire::proto;
use tokio::task::JoinSet;
use tonic::service::Routes;

use super::serve;
use crate::server::{StartError, check_open, raise_descriptors};

/// The most connections at once.
const CONNECTIONS: usize = 16_384;

/// Serves routes until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    endpoints: Vec<Endpoint>,
    accepting: tokio::task::JoinHandle<()>,
}

impl HttpServer {
    /// Starts to serve gRPC services beside the standard ones for health and reflection; to be called inside a runtime. Whoever
    /// can be reached from other hosts must be guarded, by a token or by mutual TLS, unless that is waived.
    ///
    /// # Errors
    /// When it cannot listen, or would be open to all.
    pub async fn start(
        listen: &[Endpoint],
        tls: Option<ServerTls>,
        has_token: bool,
        insecure: bool,
        routes: Routes,
    ) -> Result<Self, StartError> {
        let guarded = has_token || tls.as_ref().is_some_and(ServerTls::is_mutual);
        check_open(listen, guarded || insecure)?;
        raise_descriptors();
        let listener = Listener::bind(listen, tls).await?;
        let endpoints = listener.local_endpoints().to_vec();
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTION)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let router = routes.add_service(health_service).add_service(reflection).into_axum_router();
        let healthz = axum::routing::get(async || "ok\n");
        let accepting = tokio::spawn(accept(listener, router.route("/healthz", healthz)));
        Ok(Self { endpoints, accepting })
    }

    /// Where it listens, with the ports it was given.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: Listener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(_) if connections.len() >= CONNECTIONS => {
                    tracing::warn!(connections = connections.len(), "too many connections; one more is dropped");
                }
                Ok(Accepted::Http { stream, .. }) => {
                    connections.spawn(serve(stream, router.clone()));
                }
                // There is no data plane here; whoever wants one is let go.
                Ok(Accepted::Data { .. }) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot take connections any more");
                    return;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
