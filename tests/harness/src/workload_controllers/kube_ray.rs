//! KubeRay's operator, as its project publishes it: program and kinds. Its webhook, which only checks names, is left out.

use std::time::Duration;

use super::{WorkloadControllersError, spawn};
use crate::{
    Cluster,
    host::{CommandLine, Host},
    progress::Progress,
    tools::{Module, Tools},
};

const NAME: &str = "ray-operator";

/// KubeRay's operator, running.
#[derive(Debug)]
pub struct KubeRay {
    host: Host,
    kinds: String,
}

impl KubeRay {
    /// Adds its kinds and starts it. See [`Self::stop`].
    ///
    /// # Errors
    /// See [`WorkloadControllersError`].
    pub async fn start(cluster: &Cluster) -> Result<Self, WorkloadControllersError> {
        let tools = Tools::build_in_background(&[Module::WorkloadControllers], &Progress::default()).await?;
        let kinds = tools.path(Module::WorkloadControllers, "ray-kinds")?.display().to_string();
        cluster.kubectl(&["apply", "--server-side", "-f", &kinds]).await?;
        cluster.kubectl(&["wait", "--for=condition=Established", "-f", &kinds, "--timeout=60s"]).await?;
        let host = cluster.control_plane();
        let command = CommandLine::new(tools.path(Module::WorkloadControllers, NAME)?)
            .flag("kubeconfig", cluster.kubeconfig().display())
            .flag("enable-leader-election", "false")
            .flag("metrics-addr", "0")
            .flag("health-probe-bind-address", "0");
        spawn(cluster, &host, NAME, command).await?;
        Ok(KubeRay { host, kinds })
    }

    /// Ends it, with its kinds.
    ///
    /// # Errors
    /// See [`WorkloadControllersError`].
    pub async fn stop(self, cluster: &Cluster) -> Result<(), WorkloadControllersError> {
        self.host.stop(NAME, Duration::from_secs(5)).await?;
        cluster.kubectl(&["delete", "-f", &self.kinds]).await?;
        Ok(())
    }
}
