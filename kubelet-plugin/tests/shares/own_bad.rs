//! Impossible sharing configurations: each is refused with the reason, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tessera_kubelet_plugin::prepare::PrepareError;
use tessera_mps_host::protocol::{OtherDevice, Release, Settings};

use crate::client::Client;
use crate::host::LONG;
use crate::node::{Node, claim, prepare, unprepare};

fn mps(mps: Value) -> Value {
    json!({"strategy": "MPS", "mps": mps})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_is_said() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let shared = claim("shared");
    let (card, partition, other) =
        (node.device(0, ""), node.device(1, "mig-1g10gb-0"), node.device(2, "mig-1g10gb-0"));
    let one: &[(&str, &str)] = &[("r", &card)];
    let part: &[(&str, &str)] = &[("r", &partition)];
    let limit = |limit: &str| mps(json!({"pinnedDeviceMemoryLimit": limit}));
    let percentage = |percentage: u32| mps(json!({"activeThreadPercentage": percentage}));
    let slicing = json!({"strategy": "TimeSlicing"});
    for (devices, kind, sharing, parts) in [
        (one, "GpuConfig", limit("0"), ["invalid_config", "1Mi or more"]),
        (one, "GpuConfig", limit("1023Ki"), ["invalid_config", "1Mi or more"]),
        (one, "GpuConfig", limit("much"), ["invalid_config", "much"]),
        (one, "GpuConfig", limit("81Gi"), ["invalid_config", "82944Mi of memory"]),
        (part, "MigDeviceConfig", limit("10Gi"), ["invalid_config", "10240Mi of memory"]),
        (one, "GpuConfig", percentage(0), ["invalid_config", "1 to 100"]),
        (one, "GpuConfig", percentage(101), ["invalid_config", "1 to 100"]),
        (one, "MigDeviceConfig", mps(json!({})), ["invalid_config", "not for devices of type gpu"]),
        (part, "GpuConfig", mps(json!({})), ["invalid_config", "not for devices of type mig"]),
        (part, "MigDeviceConfig", slicing.clone(), ["invalid_config", "no time-slices"]),
        (
            &[("r", &partition), ("r", &other)],
            "MigDeviceConfig",
            mps(json!({})),
            ["invalid_config", "one larger partition"],
        ),
    ] {
        node.allocate_configured(&shared, devices, &[(&["r"], kind, sharing.clone())]);
        let error = prepare(&preparer, &shared).await.unwrap_err();
        let text = format!("{} {error}", error.reason());
        assert!(parts.iter().all(|part| text.contains(part)), "{sharing}: {text}");
        assert!(node.is_empty().await, "{sharing}: {:?}", node.hardware());
    }
    // An object without requests ignores devices of other types.
    node.allocate_configured(&shared, part, &[(&[], "GpuConfig", slicing)]);
    prepare(&preparer, &shared).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nvidias_kinds_are_refused_under_another_name_and_so_is_what_is_not_done() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let shared = claim("shared");
    let refused = async |driver: &str, kind: &str| {
        let parameters = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind});
        let result = crate::api::result("gpu", &node.device(0, ""));
        node.api.put_configured(&shared, vec![result], driver, &[("FromClaim", &["gpu"], parameters)]);
        prepare(&preparer, &shared).await.unwrap_err().to_string()
    };
    let error = refused("gpu.tessera.dev", "GpuConfig").await;
    assert!(error.contains("driverName") && error.contains("gpu.tessera.dev/v1alpha1"), "{error}");
    let node = Node::named_as_nvidias("t4");
    let preparer = node.start().await;
    let limits = json!({"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"1": "1Gi"}}});
    let device = node.device(0, "");
    for (kind, sharing, part) in [
        ("GpuConfig", limits, node.uuid(0)),
        ("VfioDeviceConfig", Value::Null, "not supported".to_owned()),
        ("ComputeDomainChannelConfig", Value::Null, "compute-domain.nvidia.com".to_owned()),
    ] {
        node.allocate_configured(&shared, &[("gpu", &device)], &[(&["gpu"], kind, sharing)]);
        let error = prepare(&preparer, &shared).await.unwrap_err().to_string();
        assert!(error.contains(&part), "{error}");
    }
    assert!(node.is_empty().await);
}

/// A machine with one Tesla P4, whose driver refuses to set time-slices, and an `nvidia-smi` that leaves a trace when
/// run.
fn node_without_intervals(node: impl FnOnce(&str) -> Node) -> (Node, PathBuf) {
    let node = node("p4");
    let directory = node.host.machine.root().join("bin");
    let (program, real, trace) = (
        directory.join("nvidia-smi"),
        directory.join("real-nvidia-smi"),
        node.host.machine.root().join("trace"),
    );
    fs::rename(&program, &real).unwrap();
    let (real, traced) = (real.display(), trace.display());
    let script =
        format!("#!/bin/sh\nif [ \"$1\" = compute-policy ]; then touch {traced}; fi\nexec {real} \"$@\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (node, trace)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_without_intervals_is_refused_before_anything_is_touched() {
    let tessera = json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Long"}});
    let nvidia = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    let (node, trace) = node_without_intervals(Node::new);
    let (named, named_trace) = node_without_intervals(Node::named_as_nvidias);
    for (node, trace, sharing, name) in
        [(&node, &trace, tessera, "gpu.tessera.dev"), (&named, &named_trace, nvidia, "gpu.nvidia.com")]
    {
        let (shared, device) = (claim("shared"), node.device(0, ""));
        let preparer = node.start().await;
        node.allocate_configured(&shared, &[("card", &device)], &[(&["card"], "GpuConfig", sharing)]);
        let error = prepare(&preparer, &shared).await.unwrap_err();
        let text = error.to_string();
        let selector = format!("device.attributes[\"{name}\"].timeSliceIntervals");
        for part in ["ns/shared", &device, &node.uuid(0), "Long", "Default", &selector] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(error.reason(), "invalid_config");
        assert!(node.is_empty().await && !trace.exists());
        // The driver's own length needs no tool.
        let plain = json!({"strategy": "TimeSlicing"});
        node.allocate_configured(&shared, &[("card", &device)], &[(&["card"], "GpuConfig", plain)]);
        prepare(&preparer, &shared).await.unwrap();
        assert!(!trace.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_that_was_allocated_before_its_node_got_an_interval_says_so() {
    let (node, trace) = node_without_intervals(Node::new);
    let interval = json!({"sharing": {"timeSlicing": {"replicas": 10, "interval": "Short"}}});
    node.offer(&interval);
    let preparer = node.start().await;
    let slice = claim("slice");
    node.allocate_time_slice(&slice, &node.device(0, "ts"));
    let error = prepare(&preparer, &slice).await.unwrap_err().to_string();
    assert!(error.contains("timeSlicing.interval Short") && error.contains(&node.uuid(0)), "{error}");
    assert!(node.is_empty().await && !trace.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_never_hold_one_card() {
    let node = Node::new("hgx-h100-80gb");
    let (host, client) = (&node.host, node.host.client());
    let mut wish = host.wish(0, Settings::default());
    let second = host.wish(1, Settings::default());
    wish.others =
        vec![OtherDevice { device: second.device.clone(), card: second.card, memory_limit_mib: Some(1024) }];
    wish.owner = Some("uid-1".into());
    let daemon = client.ensure(wish.clone(), LONG).await.unwrap();
    assert_eq!(client.ensure(wish.clone(), LONG).await.unwrap(), daemon);
    assert_eq!(Client::start_on(host, &daemon.pipe_directory, &[], 1).device["memoryLimitMiB"], 1024);
    let error = host.ensure(1, Settings::default()).await.unwrap_err().to_string();
    assert!(error.contains("hold the device"), "{error}");
    // Limits may change; the devices may not while the daemon has clients.
    wish.others[0].memory_limit_mib = Some(2048);
    client.ensure(wish.clone(), LONG).await.unwrap();
    let program = Client::start_on(host, &daemon.pipe_directory, &[], 1);
    assert_eq!(program.device["memoryLimitMiB"], 2048);
    let error = host.ensure(0, Settings::default()).await.unwrap_err().to_string();
    assert!(error.contains(&program.pid().to_string()), "{error}");
    // A release for another owner ends nothing.
    for owner in [None, Some("uid-2".to_owned())] {
        let order = Release { device: wish.device.clone(), grace_seconds: 0, owner };
        assert_eq!(client.release(order, LONG).await.unwrap(), [0; 0]);
    }
    assert_eq!(host.list().await.len(), 1);
    drop(program);
    let shares = host.ensure(0, Settings::default()).await.unwrap();
    assert_eq!((shares.owner, host.list().await.len()), (None, 1));
    assert_eq!(host.card(1)["computeMode"], 0, "what it served besides is let go");
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0);

    wish.others[0].device = wish.device.clone();
    let error = client.ensure(wish, LONG).await.unwrap_err().to_string();
    assert!(error.contains("several whole cards"), "{error}");
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_several_cards_that_can_not_have_one_has_none() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let program = Client::start_on(&node.host, "/nowhere".as_ref(), &[], 1);
    let (shared, short) = (claim("shared"), claim("short"));
    for claim in [&shared, &short] {
        let cards = [node.device(0, ""), node.device(1, "")];
        let devices: Vec<(&str, &str)> = cards.iter().map(|card| ("r", card.as_str())).collect();
        node.allocate_configured(claim, &devices, &[(&["r"], "GpuConfig", mps(json!({})))]);
    }
    let waiting = {
        let (preparer, shared) = (preparer.clone(), shared.clone());
        tokio::spawn(async move { prepare(&preparer, &shared).await })
    };
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "it waits for the program on the second card");
    drop(program);
    waiting.await.unwrap().unwrap();
    unprepare(&preparer, &shared).await.unwrap();
    assert!(node.is_empty().await);
    let error = {
        let _program = Client::start_on(&node.host, "/nowhere".as_ref(), &[], 1);
        prepare(&preparer, &short).await.unwrap_err()
    };
    assert!(matches!(error, PrepareError::Mps { may_pass: true, .. }), "{error}");
    assert!(node.is_empty().await, "{:?}", node.hardware());
}
