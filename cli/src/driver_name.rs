//! The name of Tessera's DRA driver in a cluster: the chart's `driverName`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceSlice};
use tessera_api::config::NVIDIA_DRIVER_NAME;
use tessera_api::{DEFAULT_DRIVER_NAME, DeviceName, node_report};
use tessera_cluster::Objects;

/// The plugin's argument, set by the chart.
const ARGUMENT: &str = "--driver-name=";

/// The DeviceClass of partitions in NVIDIA's chart; the one of cards has the driver's name.
const NVIDIA_PARTITIONS: &str = "mig.nvidia.com";

/// Driver name of the slice, if published by Tessera: such slices have a node report.
pub fn of_slice(slice: &ResourceSlice) -> Option<&str> {
    let annotations = slice.metadata.annotations.as_ref()?;
    annotations.contains_key(node_report::ANNOTATION).then_some(slice.spec.driver.as_str())
}

/// Driver name in the arguments of a plugin's pod.
fn of_plugin(pod: &Pod) -> Option<&str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.find_map(|argument| argument.strip_prefix(ARGUMENT))
}

/// Driver name of the running plugins.
pub fn of_plugins(objects: &Objects) -> Option<String> {
    chosen(objects.pods.values().filter_map(|pod| of_plugin(pod)))
}

/// The most frequent of these names; of equally frequent ones the default name, else the first by name.
pub fn chosen<'n>(found: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    found.for_each(|name| *counts.entry(name).or_default() += 1);
    // The last of equal maxima is taken.
    let best = counts.into_iter().rev().max_by_key(|(name, count)| (*count, *name == DEFAULT_DRIVER_NAME));
    best.map(|(name, _)| name.to_owned())
}

/// Driver name by node reports, else by plugins, else by slices whose devices have names in Tessera's form. Without any of these,
/// the default name.
pub fn of_cluster(objects: &Objects) -> String {
    let is_ours = |slice: &&ResourceSlice| {
        let mut devices = slice.spec.devices.iter().flatten();
        devices.any(|device| device.name.parse::<DeviceName>().is_ok())
    };
    let slices = || objects.slices.values();
    chosen(slices().filter_map(of_slice))
        .or_else(|| of_plugins(objects))
        .or_else(|| chosen(slices().filter(is_ours).map(|slice| slice.spec.driver.as_str())))
        .unwrap_or_else(|| DEFAULT_DRIVER_NAME.to_owned())
}

/// As [`of_cluster`]; without slices, NVIDIA's driver name if the claims ask for its DeviceClasses, and for none of Tessera's.
pub fn of_manifests(objects: &Objects) -> String {
    if !objects.slices.is_empty() {
        return of_cluster(objects);
    }
    let templates = objects.templates.values().filter_map(|template| template.spec.as_ref()?.spec.as_ref());
    let specs = objects.claims.values().filter_map(|claim| claim.spec.as_ref()).chain(templates);
    let requests = specs.filter_map(|spec| spec.devices.as_ref()?.requests.as_ref()).flatten();
    let classes: Vec<&str> = requests.flat_map(classes).collect();
    let asks_for = |driver: &str| {
        let of_partitions = if driver == NVIDIA_DRIVER_NAME { NVIDIA_PARTITIONS } else { driver };
        classes.iter().any(|class| {
            *class == of_partitions
                || class.strip_suffix(driver).is_some_and(|kind| kind.is_empty() || kind.ends_with('.'))
        })
    };
    let is_nvidia = asks_for(NVIDIA_DRIVER_NAME) && !asks_for(DEFAULT_DRIVER_NAME);
    if is_nvidia { NVIDIA_DRIVER_NAME } else { DEFAULT_DRIVER_NAME }.to_owned()
}

/// The DeviceClasses of a request and of its alternatives.
fn classes(request: &DeviceRequest) -> Vec<&str> {
    let exactly = request.exactly.iter().map(|exactly| exactly.device_class_name.as_str());
    let alternatives = request.first_available.iter().flatten();
    exactly.chain(alternatives.map(|alternative| alternative.device_class_name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(driver: &str, report: bool, device: &str) -> ResourceSlice {
        let annotations = if report { json!({ node_report::ANNOTATION: "{}" }) } else { json!({}) };
        serde_json::from_value(json!({ "metadata": { "annotations": annotations },
            "spec": { "driver": driver, "nodeName": "n", "devices": [{ "name": device }],
                "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 } } }))
        .unwrap()
    }

    fn of_slices(slices: &[ResourceSlice]) -> String {
        let mut objects = Objects::default();
        for (number, slice) in slices.iter().enumerate() {
            objects.slices.insert(tessera_cluster::Key::cluster(number.to_string()), slice.clone());
        }
        of_cluster(&objects)
    }

    #[test]
    fn the_name_is_that_of_the_installation() {
        let others = slice("other.example.com", false, "card-1");
        assert_eq!(
            of_slices(&[others.clone(), slice("gpu.nvidia.com", true, "gpu-01-00")]),
            "gpu.nvidia.com"
        );
        assert_eq!(of_slices(std::slice::from_ref(&others)), DEFAULT_DRIVER_NAME);
        // Of several, the one on most nodes.
        let twice = [slice("a.example.com", true, "d"), slice(DEFAULT_DRIVER_NAME, true, "d")];
        assert_eq!(of_slices(&twice), DEFAULT_DRIVER_NAME);
        assert_eq!(of_slices(&[&twice[..], &[slice("a.example.com", true, "d")]].concat()), "a.example.com");
        // Slices from files may lack the report.
        assert_eq!(
            of_slices(&[others, slice("b.example.com", false, "gpu-18-00-mig-1g10gb-0")]),
            "b.example.com"
        );
        let pod = json!({ "metadata": {}, "spec": { "containers": [
            { "name": "c", "args": ["--kubelet-directory=/k", "--driver-name=gpu.nvidia.com"] }] } });
        assert_eq!(of_plugin(&serde_json::from_value(pod).unwrap()), Some("gpu.nvidia.com"));
    }

    #[test]
    fn without_slices_the_claims_tell_the_driver() {
        let claim = |request: Value| {
            let claim =
                json!({ "metadata": { "name": "c" }, "spec": { "devices": { "requests": [request] } } });
            std::sync::Arc::new(serde_json::from_value(claim).unwrap())
        };
        let of = |requests: &[Value]| {
            let mut objects = Objects::default();
            for (number, request) in requests.iter().enumerate() {
                objects
                    .claims
                    .insert(tessera_cluster::Key::new("n", number.to_string()), claim(request.clone()));
            }
            of_manifests(&objects)
        };
        let exactly = |class: &str| json!({ "name": "r", "exactly": { "deviceClassName": class } });
        let first =
            json!({ "name": "r", "firstAvailable": [{ "name": "a", "deviceClassName": "gpu.nvidia.com" }] });
        assert_eq!(of(&[]), DEFAULT_DRIVER_NAME);
        assert_eq!(of(&[exactly("mig.nvidia.com")]), NVIDIA_DRIVER_NAME);
        assert_eq!(of(std::slice::from_ref(&first)), NVIDIA_DRIVER_NAME);
        assert_eq!(of(&[first, exactly("mps.gpu.tessera.dev")]), DEFAULT_DRIVER_NAME);
        assert_eq!(of(&[exactly("xgpu.nvidia.com")]), DEFAULT_DRIVER_NAME);
    }
}
