use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Cluster, ClusterError};

/// A pod's state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// The scheduler has chosen its node.
    Scheduled,
    /// All its containers run and are ready.
    Ready,
    /// All its containers ended with exit code 0.
    Succeeded,
    /// A container ended with another exit code.
    Failed,
    /// Gone from the API.
    Gone,
}

impl PodState {
    fn holds(self, pod: Option<&Pod>) -> bool {
        let Some(pod) = pod else { return self == Self::Gone };
        let status = pod.status.as_ref();
        let phase = |wanted: &str| status.and_then(|status| status.phase.as_deref()) == Some(wanted);
        match self {
            Self::Scheduled => pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()),
            Self::Ready => status
                .and_then(|status| status.conditions.as_ref())
                .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True")),
            Self::Succeeded => phase("Succeeded"),
            Self::Failed => phase("Failed"),
            Self::Gone => false,
        }
    }
}

impl Cluster {
    /// Creates a pod from its JSON; the namespace is `default` if not set.
    ///
    /// # Errors
    /// The JSON is not a pod, or the API refuses it.
    pub async fn create_pod(&self, pod: Value) -> Result<Pod, ClusterError> {
        let pod: Pod = serde_json::from_value(pod)
            .map_err(|error| ClusterError::Configuration(format!("this is no pod: {error}")))?;
        let namespace = pod.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let pods: Api<Pod> = Api::namespaced(self.client().await?, &namespace);
        Ok(pods.create(&PostParams::default(), &pod).await?)
    }

    /// Waits until a pod is in this state and returns the pod (for [`PodState::Gone`], as last seen).
    ///
    /// # Errors
    /// [`ClusterError::NotReady`] with the pod's status and events, once `limit` has passed.
    pub async fn wait_for_pod(
        &self,
        namespace: &str,
        name: &str,
        state: PodState,
        limit: Duration,
    ) -> Result<Pod, ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        let end = Instant::now() + limit;
        let mut last = Pod::default();
        loop {
            let found = pods.get_opt(name).await?;
            if state.holds(found.as_ref()) {
                return Ok(found.unwrap_or(last));
            }
            last = found.unwrap_or(last);
            if Instant::now() > end {
                let status = serde_json::to_string(&last.status).unwrap_or_default();
                let selector = format!("involvedObject.name={name}");
                let arguments = ["get", "events", "-n", namespace, "--field-selector", &selector];
                let events =
                    self.try_kubectl(&arguments).await.map(|output| output.stdout).unwrap_or_default();
                return Err(ClusterError::NotReady {
                    what: format!("pod {namespace}/{name} {state:?}"),
                    last: format!("{status}\n{events}"),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Deletes a pod with its own grace period, and waits until the pod is gone.
    ///
    /// # Errors
    /// The pod does not exist, or still exists after a minute.
    pub async fn delete_pod(&self, namespace: &str, name: &str) -> Result<(), ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        pods.delete(name, &DeleteParams::default()).await?;
        self.wait_for_pod(namespace, name, PodState::Gone, Duration::from_secs(60)).await?;
        Ok(())
    }

    /// The log of the named container, or of the first one.
    ///
    /// # Errors
    /// The container does not run yet, or does not exist.
    pub async fn logs_of(
        &self,
        namespace: &str,
        pod: &str,
        container: Option<&str>,
    ) -> Result<String, ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        let parameters =
            kube::api::LogParams { container: container.map(str::to_owned), ..Default::default() };
        Ok(pods.logs(pod, &parameters).await?)
    }

    /// Runs a command in a container and returns its standard output.
    ///
    /// # Errors
    /// [`ClusterError::Command`] if the command failed.
    pub async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: Option<&str>,
        command: &[&str],
    ) -> Result<String, ClusterError> {
        let mut arguments = vec!["exec", "-n", namespace, pod];
        if let Some(container) = container {
            arguments.extend(["-c", container]);
        }
        arguments.push("--");
        arguments.extend(command);
        self.kubectl(&arguments).await
    }
}
