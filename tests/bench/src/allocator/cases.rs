//! The measured requests.

use serde_json::{Value, json};

const DRIVER: &str = "gpu.example.com";

fn card(index: usize, node: usize) -> Value {
    json!({
        "name": format!("gpu-{index:02}"),
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": format!("GPU-{node:08x}-0000-4000-8000-{index:012x}")},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "architecture": {"string": "Hopper"},
            "index": {"int": index},
            "driverVersion": {"version": "580.95.5"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", index / 2)},
            "numaNode": {"int": index / 4},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    })
}

fn slice(node: usize, name: &str, count: usize, content: Value) -> Value {
    let mut slice = json!({
        "metadata": {"name": format!("node-{node}-{name}")},
        "spec": {
            "driver": DRIVER,
            "nodeName": format!("node-{node}"),
            "pool": {"name": format!("node-{node}"), "generation": 1, "resourceSliceCount": count},
        },
    });
    if let (Some(spec), Some(content)) = (slice["spec"].as_object_mut(), content.as_object()) {
        spec.extend(content.clone());
    }
    slice
}

fn node(index: usize) -> Value {
    json!({"metadata": {"name": format!("node-{index}"), "labels": {"zone": "a"}}})
}

fn classes() -> Value {
    let class = |name: &str, kind: &str| {
        let expression =
            format!("device.driver == \"{DRIVER}\" && device.attributes[\"{DRIVER}\"].type == \"{kind}\"");
        json!({"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
    };
    json!([class("gpu", "gpu"), class("mig", "mig")])
}

fn exactly(name: &str, class: &str, count: usize) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}})
}

fn with_selector(mut request: Value, expression: &str) -> Value {
    request["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    request
}

fn claim(requests: &[Value], constraints: &[Value]) -> Value {
    json!({
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    })
}

fn held(devices: impl IntoIterator<Item = (usize, String)>) -> Value {
    let results: Vec<Value> = devices
        .into_iter()
        .map(|(node, device)| {
            json!({"request": "r", "driver": DRIVER, "pool": format!("node-{node}"), "device": device})
        })
        .collect();
    let claims: Vec<Value> = results
        .into_iter()
        .enumerate()
        .map(|(index, result)| {
            json!({
                "metadata": {"name": format!("held-{index}"), "namespace": "default"},
                "spec": {"devices": {}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            })
        })
        .collect();
    json!(claims)
}

fn request(id: &str, slices: Value, allocated: Value, claims: &[Value]) -> Value {
    json!({
        "id": id, "node": node(0), "slices": slices, "classes": classes(), "allocated": allocated, "claims": claims,
    })
}

fn cards(count: usize) -> Vec<Value> {
    (0..count).map(|index| card(index, 0)).collect()
}

/// A slice of eight cards, with the first four held.
fn half_full() -> (Value, Value) {
    let slices = json!([slice(0, "a", 1, json!({"devices": cards(8)}))]);
    (slices, held((0..4).map(|index| (0, format!("gpu-{index:02}")))))
}

/// Profiles: name, memory slices, possible starts, compute slices.
const PROFILES: [(&str, usize, &[usize], usize); 6] = [
    ("1g.10gb", 1, &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.20gb", 2, &[0, 2, 4, 6], 1),
    ("2g.20gb", 2, &[0, 2, 4], 2),
    ("3g.40gb", 4, &[0, 4], 3),
    ("4g.40gb", 4, &[0], 4),
    ("7g.80gb", 8, &[0], 7),
];

/// The partitions of a card, and 10 more of the smallest with different attributes: 28 devices with the card.
fn partitions(index: usize) -> Vec<Value> {
    let counters = |memory: std::ops::Range<usize>, compute: usize| {
        let mut counters = json!({"compute": {"value": compute.to_string()}});
        for slice in memory {
            counters[format!("memory-slice-{slice}")] = json!({"value": "1"});
        }
        json!([{"counterSet": format!("gpu-{index:02}"), "counters": counters}])
    };
    let mut whole = card(index, 0);
    whole["consumesCounters"] = counters(0..8, 7);
    let mut devices = vec![whole];
    let mut add = |name: String, profile: &str, memory: std::ops::Range<usize>, compute: usize| {
        let mut device = card(index, 0);
        device["name"] = json!(name);
        device["attributes"]["type"] = json!({"string": "mig"});
        device["attributes"]["profile"] = json!({"string": profile});
        device["capacity"] = json!({"memory": {"value": format!("{}Gi", memory.len() * 10)}});
        device["consumesCounters"] = counters(memory, compute);
        devices.push(device);
    };
    for (profile, size, starts, compute) in PROFILES {
        for start in starts {
            let name = format!("gpu-{index:02}-mig-{}-{start}", profile.replace('.', "-"));
            add(name, profile, *start..start + size, compute);
        }
    }
    for start in 0..8 {
        add(format!("gpu-{index:02}-mig-1g-10gb-me-{start}"), "1g.10gb+me", start..start + 1, 1);
    }
    add(format!("gpu-{index:02}-mig-7g-80gb-me-0"), "7g.80gb+me", 0..8, 7);
    devices
}

fn partitioned() -> Value {
    let sets: Vec<Value> = (0..8)
        .map(|index| {
            let mut counters = json!({"compute": {"value": "7"}});
            for slice in 0..8 {
                counters[format!("memory-slice-{slice}")] = json!({"value": "1"});
            }
            json!({"name": format!("gpu-{index:02}"), "counters": counters})
        })
        .collect();
    let mut slices = vec![slice(0, "c", 5, json!({ "sharedCounters": sets }))];
    for pair in 0..4 {
        let devices: Vec<Value> = (pair * 2..pair * 2 + 2).flat_map(partitions).collect();
        slices.push(slice(0, &format!("d{pair}"), 5, json!({ "devices": devices })));
    }
    json!(slices)
}

fn profile(name: &str, profile: &str, count: usize) -> Value {
    with_selector(
        exactly(name, "mig", count),
        &format!("device.attributes[\"{DRIVER}\"].profile == \"{profile}\""),
    )
}

fn shared(count: usize) -> Value {
    let devices: Vec<Value> = cards(count)
        .into_iter()
        .map(|mut device| {
            device["allowMultipleAllocations"] = json!(true);
            device["capacity"]["memory"]["requestPolicy"] =
                json!({"default": "10Gi", "validRange": {"min": "1Gi", "step": "1Gi"}});
            device
        })
        .collect();
    json!([slice(0, "a", 1, json!({ "devices": devices }))])
}

fn fleet() -> Value {
    let nodes = 0..5_000;
    let slices: Vec<Value> = nodes
        .clone()
        .map(|node| {
            let devices: Vec<Value> = (0..8).map(|index| card(index, node)).collect();
            slice(node, "a", 1, json!({ "devices": devices }))
        })
        .collect();
    let taken = nodes.clone().flat_map(|node| (0..4).map(move |index| (node, format!("gpu-{index:02}"))));
    let mut line = request(
        "fleet of 5,000 nodes, half full",
        json!(slices),
        held(taken),
        &[claim(&[exactly("gpu", "gpu", 1)], &[])],
    );
    line["nodes"] = nodes.map(node).collect();
    line
}

/// All cases; the fleet only if not `small`.
pub fn all(small: bool) -> Vec<Value> {
    let (half, half_held) = half_full();
    let none = json!([]);
    let root = json!({"matchAttribute": "resource.kubernetes.io/pcieRoot"});
    let sixteen = |kind: &str, attribute: &str| {
        let devices: Vec<Value> = cards(16)
            .into_iter()
            .enumerate()
            .map(|(index, mut device)| {
                device["attributes"]["group"] = json!({"string": if index % 2 == 0 { "a" } else { "b" }});
                device
            })
            .collect();
        (json!([slice(0, "a", 1, json!({ "devices": devices }))]), json!({kind: attribute}))
    };
    let (match_slices, match_group) = sixteen("matchAttribute", "gpu.example.com/group");
    let (distinct_slices, distinct_group) = sixteen("distinctAttribute", "resource.kubernetes.io/pcieRoot");
    let three = format!(
        "device.driver == \"{DRIVER}\" && device.attributes[\"{DRIVER}\"].architecture == \"Hopper\" && \
         device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"40Gi\")) >= 0"
    );
    let singles: Vec<Value> = (0..9).map(|index| exactly(&format!("r{index}"), "gpu", 1)).collect();
    let mut everything = exactly("all", "gpu", 0);
    everything["exactly"]["allocationMode"] = json!("All");
    let shares: Vec<Value> = (0..8).map(|index| exactly(&format!("r{index}"), "gpu", 8)).collect();
    let nearly_full = held((0..8).map(|index| (0, format!("gpu-{index:02}-mig-4g-40gb-0"))).chain(
        (0..8).filter(|index| index % 2 == 0).map(|index| (0, format!("gpu-{index:02}-mig-1g-20gb-4"))),
    ));
    let four = [
        profile("a", "1g.20gb", 5),
        profile("b", "2g.20gb", 4),
        profile("c", "1g.10gb", 4),
        profile("d", "1g.10gb+me", 3),
    ];
    let mut all = vec![
        request(
            "1 of 8 cards, half full",
            half.clone(),
            half_held.clone(),
            &[claim(&[exactly("gpu", "gpu", 1)], &[])],
        ),
        request(
            "2 of 8 cards at one root, three terms",
            half,
            half_held,
            &[claim(&[with_selector(exactly("gpu", "gpu", 2), &three)], std::slice::from_ref(&root))],
        ),
        request(
            "all of 8 cards",
            json!([slice(0, "a", 1, json!({"devices": cards(8)}))]),
            none.clone(),
            &[claim(&[everything], &[])],
        ),
        request(
            "MIG 3g.40gb, 8 cards",
            partitioned(),
            none.clone(),
            &[claim(&[profile("mig", "3g.40gb", 1)], &[])],
        ),
        request(
            "MIG 2g.20gb, 8 cards, 7 full",
            partitioned(),
            held((0..7).map(|index| (0, format!("gpu-{index:02}")))),
            &[claim(&[profile("mig", "2g.20gb", 1)], &[])],
        ),
        request(
            "one share of 8 shared cards",
            shared(8),
            none.clone(),
            &[claim(&[exactly("gpu", "gpu", 1)], &[])],
        ),
        request(
            "64 shares of 8 shared cards",
            shared(8),
            none.clone(),
            &[claim(&shares[..4], &[]), claim(&shares[4..], &[])],
        ),
        request(
            "claim of 32 devices",
            json!([slice(0, "a", 1, json!({"devices": cards(40)}))]),
            none.clone(),
            &[claim(&[exactly("gpu", "gpu", 32)], &[])],
        ),
        request(
            "matchAttribute over 16, unsatisfiable",
            match_slices,
            none.clone(),
            &[claim(&[exactly("gpu", "gpu", 9)], &[match_group])],
        ),
        request("four profiles, eight nearly full cards", partitioned(), nearly_full, &[claim(&four, &[])]),
        request(
            "distinctAttribute over 16, unsatisfiable",
            distinct_slices,
            none,
            &[claim(&singles, &[distinct_group])],
        ),
    ];
    if !small {
        all.push(fleet());
    }
    all
}
