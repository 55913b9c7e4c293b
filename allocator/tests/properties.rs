//! What must hold of every allocation, whatever Kubernetes says.

#[path = "oracle/generator.rs"]
mod generator;
#[path = "oracle/ours.rs"]
mod ours;

use generator::Generator;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::InventoryBuilder;
use tessera_allocator::selectors::SelectorCache;

#[test]
fn the_same_request_has_the_same_answer() {
    let mut generator = Generator::new(71);
    let mut kept = SelectorCache::new();
    for id in 0..400 {
        let request = generator.request(id);
        let first = ours::answer(&request, &mut kept, None);
        assert_eq!(ours::answer(&request, &mut SelectorCache::new(), None), first, "{request}");
        assert_eq!(ours::answer(&request, &mut kept, Some(u64::MAX)), first, "{request}");
        assert_eq!(ours::answer(&request, &mut kept, Some(0)), first, "{request}");
    }
}

#[test]
fn free_devices_at_the_end_change_no_solution() {
    let mut generator = Generator::new(72);
    let mut selectors = SelectorCache::new();
    let mut compared = 0;
    for id in 0..1_500 {
        let mut request = generator.request(id);
        // "All" means the new devices, too; an alternative that they make possible comes first.
        let text = request["claims"].to_string();
        if text.contains("\"All\"") || text.contains("firstAvailable") {
            continue;
        }
        let before = ours::answer(&request, &mut selectors, None);
        if !before["allocations"].is_array() {
            continue;
        }
        let devices: Vec<Value> = (0..4)
            .map(|index| json!({"name": format!("new-{index}"), "attributes": {"model": {"string": "a"}}}))
            .collect();
        let slice = json!({"metadata": {"name": "zzz"}, "spec": {
            "driver": "zzz.example.com", "nodeName": "node-a", "devices": devices,
            "pool": {"name": "zzz", "generation": 1, "resourceSliceCount": 1},
        }});
        // Pools with binding conditions come after all others.
        if request["slices"].to_string().contains("bindingConditions") {
            continue;
        }
        request["slices"].as_array_mut().expect("a list").push(slice);
        let after = ours::answer(&request, &mut selectors, None);
        assert!(after["allocations"].is_array(), "{request}");
        // With more than one device to find, an earlier first device may now lead to a solution.
        let requests: Vec<&Value> = request["claims"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|claim| claim["spec"]["devices"]["requests"].as_array().expect("a list"))
            .collect();
        let is_one = requests.len() == 1 && requests[0]["exactly"]["count"] == json!(1);
        if !is_one {
            continue;
        }
        assert_eq!(ours::comparable(&after), ours::comparable(&before), "{request}");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} cases");
}

#[test]
fn release_restores_the_exact_state() {
    let mut generator = Generator::new(73);
    let mut changed = 0;
    for id in 0..300 {
        let request = generator.request(id);
        let mut builder = InventoryBuilder::new();
        for slice in request["slices"].as_array().expect("a list") {
            let slice: ResourceSlice = serde_json::from_value(slice.clone()).expect("a slice");
            builder.add(&slice).expect("a good slice");
        }
        let inventory = builder.build();
        let claims: Vec<ResourceClaim> =
            serde_json::from_value(request["allocated"].clone()).expect("claims");
        let mut held = Held::new();
        let mut states = vec![held.clone()];
        for claim in &claims {
            held.add(&inventory, claim).expect("good quantities");
            states.push(held.clone());
        }
        for claim in claims.iter().rev() {
            changed += u32::from(states.pop().as_ref() == Some(&held));
            held.remove(&inventory, claim).expect("good quantities");
            assert_eq!(Some(&held), states.last(), "{request}");
        }
        assert_eq!(held, Held::new());
    }
    assert!(changed > 100, "only {changed} changes");
}

#[test]
fn pathological_requests_end_soon() {
    let devices: Vec<Value> = (0..32)
        .map(|index| {
            json!({"name": format!("d{index:02}"), "attributes": {
                "group": {"string": format!("g{}", index % 4)}, "own": {"int": index},
            }})
        })
        .collect();
    let slices = json!([{"metadata": {"name": "s"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "node-a", "devices": devices,
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
    }}]);
    let exactly = |name: &str, count: u32| json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}});
    let singles: Vec<Value> = (0..9).map(|index| exactly(&format!("r{index}"), 1)).collect();
    let same = json!({"matchAttribute": "gpu.example.com/group"});
    let different = json!({"distinctAttribute": "gpu.example.com/group"});
    for (requests, constraints) in [
        (vec![exactly("r", 9)], vec![same.clone()]),
        (singles.clone(), vec![same.clone()]),
        (singles.clone(), vec![different.clone()]),
        (singles, vec![same, different]),
    ] {
        let request = json!({
            "id": 1, "node": {"metadata": {"name": "node-a"}}, "slices": slices, "allocated": [],
            "classes": [{"metadata": {"name": "any"}, "spec": {}}],
            "claims": [{"metadata": {"name": "c"}, "spec": {"devices": {
                "requests": requests, "constraints": constraints,
            }}}],
        });
        let begin = std::time::Instant::now();
        let answer = ours::answer(&request, &mut SelectorCache::new(), None);
        assert_eq!(answer["error"], Value::Null, "{answer}");
        assert_eq!(answer["allocations"], Value::Null, "{answer}");
        assert!(begin.elapsed().as_secs() < 5, "took {:?}", begin.elapsed());
    }
}
