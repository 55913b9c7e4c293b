//! Calls the plugin's own sockets as the kubelet would, to check for answers.

use std::{path::Path, time::Duration};

use tessera_proto::{
    dra::v1::{NodePrepareResourcesRequest, dra_plugin_client::DraPluginClient},
    registration::v1::{InfoRequest, registration_client::RegistrationClient},
};
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

use super::socket_paths::SocketPaths;

/// Time limit for an answer. Kubernetes' liveness probe waits 1 s by default.
const TIMEOUT: Duration = Duration::from_millis(900);

/// A socket does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No connection.
    #[error("cannot connect to {path}")]
    Connect {
        /// The socket.
        path: String,
        /// The error.
        source: tonic::transport::Error,
    },
    /// A connection, but a wrong answer.
    #[error("{path} answers {code:?}: {message}")]
    Answer {
        /// The socket.
        path: String,
        /// The gRPC status.
        code: tonic::Code,
        /// Its message.
        message: String,
    },
}

/// Asks for the plugin's name, and prepares an empty list of claims; both calls must be answered.
///
/// # Errors
/// For the first silent socket.
pub async fn probe(paths: &SocketPaths) -> Result<(), ProbeError> {
    let failed = |path: &Path, status: tonic::Status| ProbeError::Answer {
        path: path.display().to_string(),
        code: status.code(),
        message: status.message().to_owned(),
    };
    let mut registration = RegistrationClient::new(connect(&paths.registration).await?);
    let info = registration.get_info(Request::new(InfoRequest {})).await;
    info.map_err(|status| failed(&paths.registration, status))?;
    let mut dra = DraPluginClient::new(connect(&paths.dra).await?);
    let nothing = dra.node_prepare_resources(Request::new(NodePrepareResourcesRequest::default())).await;
    nothing.map_err(|status| failed(&paths.dra, status))?;
    Ok(())
}

async fn connect(path: &Path) -> Result<Channel, ProbeError> {
    let failed = |source| ProbeError::Connect { path: path.display().to_string(), source };
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).map_err(failed)?;
    endpoint.connect_timeout(TIMEOUT).timeout(TIMEOUT).connect().await.map_err(failed)
}
