//! How many pods of a gang started together, as written on them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gang::{FORMED_ANNOTATION, MAX_SIZE};

use crate::objects::Objects;
use crate::pod::PodExt;
use crate::subject;

/// Number of pods that the pod's gang started with, as written when the pod's gate was removed; 0 for a pod that never started
/// with a gang.
pub fn formed(pod: &Pod) -> usize {
    let annotations = pod.metadata.annotations.as_ref();
    let formed = annotations.and_then(|all| all.get(FORMED_ANNOTATION)?.parse::<u32>().ok());
    formed.map_or(0, |formed| formed.min(MAX_SIZE) as usize)
}

/// Number of pods that a gang of `size` pods started with, or has grown to; 0 before its start. The API server may have refused to
/// remove the gate of a pod counted by the latest number: with an earlier number on other pods, the gang has not grown.
pub fn formed_by<'p>(objects: &Objects, size: usize, pods: impl Iterator<Item = &'p Pod>) -> usize {
    // The gate is removed and the number written in one patch.
    let (gated, started): (Vec<&Pod>, Vec<&Pod>) = pods.partition(|pod| pod.is_gated());
    let mut by_number: BTreeMap<usize, Vec<&Pod>> = BTreeMap::new();
    for pod in started {
        by_number.entry(formed(pod)).or_default().push(pod);
    }
    by_number.remove(&0);
    let largest = by_number.last_key_value().map_or(0, |(number, _)| *number);
    if by_number.len() < 2 || gated.is_empty() {
        return largest;
    }
    let has_started = |number: usize, pods: &[&Pod]| {
        if number + gated.len() <= size {
            return true;
        }
        let Some(start) = pods.iter().filter_map(|pod| subject::allocated_at(objects, pod)).min() else {
            return true;
        };
        // Replacements of lost pods are newer.
        let is_older =
            |pod: &&&Pod| pod.metadata.creation_timestamp.as_ref().is_some_and(|time| time.0 <= start);
        number + gated.iter().filter(is_older).count() <= size
    };
    let latest = by_number.iter().rev().find(|(number, pods)| has_started(**number, pods));
    latest.map_or(largest, |(number, _)| *number)
}
