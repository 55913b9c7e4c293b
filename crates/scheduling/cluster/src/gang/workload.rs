//! Gang membership from the labels set by workload controllers, and from the workload objects.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tessera_api::gang::{MAX_SIZE, OPT_IN_LABEL, OPT_IN_VALUE};

use super::error::GangError;
use super::labels::{
    JOBSET_ATTEMPT, JOBSET_JOB, JOBSET_NAME, JOBSET_REPLICATED_JOB, JOBSET_UID, LWS_NAME, LWS_REPLICA,
    LWS_REVISION, LWS_SIZE, LWS_WORKER,
};
use super::{GangId, Membership, Rank, label, membership};
use crate::change::Kind;
use crate::key::Key;
use crate::objects::Objects;
use crate::workloads::{Job, JobSet};

/// Labels with the index of a pod in its Job, and in its StatefulSet.
const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const SET_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Owner and restart attempt of the pod. For a JobSet or LeaderWorkerSet the owner is the whole set, rather than one of the several
/// Jobs or StatefulSets in between.
pub(super) fn owner_of(pod: &Pod) -> (String, String) {
    if let Some(name) = label(pod, JOBSET_NAME) {
        let uid = label(pod, JOBSET_UID).unwrap_or(name);
        return (uid.to_owned(), label(pod, JOBSET_ATTEMPT).unwrap_or_default().to_owned());
    }
    if let Some(name) = label(pod, LWS_NAME) {
        return (name.to_owned(), String::new());
    }
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    (controller.map(|owner| owner.uid.clone()).unwrap_or_default(), String::new())
}

/// The pod's position among the pods of its owner.
pub(super) fn rank_of(pod: &Pod) -> Rank {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let of = |name: &str| label(pod, name).and_then(|text| text.parse().ok());
    let at_the_end = || name.rsplit('-').next().and_then(|end| end.parse().ok());
    let index = of(JOB_INDEX).or_else(|| of(LWS_WORKER)).or_else(|| of(SET_INDEX)).or_else(at_the_end);
    Rank { job: of(JOBSET_JOB).unwrap_or(0), pod: index.unwrap_or(u32::MAX), name }
}

/// The gang of a pod without group labels, derived from its owner.
pub(super) fn gang_of(objects: &Objects, pod: &Pod) -> Result<Option<Membership>, GangError> {
    let group = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref()?.pod_group_name.as_ref());
    // A PodGroup of the basic policy is no gang: the Job controller makes one for each Job with feature gate WorkloadWithJob.
    if let Some(group) = group
        && let Some(gang) = of_pod_group(objects, pod, group)?
    {
        return Ok(Some(gang));
    }
    if let Some(name) = label(pod, JOBSET_NAME) {
        return of_job_set(objects, pod, name);
    }
    if let Some(name) = label(pod, LWS_NAME) {
        return of_leader_worker_set(objects, pod, name);
    }
    of_job(objects, pod)
}

/// Objects that may declare the pod a gang member and set the gang's size.
pub fn named_by(pod: &Pod) -> Vec<(Kind, Key)> {
    let group = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref()?.pod_group_name.as_deref());
    let owners = pod.metadata.owner_references.iter().flatten();
    let jobs = owners.filter(|owner| owner.controller == Some(true) && owner.kind == "Job");
    let all = [
        (Kind::PodGroup, group),
        (Kind::JobSet, label(pod, JOBSET_NAME)),
        (Kind::LeaderWorkerSet, label(pod, LWS_NAME)),
    ];
    let named = all.into_iter().filter_map(|(kind, name)| Some((kind, name?)));
    let named = named.chain(jobs.map(|job| (Kind::Job, job.name.as_str())));
    named.map(|(kind, name)| (kind, in_namespace(pod, name))).collect()
}

/// The JobSet owning a Job with these metadata, if any. Changes of such a Job concern the whole JobSet.
pub fn job_set_of(job: &ObjectMeta) -> Option<Key> {
    let name = job.labels.as_ref()?.get(JOBSET_NAME)?;
    Some(Key::from(job).with_name(name))
}

/// Whether the pod or its owner asks for a gang.
fn opts_in(pod: &Pod, made_by: Option<&ObjectMeta>) -> bool {
    let labels = made_by.and_then(|metadata| metadata.labels.as_ref());
    let of_owner = labels.and_then(|labels| labels.get(OPT_IN_LABEL)).map(String::as_str);
    label(pod, OPT_IN_LABEL) == Some(OPT_IN_VALUE) || of_owner == Some(OPT_IN_VALUE)
}

pub(super) fn in_namespace(pod: &Pod, name: &str) -> Key {
    Key::from(&pod.metadata).with_name(name)
}

fn named(pod: &Pod, name: String, owner: String, attempt: String) -> GangId {
    GangId { namespace: Key::from(&pod.metadata).namespace, name, owner, attempt }
}

fn size_of(pods: u64) -> Result<u32, GangError> {
    let size = u32::try_from(pods).ok().filter(|size| (1..=MAX_SIZE).contains(size));
    size.ok_or(GangError::Size { pods })
}

/// The Job owning the pod, as named by the owner reference and as found in the cluster.
pub(super) fn job_of<'p, 'o>(
    objects: &'o Objects,
    pod: &'p Pod,
) -> Option<(&'p OwnerReference, Option<&'o Job>)> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true) && owner.kind == "Job")?;
    let job = objects.jobs.get(&in_namespace(pod, &owner.name));
    Some((owner, job.filter(|job| job.metadata.uid.as_ref() == Some(&owner.uid))))
}

/// Checks that the owner of a pod is present or known to be absent, because the owner may make its pods a gang.
fn known<T>(objects: &Objects, kind: Kind, made_by: Option<&T>, name: &str) -> Result<(), GangError> {
    if made_by.is_none() && objects.unlisted.contains(&kind) {
        return Err(GangError::NotListed { kind: kind.name(), name: name.to_owned() });
    }
    Ok(())
}

fn of_job(objects: &Objects, pod: &Pod) -> Result<Option<Membership>, GangError> {
    let Some((owner, job)) = job_of(objects, pod) else { return Ok(None) };
    known(objects, Kind::Job, job, &owner.name)?;
    if !opts_in(pod, job.map(|job| &job.metadata)) {
        return Ok(None);
    }
    let Some(job) = job else { return Err(GangError::NotYet { kind: "Job", name: owner.name.clone() }) };
    let pods = u64::from(job.spec.parallelism.unwrap_or(1));
    if pods < 2 {
        return Ok(None);
    }
    let is_indexed = job.spec.completion_mode.as_deref() == Some("Indexed");
    if !is_indexed || job.spec.completions != job.spec.parallelism {
        return Err(GangError::NotIndexed);
    }
    let gang = named(pod, owner.name.clone(), owner.uid.clone(), String::new());
    membership(pod, gang, size_of(pods)?).map(Some)
}

fn of_job_set(objects: &Objects, pod: &Pod, name: &str) -> Result<Option<Membership>, GangError> {
    let set: Option<&JobSet> = objects.job_sets.get(&in_namespace(pod, name));
    known(objects, Kind::JobSet, set, name)?;
    if !opts_in(pod, set.map(|set| &set.metadata)) {
        return Ok(None);
    }
    let Some(set) = set else { return Err(GangError::NotYet { kind: "JobSet", name: name.to_owned() }) };
    let (owner, attempt) = owner_of(pod);
    let part = label(pod, JOBSET_REPLICATED_JOB).filter(|_| set.spec.is_ordered());
    let jobs = set.spec.replicated_jobs.iter();
    let pods = jobs.filter(|job| part.is_none_or(|part| job.name == part)).map(|job| job.pods());
    let pods = pods.fold(0, u64::saturating_add);
    let name = part.map_or_else(|| name.to_owned(), |part| format!("{name}-{part}"));
    membership(pod, named(pod, name, owner, attempt), size_of(pods)?).map(Some)
}

fn of_leader_worker_set(objects: &Objects, pod: &Pod, name: &str) -> Result<Option<Membership>, GangError> {
    let set = objects.leader_worker_sets.get(&in_namespace(pod, name));
    let Some(replica) = label(pod, LWS_REPLICA) else { return Ok(None) };
    known(objects, Kind::LeaderWorkerSet, set, name)?;
    if !opts_in(pod, set.map(|set| &set.metadata)) {
        return Ok(None);
    }
    let Some(set) = set else {
        return Err(GangError::NotYet { kind: "LeaderWorkerSet", name: name.to_owned() });
    };
    if set.spec.is_leader_ready() {
        return Err(GangError::LeaderReady);
    }
    let annotations = pod.metadata.annotations.as_ref();
    let size = annotations.and_then(|all| all.get(LWS_SIZE)).and_then(|size| size.parse().ok());
    let owner = set.metadata.uid.clone().unwrap_or_default();
    // A rolling update makes a group anew while old pods still run. The two must not share cards and positions.
    let revision = label(pod, LWS_REVISION).unwrap_or_default().to_owned();
    let gang = named(pod, format!("{name}-{replica}"), owner, revision);
    membership(pod, gang, size_of(size.unwrap_or(0))?).map(Some)
}

fn of_pod_group(objects: &Objects, pod: &Pod, name: &str) -> Result<Option<Membership>, GangError> {
    let group = objects.pod_groups.get(&in_namespace(pod, name));
    known(objects, Kind::PodGroup, group, name)?;
    let Some(group) = group else {
        return Err(GangError::NotYet { kind: "PodGroup", name: name.to_owned() });
    };
    let Some(policy) = &group.spec.scheduling_policy.gang else { return Ok(None) };
    let min = size_of(policy.min_count.into())?;
    let owner = group.metadata.uid.clone().unwrap_or_default();
    let gang = named(pod, name.to_owned(), owner, String::new());
    // A PodGroup sets no maximum number of pods.
    let membership = membership(pod, gang, MAX_SIZE)?;
    Ok(Some(Membership { min, ..membership }))
}
