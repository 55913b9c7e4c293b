//! The service for the plugin's registration with the kubelet.

use std::path::Path;

use tessera_proto::{
    dra, dra_health,
    registration::{
        DRA_PLUGIN,
        v1::{
            InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
            registration_server::Registration,
        },
    },
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::KubeletMetrics;

/// Services of the DRA socket, by their names in the kubelet; the preferred one first.
const SERVICES: [&str; 4] =
    [dra::v1::SERVICE, dra::v1beta1::SERVICE, dra_health::v1::SERVICE, dra_health::v1alpha1::SERVICE];

/// The kubelet's last answer to this instance's registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrationState {
    /// None yet: the kubelet has not found the socket, or is not running.
    #[default]
    Waiting,
    /// The kubelet calls this instance when it needs the driver.
    Registered,
    /// The kubelet refused this instance, with this reason.
    Refused(String),
}

/// Answers on the registration socket.
#[derive(Debug)]
pub struct RegistrationService {
    info: PluginInfo,
    state: watch::Sender<RegistrationState>,
    metrics: KubeletMetrics,
}

impl RegistrationService {
    /// Announces the driver and its DRA socket. The kubelet's answer goes to `state`.
    pub fn new(
        driver_name: &str,
        dra_socket: &Path,
        state: watch::Sender<RegistrationState>,
        metrics: KubeletMetrics,
    ) -> Self {
        let info = PluginInfo {
            r#type: DRA_PLUGIN.to_owned(),
            name: driver_name.to_owned(),
            endpoint: dra_socket.to_string_lossy().into_owned(),
            supported_versions: SERVICES.map(str::to_owned).to_vec(),
        };
        Self { info, state, metrics }
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        tracing::debug!("the kubelet asked who we are");
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = status.into_inner();
        self.metrics.registered.set(plugin_registered.into());
        if plugin_registered {
            tracing::info!(driver = self.info.name, "registered with the kubelet");
            self.state.send_replace(RegistrationState::Registered);
        } else {
            self.metrics.registrations_refused.inc();
            tracing::error!(
                driver = self.info.name,
                error,
                "the kubelet refused the registration: pods with claims of this driver cannot start on this node; the \
                 kubelet tries again by itself"
            );
            self.state.send_replace(RegistrationState::Refused(error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
