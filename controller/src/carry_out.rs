//! Writes what was decided.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tessera_api::steering::GATE;
use tessera_decide::{Intent, Observation, PodReference};
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::events::{Content, Events, Severity};
use tokio::sync::{Semaphore, mpsc};

use crate::metrics::{Metrics, Outcome, OutcomeLabels};

/// Writes at once. More would only wait in the API server's queues.
const AT_ONCE: usize = 16;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether writing is still allowed: asked before each write.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// Carries intents out.
#[derive(Clone)]
pub struct Writer {
    /// The API server.
    pub client: Client,
    /// Tells pods' owners.
    pub events: Events,
    /// Receives what became of intents.
    pub carried: mpsc::UnboundedSender<Observation>,
    /// Whether this replica leads.
    pub may_write: MayWrite,
    /// Counts.
    pub metrics: Metrics,
    places: Arc<Semaphore>,
}

/// Why an intent was not carried out.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// Another replica leads by now.
    #[error("another replica leads")]
    NotLeading,
    /// No answer within [`PATIENCE`].
    #[error("no answer within {} s", PATIENCE.as_secs())]
    TimedOut,
    /// The API server refused it.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl Writer {
    /// A writer.
    #[must_use]
    pub fn new(
        client: Client,
        events: Events,
        carried: mpsc::UnboundedSender<Observation>,
        may_write: MayWrite,
        metrics: Metrics,
    ) -> Self {
        Writer { client, events, carried, may_write, metrics, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Starts to carry an intent out; what became of it is observed later.
    pub fn start(&self, intent: Intent) {
        if let Intent::Tell { pod, message } = &intent {
            self.tell(pod, Severity::Warning, "NotSteered", message);
            return;
        }
        let writer = self.clone();
        tokio::spawn(async move {
            let Ok(_place) = writer.places.acquire().await else { return };
            let pod = intent.pod().clone();
            let written = writer.write(&intent).await;
            let outcome = match &written {
                Ok(()) if matches!(intent, Intent::Steer { .. }) => Outcome::Steered,
                Ok(()) => Outcome::Released,
                Err(_) => Outcome::Failed,
            };
            writer.metrics.outcomes.get_or_create(&OutcomeLabels { outcome }).inc();
            match &written {
                Err(error) => {
                    let pod = tessera_cluster::display(&pod.key);
                    tracing::warn!(pod, "not steered, to be decided anew: {}", with_causes(error));
                }
                Ok(()) => match &intent {
                    Intent::Steer { node, why, .. } => {
                        let note = format!("proposed node {node} to kube-scheduler: {why}");
                        writer.tell(&pod, Severity::Normal, "Steered", &note);
                    }
                    Intent::Release { why, .. } => {
                        let note = format!("left to kube-scheduler: {why}");
                        writer.tell(&pod, Severity::Normal, "Released", &note);
                    }
                    Intent::Tell { .. } => {}
                },
            }
            // The loop may have ended.
            let _ = writer.carried.send(Observation::Carried { pod, is_done: written.is_ok() });
        });
    }

    async fn write(&self, intent: &Intent) -> Result<(), WriteError> {
        let pod = intent.pod();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.0);
        if let Intent::Steer { node, .. } = intent {
            let patch = json!({
                "metadata": { "uid": pod.uid },
                "status": { "nominatedNodeName": node },
            });
            let nominate = async {
                pods.patch_status(&pod.key.1, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
            };
            if self.once(nominate).await?.is_gone() {
                return Ok(());
            }
        }
        self.once(remove_gate(&pods, &pod.key.1, Some(&pod.uid))).await.map(drop)
    }

    async fn once(
        &self,
        write: impl Future<Output = Result<(), kube::Error>>,
    ) -> Result<Written, WriteError> {
        if !(self.may_write)() {
            return Err(WriteError::NotLeading);
        }
        match tokio::time::timeout(PATIENCE, write).await {
            Err(_) => Err(WriteError::TimedOut),
            Ok(Ok(())) => Ok(Written::Done),
            // A conflict may pass; a pod that needs nothing any more is observed anyway.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(Written::Gone),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    fn tell(&self, pod: &PodReference, severity: Severity, reason: &'static str, note: &str) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.key.0.clone()),
            name: Some(pod.key.1.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        let content = Content { severity, action: "Steering", reason, note, occurrence: None };
        self.events.send(&content, &object);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Done,
    /// The pod is gone.
    Gone,
}

impl Written {
    fn is_gone(self) -> bool {
        self == Written::Gone
    }
}

/// Removes our gate from a pod; one that has no such gate stays as it is.
///
/// # Errors
/// The API server refuses it, or does not answer.
pub async fn remove_gate(pods: &Api<Pod>, name: &str, uid: Option<&str>) -> Result<(), kube::Error> {
    let mut patch = json!({ "spec": { "schedulingGates": [{ "$patch": "delete", "name": GATE }] } });
    if let Some(uid) = uid {
        patch["metadata"] = json!({ "uid": uid });
    }
    pods.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
}
