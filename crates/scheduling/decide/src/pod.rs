//! Scheduling state read from a Pod.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::PodExt;
use tessera_placement::Time;

use crate::intent::PodReference;

pub(crate) fn reference(pod: &Pod) -> PodReference {
    PodReference { key: pod.key(), uid: pod.metadata.uid.clone().unwrap_or_default() }
}

/// Whether the pod needs no devices now or within a minute. The deletionTimestamp marks the end of its grace, of any length; if passed by
/// more than a minute, the pod is stuck.
pub(crate) fn ends_soon(pod: &Pod, now: Time) -> bool {
    const SOON: i64 = 60;
    let Some(end) = &pod.metadata.deletion_timestamp else { return pod.has_ended() };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    pod.is_finished() || (end.0.as_second() - now).abs() <= SOON
}

/// Whether the pod asks for devices and has neither gate nor node: kube-scheduler tries it, and finds none of managed cards.
pub(crate) fn is_open(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let asks = spec.resource_claims.iter().flatten().next().is_some();
    asks && pod.gates().next().is_none() && pod.node_name().is_none() && !pod.has_ended()
}
