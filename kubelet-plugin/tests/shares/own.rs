//! Devices held by one claim and shared by its pods and containers, as its configuration says.

use serde_json::{Value, json};
use tessera_kubelet_plugin::prepare::PrepareError;

use crate::container::Container;
use crate::node::{Node, claim, prepare, unprepare};

fn mps(percentage: u32, limit: &str) -> Value {
    json!({
        "strategy": "MPS", "mps": {"activeThreadPercentage": percentage, "pinnedDeviceMemoryLimit": limit},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_containers_of_a_claim_run_side_by_side_within_its_limits() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let shared = claim("shared");
    let device = node.device(0, "");
    node.allocate_configured(&shared, &[("gpu", &device)], &[(&["gpu"], "GpuConfig", mps(50, "10Gi"))]);
    let devices = prepare(&preparer, &shared).await.unwrap();
    assert_eq!(devices[0].device_name, device);
    assert_eq!(node.hardware(), [node.device(0, "sharing")]);
    let daemons = node.host.list().await;
    assert_eq!((daemons.len(), daemons[0].owner.as_deref()), (1, Some("uid-shared")));
    assert_eq!(node.host.card(0)["computeMode"], 3);

    let container = Container::of(&node.spec(&shared));
    assert_eq!(container.variable("CUDA_MPS_PIPE_DIRECTORY"), Some("/tmp/nvidia-mps"));
    assert_eq!(container.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some("0=10240M"));
    assert_eq!(container.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("50"));
    let (mut one, mut other) = (container.run(&node.host), container.run(&node.host));
    assert_eq!(one.device["multiprocessors"], 66);
    assert_eq!(one.order("allocate 10000")["holdsMiB"], 10_000);
    assert_eq!(other.order("allocate 10000")["holdsMiB"], 10_000, "limits are those of each process");
    assert_eq!(one.order("allocate 1000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(other.order("allocate 200")["holdsMiB"], 10_200, "the other goes on");
    // The daemon enforces the limit, whatever a container's environment says.
    let hostile = Container { environment: Vec::new(), pipe: container.pipe.clone() };
    assert_eq!(hostile.run(&node.host).device["memoryLimitMiB"], 10_240);
    drop((one, other));

    assert_eq!(prepare(&preparer, &shared).await.unwrap(), devices, "asked again, nothing is done");
    assert_eq!(node.host.list().await[0].pid, daemons[0].pid);
    let second = claim("second");
    node.api.allocate(&second, &[("gpu", &device)]);
    let error = prepare(&preparer, &second).await.unwrap_err();
    assert!(matches!(error, PrepareError::Held { .. }), "{error}");
    unprepare(&preparer, &shared).await.unwrap();
    assert!(node.is_empty().await, "{:?}", node.hardware());
    prepare(&preparer, &second).await.unwrap();
    assert!(Container::of(&node.spec(&second)).run(&node.host).device["mpsServer"].is_null());
}

/// Both entries of the claim have one CDI name; only the one that holds the card is a client of the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_may_also_look_at_the_card_that_it_shares() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let shared = claim("shared");
    let device = node.device(0, "");
    node.allocate_configured(
        &shared,
        &[("gpu", &device), ("watch", &device)],
        &[(&["gpu"], "GpuConfig", mps(50, "10Gi"))],
    );
    let devices = prepare(&preparer, &shared).await.unwrap();
    let daemon = node.host.list().await[0].pid;
    assert_eq!(prepare(&preparer, &shared).await.unwrap(), devices);
    assert_eq!(node.host.list().await[0].pid, daemon, "nothing was undone");
    unprepare(&preparer, &shared).await.unwrap();
    assert!(node.is_empty().await, "{:?}", node.hardware());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_limits_a_process_may_have_all() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let (limited, free) = (claim("limited"), claim("free"));
    let device = node.device(0, "");
    node.allocate_configured(&limited, &[("gpu", &device)], &[(&[], "GpuConfig", mps(50, "1Gi"))]);
    prepare(&preparer, &limited).await.unwrap();
    unprepare(&preparer, &limited).await.unwrap();
    node.allocate_configured(&free, &[("gpu", &device)], &[(&[], "GpuConfig", json!({"strategy": "MPS"}))]);
    prepare(&preparer, &free).await.unwrap();
    let container = Container::of(&node.spec(&free));
    assert_eq!(container.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), None);
    assert_eq!(container.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), None);
    let mut program = container.run(&node.host);
    assert!(program.device["mpsServer"].is_u64() && program.device["memoryLimitMiB"].is_null());
    assert_eq!(program.order("allocate 12000")["holdsMiB"], 12_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_daemon_serves_all_cards_of_an_object() {
    let mut node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let shared = claim("shared");
    let (first, second, third) = (node.device(5, ""), node.device(2, ""), node.device(7, ""));
    node.allocate_configured(
        &shared,
        &[("pair", &first), ("pair", &second), ("single", &third)],
        &[(&["pair"], "GpuConfig", mps(25, "20Gi")), (&["single"], "GpuConfig", mps(75, "30Gi"))],
    );
    let devices = prepare(&preparer, &shared).await.unwrap();
    assert_eq!(devices.len(), 3);
    let daemons = node.host.list().await;
    assert_eq!(daemons.len(), 2);
    let pair = daemons.iter().find(|daemon| daemon.others.len() == 1).unwrap();
    for card in [2, 5] {
        assert!(pair.serves(&node.uuid(card)) && !pair.serves(&node.uuid(7)));
    }
    for card in [2, 5, 7] {
        assert_eq!(node.host.card(card)["computeMode"], 3);
    }
    assert_eq!(node.hardware().len(), 3);

    let spec = node.spec(&shared);
    let containers: Vec<Container> = (0..3).map(|device| Container::with(&spec, device)).collect();
    assert_eq!(containers[0].pipe, containers[1].pipe);
    assert_ne!(containers[0].pipe, containers[2].pipe);
    let mut sorted = [node.uuid(2), node.uuid(5)];
    sorted.sort();
    for (number, uuid) in sorted.iter().enumerate() {
        let mut program = containers[0].run_on(&node.host, number);
        assert_eq!(program.device["device"], *uuid);
        assert_eq!(program.device["activeThreadPercentage"], 25.0);
        assert_eq!(program.order("allocate 20000")["holdsMiB"], 20_000);
        assert_eq!(program.order("allocate 1000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    }
    let single = containers[2].run(&node.host);
    assert_eq!(
        (&single.device["device"], &single.device["memoryLimitMiB"]),
        (&json!(node.uuid(7)), &json!(30_720))
    );
    drop(single);

    // A new supervisor takes over the daemon with all its cards, a new instance of the plugin the claim.
    let supervisor = node.host.supervisor().unwrap();
    crate::host::kill(supervisor, rustix::process::Signal::KILL);
    node.host.until("a new supervisor", || node.host.supervisor().is_some_and(|pid| pid != supervisor)).await;
    assert_eq!(node.host.list().await, daemons);
    drop(preparer);
    let preparer = node.start().await;
    assert_eq!(prepare(&preparer, &shared).await.unwrap(), devices);
    // mps-host's pod ends, and the next one starts.
    node.host.end_pod();
    node.host.start();
    let pair_of = |daemons: &[tessera_mps_host::protocol::Daemon]| {
        daemons
            .iter()
            .find(|daemon| daemon.others.len() == 1)
            .is_some_and(|daemon| daemon.server_pid.is_some())
    };
    let since = std::time::Instant::now();
    while !pair_of(&node.host.list().await) {
        assert!(since.elapsed() < crate::host::LONG, "{:?}", node.host.list().await);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let program = containers[1].run_on(&node.host, 1);
    assert_eq!(
        (&program.device["device"], &program.device["memoryLimitMiB"]),
        (&json!(sorted[1]), &json!(20_480))
    );
    drop(program);

    unprepare(&preparer, &shared).await.unwrap();
    assert!(node.is_empty().await, "{:?}", node.hardware());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_made_and_shared_within_its_claim() {
    let node = Node::new("hgx-h100-80gb");
    let preparer = node.start().await;
    let shared = claim("shared");
    let (large, small) = (node.device(0, "mig-3g40gb-4"), node.device(0, "mig-1g10gb-0"));
    node.allocate_configured(
        &shared,
        &[("large", &large), ("small", &small)],
        &[(&[], "MigDeviceConfig", mps(50, "4Gi"))],
    );
    prepare(&preparer, &shared).await.unwrap();
    let daemons = node.host.list().await;
    assert_eq!(daemons.len(), 2, "partitions have a daemon each");
    assert!(daemons.iter().all(|daemon| daemon.device.is_partition() && daemon.others.is_empty()));
    assert_eq!(node.host.card(0)["computeMode"], 0);
    let spec = node.spec(&shared);
    for number in 0..2 {
        let container = Container::with(&spec, number);
        let (mut one, mut other) = (container.run(&node.host), container.run(&node.host));
        assert_eq!(one.device["device"], other.device["device"]);
        assert_eq!(one.order("allocate 4000")["holdsMiB"], 4000);
        assert_eq!(one.order("allocate 1000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(other.order("allocate 4000")["holdsMiB"], 4000);
    }
    unprepare(&preparer, &shared).await.unwrap();
    assert!(node.is_empty().await, "{:?}", node.hardware());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claims_own_time_slices() {
    let node = Node::new("hgx-a100-80gb");
    let preparer = node.start().await;
    let (shared, default) = (claim("shared"), claim("default"));
    let slicing = |interval: &str| json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": interval}});
    node.allocate_configured(
        &shared,
        &[("two", &node.device(1, "")), ("two", &node.device(2, "")), ("other", &node.device(3, ""))],
        &[(&["two"], "GpuConfig", slicing("Long")), (&["other"], "GpuConfig", slicing("Short"))],
    );
    let smi = |arguments: &[&str]| {
        let program = node.host.machine.root().join("bin/nvidia-smi");
        assert!(std::process::Command::new(program).args(arguments).output().unwrap().status.success());
    };
    smi(&["-i", &node.uuid(2), "-c", "EXCLUSIVE_PROCESS"]);
    prepare(&preparer, &shared).await.unwrap();
    let slices =
        |node: &Node| (1..4).map(|card| node.host.card(card)["timeSlice"].clone()).collect::<Vec<_>>();
    assert_eq!(slices(&node), [json!(3), json!(3), json!(1)]);
    assert_eq!(node.host.card(2)["computeMode"], 0);
    assert_eq!(node.host.list().await, []);
    unprepare(&preparer, &shared).await.unwrap();
    assert_eq!(slices(&node), [json!(0), json!(0), json!(0)]);
    assert_eq!(node.host.card(2)["computeMode"], 3, "as its administrator had it");
    // An interval never set is not restored: the driver's own stays.
    node.allocate_configured(
        &default,
        &[("gpu", &node.device(1, ""))],
        &[(&[], "GpuConfig", slicing("Default"))],
    );
    smi(&["compute-policy", "-i", &node.uuid(1), "--set-timeslice", "2"]);
    prepare(&preparer, &default).await.unwrap();
    unprepare(&preparer, &default).await.unwrap();
    assert_eq!(node.host.card(1)["timeSlice"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nvidias_kinds_under_its_name() {
    let node = Node::named_as_nvidias("hgx-h100-80gb");
    let preparer = node.start().await;
    let (shared, partition) = (claim("shared"), claim("partition"));
    let mut sorted = [node.uuid(1), node.uuid(4)];
    sorted.sort();
    let config = json!({"strategy": "MPS", "mpsConfig": {
        "defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi",
        "defaultPerDevicePinnedMemoryLimit": {"1": "2Gi"}, "multiUser": true,
    }});
    let long = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    node.allocate_configured(
        &shared,
        &[("mps", &node.device(1, "")), ("mps", &node.device(4, "")), ("ts", &node.device(2, ""))],
        &[(&["mps"], "GpuConfig", config), (&["ts"], "GpuConfig", long)],
    );
    prepare(&preparer, &shared).await.unwrap();
    assert_eq!(node.host.card(2)["timeSlice"], 3);
    let container = Container::of(&node.spec(&shared));
    for (number, (uuid, limit)) in sorted.iter().zip([10_240, 2048]).enumerate() {
        let program = container.run_on(&node.host, number);
        assert_eq!(
            (&program.device["device"], &program.device["memoryLimitMiB"]),
            (&json!(uuid), &json!(limit))
        );
        assert_eq!(program.device["activeThreadPercentage"], 50.0);
    }
    unprepare(&preparer, &shared).await.unwrap();

    // Time-slicing of a partition sets nothing. A limit above the device's memory has no effect.
    let above = json!({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "200Gi"}});
    for (sharing, limit) in [(json!({"strategy": "TimeSlicing"}), None), (above, Some(Value::Null))] {
        let device = node.device(0, "mig-1g10gb-2");
        node.allocate_configured(&partition, &[("mig", &device)], &[(&["mig"], "MigDeviceConfig", sharing)]);
        prepare(&preparer, &partition).await.unwrap();
        assert_eq!(node.host.list().await.len(), usize::from(limit.is_some()));
        if let Some(limit) = limit {
            let program = Container::of(&node.spec(&partition)).run(&node.host);
            assert_eq!(program.device["memoryLimitMiB"], limit);
        }
        unprepare(&preparer, &partition).await.unwrap();
    }
    assert!(node.is_empty().await, "{:?}", node.hardware());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_gone_is_made_again_for_its_claim() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let shared = claim("shared");
    node.allocate_configured(&shared, &[("gpu", &node.device(0, ""))], &[(&[], "GpuConfig", mps(50, "2Gi"))]);
    let devices = prepare(&preparer, &shared).await.unwrap();
    let daemon = node.host.list().await.remove(0);
    node.host.end_pod();
    std::fs::remove_dir_all(daemon.pipe_directory.parent().unwrap()).unwrap();
    node.host.start();
    preparer.repair().await.unwrap();
    assert_eq!(Container::of(&node.spec(&shared)).run(&node.host).device["memoryLimitMiB"], 2048);
    assert_eq!(prepare(&preparer, &shared).await.unwrap(), devices);
    unprepare(&preparer, &shared).await.unwrap();
    // The card's earlier mode is lost with the directory.
    assert_eq!((node.hardware(), node.host.list().await), (vec![], vec![]));
}
