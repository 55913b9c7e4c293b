//! Groups named by pod labels, with too few pods to ever be complete.

use k8s_openapi::api::core::v1::Pod;

use super::error::GangError;
use super::label;
use super::labels::{JOBSET_NAME, LWS_NAME};
use super::workload::{in_namespace, job_of};
use crate::objects::Objects;

/// Whether `min` pods of a group can exist at once, according to the pod's owner: the same object for all pods of a group.
///
/// # Errors
/// The owner makes fewer pods, or makes the others only once the first are ready, while those wait for the others.
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
