//! Activity of cards and use by claims, as reported by the plugin.

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tessera_api::usage::{ClaimUsage, NodeUsage};
use tessera_harness::kubelet_stand_in::Claim;

use crate::{
    node::{DRIVER, Node},
    plugin::Plugin,
};

/// An instance with this interval of looks, in seconds.
pub fn start(node: &Node, interval: u32) -> Plugin {
    let arguments = [node.arguments(), vec!["--usage-interval".to_owned(), interval.to_string()]].concat();
    Plugin::start(node.directory(), &arguments)
}

fn usage(plugin: &Plugin) -> Option<NodeUsage> {
    let (status, body) = plugin.get(tessera_api::usage::PATH);
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

fn claim_of(usage: &NodeUsage, claim: &Claim) -> Option<ClaimUsage> {
    usage.claims.iter().find(|told| told.uid == claim.uid).cloned()
}

/// Waits for a state of the usage.
async fn until(plugin: &Plugin, what: &str, mut is: impl FnMut(&NodeUsage) -> bool) -> NodeUsage {
    let mut last = None;
    let wait = plugin.until(what, || {
        last = usage(plugin);
        last.as_ref().is_some_and(&mut is)
    });
    wait.await;
    last.unwrap()
}

/// The value of a series, by its name and some of its labels.
fn series(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    };
    let mut found = text.lines().filter(is_it);
    let line = found.next()?;
    assert_eq!(found.next(), None, "several series");
    line.rsplit_once(' ').unwrap().1.parse().ok()
}

/// A pod that is never scheduled: kube-controller-manager removes the reservation of a pod that does not exist.
pub async fn pod(node: &Node) -> (String, String) {
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), "default");
    let name = format!("pod-{:08x}", fastrand::u32(..));
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"schedulingGates": [{"name": "example.com/never"}], "containers": [{"name": "c", "image": "none"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    let pod: Pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    (name, pod.metadata.uid.unwrap())
}

/// A claim of a device, reserved for a pod.
pub async fn claim(node: &Node, device: &str, pod: &(String, String)) -> Claim {
    let claims: Api<ResourceClaim> = Api::namespaced(node.client.clone(), "default");
    let name = format!("claim-{:08x}", fastrand::u32(..));
    let request = json!({"name": "gpus", "exactly": {"deviceClassName": "gpu"}});
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
    let claim = serde_json::from_value(claim).unwrap();
    let mut claim = claims.create(&PostParams::default(), &claim).await.unwrap();
    let mut result = json!({
        "request": "gpus", "driver": DRIVER, "device": device, "pool": format!("{DRIVER}/{}", node.name),
    });
    if device.ends_with("-ts") {
        result["shareID"] = json!(format!("5ba7e000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 47)));
        result["consumedCapacity"] = json!({"slots": "1", "memory": "20000Mi"});
    }
    let pod = json!({"resource": "pods", "name": pod.0, "uid": pod.1});
    let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [pod]});
    claim.status = serde_json::from_value(status).unwrap();
    let claim = claims.replace_status(&name, &PostParams::default(), &claim).await.unwrap();
    Claim { namespace: "default".to_owned(), name, uid: claim.metadata.uid.unwrap() }
}

/// Name of a card as a device.
pub fn device(node: &Node, card: usize) -> String {
    let address = node.machine.cards()[card]["pci"].as_str().unwrap();
    format!("gpu-{}", address.trim_start_matches("0000:").trim_end_matches(".0").replace(':', "-"))
}

fn text<'a>(node: &'a Node, card: usize, fact: &str) -> &'a str {
    node.machine.cards()[card][fact].as_str().unwrap()
}

/// The GPU instance on a card, read from the emulator.
fn gpu_instance(node: &Node, card: usize) -> u64 {
    let state: Value =
        serde_json::from_slice(&std::fs::read(node.machine.root().join("state/state.json")).unwrap())
            .unwrap();
    state["cards"][card]["mig"]["instances"][0]["id"].as_u64().unwrap()
}

#[tokio::test]
async fn programs_move_the_figures_of_their_cards_and_claims() {
    let node = Node::new("usage", "hgx-h100-80gb").await;
    let plugin = start(&node, 1);
    let registered = node.register().await;
    plugin.ready().await;
    let (whole, part_device) = (device(&node, 1), format!("{}-mig-1g10gb-0", device(&node, 2)));
    let (train, serve) = (pod(&node).await, pod(&node).await);
    let on_card = claim(&node, &whole, &train).await;
    let on_part = claim(&node, &part_device, &serve).await;
    let claims = [on_card.clone(), on_part.clone()];
    for answer in registered.prepare(&claims).await.unwrap().values() {
        answer.as_ref().unwrap();
    }
    let idle = until(&plugin, "claims and GPM told", |usage| {
        let told = claim_of(usage, &on_card).zip(claim_of(usage, &on_part));
        told.is_some_and(|(card, part)| {
            card.devices[0].sm_activity.is_some() && part.devices[0].sm_activity.is_some()
        })
    });
    let idle = idle.await;
    let first = &idle.cards[&text(&node, 1, "pci").parse().unwrap()];
    assert_eq!((idle.cards.len(), first.memory_used_mib, first.processes), (8, Some(0), Some(0)));
    assert_eq!((first.uuid.as_str(), first.memory_total_mib), (text(&node, 1, "uuid"), 81_559));

    let instance = gpu_instance(&node, 2);
    node.machine.let_happen("process add --card 1 --pid 4711 --memory-mib 2048 --busy 60");
    node.machine.let_happen(&format!(
        "process add --card 2 --pid 4712 --memory-mib 512 --busy 100 --gpu-instance {instance} --compute-instance 0"
    ));
    // Relative to the wanted value: the first look after the program's start is a mean with the idle time before.
    let near =
        |value: Option<f64>, wanted: f64| value.is_some_and(|value| (value / wanted - 1.0).abs() < 0.005);
    // An H100 has 132 multiprocessors in MIG mode, and 16 of them are the partition's.
    let (card, part) = (0.6, 16.0 / 132.0);
    let busy = until(&plugin, "busy", |usage| {
        let used = |claim: &Claim| claim_of(usage, claim).unwrap().devices[0].sm_activity;
        near(used(&on_card), card) && near(used(&on_part), part)
    });
    let busy = busy.await;
    let told = claim_of(&busy, &on_card).unwrap();
    assert_eq!(
        (told.name.as_str(), told.pods.as_slice()),
        (on_card.name.as_str(), [train.0.clone()].as_slice())
    );
    let used = &told.devices[0];
    assert_eq!(
        (used.device.as_str(), used.memory_used_mib, used.sm_granted),
        (&*whole, Some(2048), Some(1.0))
    );
    assert_eq!(used.memory_granted_mib, 81_559 - 480, "without what the driver keeps");
    let of_part = claim_of(&busy, &on_part).unwrap().devices.remove(0);
    assert_eq!((of_part.device.as_str(), of_part.memory_used_mib), (part_device.as_str(), Some(512)));
    assert!(near(of_part.sm_granted, part) && of_part.memory_granted_mib > 9000, "{of_part:?}");
    let now = &busy.cards[&text(&node, 1, "pci").parse().unwrap()];
    assert!(now.power_watts > first.power_watts && now.temperature_celsius > first.temperature_celsius);
    assert!(near(now.sm_activity, card) && now.processes == Some(1), "{now:?}");

    let (_, metrics) = plugin.get("/metrics");
    let of_card = [("gpu", "1"), ("UUID", text(&node, 1, "uuid")), ("modelName", "NVIDIA H100 80GB HBM3")];
    assert_eq!(series(&metrics, "tessera_gpu_memory_used_mib", &of_card), Some(2048.0));
    assert_eq!(series(&metrics, "tessera_gpu_sm_clock_mhz", &of_card), Some(1980.0));
    assert_eq!(series(&metrics, "tessera_gpu_memory_allocated_ratio", &of_card), Some(1.0));
    let idle_event = [&of_card[..], &[("clock_event", "gpu_idle")]].concat();
    assert_eq!(series(&metrics, "tessera_gpu_clocks_event", &idle_event), Some(0.0));
    for moved in [
        "gpu_energy_millijoules_total",
        "gpu_nvlink_transmit_bytes_total",
        "gpu_tensor_activity_ratio",
        "gpu_pcie_receive_bytes_per_second",
    ] {
        let value = series(&metrics, &format!("tessera_{moved}"), &of_card);
        assert!(value > Some(0.0), "{moved} is {value:?}");
    }
    let id = instance.to_string();
    let of_partition = [("gpu", "2"), ("GPU_I_PROFILE", "1g.10gb"), ("GPU_I_ID", id.as_str())];
    assert_eq!(series(&metrics, "tessera_partition_memory_used_mib", &of_partition), Some(512.0));
    assert!(near(series(&metrics, "tessera_partition_sm_activity_ratio", &of_partition), 1.0));
    let of_claim = [
        ("namespace", "default"),
        ("pod", serve.0.as_str()),
        ("claim", on_part.name.as_str()),
        ("device", part_device.as_str()),
    ];
    let both = [&of_claim[..], &of_partition[..]].concat();
    assert_eq!(series(&metrics, "tessera_claim_memory_used_mib", &both), Some(512.0));
    assert!(near(series(&metrics, "tessera_claim_sm_activity_ratio", &both), part));

    // Removed processes and claims have no series.
    node.machine.let_happen("process remove --card 1 --pid 4711");
    node.machine.let_happen("process remove --card 2 --pid 4712");
    for answer in registered.unprepare(&claims).await.unwrap().values() {
        answer.as_ref().unwrap();
    }
    until(&plugin, "no claims", |usage| usage.claims.is_empty()).await;
    let (_, metrics) = plugin.get("/metrics");
    assert!(
        !metrics.contains("tessera_claim_memory") && !metrics.contains("tessera_partition_"),
        "{metrics}"
    );
    assert_eq!(series(&metrics, "tessera_gpu_memory_allocated_ratio", &of_card), Some(0.0));
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_figure_that_fails_and_a_card_that_hangs_leave_the_rest() {
    let node = Node::new("failing", "hgx-h100-80gb").await;
    let plugin = start(&node, 1);
    node.register().await;
    plugin.ready().await;
    let first = until(&plugin, "told", |usage| usage.cards.len() == 8).await;
    node.machine.let_happen("fault --call nvmlDeviceGetPowerUsage --card 3 --error UNKNOWN");
    node.machine.let_happen("fault --call NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX --card 4 --error UNKNOWN");
    let address = |card: usize| text(&node, card, "pci").parse().unwrap();
    until(&plugin, "without power", |usage| {
        usage.cards[&address(3)].power_watts.is_none() && usage.cards.len() == 8
    })
    .await;
    let told = |metrics: &str, name: &str, card: &str| series(metrics, name, &[("gpu", card)]);
    plugin
        .until("without NVLink", || {
            let (_, metrics) = plugin.get("/metrics");
            let [sent, of_other] =
                ["4", "5"].map(|card| told(&metrics, "tessera_gpu_nvlink_transmit_bytes_total", card));
            sent.is_none() && of_other.is_some()
        })
        .await;
    let (_, metrics) = plugin.get("/metrics");
    assert_eq!(told(&metrics, "tessera_gpu_power_watts", "3"), None);
    for (name, card) in [
        ("tessera_gpu_temperature_celsius", "3"),
        ("tessera_gpu_power_watts", "2"),
        ("tessera_gpu_nvlink_receive_bytes_total", "4"),
    ] {
        assert!(told(&metrics, name, card) > Some(0.0) || name.contains("nvlink"), "{name} of {card}");
        assert!(told(&metrics, name, card).is_some(), "{name} of {card}");
    }
    for figure in ["power", "nvlink_sent"] {
        let failures = series(&metrics, "tessera_usage_failures_total", &[("figure", figure)]);
        assert!(failures >= Some(1.0), "{figure}: {failures:?}");
    }
    assert_eq!(plugin.log_text().matches("a figure of a card can't be read").count(), 2, "each once");

    // One card hangs in its look; the others go on.
    node.machine.let_happen("fault --call nvmlDeviceGetTemperature --card 0 --delay-ms 3600000");
    node.machine.let_happen("process add --card 7 --pid 9 --memory-mib 100");
    until(&plugin, "the others", |usage| {
        !usage.cards.contains_key(&address(0))
            && usage.cards.len() == 7
            && usage.cards[&address(7)].memory_used_mib == Some(100)
            && usage.at > first.at
    })
    .await;
    node.machine.let_happen("restore");
    until(&plugin, "all again", |usage| {
        usage.cards.len() == 8 && usage.cards.values().all(|card| card.power_watts.is_some())
    })
    .await;
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

/// The card and its counters do not show the owner of a process: its pod does.
#[tokio::test]
async fn what_is_shared_is_told_by_the_pods_of_processes() {
    let node = Node::new("slices", "t4").await;
    node.pool("slices", json!({"offer": {"sharing": {"timeSlicing": {"replicas": 4}}}})).await;
    let plugin = start(&node, 1);
    let registered = node.register().await;
    plugin.ready().await;
    let shared = format!("{}-ts", device(&node, 0));
    plugin.until("offered", || plugin.log_text().contains("published")).await;
    let (first, second) = (pod(&node).await, pod(&node).await);
    let one = claim(&node, &shared, &first).await;
    let other = claim(&node, &shared, &second).await;
    let claims = [one.clone(), other.clone()];
    for answer in registered.prepare(&claims).await.unwrap().values() {
        answer.as_ref().unwrap();
    }
    for (pid, cgroup) in [
        (71, format!("0::/kubepods/burstable/pod{}/3f9a\n", first.1)),
        (72, format!("0::/kubepods.slice/kubepods-pod{}.slice/cri-3f.scope\n", first.1.replace('-', "_"))),
        (73, "0::/system.slice/some.service\n".to_owned()),
    ] {
        let directory = node.machine.root().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("cgroup"), cgroup).unwrap();
        node.machine.let_happen(&format!("process add --card 0 --pid {pid} --memory-mib 100 --busy 10"));
    }
    let used = |usage: &NodeUsage, claim: &Claim| {
        let told = claim_of(usage, claim).map(|told| told.devices[0].clone());
        told.map(|device| (device.memory_used_mib, device.sm_activity, device.sm_granted))
    };
    until(&plugin, "by pod", |usage| {
        used(usage, &one) == Some((Some(200), Some(0.2), None))
            && used(usage, &other) == Some((Some(0), Some(0.0), None))
    })
    .await;

    // One whose pod can't be told may be anybody's. The kernel gives no process such a number (PID_MAX_LIMIT is 2^22).
    node.machine.let_happen("process add --card 0 --pid 4200000 --memory-mib 100");
    let unknown = until(&plugin, "unknown", |usage| used(usage, &one) == Some((None, None, None))).await;
    assert_eq!(used(&unknown, &other), Some((None, None, None)));
    assert_eq!(unknown.cards.values().next().unwrap().memory_used_mib, Some(400));
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
