//! Pods of lower priority in the way: kube-scheduler evicts nobody for devices.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use tessera_api::managed;
use tessera_cluster::subject::Subject;
use tessera_cluster::{ClaimExt, Cluster, Key, Objects, PodExt};

use super::NodeDiagnosis;
use crate::devices::{self, DeviceId};

/// Claims of pods of lower priority on devices wanted by a pod, if allocated by kube-scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LowerPriority {
    /// Priority of the waiting pod.
    pub priority: i32,
    /// The claims, `namespace/name`.
    pub claims: Vec<String>,
}

/// Claims of lower priority in the way of a pod fitting on no node; `None` for a pod whose policy is never to preempt. Holders of
/// managed cards are the controller's affair.
pub fn of(cluster: &Cluster, subject: &Subject, nodes: &[NodeDiagnosis]) -> Option<LowerPriority> {
    let spec = subject.pod.as_ref()?.spec.as_ref()?;
    if spec.preemption_policy.as_deref() == Some("Never") {
        return None;
    }
    let priority = spec.priority.unwrap_or(0);
    let objects = cluster.objects();
    let is_managed = |taint: &k8s_openapi::api::resource::v1::DeviceTaint| taint.key == managed::TAINT_KEY;
    let managed: HashSet<DeviceId> = devices::devices(objects.slices.values())
        .into_iter()
        .filter(|place| place.device.taints.iter().flatten().any(is_managed))
        .map(|place| place.id)
        .collect();
    let verdicts = nodes.iter().flat_map(|node| &node.requests).flat_map(|request| &request.verdicts);
    let native = verdicts.filter(|verdict| !managed.contains(&verdict.id));
    let in_the_way: BTreeSet<&String> =
        native.filter_map(|verdict| verdict.obstacle.as_ref()).flat_map(|obstacle| obstacle.by()).collect();
    let lower =
        in_the_way.into_iter().filter(|claim| highest(objects, claim).is_some_and(|of| of < priority));
    let claims: Vec<String> = lower.cloned().collect();
    (!claims.is_empty()).then_some(LowerPriority { priority, claims })
}

/// Highest priority of the pods using the claim, as far as known.
fn highest(objects: &Objects, claim: &str) -> Option<i32> {
    let (namespace, name) = claim.split_once('/')?;
    let claim = objects.claims.get(&Key::new(namespace, name))?;
    let pods = claim.users().iter().filter_map(|user| objects.pods.get(&Key::new(namespace, &user.name)));
    pods.map(|pod| pod.priority()).max()
}
