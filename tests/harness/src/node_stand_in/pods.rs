//! The kubelet's work on claims: prepares a pod's claims before the pod runs, and unprepares them
//! after it.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::{NodeStandIn, NodeStandInError, specs};
use crate::kubelet_stand_in::{Claim, Device, Plugin};

/// Interval of looking at the node's pods.
const LOOK: Duration = Duration::from_millis(50);

/// A pod whose claims are prepared.
#[derive(Clone, Debug)]
pub struct PreparedPod {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// The plugin's answer for each claim, by the claim's UID.
    pub devices: BTreeMap<String, Vec<Device>>,
    /// The edits applied by a container runtime to a container with all of these claims: from each CDI spec on
    /// the node with devices of the claims, the edits of these devices, then those for all.
    pub container_edits: Vec<Value>,
}

/// The pods of a node, served until this is dropped.
pub struct PodsOfNode {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    node: String,
    cdi_directory: PathBuf,
    plugin: Plugin,
    client: Client,
    /// Whether a pod ends by itself right after its start.
    ends: fn(&Pod) -> bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the pod's UID.
    prepared: BTreeMap<String, PreparedPod>,
    /// Ended pods, in their state when their claims were prepared.
    ended: Vec<PreparedPod>,
    failures: Vec<String>,
}

impl NodeStandIn {
    /// Serves the node's pods: prepares their claims and sets them to running. Once a pod is deleted or has ended
    /// (`ends`), unprepares the claims not used by another pod of the node. Failures are retried.
    pub fn serve(&self, client: Client, ends: fn(&Pod) -> bool) -> PodsOfNode {
        let (node, plugin) = (self.name().to_owned(), self.plugin().clone());
        let cdi_directory = self.cdi_directory();
        let shared = Shared { node, cdi_directory, plugin, client, ends, known: Mutex::default() };
        let shared = Arc::new(shared);
        let task = tokio::spawn(Arc::clone(&shared).run());
        PodsOfNode { shared, task }
    }
}

impl PodsOfNode {
    /// The pods whose claims are prepared.
    #[must_use]
    pub fn prepared(&self) -> Vec<PreparedPod> {
        self.shared.lock().prepared.values().cloned().collect()
    }

    /// Ended pods, then pods with prepared claims.
    #[must_use]
    pub fn all(&self) -> Vec<PreparedPod> {
        let known = self.shared.lock();
        known.ended.iter().chain(known.prepared.values()).cloned().collect()
    }

    /// All failures so far; most of them succeeded on retry.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        self.shared.lock().failures.clone()
    }
}

impl Drop for PodsOfNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        loop {
            match pods.list(&of_node).await {
                Ok(list) => {
                    let there: Vec<&str> =
                        list.items.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
                    let gone: Vec<String> = {
                        let known = self.lock();
                        let uids = known.prepared.keys();
                        uids.filter(|uid| !there.contains(&uid.as_str())).cloned().collect()
                    };
                    for uid in gone {
                        self.note(self.end(&uid).await);
                    }
                    join_all(list.items.iter().map(|pod| async { self.note(self.look_at(pod).await) })).await;
                }
                Err(error) => self.note(Err(error.to_string())),
            }
            sleep(LOOK).await;
        }
    }

    fn note(&self, result: Result<(), String>) {
        if let Err(failure) = result {
            self.lock().failures.push(failure);
        }
    }

    async fn look_at(&self, pod: &Pod) -> Result<(), String> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let failed = |error: &dyn std::fmt::Display| format!("pod {name}: {error}");
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        if pod.metadata.deletion_timestamp.is_some() {
            self.end(&uid).await?;
            let preconditions = Preconditions { uid: Some(uid), ..Preconditions::default() };
            let now = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
                .grace_period(0);
            return match pods.delete(&name, &now).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                other => other.map(drop).map_err(|error| failed(&error)),
            };
        }
        if has_ended {
            return self.end(&uid).await;
        }
        let is_new = !self.lock().prepared.contains_key(&uid);
        if is_new {
            let claims = self.claims_of(pod, &uid).await.map_err(|error| failed(&error))?;
            let mut devices = BTreeMap::new();
            if !claims.is_empty() {
                let answers = self.plugin.prepare(&claims).await.map_err(|error| failed(&error))?;
                for (claim, answer) in answers {
                    devices.insert(claim, answer.map_err(|error| failed(&error))?);
                }
            }
            let container_edits = self.container_edits(&devices).map_err(|error| failed(&error))?;
            let prepared = PreparedPod { namespace, name: name.clone(), claims, devices, container_edits };
            self.lock().prepared.insert(uid, prepared);
        }
        if is_new || phase != Some("Running") {
            self.runs(&pods, &name, "Running").await.map_err(|error| failed(&error))?;
            if (self.ends)(pod) {
                self.runs(&pods, &name, "Succeeded").await.map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }

    async fn runs(&self, pods: &Api<Pod>, name: &str, phase: &str) -> Result<(), kube::Error> {
        let ready = if phase == "Running" { "True" } else { "False" };
        let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
        Ok(())
    }

    /// The claims of a pod. They must be reserved for the pod: a kubelet does not start the pod otherwise.
    async fn claims_of(&self, pod: &Pod, uid: &str) -> Result<Vec<Claim>, String> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &namespace);
        let status = pod.status.clone().unwrap_or_default();
        let spec = pod.spec.clone().unwrap_or_default();
        let generated =
            status.resource_claim_statuses.into_iter().flatten().filter_map(|one| one.resource_claim_name);
        let named = spec.resource_claims.into_iter().flatten().filter_map(|one| one.resource_claim_name);
        let extended = status.extended_resource_claim_status.map(|one| one.resource_claim_name);
        let mut claims = Vec::new();
        for name in generated.chain(named).chain(extended) {
            let claim = api.get(&name).await.map_err(|error| error.to_string())?;
            let reserved = claim.status.and_then(|status| status.reserved_for).unwrap_or_default();
            if !reserved.iter().any(|consumer| consumer.uid == uid) {
                return Err(format!("claim {name} is not reserved for it"));
            }
            let uid = claim.metadata.uid.unwrap_or_default();
            claims.push(Claim { namespace: namespace.clone(), name, uid });
        }
        Ok(claims)
    }

    /// Unprepares the claims of a pod not used by another pod of the node.
    async fn end(&self, uid: &str) -> Result<(), String> {
        let (name, unused) = {
            let known = self.lock();
            let Some(pod) = known.prepared.get(uid) else { return Ok(()) };
            let others = known.prepared.iter().filter(|(other, _)| *other != uid);
            let used: Vec<&Claim> = others.flat_map(|(_, pod)| &pod.claims).collect();
            let unused: Vec<Claim> =
                pod.claims.iter().filter(|claim| !used.contains(claim)).cloned().collect();
            (pod.name.clone(), unused)
        };
        if !unused.is_empty() {
            let answers =
                self.plugin.unprepare(&unused).await.map_err(|error| format!("pod {name}: {error}"))?;
            for answer in answers.into_values() {
                answer.map_err(|error| format!("pod {name}: {error}"))?;
            }
        }
        let mut known = self.lock();
        let ended = known.prepared.remove(uid);
        known.ended.extend(ended);
        Ok(())
    }

    fn container_edits(
        &self,
        devices: &BTreeMap<String, Vec<Device>>,
    ) -> Result<Vec<Value>, NodeStandInError> {
        let mut found = Vec::new();
        for spec in specs(&self.cdi_directory)? {
            let kind = spec["kind"].as_str().unwrap_or_default();
            let of_spec = spec["devices"].as_array().into_iter().flatten().filter(|device| {
                let id = format!("{kind}={}", device["name"].as_str().unwrap_or_default());
                devices.values().flatten().any(|prepared| prepared.cdi_device_ids.contains(&id))
            });
            let before = found.len();
            found.extend(of_spec.map(|device| device["containerEdits"].clone()));
            if found.len() > before {
                // Not every spec has some for all of its devices.
                found.extend(spec.get("containerEdits").cloned());
            }
        }
        Ok(found)
    }
}
