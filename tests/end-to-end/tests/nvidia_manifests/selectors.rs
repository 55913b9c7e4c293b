//! Evaluates every selector in the manifests by this project's own CEL, on what an emulated machine publishes. On the
//! cluster kube-scheduler does this; here, there are also devices that the cluster does not have, such as shares.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use tessera_api::offer::{Mps, TimeSliceInterval, TimeSlicing};
use tessera_cel::{Device, PublishedAttribute, Selector};
use tessera_inventory::{Pool, PoolOptions};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_nvml::Library;

use crate::machine::EmulatedMachine;

const DRIVER: &str = "gpu.nvidia.com";

/// The devices that a node with all kinds of shares publishes: type, profile, and the form that CEL evaluates.
fn devices(hardware: &str) -> Vec<(String, String, Device)> {
    let emulated = EmulatedMachine::new(hardware);
    let library = Library::open_below(&emulated.root()).unwrap();
    let mut discovery = Discovery::new(emulated.root().join("sys"));
    discovery.read_once(&library);
    let mut options = PoolOptions::new(DRIVER);
    options.offers.others_mut().sharing.mps =
        Some(Mps { partitions: vec!["3g.40gb".to_owned()], ..Mps::default() });
    options.offers.others_mut().sharing.time_slicing =
        Some(TimeSlicing { replicas: 4, interval: TimeSliceInterval::Short });
    let pool = Pool::new(&discovery.machine().unwrap(), &options);
    let seen = |device: k8s_openapi::api::resource::v1::Device| {
        let attributes = device.attributes.unwrap();
        let text =
            |name: &str| attributes.get(name).and_then(|value| value.string.clone()).unwrap_or_default();
        let published = |value: &k8s_openapi::api::resource::v1::DeviceAttribute| match value {
            value if value.int.is_some() => PublishedAttribute::Int(value.int.unwrap()),
            value if value.bool.is_some() => PublishedAttribute::Bool(value.bool.unwrap()),
            value if value.version.is_some() => PublishedAttribute::Version(value.version.clone().unwrap()),
            value => PublishedAttribute::String(value.string.clone().unwrap()),
        };
        let values: BTreeMap<String, PublishedAttribute> =
            attributes.iter().map(|(name, value)| (name.clone(), published(value))).collect();
        let capacity = device.capacity.iter().flatten();
        let capacity: BTreeMap<String, String> =
            capacity.map(|(name, capacity)| (name.clone(), capacity.value.0.clone())).collect();
        let device = Device::new(DRIVER)
            .with_multiple_allocations(device.allow_multiple_allocations == Some(true))
            .with_attributes(&values, false)
            .with_capacity(&capacity)
            .unwrap();
        (text("type"), text("profile"), device)
    };
    pool.devices().map(seen).collect()
}

/// Each selector of the manifests, with the class that it narrows; `None` for a class's own selector.
fn selectors() -> Vec<(Option<String>, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvidia_manifests/manifests");
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap();
            documents.iter().for_each(|document| collect(document, &mut found));
        }
    }
    found
}

fn collect(value: &Value, found: &mut Vec<(Option<String>, String)>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(fields) => {
            let class = fields.get("deviceClassName").and_then(Value::as_str).map(str::to_owned);
            for selector in fields.get("selectors").and_then(Value::as_array).into_iter().flatten() {
                let expression = selector["cel"]["expression"].as_str().unwrap();
                found.push((class.clone(), expression.to_owned()));
            }
            fields.values().for_each(|value| collect(value, found));
        }
        _ => {}
    }
}

#[test]
fn none_fails_and_each_finds_what_it_is_for() {
    let devices = devices("hgx-h100-80gb");
    let selectors = selectors();
    assert!(selectors.len() >= 15, "{selectors:?}");
    for (class, expression) in &selectors {
        let selector = Selector::compile_new(expression, tessera_cel::Environment::default()).unwrap();
        let of_class = devices.iter().filter(|(device_type, ..)| match class.as_deref() {
            Some("gpu.nvidia.com") => device_type == "gpu",
            Some("mig.nvidia.com") => device_type == "mig",
            _ => true,
        });
        let matching: Vec<(&str, &str)> = of_class
            .filter(|(.., device)| {
                selector.matches(device).unwrap_or_else(|error| panic!("{expression}: {error}"))
            })
            .map(|(device_type, profile, _)| (device_type.as_str(), profile.as_str()))
            .collect();
        assert_eq!(matching.is_empty(), expression.contains("Imaginary"), "{expression}");
        if class.is_none() {
            let wanted =
                if expression.contains("'gpu' ") || expression.ends_with("'gpu'") { "gpu" } else { "mig" };
            assert!(
                matching.iter().all(|(device_type, _)| *device_type == wanted),
                "shares are of neither class: {expression}: {matching:?}"
            );
        }
    }
}
