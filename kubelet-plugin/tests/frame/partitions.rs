//! Partitions on the emulated driver, made by the real program, which is killed.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::machine::gpu_emulator;
use crate::node::{DRIVER, Node};

/// State of the machine's cards: enabled modes, GPU instances, MIG devices with their UUIDs.
#[derive(Debug, PartialEq, Eq)]
struct OnCards {
    modes: Vec<bool>,
    gpu_instances: usize,
    uuids: BTreeSet<String>,
}

fn on_cards(node: &Node) -> OnCards {
    let shown = Command::new(gpu_emulator())
        .args(["show", "-o", "json"])
        .arg(node.machine.root())
        .output()
        .expect("gpu-emulator");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let cards = shown["state"]["cards"].as_array().unwrap();
    let instances = |card: &Value| card["mig"]["instances"].as_array().map_or(0, Vec::len);
    OnCards {
        modes: cards.iter().map(|card| card["mig"]["enabled"] == true).collect(),
        gpu_instances: cards.iter().map(instances).sum(),
        uuids: shown["migDevices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|device| device["uuid"].as_str().unwrap().to_owned())
            .collect(),
    }
}

/// Names of the journal's records of a kind.
fn journal(node: &Node, kind: &str) -> Vec<String> {
    let path = node.kubelet_directory().join("plugins").join(DRIVER).join("journal").join(kind);
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// UUIDs of the partitions in the CDI specs.
fn in_specs(node: &Node) -> BTreeSet<String> {
    let mut uuids = BTreeSet::new();
    for name in node.specs() {
        let spec: Value =
            serde_json::from_slice(&fs::read(node.cdi_directory().join(name)).unwrap()).unwrap();
        for device in spec["devices"].as_array().unwrap() {
            let variable = device["containerEdits"]["env"][0].as_str().unwrap();
            let nodes = device["containerEdits"]["deviceNodes"].as_array().unwrap();
            let caps = nodes.iter().filter(|node| {
                node["path"].as_str().unwrap().starts_with("/dev/nvidia-caps/nvidia-cap")
                    && node["major"] == 237
            });
            assert_eq!((nodes.len(), caps.count()), (3, 2), "{spec}");
            uuids.insert(variable.split_once('=').unwrap().1.to_owned());
        }
    }
    uuids
}

fn nothing_is_left(node: &Node) {
    let OnCards { modes, gpu_instances, uuids } = on_cards(node);
    assert_eq!((gpu_instances, uuids), (0, BTreeSet::new()));
    assert!(modes.iter().all(|mode| !mode), "{modes:?}");
    assert!(journal(node, "hardware").is_empty() && journal(node, "claims").is_empty());
    assert!(node.specs().is_empty());
}

/// The names of partitions on a card of the machine.
fn partitions(node: &Node, card: usize, profile: &str, starts: &[u32]) -> Vec<String> {
    let address = node.machine.cards()[card]["pci"].as_str().unwrap();
    let name = address.trim_start_matches("0000:").trim_end_matches(".0").replace(':', "-");
    starts.iter().map(|start| format!("gpu-{name}-mig-{profile}-{start}")).collect()
}

#[tokio::test]
async fn seven_claims_have_a_card_and_then_one_has_all_of_it() {
    let node = Node::new("partitions", "hgx-h100-80gb").await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    let mut claims = Vec::new();
    for name in partitions(&node, 2, "1g10gb", &[0, 1, 2, 3, 4, 5, 6]) {
        claims.push(node.claim(&[&name]).await);
    }
    let answers = registered.prepare(&claims).await.unwrap();
    for answer in answers.values() {
        assert_eq!(answer.as_ref().unwrap().len(), 1);
    }
    let there = on_cards(&node);
    assert_eq!((there.gpu_instances, there.uuids.len()), (7, 7));
    assert_eq!(in_specs(&node), there.uuids);
    let metrics = plugin.get("/metrics").1;
    for line in [
        "tessera_prepared_devices 7",
        "tessera_hardware_present{kind=\"mig_partition\"} 7",
        "tessera_hardware_present{kind=\"mig_mode\"} 1",
        "tessera_hardware_change_duration_seconds_count{work=\"make_partition\",outcome=\"success\"} 7",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    let answers = registered.unprepare(&claims).await.unwrap();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    nothing_is_left(&node);

    let whole = partitions(&node, 2, "7g80gb", &[0]);
    let claim = node.claim(&[&whole[0]]).await;
    registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert_eq!(in_specs(&node), on_cards(&node).uuids);
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    nothing_is_left(&node);
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

/// Killed within each changing driver call, before and after its effect, at the first such call and at
/// a later one. Then a new instance starts.
#[tokio::test]
async fn killed_within_every_call_that_changes_a_card() {
    let calls = [
        ("nvmlDeviceSetMigMode", false),
        ("nvmlDeviceCreateGpuInstanceWithPlacement", false),
        ("nvmlGpuInstanceCreateComputeInstance", false),
        ("nvmlComputeInstanceDestroy", true),
        ("nvmlGpuInstanceDestroy", true),
    ];
    let node = Node::new("killed", "hgx-h100-80gb").await;
    for (call, is_end) in calls {
        for after in ["", " --after"] {
            let plugin = node.plugin(Some("uid-a"));
            let registered = node.register().await;
            plugin.ready().await;
            let mut names = partitions(&node, 0, "3g40gb", &[0, 4]);
            names.extend(partitions(&node, 1, "1g10gb", &[6]));
            let claim = node.claim(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
            if is_end {
                registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
            }
            node.machine.let_happen(&format!("fault --call {call} --delay-ms 60000{after}"));
            let work = async {
                if is_end {
                    let _ = registered.unprepare(std::slice::from_ref(&claim)).await;
                } else {
                    let _ = registered.prepare(std::slice::from_ref(&claim)).await;
                }
            };
            let at_work = async {
                plugin.until("at work", || !journal(&node, "hardware").is_empty()).await;
                // Some more time to reach the call.
                tokio::time::sleep(Duration::from_millis(700)).await;
            };
            tokio::select! {
                () = work => panic!("{call} did not take its time"),
                () = at_work => {}
            }
            plugin.kill();
            node.machine.let_happen("restore");
            assert_eq!(journal(&node, "claims").len(), 1, "{call}{after}");
            assert!(!journal(&node, "hardware").is_empty(), "{call}{after}");

            // The next instance converges by itself.
            let plugin = node.plugin(Some("uid-b"));
            plugin.ready_line("[+] sockets").await;
            plugin.until("nothing left", || journal(&node, "hardware").is_empty()).await;
            nothing_is_left(&node);
            // The kubelet's retry works as if nothing had happened.
            let registered = node.register().await;
            plugin.ready().await;
            registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
            assert_eq!(in_specs(&node), on_cards(&node).uuids);
            assert_eq!(on_cards(&node).gpu_instances, 3);
            registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
            nothing_is_left(&node);
            assert_eq!(plugin.terminate().await.code(), Some(0));
        }
    }
}

#[tokio::test]
async fn what_a_crash_leaves_of_prepared_claims_is_all_of_it() {
    let node = Node::new("kept", "hgx-h100-80gb").await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    let names = partitions(&node, 3, "2g20gb", &[2]);
    let claim = node.claim(&[&names[0]]).await;
    let before = registered.prepare(std::slice::from_ref(&claim)).await.unwrap();
    let there = on_cards(&node);
    plugin.kill();

    let plugin = node.plugin(Some("uid-b"));
    let registered = node.register().await;
    plugin.ready().await;
    assert_eq!(registered.prepare(std::slice::from_ref(&claim)).await.unwrap(), before);
    assert_eq!(on_cards(&node), there);
    plugin.kill();

    // The machine is started again: partitions and their records are gone.
    node.machine.let_happen("reboot");
    fs::remove_dir_all(node.cdi_directory()).unwrap();
    let plugin = node.plugin(Some("uid-c"));
    let registered = node.register().await;
    plugin.ready().await;
    assert!(journal(&node, "claims").is_empty() && journal(&node, "hardware").is_empty());
    registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert_eq!(in_specs(&node), on_cards(&node).uuids);
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert_eq!(on_cards(&node).gpu_instances, 0);
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
