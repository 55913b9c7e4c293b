use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};
use tessera_api::{managed, node_report};
use tessera_cluster::Cluster;

use super::Fleet;
use crate::time::Time;

const DRIVER: &str = "gpu.tessera.dev";

/// A slice of node `a` with these devices, tainted as managed or not. A report of two managed cards comes with our slices.
fn slice(name: &str, driver: &str, devices: &[&str], is_tainted: bool) -> ResourceSlice {
    let card = json!({ "pool": "main", "allocation": "Managed" });
    let report = json!({ "cards": { "0000:01:00.0": card, "0000:02:00.0": card }, "otherPairs": "SYS" });
    let annotations = match driver {
        DRIVER => json!({ node_report::ANNOTATION: report.to_string() }),
        _ => json!({}),
    };
    let taints = match is_tainted {
        true => json!([{ "key": managed::TAINT_KEY, "effect": "NoSchedule" }]),
        false => json!([]),
    };
    let device = |name: &&str| json!({ "name": name, "taints": taints });
    let devices: Vec<Value> = devices.iter().map(device).collect();
    serde_json::from_value(json!({ "metadata": { "name": name, "annotations": annotations }, "spec": {
        "driver": driver, "nodeName": "a", "devices": devices,
        "pool": { "name": format!("a-{name}"), "generation": 1, "resourceSliceCount": 1 } } }))
    .unwrap()
}

fn hides_everything(slices: &[ResourceSlice]) -> bool {
    let (mut cluster, mut fleet) = (Cluster::default(), Fleet::default());
    for slice in slices {
        cluster.apply(slice.clone()).unwrap();
        fleet.apply_slice(Time::ZERO, slice, DRIVER).unwrap();
        fleet.mark_devices("a");
        fleet.strict(&cluster, DRIVER);
    }
    fleet.strict(&cluster, DRIVER).hides_everything
}

#[test]
fn one_device_that_kube_scheduler_may_give_out_is_enough_to_ask_it() {
    let hidden = || slice("0", DRIVER, &["gpu-01-00", "gpu-01-00-mig-3g40gb-0"], true);
    assert!(hides_everything(&[hidden()]));
    assert!(hides_everything(&[hidden(), slice("1", DRIVER, &["gpu-02-00"], true)]));
    for (driver, device, is_tainted) in [
        (DRIVER, "gpu-02-00", false),
        (DRIVER, "gpu-03-00", true),
        (DRIVER, "other", true),
        ("nic.example.com", "gpu-01-00", true),
    ] {
        assert!(
            !hides_everything(&[hidden(), slice("1", driver, &[device], is_tainted)]),
            "{driver} {device}"
        );
    }
}
