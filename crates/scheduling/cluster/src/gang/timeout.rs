//! How long a gang may run in part, as set on its pods or their owner.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_api::gang::{MAX_PARTIAL_TIMEOUT, PARTIAL_TIMEOUT_ANNOTATION};

use super::workload::named_by;
use crate::change::Kind;
use crate::objects::Objects;

/// Seconds for which some pods of the pod's gang may run while the others find no room, by the annotation of the pod, else of a workload
/// object of the pod. `None` without the annotation, or with an invalid value.
pub fn partial_timeout(objects: &Objects, pod: &Pod) -> Option<u32> {
    of(&pod.metadata).or_else(|| {
        named_by(pod).iter().find_map(|(kind, key)| {
            let metadata = match kind {
                Kind::Job => objects.jobs.get(key).map(|job| &job.metadata),
                Kind::JobSet => objects.job_sets.get(key).map(|set| &set.metadata),
                Kind::LeaderWorkerSet => objects.leader_worker_sets.get(key).map(|set| &set.metadata),
                Kind::PodGroup => objects.pod_groups.get(key).map(|group| &group.metadata),
                _ => None,
            };
            metadata.and_then(of)
        })
    })
}

fn of(metadata: &ObjectMeta) -> Option<u32> {
    let seconds = metadata.annotations.as_ref()?.get(PARTIAL_TIMEOUT_ANNOTATION)?.parse().ok()?;
    (1..=MAX_PARTIAL_TIMEOUT).contains(&seconds).then_some(seconds)
}
