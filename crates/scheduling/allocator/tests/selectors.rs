//! Selectors that releases of Kubernetes read differently, beside its own allocator of each.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};
use tessera_allocator::selectors::SelectorCache;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_oracle::{Oracle, ours};

/// A claim for one device that this selector matches, and a node with one device.
fn request(selector: &str) -> Value {
    let selector = json!({"cel": {"expression": selector}});
    json!({
        "id": 1,
        "node": {"metadata": {"name": "node-a"}},
        "classes": [{"metadata": {"name": "gpu"}, "spec": {}}],
        "slices": [{"metadata": {"name": "node-a"}, "spec": {
            "driver": "gpu.tessera.dev", "nodeName": "node-a",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "H100"}, "ecc": {"bool": true}}}],
        }}],
        "allocated": [],
        "claims": [{
            "metadata": {"name": "claim", "namespace": "default", "uid": "1"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector],
            }}]}},
        }],
    })
}

#[test]
fn a_release_decides_what_a_selector_means() {
    let attributes = "device.attributes['gpu.tessera.dev']";
    for (selector, since_1_37) in [
        (format!("{attributes}.`model` == 'H100'"), true),
        (format!("{attributes}.model.includes('H100') || {attributes}.model.exists(m, m == 'H100')"), true),
        (format!("dyn({attributes}.ecc)"), true),
        ("'abc'.indexOf('', 7) == 3".to_owned(), true),
        (format!("{attributes}.ecc.orValue(false)"), false),
        ("lists.range(-1).size() == 0".to_owned(), false),
    ] {
        for version in [KubernetesVersion::V1_36_3, KubernetesVersion::V1_37] {
            let request = request(&selector);
            let theirs: Value =
                serde_json::from_str(&Oracle::start(version).ask(&request.to_string())).unwrap();
            let ours = ours::answer(&request, &mut SelectorCache::of(version), None);
            let is_allocated =
                |answer: &Value| answer["allocations"].as_array().is_some_and(|all| all.len() == 1);
            let expected = (version == KubernetesVersion::V1_37) == since_1_37;
            assert_eq!(is_allocated(&theirs), expected, "{version}, {selector}: {theirs}");
            assert_eq!(is_allocated(&ours), expected, "{version}, {selector}: {ours}");
        }
    }
}
