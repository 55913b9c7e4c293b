//! What a Pod says of its way to a node.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::PodExt;
use tessera_placement::Time;

use crate::intent::PodReference;

pub(super) fn reference(pod: &Pod) -> PodReference {
    PodReference { key: pod.key(), uid: pod.metadata.uid.clone().unwrap_or_default() }
}

/// Whether it needs no devices any more, or will need none within a minute: the deletionTimestamp is the end of its grace, however long
/// that is, and one that has passed by more is of a pod that is stuck.
pub(super) fn ends_soon(pod: &Pod, now: Time) -> bool {
    const SOON: i64 = 60;
    let Some(end) = &pod.metadata.deletion_timestamp else { return pod.has_ended() };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    pod.is_finished() || (end.0.as_second() - now).abs() <= SOON
}

/// Whether it has no gate and no node, and asks for devices: kube-scheduler looks at it, and finds none of managed cards.
pub(super) fn is_open(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let asks = spec.resource_claims.iter().flatten().next().is_some();
    asks && pod.gates().next().is_none() && pod.node_name().is_none() && !pod.has_ended()
}
