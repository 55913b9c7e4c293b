//! Shares by MPS.

use rustix::process::Signal;
use tessera_kubelet_plugin::prepare::PrepareError;

use crate::container::Container;
use crate::host::kill;
use crate::node::{Node, claim, is_there, prepare, unprepare};

#[tokio::test(flavor = "multi_thread")]
async fn four_quarters_of_a_card_and_their_end() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let device = node.device(0, "mps");
    let claims: Vec<_> = (0..4).map(|number| claim(&format!("quarter-{number}"))).collect();
    let mut pids = Vec::new();
    for claim in &claims {
        node.allocate_mps(claim, &device, "20352Mi", 25, 1);
        let devices = prepare(&preparer, claim).await.unwrap();
        assert_eq!(devices[0].device_name, device);
        assert!(devices[0].share_id.is_some());
        assert!(devices[0].cdi_device_ids[0].contains(devices[0].share_id.as_ref().unwrap()));
        pids.push(node.host.list().await[0].pid);
    }
    assert!(pids.windows(2).all(|pair| pair[0] == pair[1]), "one daemon for all");
    assert_eq!(node.hardware(), [device.as_str()]);

    let container = Container::of(&node.spec(&claims[0]));
    assert_eq!(container.variable("CUDA_MPS_PIPE_DIRECTORY"), Some("/tmp/nvidia-mps"));
    assert_eq!(container.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some("0=20352M"));
    assert_eq!(container.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("25"));
    let mut programs: Vec<_> =
        claims.iter().map(|claim| Container::of(&node.spec(claim)).run(&node.host)).collect();
    for program in &programs {
        assert_eq!(program.device["multiprocessors"], 33);
    }
    assert_eq!(programs[0].order("allocate 20000")["holdsMiB"], 20_000);
    assert_eq!(programs[0].order("allocate 1000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    for program in &mut programs[1..] {
        assert_eq!(program.order("allocate 19000")["holdsMiB"], 19_000, "neighbours go on");
    }
    drop(programs);

    for claim in &claims[..3] {
        unprepare(&preparer, claim).await.unwrap();
    }
    assert_eq!(node.host.list().await.len(), 1, "the last share keeps it");
    let whole = claim("whole");
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    let error = prepare(&preparer, &whole).await.unwrap_err();
    assert!(matches!(error, PrepareError::Held { .. }), "{error}");
    unprepare(&preparer, &claims[3]).await.unwrap();
    assert!(node.is_empty().await);
    prepare(&preparer, &whole).await.unwrap();
    assert!(Container::of(&node.spec(&whole)).run(&node.host).device["mpsServer"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_those_of_each_process_and_the_daemon_allows_no_more_than_the_largest() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let device = node.device(0, "mps");
    let (small, large) = (claim("small"), claim("large"));
    node.allocate_mps(&small, &device, "4Gi", 40, 4);
    prepare(&preparer, &small).await.unwrap();
    let container = Container::of(&node.spec(&small));
    assert_eq!(container.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some("0=1024M"));
    assert_eq!(container.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("10"));
    let hostile = |container: &Container| Container { environment: Vec::new(), pipe: container.pipe.clone() };
    assert_eq!(hostile(&container).run(&node.host).device["memoryLimitMiB"], 1024);
    node.allocate_mps(&large, &device, "8Gi", 50, 1);
    prepare(&preparer, &large).await.unwrap();
    let program = hostile(&container).run(&node.host);
    assert_eq!(program.device["memoryLimitMiB"], 8192);
    assert_eq!(program.device["activeThreadPercentage"], 50.0);
    drop(program);
    assert_eq!(Container::of(&node.spec(&small)).run(&node.host).device["memoryLimitMiB"], 1024);
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_again_a_share_stays_and_a_lost_daemon_is_made_again() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    let devices = prepare(&preparer, &share).await.unwrap();
    let daemon = node.host.list().await;
    assert_eq!(prepare(&preparer, &share).await.unwrap(), devices);
    // Another instance of the plugin, as after an upgrade.
    drop(preparer);
    let preparer = node.start().await;
    assert_eq!(node.host.list().await, daemon);
    assert_eq!(prepare(&preparer, &share).await.unwrap(), devices);
    // mps-host's directory is lost.
    node.host.end_pod();
    std::fs::remove_dir_all(daemon[0].pipe_directory.parent().unwrap()).unwrap();
    node.host.start();
    assert_eq!(node.host.list().await, []);
    assert_eq!(prepare(&preparer, &share).await.unwrap(), devices);
    assert!(Container::of(&node.spec(&share)).run(&node.host).device["mpsServer"].is_u64());
    unprepare(&preparer, &share).await.unwrap();
    assert!(!is_there(&daemon[0].pipe_directory));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mps_host_a_share_waits_and_what_is_missing_is_said() {
    let mut node = Node::without("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    let waiting = {
        let (preparer, share) = (preparer.clone(), share.clone());
        tokio::spawn(async move { prepare(&preparer, &share).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    node.host.start();
    waiting.await.unwrap().unwrap();
    unprepare(&preparer, &share).await.unwrap();
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_ends_without_mps_host_and_the_card_is_kept_until_the_daemon_is_gone() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    prepare(&preparer, &share).await.unwrap();
    let supervisor = node.host.supervisor().unwrap();
    kill(node.host.reaper(), Signal::STOP);
    kill(supervisor, Signal::KILL);
    unprepare(&preparer, &share).await.unwrap();
    let whole = claim("whole");
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    let waiting = {
        let (preparer, whole) = (preparer.clone(), whole.clone());
        tokio::spawn(async move { prepare(&preparer, &whole).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "a daemon holds the card");
    assert_eq!(node.hardware(), [node.device(0, "mps")]);
    kill(node.host.reaper(), Signal::CONT);
    waiting.await.unwrap().unwrap();
    assert_eq!(node.host.card(0)["computeMode"], 0);
    unprepare(&preparer, &whole).await.unwrap();
    assert!(node.is_empty().await);
    node.host.end_pod();
}

#[tokio::test(flavor = "multi_thread")]
async fn allocations_that_cannot_be_enforced_are_refused_and_leave_nothing() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let device = node.device(0, "mps");
    let share = claim("share");
    for (memory, compute, clients, part) in
        [("0", 25, 1, "memory"), ("4Gi", 0, 1, "compute"), ("4Gi", 101, 1, "101"), ("4Gi", 25, 0, "clients")]
    {
        node.allocate_mps(&share, &device, memory, compute, clients);
        let error = prepare(&preparer, &share).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let mut two = [(); 2].map(|()| crate::api::result("gpu", &device)).to_vec();
    for (number, share) in two.iter_mut().enumerate() {
        share["shareID"] = format!("5ba7e000-0000-4000-8000-00000000000{number}").into();
        share["consumedCapacity"] = serde_json::json!({"memory": "1Gi", "compute": "10", "clients": "1"});
    }
    node.api.put(&share, two.clone());
    let error = prepare(&preparer, &share).await.unwrap_err().to_string();
    assert!(error.contains("one larger share"), "{error}");
    assert!(node.is_empty().await);
    // Two requests, for two containers.
    two[1]["request"] = "other".into();
    two[1]["consumedCapacity"]["memory"] = "2Gi".into();
    node.api.put(&share, two);
    prepare(&preparer, &share).await.unwrap();
    let spec = node.spec(&share).to_string();
    assert!(spec.contains("0=1024M") && spec.contains("0=2048M"), "{spec}");
    assert_eq!(node.host.list().await[0].settings.memory_limit_mib, Some(2048));
    unprepare(&preparer, &share).await.unwrap();
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_made_shared_and_destroyed() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let partition = node.device(0, "mig-3g40gb-4");
    let device = format!("{partition}-mps");
    let (one, other) = (claim("one"), claim("other"));
    for claim in [&one, &other] {
        node.allocate_mps(claim, &device, "10Gi", 50, 1);
        prepare(&preparer, claim).await.unwrap();
    }
    let daemons = node.host.list().await;
    assert_eq!(daemons.len(), 1);
    assert!(daemons[0].device.is_partition());
    assert_eq!(node.host.card(0)["computeMode"], 0, "a card with partitions keeps its mode");
    let mut hardware = node.hardware();
    hardware.sort();
    assert_eq!(hardware, [partition.clone(), device.clone(), node.device(0, "mig-mode")]);
    let mut program = Container::of(&node.spec(&one)).run(&node.host);
    assert_eq!(program.device["device"], daemons[0].device.as_str());
    assert_eq!(program.order("allocate 10000")["holdsMiB"], 10_000);
    assert_eq!(program.order("allocate 1000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    drop(program);
    unprepare(&preparer, &one).await.unwrap();
    assert_eq!(node.host.list().await, daemons);
    unprepare(&preparer, &other).await.unwrap();
    assert!(node.is_empty().await, "{:?}", node.hardware());
}
