//! What a Pod says of its way to a node.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use tessera_cluster::key;
use tessera_placement::Time;

use crate::intent::PodReference;

/// The scheduler of pods that name none.
pub(super) const DEFAULT_SCHEDULER: &str = "default-scheduler";

pub(super) fn reference(pod: &Pod) -> PodReference {
    PodReference { key: key(&pod.metadata), uid: pod.metadata.uid.clone().unwrap_or_default() }
}

pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub(super) fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

pub(super) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == tessera_api::steering::GATE)
}

/// Whether kube-scheduler tried the pod and found no node.
pub(super) fn is_unschedulable(pod: &Pod) -> bool {
    reason(pod) == Some("Unschedulable")
}

/// Whether kube-scheduler tried the pod, and found no node or could not bind it to the one that it found.
pub(super) fn is_refused(pod: &Pod) -> bool {
    matches!(reason(pod), Some("Unschedulable" | "SchedulerError"))
}

/// Why kube-scheduler says that the pod has no node, in one word.
fn reason(pod: &Pod) -> Option<&str> {
    not_scheduled(pod)?.reason.as_deref()
}

/// The same in words.
pub(super) fn message(pod: &Pod) -> Option<&str> {
    not_scheduled(pod)?.message.as_deref()
}

fn not_scheduled(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_it = |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
    conditions.into_iter().find(is_it)
}

/// The scheduler that the pod is for.
pub(super) fn scheduler_name(pod: &Pod) -> &str {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER)
}

/// What kube-scheduler says of the pod.
pub(super) fn verdict(pod: &Pod) -> Option<String> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
    Some(format!("{}: {}", scheduled.reason.as_deref()?, scheduled.message.as_deref().unwrap_or_default()))
}

/// Whether it needs no devices any more, or will soon need none.
pub(super) fn has_ended(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || matches!(phase(pod), Some("Succeeded" | "Failed"))
}

/// Whether it needs no devices any more, or will need none within a minute: the deletionTimestamp is the end of its grace, however long
/// that is, and one that has passed by more is of a pod that is stuck.
pub(super) fn ends_soon(pod: &Pod, now: Time) -> bool {
    const SOON: i64 = 60;
    let Some(end) = &pod.metadata.deletion_timestamp else { return has_ended(pod) };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    matches!(phase(pod), Some("Succeeded" | "Failed")) || (end.0.as_second() - now).abs() <= SOON
}

/// Whether it has no gate and no node, and asks for devices: kube-scheduler looks at it, and finds none of managed cards.
pub(super) fn is_open(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_held_back = spec.scheduling_gates.iter().flatten().next().is_some();
    let asks = spec.resource_claims.iter().flatten().next().is_some();
    asks && !is_held_back && spec.node_name.is_none() && !has_ended(pod)
}

/// Whether the pod names this claim of its namespace.
pub(super) fn uses(pod: &Pod, claim: &str) -> bool {
    claim_names(pod).any(|name| name == claim)
}

/// The claims that the pod names.
pub(super) fn claim_names(pod: &Pod) -> impl Iterator<Item = &String> {
    let references = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    references.into_iter().filter_map(|reference| reference.resource_claim_name.as_ref())
}
