//! Metrics and probes over HTTP.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use tessera_cluster::Kind;
use tessera_kube_util::http_server::{Limits, serve_connections};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// The media type common to Prometheus and OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// State behind the answers.
#[derive(Debug)]
pub struct Observed {
    /// The metrics.
    pub metrics: Metrics,
    /// Kinds not fully listed yet.
    pub missing: watch::Receiver<BTreeSet<Kind>>,
}

/// The listening sockets: a TCP port, and a unix socket for the kubelet's probes. Anybody on the pod's network can exhaust the
/// connections of the port, so the kubelet runs `controller probe` in the container instead.
#[derive(Debug)]
pub struct Listeners {
    port: TcpListener,
    probes: Option<UnixListener>,
}

impl Listeners {
    /// Starts to listen. The log names the actual port for port 0.
    ///
    /// # Errors
    /// If listening on the address or the socket fails.
    pub async fn bind(address: SocketAddr, probe_socket: Option<&Path>) -> anyhow::Result<Self> {
        let probes = probe_socket.map(bind_probe_socket).transpose()?;
        let port = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address} for metrics and probes: choose another --http-address")
        })?;
        tracing::info!(address = %port.local_addr().unwrap_or(address), "metrics and probes");
        Ok(Listeners { port, probes })
    }

    /// Serves until `shutdown`. Each listener has its own limits.
    pub async fn serve(self, observed: Observed, shutdown: CancellationToken) {
        let refused = observed.metrics.http_connections_refused.clone();
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .with_state(Arc::new(observed));
        let limits = Limits::default();
        let port = TcpListenerStream::new(self.port);
        let for_all = serve_connections(port, router.clone(), limits, &refused, &shutdown);
        let for_probes = async {
            let Some(probes) = self.probes else { return };
            serve_connections(UnixListenerStream::new(probes), router, limits, &refused, &shutdown).await;
        };
        tokio::join!(for_all, for_probes);
    }
}

/// The socket is in a volume of this pod, so an existing file was left by the previous container.
fn bind_probe_socket(path: &Path) -> anyhow::Result<UnixListener> {
    let bind = || {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path)
    };
    bind()
        .with_context(|| format!("cannot make the socket {}: choose another --probe-socket", path.display()))
}

async fn metrics(State(observed): State<Arc<Observed>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPEN_METRICS)], observed.metrics.encode().unwrap_or_default())
}

/// Ready means all kinds are listed. A follower is ready, too, so that a rolling update proceeds.
async fn readyz(State(observed): State<Arc<Observed>>) -> (StatusCode, String) {
    let missing = observed.missing.borrow();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let kinds: Vec<&str> = missing.iter().map(|kind| kind.name()).collect();
        (StatusCode::SERVICE_UNAVAILABLE, format!("not yet listed: {}\n", kinds.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpStream, UnixStream};

    use super::*;

    #[tokio::test]
    async fn clients_that_take_the_whole_port_do_not_keep_the_kubelet_from_asking() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("probe.sock");
        // Left by an earlier container.
        drop(UnixListener::bind(&socket).unwrap());
        let (_missing, missing) = watch::channel(BTreeSet::from([Kind::Pod]));
        let observed = Observed { metrics: Metrics::new(), missing };
        let listeners = Listeners::bind("127.0.0.1:0".parse().unwrap(), Some(&socket)).await.unwrap();
        let port = listeners.port.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(listeners.serve(observed, shutdown.clone()));
        let mut crowd = Vec::new();
        for _ in 0..60 {
            let mut slow = TcpStream::connect(port).await.unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
            crowd.push(slow);
        }
        for (path, expected) in [("/healthz", " 200 OK"), ("/readyz", " 503 ")] {
            let mut probe = UnixStream::connect(&socket).await.unwrap();
            probe.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            probe.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.0{expected}")), "{answer}");
        }
        shutdown.cancel();
        serving.await.unwrap();
    }
}
