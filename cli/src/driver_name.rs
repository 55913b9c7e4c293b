//! The name of Tessera's DRA driver in a cluster: the chart's `driverName`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::{DEFAULT_DRIVER_NAME, node_report};

/// The plugin's argument, set by the chart.
const ARGUMENT: &str = "--driver-name=";

/// Driver name of the slice, if published by Tessera: such slices have a node report.
pub fn of_slice(slice: &ResourceSlice) -> Option<&str> {
    let annotations = slice.metadata.annotations.as_ref()?;
    annotations.contains_key(node_report::ANNOTATION).then_some(slice.spec.driver.as_str())
}

/// Driver name in the arguments of a plugin's pod.
pub fn of_plugin(pod: &Pod) -> Option<&str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.find_map(|argument| argument.strip_prefix(ARGUMENT))
}

/// The driver to use: the usual name if found, or if none was found; else the first.
pub fn chosen<'n>(found: impl Iterator<Item = &'n str>) -> String {
    let found: BTreeSet<&str> = found.collect();
    let usual = found.is_empty() || found.contains(DEFAULT_DRIVER_NAME);
    let name = if usual { Some(DEFAULT_DRIVER_NAME) } else { found.first().copied() };
    name.unwrap_or(DEFAULT_DRIVER_NAME).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_is_that_of_the_installation() {
        let slice = |driver: &str, report: bool| -> ResourceSlice {
            let annotations = if report { json!({ node_report::ANNOTATION: "{}" }) } else { json!({}) };
            serde_json::from_value(
                json!({ "metadata": { "annotations": annotations }, "spec": { "driver": driver,
                "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 } } }),
            )
            .unwrap()
        };
        let slices = [slice("other.example.com", false), slice("gpu.nvidia.com", true)];
        assert_eq!(chosen(slices.iter().filter_map(of_slice)), "gpu.nvidia.com");
        assert_eq!(chosen([].into_iter()), DEFAULT_DRIVER_NAME);
        assert_eq!(chosen(["a.example.com", DEFAULT_DRIVER_NAME].into_iter()), DEFAULT_DRIVER_NAME);
        let pod = json!({ "metadata": {}, "spec": { "containers": [
            { "name": "c", "args": ["--kubelet-directory=/k", "--driver-name=gpu.nvidia.com"] }] } });
        assert_eq!(of_plugin(&serde_json::from_value(pod).unwrap()), Some("gpu.nvidia.com"));
    }
}
