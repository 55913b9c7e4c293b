//! Slice fields that an API server may drop, and the slices to publish to such a server instead.
//!
//! A server silently drops the fields of a feature gate that is off. Without such a field a device can mean something else:
//! a partition without its counters could be allocated together with its whole card. Such devices are not published.
//! Devices still right without the field are.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::api::resource::v1::Device;
use tessera_slices::Contents;

/// A feature of `resource.k8s.io/v1` that an API server may have switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// Counter sets, and devices that draw on them.
    PartitionableDevices,
    /// Devices for several claims, and request policies of capacities.
    ConsumableCapacity,
    /// Taints on devices.
    DeviceTaints,
    /// Conditions awaited by a claim before its pod is bound.
    BindingConditions,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::PartitionableDevices, Self::ConsumableCapacity, Self::DeviceTaints, Self::BindingConditions];

    /// The feature gate of kube-apiserver.
    #[must_use]
    pub const fn gate(self) -> &'static str {
        match self {
            Self::PartitionableDevices => "DRAPartitionableDevices",
            Self::ConsumableCapacity => "DRAConsumableCapacity",
            Self::DeviceTaints => "DRADeviceTaints",
            Self::BindingConditions => "DRADeviceBindingConditions",
        }
    }

    /// Describes what this driver publishes while the gate is off.
    #[must_use]
    pub const fn consequence(self) -> &'static str {
        match self {
            Self::PartitionableDevices => {
                "whole cards are published without counters; partitions and shares are not published"
            }
            Self::ConsumableCapacity => "devices for several claims are not published",
            Self::DeviceTaints => "devices with a NoSchedule or NoExecute taint are not published",
            Self::BindingConditions => "devices with binding conditions are not published",
        }
    }

    /// The feature of the field at `path`, such as `spec.devices[3].consumesCounters`.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let names: Vec<&str> = path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect();
        let has = |name: &str| names.contains(&name);
        if has("attributes") {
            // Below this, keys are names that the driver chose, not fields of the API.
            return None;
        }
        if has("sharedCounters") || has("consumesCounters") {
            Some(Self::PartitionableDevices)
        } else if has("allowMultipleAllocations") || has("requestPolicy") {
            Some(Self::ConsumableCapacity)
        } else if has("taints") {
            Some(Self::DeviceTaints)
        } else if has("bindingConditions") || has("bindingFailureConditions") || has("bindsToNode") {
            Some(Self::BindingConditions)
        } else {
            None
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.gate())
    }
}

/// The part of a slice's `contents` fit for a server that drops the fields of `missing` features; `None` if nothing
/// remains.
#[must_use]
pub fn without(missing: &BTreeSet<Feature>, contents: &Contents) -> Option<Contents> {
    match contents {
        Contents::SharedCounters { .. } => {
            (!missing.contains(&Feature::PartitionableDevices)).then(|| contents.clone())
        }
        Contents::Devices { .. } => {
            let devices = contents.devices();
            let kept: Vec<Device> =
                devices.iter().filter_map(|device| device_without(missing, device)).collect();
            if kept == devices {
                return Some(contents.clone());
            }
            (!kept.is_empty()).then(|| Contents::of_devices(&kept))
        }
    }
}

/// Whether `device` would mean something else on a server without the fields of `feature`.
#[must_use]
pub fn is_used_by(feature: Feature, device: &Device) -> bool {
    device_without(&[feature].into(), device).as_ref() != Some(device)
}

/// Whether `device` has a taint that keeps the scheduler's allocator away.
#[must_use]
pub fn is_kept_away(device: &Device) -> bool {
    let blocks = |effect: &str| effect == "NoSchedule" || effect == "NoExecute";
    device.taints.iter().flatten().any(|taint| blocks(&taint.effect))
}

fn device_without(missing: &BTreeSet<Feature>, device: &Device) -> Option<Device> {
    let mut device = device.clone();
    for feature in missing {
        match feature {
            Feature::PartitionableDevices => {
                let draws = device.consumes_counters.take().is_some_and(|consumed| !consumed.is_empty());
                if draws && !is_whole_card(&device) {
                    return None;
                }
            }
            Feature::ConsumableCapacity => {
                if device.allow_multiple_allocations == Some(true) {
                    return None;
                }
                device.allow_multiple_allocations = None;
                for capacity in device.capacity.iter_mut().flat_map(|capacities| capacities.values_mut()) {
                    capacity.request_policy = None;
                }
            }
            Feature::DeviceTaints => {
                if is_kept_away(&device) {
                    return None;
                }
                device.taints = None;
            }
            Feature::BindingConditions => {
                if device.binding_conditions.take().is_some_and(|conditions| !conditions.is_empty()) {
                    return None;
                }
                device.binding_failure_conditions = None;
                device.binds_to_node = None;
            }
        }
    }
    Some(device)
}

fn is_whole_card(device: &Device) -> bool {
    let device_type =
        device.attributes.as_ref().and_then(|attributes| attributes.get(tessera_api::attribute::TYPE));
    device_type.and_then(|value| value.string.as_deref()) == Some(tessera_api::DeviceType::Gpu.as_str())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::ResourceSliceSpec;
    use serde_json::json;

    use super::*;

    fn slices() -> Vec<Contents> {
        let counters = json!([{"name": "gpu-3b-00", "counters": {"memory-slice-0": {"value": "1"}}}]);
        let consumes = json!([{"counterSet": "gpu-3b-00", "counters": {"memory-slice-0": {"value": "1"}}}]);
        let devices = json!([
            {"name": "gpu-3b-00", "attributes": {"type": {"string": "gpu"}}, "consumesCounters": consumes,
             "capacity": {"memory": {"value": "80Gi"}}},
            {"name": "gpu-3b-00-mig-1g10gb-0", "attributes": {"type": {"string": "mig"}}, "consumesCounters": consumes},
            {"name": "gpu-3c-00", "attributes": {"type": {"string": "gpu"}}, "taints": [{"key": "lost", "effect": "NoSchedule"}]}]);
        let shared = json!([{"name": "gpu-3b-00-mps", "attributes": {"type": {"string": "mps"}}, "allowMultipleAllocations": true,
            "consumesCounters": consumes,
            "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}}}]);
        let parse = |value| serde_json::from_value::<Vec<Device>>(value).expect("devices");
        vec![
            Contents::of_shared_counters(&serde_json::from_value::<Vec<_>>(counters).expect("counters")),
            Contents::of_devices(&parse(devices)),
            Contents::of_devices(&parse(shared)),
        ]
    }

    fn without(missing: impl Into<BTreeSet<Feature>>) -> Vec<Contents> {
        let missing = missing.into();
        slices().iter().filter_map(|contents| super::without(&missing, contents)).collect()
    }

    fn names(slices: &[Contents]) -> Vec<String> {
        let mut names = Vec::new();
        for slice in slices {
            let mut spec = ResourceSliceSpec::default();
            slice.put_into(&mut spec);
            names.extend(spec.shared_counters.iter().flatten().map(|set| format!("set {}", set.name)));
            names.extend(spec.devices.iter().flatten().map(|device| device.name.clone()));
        }
        names
    }

    #[test]
    fn nothing_missing_changes_nothing() {
        assert_eq!(without([]), slices());
    }

    #[test]
    fn without_counters_only_whole_cards_remain() {
        let kept = without([Feature::PartitionableDevices]);
        assert_eq!(names(&kept), ["gpu-3b-00", "gpu-3c-00"]);
        assert_eq!(kept[0].devices()[0].consumes_counters, None);
        assert_eq!(kept.len(), 1, "neither the counters nor the emptied slice of shares");
    }

    #[test]
    fn without_other_features_what_cannot_be_said_is_left_out() {
        let kept = |feature| names(&without([feature]));
        assert_eq!(
            kept(Feature::ConsumableCapacity),
            ["set gpu-3b-00", "gpu-3b-00", "gpu-3b-00-mig-1g10gb-0", "gpu-3c-00"]
        );
        assert_eq!(
            kept(Feature::DeviceTaints),
            ["set gpu-3b-00", "gpu-3b-00", "gpu-3b-00-mig-1g10gb-0", "gpu-3b-00-mps"]
        );
    }

    #[test]
    fn paths_belong_to_features() {
        for (path, feature) in [
            ("spec.sharedCounters", Some(Feature::PartitionableDevices)),
            ("spec.devices[3].consumesCounters[0].counters.m", Some(Feature::PartitionableDevices)),
            ("spec.devices[3].allowMultipleAllocations", Some(Feature::ConsumableCapacity)),
            ("spec.devices[3].capacity.memory.requestPolicy", Some(Feature::ConsumableCapacity)),
            ("spec.devices[3].taints", Some(Feature::DeviceTaints)),
            ("spec.devices[3].attributes.taints", None),
            ("spec.devices[3].name", None),
        ] {
            assert_eq!(Feature::of_path(path), feature, "{path}");
        }
    }
}
