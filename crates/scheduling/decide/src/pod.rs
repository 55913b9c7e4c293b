//! Scheduling state read from a Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::conversion::CONVERTED;
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

/// The devices in the limits of a converted pod, as its user wrote them: `nvidia.com/gpu: 4`, with the containers where several ask.
pub(crate) fn limits_as_written(pod: &Pod) -> Option<String> {
    let written = pod.metadata.annotations.as_ref()?.get(CONVERTED)?;
    let by_container: BTreeMap<String, String> = serde_json::from_str(written).ok()?;
    if let [only] = by_container.values().collect::<Vec<_>>()[..] {
        return Some(only.clone());
    }
    let all = by_container.iter().map(|(container, limits)| format!("{limits} ({container})"));
    Some(all.collect::<Vec<_>>().join(", ")).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_told_as_they_were_written() {
        for (written, told) in [
            (json!({ CONVERTED: r#"{"train": "nvidia.com/gpu: 4"}"# }), Some("nvidia.com/gpu: 4")),
            (
                json!({ CONVERTED: r#"{"b": "nvidia.com/gpu: 1", "a": "nvidia.com/gpu: 2"}"# }),
                Some("nvidia.com/gpu: 2 (a), nvidia.com/gpu: 1 (b)"),
            ),
            (json!({ CONVERTED: "{}" }), None),
            (json!({ CONVERTED: "somebody's" }), None),
            (json!({}), None),
        ] {
            let pod = serde_json::from_value(json!({ "metadata": { "annotations": written } })).unwrap();
            assert_eq!(limits_as_written(&pod).as_deref(), told, "{written}");
        }
    }
}
