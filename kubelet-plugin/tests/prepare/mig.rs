//! Partitions made on demand and destroyed with their claims.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_dra_kubelet::ClaimReference;
use tessera_kubelet_plugin::discovery::OwnPartitions as _;
use tessera_kubelet_plugin::prepare::{HardwareWork, PrepareError, Preparer};
use tessera_nvml::Architecture;

use crate::support::{Behaviour, Node, claim, prepare, result, unprepare};

/// Allocates these devices to a claim, all for the request `gpus`.
fn allocate(node: &Node, claim: &ClaimReference, devices: &[&str]) {
    let results: Vec<_> = devices.iter().map(|device| ("gpus", *device)).collect();
    node.api.allocate(claim, &results);
}

/// The variables and nodes in the spec for each of a claim's devices.
fn edits(spec: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    spec["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| {
            let edits = &device["containerEdits"];
            let nodes = edits["deviceNodes"].as_array().unwrap().iter().map(|node| text(&node["path"]));
            (text(&edits["env"][0]), nodes.collect())
        })
        .collect()
}

#[tokio::test]
async fn a_partition_lives_as_long_as_its_claim() {
    let node = Node::new(2);
    let (preparer, claim) = (node.start().await, claim("a"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-6", "gpu-01-00-mig-3g40gb-0", "gpu-02-00-mig-7g80gb-0"]);
    let devices = prepare(&preparer, &claim).await.unwrap();
    assert_eq!(devices.len(), 3);
    assert_eq!(devices[0].device_name, "gpu-01-00-mig-1g10gb-6");
    assert_eq!(devices[0].cdi_device_ids[0], "gpu.tessera.dev/claim=uid-a-gpu-01-00-mig-1g10gb-6");
    assert_eq!(node.cards.instances().1, [(0, 9, 0), (0, 19, 6), (1, 0, 0)]);
    let caps = |one: u32, other: u32| {
        ["/dev/nvidia-caps/nvidia-cap", "/dev/nvidia-caps/nvidia-cap"]
            .iter()
            .zip([one, other])
            .map(|(path, number)| format!("{path}{number}"))
            .collect::<Vec<_>>()
    };
    let nodes = |card: &str, caps: Vec<String>| [vec![card.to_owned()], caps].concat();
    assert_eq!(
        edits(&node.spec(&claim)),
        [
            ("GPU_DEVICE_01_00_MIG_1G10GB_6=MIG-GPU-0-1".into(), nodes("/dev/nvidia0", caps(12, 13))),
            ("GPU_DEVICE_01_00_MIG_3G40GB_0=MIG-GPU-0-2".into(), nodes("/dev/nvidia0", caps(21, 22))),
            ("GPU_DEVICE_02_00_MIG_7G80GB_0=MIG-GPU-1-1".into(), nodes("/dev/nvidia1", caps(147, 148))),
        ]
    );
    let env = &node.spec(&claim)["containerEdits"]["env"];
    assert_eq!(env[0], "NVIDIA_VISIBLE_DEVICES=void");
    assert_eq!(node.settled()["uid-a"].len(), 3);

    // Another pod of the claim gets the existing partitions.
    assert_eq!(prepare(&preparer, &claim).await.unwrap(), devices);
    assert_eq!(node.seen.hardware(HardwareWork::MakePartition), ["success"; 3]);
    unprepare(&preparer, &claim).await.unwrap();
    assert!(node.settled().is_empty());
    assert!(node.cards.instances().1.is_empty());
    assert_eq!((node.cards.mode(0), node.cards.mode(1)), (Some(false), Some(false)));
    assert_eq!(node.seen.hardware(HardwareWork::DestroyPartition), ["success"; 3]);
    assert_eq!(node.seen.hardware(HardwareWork::SwitchMode), ["success"; 4]);
}

#[tokio::test]
async fn seven_claims_share_a_card_and_the_last_puts_its_mode_back() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let claims: Vec<_> = (0..7).map(|number| claim(&number.to_string())).collect();
    for (start, claim) in claims.iter().enumerate() {
        allocate(&node, claim, &[&format!("gpu-01-00-mig-1g10gb-{start}")]);
    }
    let answers = preparer.prepare(claims.clone()).await;
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    assert_eq!(node.settled().len(), 7);
    assert_eq!(preparer.hardware_present().await.unwrap(), [("mig_partition", 7), ("mig_mode", 1)]);

    let whole = claim("whole");
    allocate(&node, &whole, &["gpu-01-00"]);
    let error = prepare(&preparer, &whole).await.unwrap_err();
    assert!(matches!(error, PrepareError::Held { .. }), "{error}");
    for claim in &claims {
        assert_eq!(node.cards.mode(0), Some(true));
        unprepare(&preparer, claim).await.unwrap();
    }
    assert_eq!(node.cards.mode(0), Some(false));
    prepare(&preparer, &whole).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-whole"]);
}

#[tokio::test]
async fn an_admins_mode_and_instances_are_left_as_they_are() {
    let node = Node::new(1);
    node.cards.admin_mode(0, true);
    let theirs = node.cards.admin_instance((0, 9, 4), true);
    let (preparer, claim, fixed) = (node.start().await, claim("a"), claim("fixed"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0"]);
    allocate(&node, &fixed, &[&format!("gpu-01-00-mig-3g40gb-4-gi{theirs}-ci0")]);
    prepare(&preparer, &claim).await.unwrap();
    prepare(&preparer, &fixed).await.unwrap();
    assert_eq!(edits(&node.spec(&fixed))[0].0, "GPU_DEVICE_01_00_MIG_3G40GB_4_GI1_CI0=MIG-GPU-0-1");
    node.settled();
    unprepare(&preparer, &fixed).await.unwrap();
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!(node.cards.instances(), (vec![(0, 9, 4)], vec![]));
    assert_eq!(node.cards.mode(0), Some(true));

    // A destroyed partition is not made again.
    node.cards.admin_destroys(0, theirs);
    let error = prepare(&preparer, &fixed).await.unwrap_err();
    assert!(matches!(error, PrepareError::NoPartition { .. }), "{error}");
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_foreign_instance_in_the_way_is_named_and_left_alone() {
    let node = Node::new(1);
    node.cards.admin_mode(0, true);
    // A GPU instance made by hand, without a compute instance, and so without a MIG device.
    node.cards.admin_instance((0, 9, 4), false);
    let (preparer, partition, whole) = (node.start().await, claim("a"), claim("whole"));
    allocate(&node, &partition, &["gpu-01-00-mig-1g10gb-0", "gpu-01-00-mig-1g10gb-5"]);
    allocate(&node, &whole, &["gpu-01-00"]);
    for claim in [partition, whole] {
        let error = prepare(&preparer, &claim).await.unwrap_err();
        assert_eq!(error.reason(), "foreign_instance");
        let text = error.to_string();
        assert!(text.contains("GPU instance 1 (3g.40gb at 4, without compute instance)"), "{text}");
        assert!(node.settled().is_empty());
    }
    assert_eq!(node.cards.instances(), (vec![(0, 9, 4)], vec![]));
}

#[tokio::test]
async fn a_whole_card_leaves_mig_mode_and_gives_it_back() {
    let node = Node::new(1);
    node.cards.admin_mode(0, true);
    let (preparer, whole) = (node.start().await, claim("whole"));
    allocate(&node, &whole, &["gpu-01-00"]);
    prepare(&preparer, &whole).await.unwrap();
    assert_eq!(node.cards.mode(0), Some(false));
    node.settled();
    preparer.sweep().await.unwrap();
    assert_eq!(node.cards.mode(0), Some(false));
    unprepare(&preparer, &whole).await.unwrap();
    assert_eq!(node.cards.mode(0), Some(true));
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_card_that_needs_a_reset_is_told() {
    let node = Node::new(1);
    node.cards.architecture(0, Architecture::AMPERE);
    let (preparer, partition, whole) = (node.start().await, claim("a"), claim("whole"));
    allocate(&node, &partition, &["gpu-01-00-mig-1g10gb-0"]);
    allocate(&node, &whole, &["gpu-01-00"]);
    let error = prepare(&preparer, &partition).await.unwrap_err();
    assert!(matches!(error, PrepareError::ResetNeeded { to: "on", .. }), "{error}");
    assert!(error.to_string().contains("nvidia-smi -i GPU-0 -mig 1"), "{error}");
    assert!(node.settled().is_empty());
    assert_eq!(node.cards.mode_after_reset(0), Some(false), "a reset for another reason switches nothing");

    node.cards.admin_mode(0, true);
    let error = prepare(&preparer, &whole).await.unwrap_err();
    assert!(matches!(error, PrepareError::MigMode { .. }), "{error}");
    prepare(&preparer, &partition).await.unwrap();
    unprepare(&preparer, &partition).await.unwrap();
    assert_eq!(node.cards.mode(0), Some(true));
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn who_keeps_a_card_busy_is_named() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0"]);
    let directory = node.path().join("driver/proc/4711");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("comm"), "python3\n").unwrap();
    node.cards.run(0, 4711, None);
    let error = prepare(&preparer, &claim).await.unwrap_err();
    assert!(matches!(error, PrepareError::CardBusy { to: "on", .. }), "{error}");
    assert!(error.to_string().contains("process 4711 (python3)") && error.may_pass(), "{error}");
    assert!(node.settled().is_empty());
    assert_eq!(node.cards.mode_after_reset(0), Some(false), "the order is taken back");

    node.cards.end(0);
    node.cards.open(0, true);
    let error = prepare(&preparer, &claim).await.unwrap_err().to_string();
    assert!(error.contains("DCGM"), "{error}");
    node.cards.open(0, false);
    prepare(&preparer, &claim).await.unwrap();

    // A monitor keeps the mode on, but no claim waits for the switch.
    node.cards.open(0, true);
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!((node.cards.instances().1.len(), node.cards.mode(0)), (0, Some(true)));
    assert_eq!(node.cards.mode_after_reset(0), Some(true));
    node.cards.open(0, false);
    preparer.sweep().await.unwrap();
    assert_eq!(node.cards.mode(0), Some(false));
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_partition_whose_program_will_not_end_stays_its_claims() {
    let node = Node::new(1);
    let (preparer, first, next) = (node.start().await, claim("a"), claim("b"));
    allocate(&node, &first, &["gpu-01-00-mig-1g10gb-0"]);
    allocate(&node, &next, &["gpu-01-00-mig-1g10gb-0"]);
    prepare(&preparer, &first).await.unwrap();
    node.cards.run(0, 4711, Some(1));
    let error = unprepare(&preparer, &first).await.unwrap_err();
    assert!(matches!(error, PrepareError::PartitionBusy { .. }), "{error}");
    assert!(error.to_string().contains("process 4711"), "{error}");
    let error = prepare(&preparer, &next).await.unwrap_err();
    assert!(matches!(&error, PrepareError::Held { leaving: Some(_), .. }), "{error}");
    // The pod was deleted by force: the claim is gone, and its device was given to the next one.
    node.api.delete(&first);
    let error = prepare(&preparer, &next).await.unwrap_err();
    assert!(matches!(&error, PrepareError::Held { leaving: Some(_), .. }), "{error}");
    assert!(error.to_string().contains("what that claim held is not free yet"), "{error}");
    assert!(error.to_string().contains("process 4711"), "{error}");
    node.cards.end(0);
    prepare(&preparer, &next).await.unwrap();
    unprepare(&preparer, &first).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-b"]);
}

/// DCGM has the card open: the driver answers "in use", and names no process.
#[tokio::test]
async fn a_partition_that_the_driver_does_not_let_go_holds_up_no_pods_end() {
    let mut node = Node::new(1);
    node.answer_within = Duration::from_secs(4);
    let preparer = node.start().await;
    let (first, beside, next, whole) = (claim("a"), claim("beside"), claim("next"), claim("whole"));
    allocate(&node, &first, &["gpu-01-00-mig-1g10gb-0"]);
    allocate(&node, &beside, &["gpu-01-00-mig-1g10gb-6"]);
    allocate(&node, &next, &["gpu-01-00-mig-3g40gb-0"]);
    allocate(&node, &whole, &["gpu-01-00"]);
    prepare(&preparer, &first).await.unwrap();
    node.cards.fail_function("nvmlComputeInstanceDestroy", 19);
    let since = Instant::now();
    unprepare(&preparer, &first).await.unwrap();
    assert!(since.elapsed() >= Duration::from_secs(1), "a monitor that is about to let go is waited for");
    assert!(!node.record_path(&first).exists() && !node.spec_path(&first).exists());
    let held = |preparer: &Preparer| {
        let own = preparer.journal().of_card("0000:01:00.0".parse().unwrap(), "GPU-0").unwrap();
        own.iter().filter(|own| own.not_released).map(|own| own.placement.start).collect::<Vec<_>>()
    };
    assert_eq!(held(&preparer), [0]);
    let looks = node.look_again.clone();
    tokio::time::timeout(Duration::ZERO, looks.notified()).await.expect("its devices get a taint at once");

    // Overlapping claims are refused at once, with advice; others go on.
    for claim in [&next, &whole] {
        let error = prepare(&preparer, claim).await.unwrap_err();
        assert!(matches!(error, PrepareError::NotReleased { .. }), "{error}");
        assert!(error.another_device_would_help(), "{error}");
        let text = error.to_string();
        assert!(text.contains("partition gpu-01-00-mig-1g10gb-0") && text.contains("DCGM"), "{text}");
    }
    prepare(&preparer, &beside).await.unwrap();

    // The plugin's next instance knows the partition too.
    drop(preparer);
    let preparer = node.start().await;
    preparer.sweep().await.unwrap();
    assert_eq!(held(&preparer), [0]);
    let error = prepare(&preparer, &next).await.unwrap_err();
    assert!(matches!(error, PrepareError::NotReleased { .. }), "{error}");

    node.cards.heal();
    preparer.sweep().await.unwrap();
    assert_eq!(held(&preparer), [0; 0]);
    tokio::time::timeout(Duration::ZERO, looks.notified()).await.expect("the taint goes at once");
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-beside"]);
    prepare(&preparer, &next).await.unwrap();
    for claim in [&next, &beside] {
        unprepare(&preparer, claim).await.unwrap();
    }
    assert_eq!((node.cards.mode(0), node.settled().len()), (Some(false), 0));
}

/// The claim of a pod deleted by force, while the driver held its partition.
#[tokio::test]
async fn a_claim_that_is_gone_leaves_what_the_driver_does_not_let_go() {
    let node = Node::new(1);
    let (preparer, first, next) = (node.start().await, claim("a"), claim("b"));
    allocate(&node, &first, &["gpu-01-00-mig-1g10gb-0"]);
    allocate(&node, &next, &["gpu-01-00-mig-1g10gb-0"]);
    prepare(&preparer, &first).await.unwrap();
    node.cards.fail_function("nvmlComputeInstanceDestroy", 19);
    node.api.delete(&first);
    node.checkpoint(&[&next]);
    let error = prepare(&preparer, &next).await.unwrap_err();
    assert!(matches!(error, PrepareError::NotReleased { .. }), "{error}");
    node.cards.heal();
    prepare(&preparer, &next).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-b"]);
}

#[tokio::test]
async fn settings_of_claims_and_classes() {
    let node = Node::new(1);
    let (preparer, narrow) = (node.start().await, claim("narrow"));
    let put = |claim: &ClaimReference, device: &str, parameters: Value| {
        let config = json!({"source": "FromClaim", "requests": ["gpus"],
            "opaque": {"driver": "gpu.tessera.dev", "parameters": parameters}});
        let devices = json!({"results": [result("gpus", device)], "config": [config]});
        node.api.put_status(claim, json!({"allocation": {"devices": devices}}));
    };
    let mig = |fields: Value| {
        let mut object = json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "MigDeviceConfig"});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object
    };
    put(&narrow, "gpu-01-00-mig-4g40gb-0", mig(json!({"computeSlices": 3})));
    let error = prepare(&preparer, &narrow).await.unwrap_err();
    assert_eq!(error.reason(), "invalid_config");
    assert!(error.to_string().contains("4g.40gb offers no compute instance of 3"), "{error}");
    assert!(error.to_string().contains("1, 2, 4"), "{error}");
    assert!(node.settled().is_empty());

    put(&narrow, "gpu-01-00-mig-4g40gb-0", mig(json!({"computeSlices": 2, "migModeAfterUse": "Keep"})));
    prepare(&preparer, &narrow).await.unwrap();
    assert_eq!(node.record(&narrow)["devices"][0]["partition"]["computeSlices"], 2);
    unprepare(&preparer, &narrow).await.unwrap();
    assert_eq!(node.cards.mode(0), Some(true), "it was asked to stay");
    node.cards.admin_mode(0, false);

    for (parameters, part) in [
        (json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuConfigs"}), "MigDeviceConfig"),
        (mig(json!({"profile": "1g.10gb"})), "computeSlices"),
    ] {
        put(&narrow, "gpu-01-00-mig-4g40gb-0", parameters);
        let error = prepare(&preparer, &narrow).await.unwrap_err().to_string();
        assert!(error.contains("request gpus in its claim") && error.contains(part), "{error}");
    }
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn what_a_card_does_not_offer_is_told_with_what_it_offers() {
    let node = Node::new(2);
    node.cards.change(1, |card| card.mig_mode = None);
    let (preparer, claim) = (node.start().await, claim("a"));
    for (device, reason, part) in [
        ("gpu-01-00-mig-1g5gb-0", "no_profile", "1g.10gb at 0, 1, 2, 3, 4, 5, 6; 1g.10gb+me"),
        ("gpu-01-00-mig-3g40gb-2", "no_profile", "3g.40gb at 0, 4"),
        ("gpu-02-00-mig-1g10gb-0", "no_mig", "gpu-02-00-mig-1g10gb-0"),
        ("gpu-01-00-mig-1g10gb-0-gi7-ci0", "no_partition", "destroyed"),
    ] {
        allocate(&node, &claim, &[device]);
        let error = prepare(&preparer, &claim).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(node.settled().is_empty());
    }
}

#[tokio::test]
async fn admin_access_looks_at_what_exists_and_makes_nothing() {
    let node = Node::new(1);
    let (preparer, user, admin) = (node.start().await, claim("user"), claim("admin"));
    let mut watching = result("watch", "gpu-01-00-mig-1g10gb-0");
    watching["adminAccess"] = true.into();
    node.api.put(&admin, vec![watching]);
    allocate(&node, &user, &["gpu-01-00-mig-1g10gb-0"]);
    let error = prepare(&preparer, &admin).await.unwrap_err();
    assert!(matches!(error, PrepareError::NoPartition { .. }), "{error}");
    prepare(&preparer, &user).await.unwrap();
    prepare(&preparer, &admin).await.unwrap();
    assert_eq!(edits(&node.spec(&admin)), edits(&node.spec(&user)));
    node.settled();
    unprepare(&preparer, &admin).await.unwrap();
    assert_eq!(node.cards.instances().1.len(), 1);
    unprepare(&preparer, &user).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_driver_or_card_that_is_away_holds_up_no_pods_end() {
    let node = Node::new(2);
    let (preparer, claim, next) = (node.start().await, claim("a"), claim("b"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0", "gpu-02-00-mig-1g10gb-0"]);
    allocate(&node, &next, &["gpu-01-00-mig-3g40gb-0"]);
    prepare(&preparer, &claim).await.unwrap();
    let driver = node.hardware.send_replace(None);
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!(node.cards.instances().1.len(), 2);
    node.hardware.send_replace(driver);
    // The next work on the card removes the waste.
    prepare(&preparer, &next).await.unwrap();
    assert_eq!(node.cards.instances().1, [(0, 9, 0), (1, 19, 0)]);
    preparer.sweep().await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-b"]);

    node.cards.lose(0);
    unprepare(&preparer, &next).await.unwrap();
    assert_eq!(node.cards.instances().1.len(), 1, "it is not reached");
    node.cards.restore(0);
    preparer.sweep().await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_partition_that_somebody_destroyed_is_made_anew() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0"]);
    prepare(&preparer, &claim).await.unwrap();
    node.cards.admin_destroys(0, 1);
    prepare(&preparer, &claim).await.unwrap();
    assert_eq!(edits(&node.spec(&claim))[0].0, "GPU_DEVICE_01_00_MIG_1G10GB_0=MIG-GPU-0-2");
    assert_eq!(node.settled().len(), 1);

    // Also without a call, for a restarted container.
    node.cards.admin_destroys(0, 1);
    node.api.behave(Behaviour::Status(503, "away"));
    preparer.repair().await.unwrap();
    assert_eq!(edits(&node.spec(&claim))[0].0, "GPU_DEVICE_01_00_MIG_1G10GB_0=MIG-GPU-0-3");
    assert_eq!(node.settled().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_a_card_queue_and_those_of_other_cards_do_not() {
    let mut node = Node::new(3);
    node.answer_within = Duration::from_secs(30);
    let preparer = node.start().await;
    node.cards.slow_function("nvmlDeviceCreateGpuInstanceWithPlacement", Duration::from_millis(500));
    let mut claims = Vec::new();
    for card in 1..4 {
        for start in 0..7 {
            let claim = claim(&format!("{card}-{start}"));
            allocate(&node, &claim, &[&format!("gpu-0{card}-00-mig-1g10gb-{start}")]);
            claims.push(claim);
        }
    }
    let since = Instant::now();
    let answers = preparer.prepare(claims).await;
    let elapsed = since.elapsed();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    // One card takes 3.5 s; one lock for all cards would make 10.5 s.
    assert!(elapsed >= Duration::from_millis(3500) && elapsed < Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(node.settled().len(), 21);
}

#[tokio::test]
async fn a_claim_of_two_cards_waits_for_one_without_holding_the_other() {
    let mut node = Node::new(2);
    node.answer_within = Duration::from_secs(30);
    let preparer = node.start().await;
    let (slow, both, free) = (claim("slow"), claim("both"), claim("free"));
    allocate(&node, &slow, &["gpu-02-00-mig-1g10gb-0"]);
    allocate(&node, &both, &["gpu-01-00-mig-1g10gb-0", "gpu-02-00-mig-1g10gb-1"]);
    allocate(&node, &free, &["gpu-01-00-mig-1g10gb-1"]);
    node.cards.slow_function("nvmlDeviceCreateGpuInstanceWithPlacement", Duration::from_secs(5));
    let start = |claim: &ClaimReference| {
        let (preparer, claim) = (preparer.clone(), claim.clone());
        tokio::spawn(async move { prepare(&preparer, &claim).await })
    };
    let slow = start(&slow);
    while node.cards.fault_calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let both = start(&both);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!slow.is_finished());
    node.cards.heal();
    prepare(&preparer, &free).await.unwrap();
    assert!(!slow.is_finished() && !both.is_finished());
    slow.await.unwrap().unwrap();
    both.await.unwrap().unwrap();
    assert_eq!(node.settled().len(), 3);
}

#[tokio::test]
async fn a_reboot_takes_partitions_along() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0"]);
    prepare(&preparer, &claim).await.unwrap();
    drop(preparer);
    node.boot("boot-2");
    node.cards.admin_mode(0, true);
    node.cards.admin_instance((0, 19, 0), true);
    // Same placement, profile and id, but not ours: ours was of another boot.
    let preparer = node.start().await;
    assert!(node.settled().is_empty());
    assert_eq!(node.cards.instances().0, [(0, 19, 0)]);
    let error = prepare(&preparer, &claim).await.unwrap_err();
    assert!(matches!(error, PrepareError::ForeignInstance { .. }), "{error}");
}

#[tokio::test]
async fn without_a_driver_what_another_boot_made_is_forgotten_at_once() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0"]);
    prepare(&preparer, &claim).await.unwrap();
    drop(preparer);
    node.boot("boot-2");
    node.hardware.send_replace(None);
    let _preparer = node.start().await;
    assert!(node.settled().is_empty(), "nothing is left that waits for the driver");
}

#[tokio::test]
async fn a_mode_on_which_somebody_else_has_come_to_rest_stays_on() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    allocate(&node, &claim, &["gpu-01-00-mig-1g10gb-0"]);
    prepare(&preparer, &claim).await.unwrap();
    node.cards.admin_instance((0, 9, 4), true);
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!((node.cards.instances(), node.cards.mode(0)), ((vec![(0, 9, 4)], vec![]), Some(true)));
    // From now on the mode is the administrator's.
    node.cards.admin_mode(0, true);
    assert!(node.settled().is_empty());
}

/// A later version of the plugin may know the record's meaning and how to undo it.
#[tokio::test]
async fn a_hardware_record_of_an_unknown_kind_is_left_alone_whatever_its_boot() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let hardware = node.path().join("kubelet/plugins/gpu.tessera.dev/journal/hardware");
    for boot in ["boot-1", "boot-0"] {
        let record = json!({
            "version": 1, "id": format!("gpu-01-00-{boot}"), "card": "0000:01:00.0", "cardUuid": "GPU-0",
            "bootId": boot, "stage": "complete", "change": {"kind": "fromTheFuture"},
        });
        std::fs::write(hardware.join(format!("gpu-01-00-{boot}.json")), record.to_string()).unwrap();
    }
    preparer.sweep().await.unwrap();
    node.start().await;
    assert_eq!(crate::support::names(&hardware), ["gpu-01-00-boot-0.json", "gpu-01-00-boot-1.json"]);
}
