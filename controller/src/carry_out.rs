//! Writes the decisions to the API server.

mod claims;
#[cfg(test)]
mod tests;
mod workloads;
mod write_error;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tessera_api::device_status::EVICTIONS_ANNOTATION;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_api::gpu_pool::IDLE_EVICTED_ANNOTATION;
use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination, REFUSED_NODES_ANNOTATION};
use tessera_api::steering::GATE;
use tessera_api::waiting::{WAITING_ANNOTATION, Waiting};
use tessera_cluster::AllocationExt;
use tessera_decide::{ClaimAllocation, ClaimReference, Intent, Observation, PodReference, Topic};
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::events::{Content, Events, Severity};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::metrics::{Metrics, Outcome, OutcomeLabels};
use write_error::WriteError;

/// Concurrent writes. More would only queue in the API server.
const AT_ONCE: usize = 16;

/// Timeout of a write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of devices named in an Event.
const MOST_NAMES: usize = 16;

/// Whether writing is still allowed, checked before each write.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// Carries intents out.
#[derive(Clone)]
pub struct Writer {
    /// The API server.
    pub client: Client,
    /// Sends Events to pods' owners.
    pub events: Events,
    /// Receives the outcomes of intents.
    pub carried: mpsc::UnboundedSender<Observation>,
    /// Whether this replica is the leader.
    pub may_write: MayWrite,
    /// The metrics.
    pub metrics: Metrics,
    /// Number of requests to restart the watch of claims.
    pub list_claims: watch::Sender<u64>,
    places: Arc<Semaphore>,
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
        list_claims: watch::Sender<u64>,
    ) -> Self {
        Writer {
            client,
            events,
            carried,
            may_write,
            metrics,
            list_claims,
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Starts to carry out an intent. The outcome is observed later.
    pub fn start(&self, intent: Intent) {
        if let Intent::Tell { pod, topic, message } = &intent {
            let reason = match topic {
                Topic::NotSteered => "NotSteered",
                Topic::NotAllocated => "NotAllocated",
                Topic::Overlap => "DevicesOverlap",
                Topic::Idle => "Idle",
            };
            self.tell(pod, Severity::Warning, reason, message);
            return;
        }
        if intent == Intent::ListClaims {
            self.list_claims.send_modify(|asked| *asked += 1);
            return;
        }
        let writer = self.clone();
        tokio::spawn(async move {
            let Ok(_place) = writer.places.acquire().await else { return };
            let observation = match &intent {
                Intent::Fence { .. } | Intent::Clear { .. } => {
                    writer.write_claims(&intent).await;
                    None
                }
                Intent::Allocate { pod, .. } | Intent::Steer { pod, .. } | Intent::Release { pod, .. } => {
                    let mut versions = Vec::new();
                    let written = writer.write(&intent, &mut versions).await;
                    writer.tell_refused(Some(pod), &written);
                    writer.tell_pod_refused(pod, &written);
                    let is_done = writer.report(&intent, written);
                    Some(Observation::Carried { pod: pod.clone(), is_done, versions })
                }
                Intent::Evict { pod, .. } => {
                    let is_done = writer.report(&intent, writer.write(&intent, &mut Vec::new()).await);
                    Some(Observation::Evicted { pod: pod.clone(), is_done })
                }
                Intent::Answer { workload, .. } => {
                    let is_done = writer.report(&intent, writer.answer(&intent).await);
                    Some(Observation::Answered { workload: workload.clone(), is_done })
                }
                Intent::Note { .. } | Intent::Nominate { .. } => {
                    writer.report(&intent, writer.write(&intent, &mut Vec::new()).await);
                    None
                }
                Intent::Tell { .. } | Intent::ListClaims => None,
            };
            if let Some(observation) = observation {
                // The loop may have ended.
                let _ = writer.carried.send(observation);
            }
        });
    }

    /// Starts to write the waiting reason on the pod. The outcome is observed on the pod itself.
    pub fn note_waiting(&self, pod: PodReference, waiting: Waiting) {
        let writer = self.clone();
        tokio::spawn(async move {
            let Ok(_place) = writer.places.acquire().await else { return };
            let pods: Api<Pod> = Api::namespaced(writer.client.clone(), &pod.key.namespace);
            let annotations = json!({ WAITING_ANNOTATION: waiting.encode() });
            let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
            let patch = Patch::Merge(&patch);
            if let Err(error) = writer.once(pods.patch(&pod.key.name, &PatchParams::default(), &patch)).await
            {
                tracing::warn!(pod = %pod.key, "why it waits is not written on the pod: {}", with_causes(&error));
            }
        });
    }

    /// Reports the outcome of an intent. Returns whether the intent was carried out.
    fn report(&self, intent: &Intent, written: Result<(), WriteError>) -> bool {
        let outcome = match (&written, intent) {
            (Err(_), _) => Outcome::Failed,
            (Ok(()), Intent::Steer { .. }) => Outcome::Steered,
            (Ok(()), Intent::Allocate { .. }) => Outcome::Allocated,
            (Ok(()), Intent::Clear { .. }) => Outcome::TakenBack,
            (Ok(()), Intent::Release { .. }) => Outcome::Released,
            (Ok(()), Intent::Evict { .. }) => Outcome::Evicted,
            (Ok(()), _) => return true,
        };
        self.metrics.outcomes.get_or_create(&OutcomeLabels { outcome }).inc();
        if let Err(error) = &written {
            let pod = intent.pod().map(|pod| pod.key.to_string());
            let workload = match intent {
                Intent::Answer { workload, .. } => Some(workload.key.to_string()),
                _ => None,
            };
            tracing::warn!(pod, workload, "not written, to be decided anew: {}", with_causes(error));
            return false;
        }
        match intent {
            Intent::Steer { pod, node, why } => {
                let note = format!("proposed node {node} to kube-scheduler: {why}");
                self.tell(pod, Severity::Normal, "Steered", &note);
            }
            Intent::Allocate { pod, node, claims, why, .. } => {
                let note = format!("allocated {} on {node}: {why}", devices(claims));
                self.tell(pod, Severity::Normal, "Allocated", &note);
            }
            Intent::Clear { pod: Some(pod), why, .. } => {
                let note = format!("took its devices back to allocate others: {why}");
                self.tell(pod, Severity::Normal, "TakenBack", &note);
            }
            Intent::Evict { pod, why } => self.tell(pod, Severity::Warning, "Evicted", why),
            Intent::Release { pod, why } => {
                let note = format!("left to kube-scheduler: {why}");
                self.tell(pod, Severity::Normal, "Released", &note);
            }
            _ => {}
        }
        true
    }

    /// Writes to claims, each independent of failures of the others.
    async fn write_claims(&self, intent: &Intent) {
        let (Intent::Fence { claims, .. } | Intent::Clear { claims, .. }) = intent else { return };
        let mut all = Ok(());
        for claim in claims {
            let written = match intent {
                Intent::Fence { epoch, .. } => {
                    self.once(claims::mark(&self.client, claim, epoch, false)).await
                }
                _ => self.once(claims::clear(&self.client, claim)).await,
            };
            let written = written.map(drop).map_err(|error| error.of_claim(claim));
            if !self.tell_refused(None, &written) {
                let (claims, is_done) = (vec![claim.key.clone()], written.is_ok());
                // The loop may have ended.
                let _ = self.carried.send(Observation::ClaimsWritten { claims, is_done });
            }
            all = all.and(written);
        }
        self.report(intent, all);
    }

    /// Reports a rejected write to a claim to the loop, with the pod due to get the devices. Returns whether there was one.
    fn tell_refused(&self, pod: Option<&PodReference>, written: &Result<(), WriteError>) -> bool {
        let Err(WriteError::ClaimRefused { claim, why }) = written else { return false };
        self.metrics.claims_refused.inc();
        let (claim, pod, why) = (claim.clone(), pod.cloned(), why.clone());
        // The loop may have ended.
        let _ = self.carried.send(Observation::ClaimRefused { claim, pod, why });
        true
    }

    /// Reports a rejected write to a pod to the loop.
    fn tell_pod_refused(&self, pod: &PodReference, written: &Result<(), WriteError>) {
        if let Err(WriteError::PodRefused(why)) = written {
            self.metrics.pods_refused.inc();
            // The loop may have ended.
            let _ = self.carried.send(Observation::PodRefused { pod: pod.clone(), why: why.clone() });
        }
    }

    /// Performs the writes in order. `versions` receives the claims with written allocations.
    async fn write(
        &self,
        intent: &Intent,
        versions: &mut Vec<(tessera_cluster::Key, String)>,
    ) -> Result<(), WriteError> {
        let Some(pod) = intent.pod() else { return Ok(()) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let name = &pod.key.name;
        let mut gang = None;
        let proposed = match intent {
            Intent::Evict { .. } => {
                // A new pod of the same name must not be evicted.
                let preconditions = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
                let delete = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let params = EvictParams { delete_options: Some(delete), ..EvictParams::default() };
                return self.once(pods.evict(name, &params)).await.map(drop);
            }
            Intent::Nominate { nomination, .. } => {
                let annotations =
                    json!({ NOMINATION_ANNOTATION: nomination.as_ref().map(Nomination::encode) });
                let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
                return self
                    .once(pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)))
                    .await
                    .map(drop);
            }
            Intent::Note { nodes, evictions, formed, idle_evicted, .. } => {
                let evictions = Some(evictions).filter(|count| **count > 0).map(ToString::to_string);
                let mut annotations = json!({
                    REFUSED_NODES_ANNOTATION: nodes.encode(),
                    EVICTIONS_ANNOTATION: evictions,
                });
                if let Some(formed) = formed {
                    annotations[FORMED_ANNOTATION] = json!(formed.to_string());
                }
                if let Some(idle_evicted) = idle_evicted {
                    annotations[IDLE_EVICTED_ANNOTATION] = json!(idle_evicted);
                }
                let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
                return self
                    .once(pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)))
                    .await
                    .map(drop);
            }
            Intent::Allocate { claims, epoch, node, lifts_gate, formed, .. } => {
                for ClaimAllocation { claim, allocation } in claims {
                    let marked = self.once(claims::mark(&self.client, claim, epoch, true)).await;
                    let Some(marked) = marked.map_err(|error| error.of_claim(claim))? else {
                        return Err(WriteError::ClaimGone);
                    };
                    let version = marked.metadata.resource_version.unwrap_or_default();
                    let claim = ClaimReference { resource_version: version, ..claim.clone() };
                    let written = self.once(claims::allocate(&self.client, &claim, allocation)).await;
                    let written = written.map_err(|error| error.of_claim(&claim))?;
                    let written = written.ok_or(WriteError::ClaimGone)?;
                    versions.push((claim.key, written.metadata.resource_version.unwrap_or_default()));
                }
                if !lifts_gate {
                    return Ok(());
                }
                gang = *formed;
                Some(node)
            }
            Intent::Steer { node, .. } => Some(node),
            _ => None,
        };
        if let Some(node) = proposed {
            let patch = json!({
                "metadata": { "uid": pod.uid },
                "status": { "nominatedNodeName": node },
            });
            if self
                .once(pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)))
                .await
                .map_err(WriteError::of_pod)?
                .is_none()
            {
                return Ok(());
            }
        }
        let lifted = self.once(remove_gate(&pods, name, Some(&pod.uid), gang)).await;
        lifted.map(drop).map_err(WriteError::of_pod)
    }

    /// Performs one write; `None` if the object is gone.
    async fn once<T>(
        &self,
        write: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Option<T>, WriteError> {
        if !(self.may_write)() {
            return Err(WriteError::NotLeading);
        }
        match tokio::time::timeout(PATIENCE, write).await {
            Err(_) => Err(WriteError::TimedOut),
            Ok(Ok(written)) => Ok(Some(written)),
            // Only 404: a conflict may pass on retry. A pod needing nothing any more is observed anyway.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    fn tell(&self, pod: &PodReference, severity: Severity, reason: &'static str, note: &str) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.key.namespace.clone()),
            name: Some(pod.key.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        let content = Content { severity, action: "Steering", reason, note, occurrence: None };
        self.events.send(&content, &object);
    }
}

/// Names of the devices: `gpu-3b-00, gpu-5e-00`.
fn devices(claims: &[ClaimAllocation]) -> String {
    let results = claims.iter().flat_map(|claim| claim.allocation.results());
    let names: Vec<&str> = results.map(|result| result.device.as_str()).collect();
    if names.len() > MOST_NAMES {
        format!("{} and {} more", names[..MOST_NAMES].join(", "), names.len() - MOST_NAMES)
    } else {
        names.join(", ")
    }
}

/// Removes our gate from a pod, and with it the reason why the pod waited. Writes the number of pods of its gang that start together,
/// if any.
///
/// # Errors
/// The API server rejects the patch, or does not answer.
pub async fn remove_gate(
    pods: &Api<Pod>,
    name: &str,
    uid: Option<&str>,
    formed: Option<usize>,
) -> Result<(), kube::Error> {
    let mut patch = json!({
        "metadata": { "annotations": { WAITING_ANNOTATION: null } },
        "spec": { "schedulingGates": [{ "$patch": "delete", "name": GATE }] },
    });
    if let Some(uid) = uid {
        patch["metadata"]["uid"] = json!(uid);
    }
    if let Some(formed) = formed {
        patch["metadata"]["annotations"][FORMED_ANNOTATION] = json!(formed.to_string());
    }
    pods.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
}
