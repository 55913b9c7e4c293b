//! Metrics and probes over HTTP.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use tessera_cluster::Kind;
use tessera_kube_util::http_server::{Limits, serve_connections};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// The media type that Prometheus and OpenMetrics agree on.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// State that the answers are made from.
#[derive(Debug)]
pub struct Observed {
    /// The metrics.
    pub metrics: Metrics,
    /// Kinds of which not all objects were seen yet.
    pub missing: watch::Receiver<BTreeSet<Kind>>,
}

/// Starts to listen. The log says which port was taken for port 0.
///
/// # Errors
/// If it can't listen on the address.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let port = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for metrics and probes: choose another --http-address")
    })?;
    tracing::info!(address = %port.local_addr().unwrap_or(address), "metrics and probes");
    Ok(port)
}

/// Answers until `shutdown`.
pub async fn serve(port: TcpListener, observed: Observed, shutdown: CancellationToken) {
    let refused = observed.metrics.http_connections_refused.clone();
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(observed));
    let port = TcpListenerStream::new(port);
    serve_connections(port, router, Limits::default(), &refused, &shutdown).await;
}

async fn metrics(State(observed): State<Arc<Observed>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPEN_METRICS)], observed.metrics.encode().unwrap_or_default())
}

/// Ready means that all that exists was seen: a follower is ready, too, so that a rolling update goes on.
async fn readyz(State(observed): State<Arc<Observed>>) -> (StatusCode, String) {
    let missing = observed.missing.borrow();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not all seen yet: {missing:?}\n"))
    }
}
