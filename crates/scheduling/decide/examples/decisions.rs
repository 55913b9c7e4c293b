//! Cost of a decision on a large fleet: `decisions NODES` prints one line of JSON. For `cargo xtask bench controller`. With
//! `decisions NODES Managed`, this controller chooses the devices as well.
//!
//! Each node has 8 cards with the 208 devices of an HGX H100, and half of the cards are held. Pods arrive one at a time. Each is
//! sent to its node and bound there, and an older pod ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_arguments,
    reason = "a program for developers"
)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{Decider, Intent, Observation, ViewPass};

const DRIVER: &str = "gpu.tessera.dev";
const CARDS: usize = 8;
const PODS: usize = 3_000;
const VIEWS: usize = 5;

/// Profiles of an H100 80GB: name in devices, profile, memory in GiB, memory slices, and the placements.
const PROFILES: [(&str, &str, u32, usize, &[usize]); 7] = [
    ("1g10gb", "1g.10gb", 10, 1, &[0, 1, 2, 3, 4, 5, 6]),
    ("1g10gb-me", "1g.10gb+me", 10, 1, &[0, 1, 2, 3, 4, 5, 6]),
    ("1g20gb", "1g.20gb", 20, 2, &[0, 2, 4, 6]),
    ("2g20gb", "2g.20gb", 20, 2, &[0, 2, 4]),
    ("3g40gb", "3g.40gb", 40, 4, &[0, 4]),
    ("4g40gb", "4g.40gb", 40, 4, &[0]),
    ("7g80gb", "7g.80gb", 80, 8, &[0]),
];

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn card(number: usize) -> String {
    format!("gpu-{:02x}-00", number + 1)
}

fn device(
    node: usize,
    number: usize,
    suffix: &str,
    kind: &str,
    profile: Option<&str>,
    memory: u32,
    slices: &[usize],
    taints: &Value,
) -> Value {
    let counters: serde_json::Map<String, Value> =
        slices.iter().map(|slice| (format!("memory-slice-{slice}"), json!({ "value": "1" }))).collect();
    let mut attributes = json!({
        "type": { "string": kind },
        "uuid": { "string": format!("GPU-{node:08x}-0000-4000-8000-{number:012x}") },
        "productName": { "string": "NVIDIA H100 80GB HBM3" },
        "brand": { "string": "Nvidia" },
        "architecture": { "string": "Hopper" },
        "driverVersion": { "version": "580.95.5" },
        "cudaDriverVersion": { "version": "13.0.0" },
        "cudaComputeCapability": { "version": "9.0.0" },
        "gpuPool": { "string": "main" },
        "memoryMiB": { "int": memory * 1024 },
        "resource.kubernetes.io/pciBusID": { "string": format!("0000:{:02x}:00.0", number + 1) },
        "resource.kubernetes.io/pcieRoot": { "string": format!("pci0000:{:02x}", number / 2) },
        "resource.kubernetes.io/numaNode": { "int": number / 4 },
    });
    if let Some(profile) = profile {
        attributes["profile"] = json!({ "string": profile });
    }
    json!({
        "name": format!("{}{suffix}", card(number)),
        "taints": taints,
        "attributes": attributes,
        "capacity": { "memory": { "value": format!("{memory}Gi") } },
        "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
    })
}

fn slices(node: usize, allocation: &str) -> Vec<Value> {
    let taints = match allocation {
        "Managed" => json!([{ "key": tessera_api::managed::TAINT_KEY, "effect": "NoSchedule" }]),
        _ => json!([]),
    };
    let name = format!("node-{node:04}");
    let all: Vec<usize> = (0..8).collect();
    let mut contents: Vec<(String, Value)> = Vec::new();
    let sets: Vec<Value> = (0..CARDS)
        .map(|number| {
            let counters: serde_json::Map<String, Value> =
                all.iter().map(|slice| (format!("memory-slice-{slice}"), json!({ "value": "1" }))).collect();
            json!({ "name": format!("{}-counter-set", card(number)), "counters": counters })
        })
        .collect();
    contents.push(("0-counters".to_owned(), json!({ "sharedCounters": sets })));
    for number in 0..CARDS {
        let mut devices = Vec::new();
        for (spelled, profile, memory, size, placements) in PROFILES {
            for start in placements {
                let taken: Vec<usize> = (*start..(start + size).min(8)).collect();
                let suffix = format!("-mig-{spelled}-{start}");
                devices.push(device(node, number, &suffix, "mig", Some(profile), memory, &taken, &taints));
            }
        }
        contents.push((format!("2-partitions-{number}"), json!({ "devices": devices })));
    }
    let cards: Vec<Value> =
        (0..CARDS).map(|number| device(node, number, "", "gpu", None, 80, &all, &taints)).collect();
    contents.push(("1-cards".to_owned(), json!({ "devices": cards })));
    let in_pool = json!({ "pool": "main", "allocation": allocation });
    let reported: serde_json::Map<String, Value> =
        (0..CARDS).map(|number| (format!("0000:{:02x}:00.0", number + 1), in_pool.clone())).collect();
    let report = json!({ "cards": reported, "otherPairs": "SYS" }).to_string();
    let count = contents.len();
    contents
        .into_iter()
        .map(|(suffix, content)| {
            let mut spec = json!({ "driver": DRIVER, "nodeName": name,
                "pool": { "name": format!("{DRIVER}/{name}"), "generation": 1, "resourceSliceCount": count } });
            spec.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
            let annotations = if suffix == "0-counters" {
                json!({ "gpu.tessera.dev/node-report": report })
            } else {
                json!({})
            };
            json!({ "metadata": { "name": format!("{name}-{suffix}"), "annotations": annotations }, "spec": spec })
        })
        .collect()
}

/// Pod kinds: class, number of devices, selector, and percentage.
const KINDS: [(&str, usize, Option<&str>, usize); 5] = [
    ("gpu", 1, None, 60),
    ("gpu", 2, None, 15),
    ("gpu", 4, None, 10),
    ("gpu", 8, None, 3),
    ("mig", 1, Some("1g.10gb"), 12),
];

fn claim(name: &str, kind: usize) -> Value {
    let (class, count, profile, _) = KINDS[kind];
    let selectors = profile.map(|profile| {
        json!([{ "cel": { "expression": format!("device.attributes['{DRIVER}'].profile == '{profile}'") } }])
    });
    json!({
        "metadata": { "name": format!("{name}-c"), "namespace": "n", "uid": format!("{name}-c"), "resourceVersion": "1",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": {
            "deviceClassName": class, "allocationMode": "ExactCount", "count": count, "selectors": selectors } }] } },
    })
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let gates = if node.is_some() { json!([]) } else { json!([{ "name": "gpu.tessera.dev/steering" }]) };
    json!({
        "metadata": { "name": name, "namespace": "n", "uid": name },
        "spec": { "schedulingGates": gates, "nodeName": node,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }],
            "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] },
        "status": { "phase": "Pending",
            "resourceClaimStatuses": [{ "name": "c", "resourceClaimName": format!("{name}-c") }] },
    })
}

fn allocated(name: &str, kind: usize, node: &str, devices: &[String]) -> Value {
    let mut claim = claim(name, kind);
    let results: Vec<Value> = devices
        .iter()
        .map(|device| json!({ "request": "r", "driver": DRIVER, "pool": format!("{DRIVER}/{node}"), "device": device }))
        .collect();
    claim["status"] = json!({ "allocation": { "devices": { "results": results } } });
    claim
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
}

struct Fed {
    decider: Decider,
    now: Duration,
}

impl Fed {
    fn apply(&mut self, object: impl Into<Object>) {
        self.decider.observe(self.now, Observation::Applied(Box::new(object.into()))).expect("a good object");
    }

    fn apply_pod(&mut self, value: Value) {
        self.apply(read::<k8s_openapi::api::core::v1::Pod>(value));
    }

    fn apply_claim(&mut self, value: Value) {
        self.apply(read::<k8s_openapi::api::resource::v1::ResourceClaim>(value));
    }

    fn delete(&mut self, kind: Kind, name: String) {
        self.decider
            .observe(self.now, Observation::Deleted(kind, Key::new("n", name)))
            .expect("nothing to refuse");
    }
}

fn main() {
    let nodes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let allocation = std::env::args().nth(2).unwrap_or_else(|| "Steered".to_owned());
    let before = resident_mib();
    let mut shares = 0u64;
    let share_id = move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    };
    let mut fed = Fed { decider: Decider::new(DRIVER, share_id), now: Duration::ZERO };
    for kind in ["gpu", "mig"] {
        let expression =
            format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'");
        let class = json!({ "metadata": { "name": kind }, "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
        fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(class));
    }
    let begun = Instant::now();
    for node in 0..nodes {
        let object = json!({ "metadata": { "name": format!("node-{node:04}") },
            "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
        fed.apply(read::<k8s_openapi::api::core::v1::Node>(object));
        for slice in slices(node, &allocation) {
            fed.apply(read::<k8s_openapi::api::resource::v1::ResourceSlice>(slice));
        }
    }
    let fed_in = begun.elapsed();
    let without_pods = resident_mib();

    let mut random = fastrand::Rng::with_seed(1);
    let mut live: Vec<String> = Vec::new();
    for node in 0..nodes {
        let mut cards: Vec<usize> = (0..CARDS).collect();
        random.shuffle(&mut cards);
        // Half of the cards on average.
        for number in &cards[..random.usize(0..=CARDS)] {
            let (name, node) = (format!("old-{node}-{number}"), format!("node-{node:04}"));
            fed.apply_claim(allocated(&name, 0, &node, &[card(*number)]));
            fed.apply_pod(pod(&name, Some(&node)));
            live.push(name);
        }
    }
    let with_pods = resident_mib();

    fed.decider.lead(fed.now, "epoch");
    fed.decider.decide(fed.now);
    fed.now += Duration::from_secs(100);
    let asked_at = fed.now;
    fed.decider.observe(fed.now, Observation::ClaimsListed { asked_at }).expect("no object");
    fed.decider.decide(fed.now);

    // By kind: the first decision, which looks at every node.
    let mut firsts = [None; KINDS.len()];
    let mut times = Vec::with_capacity(PODS);
    let mut waits = 0;
    for number in 0..PODS {
        fed.now += Duration::from_millis(100);
        let mut place = random.usize(0..100);
        let kind = KINDS.iter().position(|(.., share)| {
            let hit = place < *share;
            place = place.saturating_sub(*share);
            hit
        });
        let (name, kind) = (format!("new-{number}"), kind.unwrap_or(0));
        fed.apply_claim(claim(&name, kind));
        fed.apply_pod(pod(&name, None));
        let begun = Instant::now();
        let intents = fed.decider.decide(fed.now);
        times.push(begun.elapsed());
        firsts[kind].get_or_insert(begun.elapsed());
        let node = intents.iter().find_map(|intent| match intent {
            Intent::Steer { pod, node, .. } if pod.key.name == name => Some((node.clone(), None)),
            Intent::Allocate { pod, node, claims, .. } if pod.key.name == name => {
                Some((node.clone(), Some((pod.clone(), claims.first()?.allocation.clone()))))
            }
            _ => None,
        });
        match node {
            Some((node, Some((by, allocation)))) => {
                let versions = vec![(Key::new("n", format!("{name}-c")), "2".to_owned())];
                fed.decider
                    .observe(fed.now, Observation::Carried { pod: by, is_done: true, versions })
                    .expect("no object");
                let mut claim = claim(&name, kind);
                claim["metadata"]["resourceVersion"] = json!("2");
                claim["status"] = json!({ "allocation": allocation });
                fed.apply_claim(claim);
                fed.apply_pod(pod(&name, Some(&node)));
                live.push(name);
            }
            Some((node, None)) => {
                // Bind with any free devices of the kind. The choice matters little here.
                let cluster = fed.decider.cluster();
                let claim = Key::new("n", format!("{name}-c"));
                let free = fed.decider.cluster().inventory().devices_of_node(&node).filter(|device| {
                    let is_kind = if kind == 4 {
                        device.name().contains("1g10gb-") && !device.name().contains("me")
                    } else {
                        !device.name().contains("mig")
                    };
                    is_kind && cluster.holders(*device).any(|holder| holder.claim() == Some(&claim))
                });
                let devices: Vec<String> = free.map(|device| device.name().to_owned()).collect();
                fed.apply_claim(allocated(&name, kind, &node, &devices));
                fed.apply_pod(pod(&name, Some(&node)));
                live.push(name);
            }
            None => {
                waits += 1;
                fed.delete(Kind::Pod, name.clone());
                fed.delete(Kind::ResourceClaim, format!("{name}-c"));
            }
        }
        let old = live.swap_remove(random.usize(0..live.len()));
        fed.delete(Kind::Pod, old.clone());
        fed.delete(Kind::ResourceClaim, format!("{old}-c"));
    }
    // Views are built as often as somebody opens the fleet page. The loop may decide between two nodes, not within a step.
    let mut views: Vec<Duration> = Vec::new();
    let mut view_steps: Vec<Duration> = Vec::new();
    let mut view = None;
    for _ in 0..VIEWS {
        let begun = Instant::now();
        let mut pass = ViewPass::default();
        let mut before = Duration::ZERO;
        let mut step = |now: Duration| {
            view_steps.push(now - before);
            before = now;
        };
        while fed.decider.view_next(&mut pass) {
            step(begun.elapsed());
        }
        let snapshot = fed.decider.view(pass, fed.now);
        step(begun.elapsed());
        views.push(begun.elapsed());
        view = Some(snapshot.into_view());
    }
    views.sort_unstable();
    view_steps.sort_unstable();
    let begun = Instant::now();
    let view_bytes = serde_json::to_string(&view).expect("a view").len();
    let view_json = begun.elapsed();
    drop(view);
    times.sort_unstable();
    let of = |times: &[Duration], share: f64| {
        times[((times.len() as f64 * share) as usize).min(times.len() - 1)].as_secs_f64() * 1e3
    };
    let at = |share: f64| of(&times, share);
    let step_at = |share: f64| of(&view_steps, share);
    let report = json!({
        "nodes": nodes, "devices": fed.decider.cluster().inventory().device_count(), "pods": PODS, "waited": waits,
        "first_ms": firsts.map(|first: Option<Duration>| first.map(|first| first.as_secs_f64() * 1e3)),
        "decide_p50_ms": at(0.5), "decide_p99_ms": at(0.99), "decide_max_ms": at(1.0),
        "view_ms": views[VIEWS / 2].as_secs_f64() * 1e3, "view_json_ms": view_json.as_secs_f64() * 1e3,
        "view_step_p50_ms": step_at(0.5), "view_step_p99_ms": step_at(0.99), "view_step_max_ms": step_at(1.0),
        "view_mib": view_bytes as f64 / f64::from(1 << 20),
        "observe_fleet_s": fed_in.as_secs_f64(),
        "resident_mib_before": before, "resident_mib_of_fleet": without_pods, "resident_mib_with_pods": with_pods,
        "resident_mib_at_end": resident_mib(),
        "inventory_mib": fed.decider.cluster().inventory().footprint().bytes as f64 / f64::from(1 << 20),
    });
    println!("{report}");
}
