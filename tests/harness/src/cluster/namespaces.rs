use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{Cluster, ClusterError, ready::wait_for_service_account};

impl Cluster {
    /// Creates a namespace, and waits until pods can be created there: the API server refuses them before the
    /// controllers have created its service account `default`.
    ///
    /// # Errors
    /// The namespace exists already, or the service account is missing after a minute.
    pub async fn create_namespace(&self, name: &str) -> Result<(), ClusterError> {
        let client = self.client().await?;
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))
            .map_err(|error| ClusterError::Configuration(format!("no namespace: {error}")))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        wait_for_service_account(&client, name).await
    }

    /// Deletes a namespace, and waits until its pods and claims are gone. Nothing can be created there from then on; what else it
    /// has goes some seconds later, since kube-controller-manager lets five pass first (`namespaceDeletionGracePeriod`).
    ///
    /// # Errors
    /// The namespace does not exist, or has pods or claims after five minutes.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), ClusterError> {
        self.kubectl(&["delete", "namespace", name, "--wait=false"]).await?;
        let holders = ["delete", "pods,resourceclaims", "--all", "--namespace", name, "--timeout=300s"];
        self.kubectl(&holders).await.map(drop)
    }
}
