//! The name of Tessera's DRA driver in a cluster: the chart's `driverName`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::config::NVIDIA_DRIVER_NAME;
use tessera_api::{DEFAULT_DRIVER_NAME, DeviceName, node_report};
use tessera_cluster::{DeviceClaimExt, Objects};

use crate::doctor;
use crate::output::warn;

/// The plugin's argument, set by the chart.
const ARGUMENT: &str = "--driver-name=";

/// The DeviceClass of partitions in NVIDIA's chart; the one of cards has the driver's name.
const NVIDIA_PARTITIONS: &str = "mig.nvidia.com";

/// Driver name in the arguments of a pod of Tessera's plugin. Plugins of other vendors may have the same argument.
fn of_plugin(pod: &Pod) -> Option<&str> {
    if !doctor::is_of(pod, "kubelet-plugin") {
        return None;
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.find_map(|argument| argument.strip_prefix(ARGUMENT))
}

/// Driver name of the running plugins.
pub fn of_plugins(objects: &Objects) -> Option<String> {
    let mut found = Counts::new();
    for name in objects.pods.values().filter_map(|pod| of_plugin(pod)) {
        *found.entry(name.to_owned()).or_default() += 1;
    }
    chosen(&found)
}

/// Names, each with its number of pods or slices.
type Counts = BTreeMap<String, usize>;

/// Driver names of Tessera's slices.
#[derive(Debug, Default)]
pub struct OfSlices {
    /// Of slices with a node report, which only Tessera's have.
    reported: Counts,
    /// Of other slices whose devices have names in Tessera's form.
    by_devices: Counts,
}

impl OfSlices {
    /// Counts the slice.
    pub fn add(&mut self, slice: &ResourceSlice) {
        let annotations = slice.metadata.annotations.as_ref();
        let has_report = annotations.is_some_and(|all| all.contains_key(node_report::ANNOTATION));
        let mut devices = slice.spec.devices.iter().flatten();
        let found = match has_report {
            true => &mut self.reported,
            false if devices.any(|device| device.name.parse::<DeviceName>().is_ok()) => &mut self.by_devices,
            false => return,
        };
        *found.entry(slice.spec.driver.clone()).or_default() += 1;
    }

    /// The name by node reports, else by names of devices. Several names give a warning.
    pub fn chosen(&self) -> Option<String> {
        chosen(&self.reported).or_else(|| chosen(&self.by_devices))
    }
}

/// As [`best`], with a warning on standard error about several names.
fn chosen(found: &Counts) -> Option<String> {
    let best = best(found)?;
    warn(several(found, best).as_slice());
    Some(best.to_owned())
}

/// The default name where found, else the most frequent one; of equally frequent ones the first by name.
fn best(found: &Counts) -> Option<&str> {
    // The last of equal maxima is taken.
    let best = found.iter().rev().max_by_key(|(name, count)| (*name == DEFAULT_DRIVER_NAME, **count));
    best.map(|(name, _)| name.as_str())
}

fn several(found: &Counts, best: &str) -> Option<String> {
    let mut names: Vec<&str> = found.keys().map(String::as_str).collect();
    let last = names.pop().filter(|_| !names.is_empty())?;
    let names = names.join(", ");
    Some(format!("drivers {names} and {last} are installed: answering for {best}; --driver chooses"))
}

/// Driver name by plugins, else by node reports, else by slices whose devices have names in Tessera's form.
fn found(objects: &Objects) -> Option<String> {
    of_plugins(objects).or_else(|| {
        let mut found = OfSlices::default();
        objects.slices.values().for_each(|slice| found.add(slice));
        found.chosen()
    })
}

/// Driver name by plugins, else by node reports, else by slices whose devices have names in Tessera's form. Without any of these,
/// the default name.
pub fn of_cluster(objects: &Objects) -> String {
    found(objects).unwrap_or_else(|| DEFAULT_DRIVER_NAME.to_owned())
}

/// As [`of_cluster`]; with neither plugins nor slices, as [`of_claims`].
pub fn of_fleet(objects: &Objects) -> String {
    match found(objects) {
        Some(name) => name,
        None if objects.slices.is_empty() => of_claims(objects),
        None => DEFAULT_DRIVER_NAME.to_owned(),
    }
}

/// NVIDIA's driver name if the claims ask for its DeviceClasses, and for none of Tessera's; else the default name.
pub fn of_claims(objects: &Objects) -> String {
    let templates = objects.templates.values().filter_map(|template| template.spec.as_ref()?.spec.as_ref());
    let specs = objects.claims.values().filter_map(|claim| claim.spec.as_ref()).chain(templates);
    let devices = specs.filter_map(|spec| spec.devices.as_ref());
    let classes: Vec<&str> = devices.flat_map(DeviceClaimExt::asked).map(|(class, _)| class).collect();
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
        // Of several, the default name, else the one on most nodes.
        let one = slice("a.example.com", true, "d");
        let both = [one.clone(), one.clone(), slice(DEFAULT_DRIVER_NAME, true, "d")];
        assert_eq!(of_slices(&both), DEFAULT_DRIVER_NAME);
        let two = slice("b.example.com", true, "d");
        assert_eq!(of_slices(&[two.clone(), one.clone()]), "a.example.com");
        assert_eq!(of_slices(&[two.clone(), one, two]), "b.example.com");
        // Slices from files may lack the report.
        assert_eq!(
            of_slices(&[others, slice("b.example.com", false, "gpu-18-00-mig-1g10gb-0")]),
            "b.example.com"
        );
    }

    #[test]
    fn several_names_are_worth_a_warning() {
        let counts = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect::<Counts>();
        assert_eq!(several(&counts(&["a"]), "a"), None);
        assert_eq!(
            several(&counts(&["c", "a", "b"]), "b").unwrap(),
            "drivers a, b and c are installed: answering for b; --driver chooses"
        );
    }

    /// Storage plugins, as cert-manager's, have an argument of the same name.
    #[test]
    fn plugins_of_others_do_not_count() {
        let pod = |app: &str, driver: &str| {
            let labels =
                json!({ "app.kubernetes.io/name": app, "app.kubernetes.io/component": "kubelet-plugin" });
            let args = ["--kubelet-directory=/k", &format!("--driver-name={driver}")];
            let pod = json!({ "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "args": args }] } });
            std::sync::Arc::new(serde_json::from_value(pod).unwrap())
        };
        let mut objects = Objects::default();
        for node in ["a", "b"] {
            let key = tessera_cluster::Key::new("cert-manager", node);
            objects.pods.insert(key, pod("cert-manager-csi-driver", "csi.cert-manager.io"));
        }
        assert_eq!(of_plugins(&objects), None);
        objects
            .pods
            .insert(tessera_cluster::Key::new("tessera-system", "a"), pod("tessera", NVIDIA_DRIVER_NAME));
        assert_eq!(of_cluster(&objects), NVIDIA_DRIVER_NAME);
        // Plugins come before reports, as in `doctor`, which reads slices last.
        objects.slices.insert(tessera_cluster::Key::cluster("s"), slice("b.example.com", true, "d"));
        assert_eq!(of_fleet(&objects), NVIDIA_DRIVER_NAME);
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
            assert_eq!(of_fleet(&objects), of_claims(&objects));
            of_claims(&objects)
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
