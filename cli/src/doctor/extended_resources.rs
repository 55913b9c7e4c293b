//! Extended resources taken by kube-scheduler for a device plugin's, though a DeviceClass has the name.

use std::collections::BTreeMap;
use tessera_cluster::PodExt;

use super::{Facts, Finding, error};
use crate::extended_resource;

/// Problems of kube-scheduler's cache of resource names.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let live = facts.live.into_iter().flat_map(|live| &live.unschedulable);
    let live = live.map(|(key, said)| (key, said.as_str()));
    let of_files = facts.objects.pods.iter().filter_map(|(key, pod)| Some((key, pod.scheduler_message()?)));
    let mut forgotten: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for (key, said) in live.chain(of_files) {
        for (resource, class) in extended_resource::forgotten(facts.objects, said) {
            forgotten.entry((resource, class)).or_default().push(key.to_string());
        }
    }
    let finding = |((resource, class), pods): ((String, &str), Vec<String>)| {
        error(
            format!("DeviceClass {class}"),
            format!(
                "kube-scheduler has forgotten that this class serves {resource} and looks for a device plugin for {}",
                pods.join(", ")
            ),
            extended_resource::remedy(class),
        )
    };
    forgotten.into_iter().map(finding).collect()
}
