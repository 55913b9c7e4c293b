//! Metrics and probes over HTTP.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router, extract::State, http::StatusCode, http::header::CONTENT_TYPE, response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use super::{free_threads::FreeThreads, readiness::Readiness};
use crate::{
    error_text::with_causes,
    kubelet::{probe::probe, socket_paths::SocketPaths},
    metrics::Metrics,
    prepare::Preparer,
};

/// The media type that Prometheus and OpenMetrics agree on.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the answers are made of.
#[derive(Debug)]
pub struct Observed {
    /// The metrics.
    pub metrics: Metrics,
    /// Whether everything needed for pods to start is there.
    pub readiness: Readiness,
    /// The sockets that must answer for the plugin to be alive.
    pub sockets: SocketPaths,
    /// Who knows how many claims are prepared.
    pub preparer: watch::Receiver<Option<Preparer>>,
    /// Whether there is a thread for what blocks.
    pub threads: FreeThreads,
}

/// Listens; the address says which port was taken for port 0.
///
/// # Errors
/// When the address can't be listened on.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for metrics and probes: choose another --http-address")
    })?;
    tracing::info!(address = %listener.local_addr().unwrap_or(address), "metrics and probes");
    Ok(listener)
}

/// Answers until `shutdown`.
///
/// # Errors
/// As [`axum::serve()`]: never in practice.
pub async fn serve(
    listener: TcpListener,
    observed: Observed,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(observed));
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
    Ok(())
}

async fn metrics(State(observed): State<Arc<Observed>>) -> impl IntoResponse {
    let preparer = observed.preparer.borrow().clone();
    if let Some(preparer) = preparer
        && let Ok(devices) = preparer.held_devices().await
    {
        observed.metrics.prepared_devices.set(devices.len().try_into().unwrap_or(i64::MAX));
        if let Ok(present) = preparer.hardware_present().await {
            observed.metrics.hardware_present(&present);
        }
    }
    let text = observed.metrics.encode().unwrap_or_default();
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

/// Alive is what answers on its own sockets; nothing else would get better by a restart.
async fn healthz(State(observed): State<Arc<Observed>>) -> (StatusCode, String) {
    if !observed.readiness.listening() {
        return (StatusCode::OK, "starting\n".to_owned());
    }
    match probe(&observed.sockets).await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, with_causes(&error) + "\n"),
    }
}

async fn readyz(State(observed): State<Arc<Observed>>) -> (StatusCode, String) {
    let mut conditions = observed.readiness.conditions();
    conditions.push(observed.threads.condition().await);
    let mut text = String::new();
    for condition in &conditions {
        let sign = if condition.missing.is_none() { '+' } else { '-' };
        let said = condition.missing.iter().chain(Some(&condition.note).filter(|note| !note.is_empty()));
        let said: Vec<&str> = said.map(String::as_str).collect();
        let colon = if said.is_empty() { "" } else { ": " };
        text.push_str(&format!("[{sign}] {}{colon}{}\n", condition.name, said.join("; ")));
    }
    let ready = conditions.iter().all(|condition| condition.missing.is_none());
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}
