//! Metrics, usage and probes over HTTP: on a port for everybody, and on a unix socket for the kubelet's probes.
//!
//! The port can't be reserved for the kubelet: any peer on the pod's network can take up all its connections,
//! and not every network plugin shows the kubelet's address as different from a pod's. A second port could be reached
//! in the same way. So the kubelet runs `kubelet-plugin probe` in the container, which asks on a socket in a volume
//! of the pod.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use axum::{
    Router,
    extract::State,
    http::StatusCode,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::get,
};
use tessera_api::usage;
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::{free_threads::FreeThreads, readiness::Readiness};
use crate::prepare::Preparer;
use tessera_dra_kubelet::{
    listening_socket::{ListenError, ListeningSocket},
    probe::probe,
    socket_paths::SocketPaths,
};
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::http_server::{Limits, serve_connections};

/// The media type on which Prometheus and OpenMetrics agree.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Source of the answers.
#[derive(Debug)]
pub struct Observed {
    /// The metrics.
    pub metrics: Metrics,
    /// Whether everything needed to start pods is there.
    pub readiness: Readiness,
    /// The plugin is alive while these sockets answer.
    pub sockets: SocketPaths,
    /// Gives the number of prepared claims.
    pub preparer: watch::Receiver<Option<Preparer>>,
    /// Whether blocking calls find a free thread.
    pub threads: FreeThreads,
}

/// The listening sockets.
#[derive(Debug)]
pub struct Listeners {
    port: TcpListener,
    probes: Option<ListeningSocket>,
}

impl Listeners {
    /// Starts to listen. For port 0 the log has the port chosen by the system.
    ///
    /// # Errors
    /// If the address or the socket can't be used.
    pub async fn bind(address: SocketAddr, probe_socket: Option<&Path>) -> anyhow::Result<Self> {
        let probes = match probe_socket {
            Some(path) => Some(bind_probe_socket(path).await?),
            None => None,
        };
        let port = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address} for metrics and probes: choose another --http-address")
        })?;
        tracing::info!(address = %port.local_addr().unwrap_or(address), "metrics and probes");
        Ok(Self { port, probes })
    }

    /// Answers until `shutdown`. Each listener has its own limits.
    pub async fn serve(self, observed: Observed, shutdown: CancellationToken) {
        let refused = observed.metrics.http_connections_refused.clone();
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route(usage::PATH, get(node_usage))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(Arc::new(observed));
        let limits = Limits::default();
        let port = TcpListenerStream::new(self.port);
        let for_all = serve_connections(port, router.clone(), limits, &refused, &shutdown);
        let for_probes = async {
            let Some((listener, name)) = self.probes.map(ListeningSocket::into_parts) else { return };
            serve_connections(UnixListenerStream::new(listener), router, limits, &refused, &shutdown).await;
            if let Err(error) = name.remove() {
                tracing::warn!(socket = %name.path().display(), %error, "cannot remove the socket");
            }
        };
        tokio::join!(for_all, for_probes);
    }
}

async fn bind_probe_socket(path: &Path) -> anyhow::Result<ListeningSocket> {
    // Bound in the same directory, for a rename within one file system.
    match ListeningSocket::bind(path, path.parent().unwrap_or(path)).await {
        Err(ListenError::InUse { path }) => {
            bail!("another process already serves {}: choose another --probe-socket", path.display())
        }
        result => Ok(result?),
    }
}

async fn metrics(State(observed): State<Arc<Observed>>) -> impl IntoResponse {
    let preparer = observed.preparer.borrow().clone();
    if let Some(preparer) = preparer
        && let Ok(devices) = preparer.held_devices().await
    {
        observed.metrics.prepare.prepared_devices.set(devices.len().try_into().unwrap_or(i64::MAX));
        if let Ok(present) = preparer.hardware_present().await {
            observed.metrics.prepare.hardware_present(&present);
        }
    }
    let text = observed.metrics.encode().unwrap_or_default();
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

/// The last look at the cards' activity, as JSON.
async fn node_usage(State(observed): State<Arc<Observed>>) -> Response {
    let report = observed.metrics.usage.report.borrow().clone();
    match report {
        Some(report) => {
            // Texts and numbers; a number without a form in JSON is null.
            let json = serde_json::to_vec(&report.node_usage()).unwrap_or_default();
            ([(CONTENT_TYPE, "application/json")], json).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "the cards have not been looked at yet\n").into_response(),
    }
}

/// Healthy while the plugin's own sockets answer. A restart would not help with anything else.
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
