//! What a Pod says of its way to a node.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::key;

use crate::intent::PodReference;

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
pub(super) fn is_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}
