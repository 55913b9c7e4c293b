//! Extended resources requested of a device plugin, and the DeviceClasses for them here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tessera_api::DEFAULT_DRIVER_NAME;

use super::sharing::GPU;
use super::{Draft, Known, labels, object_name};

/// The chart's name for time-slices.
const SHARED: &str = "nvidia.com/gpu.shared";

/// The names of partitions begin with this.
const MIG: &str = "nvidia.com/mig-";

/// Label of classes with one device per request; the chart's policy uses the label.
const ONE_PER_REQUEST: &str = "gpu.tessera.dev/one-per-request";

/// Device types of each resource.
#[derive(Debug, Default)]
pub struct Resources {
    types: BTreeMap<String, BTreeSet<&'static str>>,
    /// Resources with one device per request, and resources with several: a resource may be both, on different nodes.
    of_one: BTreeSet<String>,
    of_several: BTreeSet<String>,
    /// Whether partitions have a resource for each profile.
    pub is_mixed: bool,
}

impl Resources {
    /// Pods requesting `resource` may get a device of this type; only one of them, if `gets_one`.
    pub fn add(&mut self, resource: &str, device_type: &'static str, gets_one: bool) {
        let amounts = if gets_one { &mut self.of_one } else { &mut self.of_several };
        amounts.insert(resource.to_owned());
        self.types.entry(resource.to_owned()).or_default().insert(device_type);
    }

    /// Values or DeviceClasses with these names; returns the names served.
    pub fn carry(&self, known: Known<'_>, draft: &mut Draft) -> BTreeMap<String, String> {
        let profiles = if self.is_mixed { profiles(known) } else { BTreeSet::new() };
        if self.is_mixed && profiles.is_empty() {
            draft.note(
                "MIG strategy mixed",
                "no node has partitions and no pod asks for any: list their profiles \
                                              in extendedResourceNames.mig.profiles",
            );
        }
        for resource in self.of_one.intersection(&self.of_several) {
            draft.note(resource, "failRequestsGreaterThanOne is not carried over: on other nodes the same name \
                                  stands for cards, of which a pod may ask for several. It is carried over if \
                                  shares have their own name (renameByDefault)");
        }
        for resource in self.of_one.difference(&self.of_several) {
            for device_type in self.types.get(resource).into_iter().flatten() {
                let kind = if *device_type == "mps" { "mps" } else { "timeSlicing" };
                draft.values.set(&["sharing", kind, "failRequestsGreaterThanOne"], true);
            }
        }
        let is_what_the_chart_makes = self.types.iter().all(|(resource, types)| {
            let only = |wanted: &str| types.len() == 1 && types.contains(wanted);
            (resource == GPU && only("gpu")) || (resource == SHARED && only("timeslice"))
        });
        let mut served = BTreeMap::new();
        if is_what_the_chart_makes {
            draft.values.set(&["extendedResourceNames", "enabled"], true);
            if !profiles.is_empty() {
                draft.values.set(&["extendedResourceNames", "mig", "strategy"], "mixed");
                let list: Vec<String> = profiles.iter().cloned().collect();
                draft.values.set(&["extendedResourceNames", "mig", "profiles"], list);
            }
            served.insert(GPU.to_owned(), DEFAULT_DRIVER_NAME.to_owned());
            served.insert(SHARED.to_owned(), format!("timeslice.{DEFAULT_DRIVER_NAME}"));
            for profile in &profiles {
                let label = profile.replace('+', ".");
                served.insert(format!("{MIG}{label}"), format!("mig-{label}.{DEFAULT_DRIVER_NAME}"));
            }
            return served;
        }
        // Of several classes with one name the newest wins, so one class covers all device types of a name.
        draft.values.set(&["extendedResourceNames", "enabled"], false);
        for (resource, types) in &self.types {
            let quoted: Vec<String> = types.iter().map(|name| format!("{name:?}")).collect();
            let expression = format!(
                "device.driver == {DEFAULT_DRIVER_NAME:?} && device.attributes[{DEFAULT_DRIVER_NAME:?}].?type.orValue(\"\") in [{}]",
                quoted.join(", ")
            );
            served.insert(
                resource.clone(),
                class(draft, resource, &expression, !self.of_several.contains(resource)),
            );
        }
        for profile in &profiles {
            let resource = format!("{MIG}{}", profile.replace('+', "."));
            let expression = format!(
                "device.driver == {DEFAULT_DRIVER_NAME:?} && device.attributes[{DEFAULT_DRIVER_NAME:?}].?type.orValue(\"\") == \"mig\" && \
                 device.attributes[{DEFAULT_DRIVER_NAME:?}].?profile.orValue(\"\") == {profile:?}"
            );
            served.insert(resource.clone(), class(draft, &resource, &expression, false));
        }
        served
    }
}

fn class(draft: &mut Draft, resource: &str, expression: &str, gets_one: bool) -> String {
    let name = object_name(resource);
    let mut metadata = json!({ "name": name });
    if gets_one {
        metadata["labels"] = json!({ ONE_PER_REQUEST: "true" });
    }
    draft.classes.push(json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": metadata,
        "spec": {
            "extendedResourceName": resource,
            "selectors": [{ "cel": { "expression": expression } }],
        },
    }));
    name
}

/// Profiles of existing partitions, and of pods' requests, in NVIDIA's notation.
fn profiles(known: Known<'_>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for labels in labels(known).values() {
        let counted = labels.keys().filter_map(|key| key.strip_prefix(MIG)?.strip_suffix(".count"));
        names.extend(counted.map(str::to_owned));
    }
    for node in known.objects.nodes.values() {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let there = allocatable.into_iter().flatten().filter(|(_, amount)| amount.0 != "0");
        names.extend(there.filter_map(|(resource, _)| Some(resource.strip_prefix(MIG)?.to_owned())));
    }
    for pod in known.objects.pods.values() {
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
            names.extend(
                limits.into_iter().flatten().filter_map(|(name, _)| Some(name.strip_prefix(MIG)?.to_owned())),
            );
        }
    }
    // In NVIDIA's spelling a plus follows the memory, not allowed in resource names.
    names
        .into_iter()
        .filter_map(|name| {
            let name = name.strip_suffix(".shared").unwrap_or(&name);
            let at = name.find("gb")? + 2;
            let (size, rest) = name.split_at(at);
            Some(rest.strip_prefix('.').map_or_else(|| name.to_owned(), |media| format!("{size}+{media}")))
        })
        .collect()
}
