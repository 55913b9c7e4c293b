use std::{fs, time::Duration};

use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::{Cluster, ClusterError, ClusterRecord, Component};
use crate::{node, progress::Progress, timings::Stopwatch};

/// Timeout for the control plane or a node: four times the time measured on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn wait_for_api(
    record: &ClusterRecord,
    client: &Client,
    watch: &Stopwatch,
) -> Result<(), ClusterError> {
    let end = Instant::now() + LIMIT;
    let mut answered = false;
    loop {
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .map_err(|error| ClusterError::Configuration(error.to_string()))?;
        let last = match client.request_text(request).await {
            Ok(text) if text == "ok" => {
                watch.reached("API ready");
                return Ok(());
            }
            Ok(text) => text,
            Err(kube::Error::Api(status)) => {
                if !answered {
                    watch.reached("API answers");
                    answered = true;
                }
                status.message
            }
            Err(error) => error.to_string(),
        };
        alive(record, &[Component::Etcd, Component::ApiServer]).await?;
        if Instant::now() > end {
            return Err(ClusterError::NotReady { what: "the API server".to_owned(), last });
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The last lines of a log.
pub(crate) fn log_end(record: &ClusterRecord, name: &str) -> String {
    let text = fs::read_to_string(record.log(name)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Fails if one of these has ended, with the log of the first.
async fn alive(record: &ClusterRecord, components: &[Component]) -> Result<(), ClusterError> {
    for process in record.control_plane().processes().await? {
        let wanted = components.iter().any(|component| component.name() == process.name);
        if let (true, Some(exit)) = (wanted, process.exit) {
            let log = log_end(record, &process.name);
            return Err(ClusterError::Died { component: process.name, exit: exit.to_string(), log });
        }
    }
    Ok(())
}

/// Waits for the namespace's service account: pods are refused until then.
pub(super) async fn wait_for_service_account(client: &Client, namespace: &str) -> Result<(), ClusterError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let end = Instant::now() + LIMIT;
    loop {
        match accounts.get_opt("default").await {
            Ok(Some(_)) => return Ok(()),
            other if Instant::now() > end => {
                let last = format!("{:?}", other.map(|found| found.is_some()));
                let what = format!("the service account default of namespace {namespace}");
                return Err(ClusterError::NotReady { what, last });
            }
            _ => sleep(Duration::from_millis(20)).await,
        }
    }
}

impl Cluster {
    /// Waits until the API and all real nodes are ready.
    ///
    /// # Errors
    /// The wait takes longer than a minute, or a component has ended.
    pub async fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let client = self.client().await?;
        let watch = Stopwatch::start(Progress::silent());
        wait_for_api(&self.record, &client, &watch).await?;
        let nodes: Api<NodeObject> = Api::all(client);
        for node in self.nodes() {
            let end = Instant::now() + LIMIT;
            loop {
                let found = nodes.get_opt(node.name()).await;
                let conditions =
                    found.ok().flatten().and_then(|node| node.status).and_then(|status| status.conditions);
                let ready = conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
                if ready.is_some_and(|condition| condition.status == "True") {
                    break;
                }
                node::alive(&self.record, node).await?;
                if Instant::now() > end {
                    let last = ready.and_then(|condition| condition.message.clone());
                    let last = last.unwrap_or_else(|| {
                        format!("see {}", self.record.log(&format!("{}-kubelet", node.name())).display())
                    });
                    return Err(ClusterError::NotReady { what: format!("node {}", node.name()), last });
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}
