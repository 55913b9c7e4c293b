//! A forwarded port to the controller's fleet page.

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tessera_api::fleet_view::{FleetView, PATH};
use tokio::io::{AsyncRead, AsyncWrite};

use super::leader::{LEASE, leader};
use super::{ClusterError, ServerError};

/// Name of the fleet page's port in the controller's container.
const PORT: &str = "fleet";

/// Longest answer, in bytes: 5,000 nodes with 16 cards and their holders stay below.
const LONGEST: usize = 256 << 20;

/// Where the leading controller serves the fleet.
pub struct FleetPort {
    pods: Api<Pod>,
    /// The leader's pod.
    pub pod: String,
    port: u16,
}

/// Why the fleet cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// There is no leader.
    #[error(
        "no controller leads (nobody holds a Lease {LEASE}, and no pod of a controller holds another): is the chart installed with controller.enabled?"
    )]
    NoLeader,
    /// The leader's pod is gone.
    #[error(
        "no controller leads: the last leader, pod {0}, is gone; the controller is being replaced or is no longer \
         running (kubectl get pods -A -l app.kubernetes.io/component=controller)"
    )]
    Gone(String),
    /// The leader's pod has no fleet page.
    #[error(
        "the leader, pod {0}, has no port named {PORT}: its version has no fleet page, or it runs outside a pod"
    )]
    NoPort(String),
    /// A right is missing.
    #[error(
        "the leading controller answers this command, and you lack a right to reach it: {0}\nthe chart's \
         ClusterRole …-viewer and, in the controller's namespace, its Role …-fleet-viewer grant the rights \
         (docs/kubectl-gpu.md)"
    )]
    Right(ServerError),
    /// The port cannot be forwarded.
    #[error("cannot forward a port to pod {pod}: {source}")]
    Forward {
        /// The pod.
        pod: String,
        /// Why.
        source: ServerError,
    },
    /// The controller's answer broke off.
    #[error("the controller's answer ended early: {0}")]
    Http(#[from] hyper::Error),
    /// The answer is too long, or broke off.
    #[error("the controller's answer cannot be read: {0}")]
    Read(Box<dyn std::error::Error + Send + Sync>),
    /// The controller refused.
    #[error("the controller answers {0}: {1}")]
    Refused(StatusCode, String),
    /// The controller's answer is not a fleet view.
    #[error("the controller's answer is not a fleet.json: {0}")]
    Form(#[from] serde_json::Error),
}

impl FleetPort {
    /// Looks for the leader.
    ///
    /// # Errors
    /// No permission to look, or there is no leader.
    pub async fn find(client: Client) -> Result<Result<Self, ForwardError>, ClusterError> {
        let held = match leader(&client).await {
            Ok(Some(held)) => held,
            Ok(None) => return Ok(Err(ForwardError::NoLeader)),
            Err(error) => return refused("list of Leases", error),
        };
        let holder = held.holder;
        let pods: Api<Pod> = Api::namespaced(client, &held.namespace);
        let pod = match pods.get_opt(&holder).await {
            Ok(pod) => pod,
            Err(error) => return refused("the controller's Pod", error),
        };
        let Some(pod) = pod else { return Ok(Err(ForwardError::Gone(holder))) };
        let port = pod.spec.as_ref().and_then(|spec| {
            let containers = spec.containers.iter();
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            u16::try_from(ports.find(|port| port.name.as_deref() == Some(PORT))?.container_port).ok()
        });
        Ok(match port {
            Some(port) => Ok(FleetPort { pods, pod: holder, port }),
            None => Err(ForwardError::NoPort(holder)),
        })
    }

    /// A connection to the page.
    ///
    /// # Errors
    /// The API server refuses, or the pod is gone.
    pub async fn connect(&self) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, ForwardError> {
        let forwarder = self.pods.portforward(&self.pod, &[self.port]).await.map_err(ServerError::from);
        let mut forwarder = forwarder.map_err(|source| match source.is_forbidden() {
            true => ForwardError::Right(source),
            false => ForwardError::Forward { pod: self.pod.clone(), source },
        })?;
        forwarder.take_stream(self.port).ok_or_else(|| ForwardError::NoPort(self.pod.clone()))
    }

    /// The current fleet.
    ///
    /// # Errors
    /// See [`ForwardError`].
    pub async fn fleet(&self) -> Result<FleetView, ForwardError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect().await?)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::new(Empty::<Bytes>::new());
        // Cannot fail: a constant path.
        *request.uri_mut() = PATH.parse().unwrap_or_default();
        request.headers_mut().insert(HOST, hyper::header::HeaderValue::from_static("localhost"));
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(ForwardError::Read)?;
        connection.abort();
        let body = body.to_bytes();
        if status != StatusCode::OK {
            return Err(ForwardError::Refused(status, String::from_utf8_lossy(&body).trim().to_owned()));
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

/// The answer where the leader cannot be looked for.
fn refused<T>(what: &'static str, error: kube::Error) -> Result<Result<T, ForwardError>, ClusterError> {
    match ServerError::from(error) {
        error if error.is_forbidden() => Ok(Err(ForwardError::Right(error))),
        source => Err(ClusterError::Request { what, source }),
    }
}
