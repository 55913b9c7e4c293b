//! Groups that their pods name by labels, and that can never be complete.

use k8s_openapi::api::core::v1::Pod;

use super::error::GangError;
use super::label;
use super::labels::{JOBSET_NAME, LWS_NAME};
use super::workload::{in_namespace, job_of};
use crate::objects::Objects;

/// Whether so many pods of a group may exist at once, as far as the object tells that made the pod. Pods of a group have one such object.
///
/// # Errors
/// It makes fewer, or makes the others only when the first are ready, which wait for them.
pub(super) fn may_be_complete(objects: &Objects, pod: &Pod, min: u32) -> Result<(), GangError> {
    if let Some(name) = label(pod, JOBSET_NAME) {
        let Some(set) = objects.job_sets.get(&in_namespace(pod, name)) else { return Ok(()) };
        let pods = set.spec.replicated_jobs.iter().map(|job| job.pods()).fold(0, u64::saturating_add);
        return enough("JobSet", min, pods);
    }
    if let Some(name) = label(pod, LWS_NAME) {
        let set = objects.leader_worker_sets.get(&in_namespace(pod, name));
        let waits = set.is_some_and(|set| set.spec.is_leader_ready());
        return if waits && min > 1 { Err(GangError::LeaderReady) } else { Ok(()) };
    }
    let Some((_, Some(job))) = job_of(objects, pod) else { return Ok(()) };
    enough("Job", min, job.spec.parallelism.unwrap_or(1).into())
}

fn enough(kind: &'static str, min: u32, pods: u64) -> Result<(), GangError> {
    if pods < u64::from(min) { Err(GangError::TooFewAtOnce { kind, min, pods }) } else { Ok(()) }
}
