use serde_json::json;
use tessera_harness::shared;

use crate::run;

/// With what only a running cluster tells: gates, the version, who leads, policies, clocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_cluster_is_told_and_a_mended_one_is_well() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let driver = "doctor.tessera.dev";
    let doctor = ["doctor", "--driver", driver, "-o", "json"];
    let about = async |name: &str| {
        let (_, said, found) = run(&kubeconfig, &doctor).await;
        let found = found.as_array().unwrap_or_else(|| panic!("{said}")).clone();
        let of_it = found.into_iter().filter(|finding| finding["about"] == name);
        of_it.map(|finding| finding["what"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let slice = |slices: i64| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "cli-doctor" },
            "spec": { "driver": driver, "nodeName": "cli-doctor", "devices": [{ "name": "gpu-01-00" }],
                "pool": { "name": "cli-doctor", "generation": 1, "resourceSliceCount": slices } },
        })
    };
    let class = |name: &str| {
        let expression = format!("device.driver == '{driver}' && '{name}' == 'well'");
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "cli-doctor" },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] } })
    };
    let apply = async |objects: &[serde_json::Value]| {
        let texts: Vec<String> = objects.iter().map(ToString::to_string).collect();
        cluster.apply(&texts.join("\n---\n")).await.unwrap();
    };
    apply(&[slice(2), class("ill")]).await;
    assert_eq!(
        about("pool cli-doctor").await,
        ["only 1 of 2 ResourceSlices found: kube-scheduler allocates nothing from this pool"]
    );
    assert_eq!(about("DeviceClass cli-doctor").await, ["no device matches it: pods with this class wait"]);
    let plugin = about("node cli-doctor").await.concat();
    assert!(plugin.starts_with("no kubelet plugin runs there"), "{plugin}");
    // Every gate of this API server is on, and its clock is ours.
    assert_eq!(about("API server").await, [""; 0]);
    assert_eq!(about("clock").await, [""; 0]);
    apply(&[slice(1), class("well")]).await;
    assert_eq!(about("pool cli-doctor").await, [""; 0]);
    assert_eq!(about("DeviceClass cli-doctor").await, [""; 0]);
    cluster.kubectl(&["delete", "resourceslice,deviceclass", "cli-doctor"]).await.unwrap();
}
