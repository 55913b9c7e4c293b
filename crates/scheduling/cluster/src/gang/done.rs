//! Finished and deleted pods of a gang, according to the status of their Jobs: no pod replaces them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gang::{GROUP_LABEL, MAX_SIZE};

use super::label;
use super::labels::{JOBSET_ATTEMPT, JOBSET_NAME, JOBSET_REPLICATED_JOB};
use super::workload::rank_of;
use crate::key::Key;
use crate::objects::Objects;
use crate::pod::PodExt;
use crate::workloads::Job;

/// Number of pods of the gang that succeeded, or whose index failed for good, and are not among the existing `members`. Counts only
/// Jobs with as many completions as parallelism, where each index is one pod of the gang.
pub fn done_and_gone(objects: &Objects, members: &[&Pod]) -> usize {
    let Some(first) = members.first() else { return 0 };
    let jobs = match label(first, JOBSET_NAME) {
        // A group declared by labels may span only one of the Jobs.
        Some(_) if label(first, GROUP_LABEL).is_some() => Vec::new(),
        Some(name) => of_job_set(objects, first, name),
        None => controller(first)
            .into_iter()
            .filter_map(|(name, uid)| job(objects, first, name, Some(uid)))
            .collect(),
    };
    jobs.into_iter().map(|job| gone_of(job, members)).fold(0, usize::saturating_add)
}

/// Name and uid of the Job owning the pod, if any.
fn controller(pod: &Pod) -> Option<(&str, &str)> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true) && owner.kind == "Job");
    controller.map(|owner| (owner.name.as_str(), owner.uid.as_str()))
}

fn job<'o>(objects: &'o Objects, pod: &Pod, name: &str, uid: Option<&str>) -> Option<&'o Job> {
    let job = objects.jobs.get(&Key::from(&pod.metadata).with_name(name))?;
    uid.is_none_or(|uid| job.metadata.uid.as_deref() == Some(uid)).then_some(job)
}

/// The Jobs of the pod's gang in the same restart attempt.
fn of_job_set<'o>(objects: &'o Objects, pod: &Pod, name: &str) -> Vec<&'o Job> {
    let Some(set) = objects.job_sets.get(&Key::from(&pod.metadata).with_name(name)) else {
        return Vec::new();
    };
    let part = label(pod, JOBSET_REPLICATED_JOB).filter(|_| set.spec.is_ordered());
    let parts = set.spec.replicated_jobs.iter().filter(|job| part.is_none_or(|part| job.name == part));
    let names = parts.flat_map(|part| {
        let replicas = part.replicas.unwrap_or(1).min(MAX_SIZE);
        (0..replicas).map(move |number| format!("{name}-{}-{number}", part.name))
    });
    let attempt = |job: &&Job| {
        let labels = job.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(JOBSET_ATTEMPT)).map(String::as_str) == label(pod, JOBSET_ATTEMPT)
    };
    names.filter_map(|name| job(objects, pod, &name, None)).filter(attempt).collect()
}

fn gone_of(job: &Job, members: &[&Pod]) -> usize {
    if job.spec.completions.is_none() || job.spec.completions != job.spec.parallelism {
        return 0;
    }
    let uid = job.metadata.uid.as_deref();
    let own = members.iter().filter(|pod| controller(pod).map(|(_, uid)| uid) == uid);
    if job.spec.completion_mode.as_deref() != Some("Indexed") {
        let has_succeeded = |pod: &&&Pod| pod.phase() == Some("Succeeded");
        let succeeded = job.status.succeeded.unwrap_or(0) as usize;
        return succeeded.saturating_sub(own.filter(has_succeeded).count());
    }
    let there: BTreeSet<u32> = own.map(|pod| rank_of(pod).pod).collect();
    let ranges: Vec<(u32, u32)> = [&job.status.completed_indexes, &job.status.failed_indexes]
        .into_iter()
        .flatten()
        .flat_map(|text| ranges(text))
        .collect();
    let all: usize =
        ranges.iter().map(|(first, last)| (last - first) as usize + 1).fold(0, usize::saturating_add);
    let here = there.iter().filter(|index| ranges.iter().any(|(first, last)| (first..=last).contains(index)));
    all.saturating_sub(here.count())
}

/// Indexes in the notation of Job status: `1,3-5`. Invalid parts are skipped.
fn ranges(text: &str) -> impl Iterator<Item = (u32, u32)> + '_ {
    text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some((first, last))
    })
}
