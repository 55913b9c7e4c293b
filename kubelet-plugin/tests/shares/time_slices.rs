//! Shares by time.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::container::Container;
use crate::node::{Node, claim, prepare, unprepare};

fn config(interval: &str) -> Value {
    let object = json!({
        "sharing": {"timeSlicing": {"replicas": 10, "interval": interval}},
    });
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_shares_of_a_card_with_the_interval_of_its_node() {
    let node = Node::new("hgx-a100-80gb");
    node.offer(&config("Medium"));
    let preparer = node.start().await;
    let device = node.device(3, "ts");
    let claims: Vec<_> = (0..10).map(|number| claim(&format!("slice-{number}"))).collect();
    for claim in &claims {
        node.allocate_time_slice(claim, &device);
        prepare(&preparer, claim).await.unwrap();
    }
    assert_eq!(node.host.card(3)["timeSlice"], 2);
    assert_eq!(node.host.card(2)["timeSlice"], 0);
    assert_eq!(node.hardware(), [device.as_str()]);
    let uuid = node.host.machine.cards()[3]["uuid"].as_str().unwrap();
    let containers: Vec<Container> = claims.iter().map(|claim| Container::of(&node.spec(claim))).collect();
    assert!(containers.iter().all(|container| container.pipe.is_none()));
    // The only card in the container.
    let run = |container: &Container| {
        let mut environment = container.environment.clone();
        environment.push(("CUDA_VISIBLE_DEVICES".into(), uuid.into()));
        Container { environment, pipe: None }.run(&node.host)
    };
    let programs: Vec<_> = containers.iter().map(run).collect();
    assert!(programs.iter().all(|program| program.device["device"] == uuid), "all at once");
    drop(programs);
    // Another interval applies from the next first share on.
    node.offer(&config("Long"));
    for claim in &claims[1..] {
        unprepare(&preparer, claim).await.unwrap();
    }
    assert_eq!(node.host.card(3)["timeSlice"], 2);
    unprepare(&preparer, &claims[0]).await.unwrap();
    assert!(node.is_empty().await);
    prepare(&preparer, &claims[0]).await.unwrap();
    assert_eq!(node.host.card(3)["timeSlice"], 3);
}

/// As in a pod: the driver's root is another system's, whose libraries (except the driver's) this one's loader can't
/// use.
#[tokio::test(flavor = "multi_thread")]
async fn nvidia_smi_of_another_system_runs_with_this_ones_libc() {
    let node = Node::without("t4");
    std::fs::write(node.host.machine.root().join("lib/libc.so.6"), "of another system").unwrap();
    node.offer(&config("Medium"));
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_time_slice(&share, &node.device(0, "ts"));
    prepare(&preparer, &share).await.unwrap();
    assert_eq!(node.host.card(0)["timeSlice"], 2);
    unprepare(&preparer, &share).await.unwrap();
    assert_eq!(node.host.card(0)["timeSlice"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_lets_nobody_in_is_opened_and_closed_again() {
    let node = Node::new("t4");
    let smi = |mode: &str| {
        let program = node.host.machine.root().join("bin/nvidia-smi");
        let output = std::process::Command::new(program).args(["-c", mode]).output().unwrap();
        assert!(output.status.success());
    };
    smi("EXCLUSIVE_PROCESS");
    let preparer = node.start().await;
    let (one, other) = (claim("one"), claim("other"));
    for claim in [&one, &other] {
        node.allocate_time_slice(claim, &node.device(0, "ts"));
        prepare(&preparer, claim).await.unwrap();
    }
    assert_eq!(node.host.card(0)["computeMode"], 0);
    unprepare(&preparer, &one).await.unwrap();
    assert_eq!(node.host.card(0)["computeMode"], 0);
    unprepare(&preparer, &other).await.unwrap();
    assert_eq!(node.host.card(0)["computeMode"], 3, "as its administrator had it");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_tool_the_drivers_own_interval_works_and_others_say_what_is_missing() {
    let node = Node::new("t4");
    std::fs::remove_file(node.host.machine.root().join("bin/nvidia-smi")).unwrap();
    let preparer = node.start().await;
    let slice = claim("slice");
    node.allocate_time_slice(&slice, &node.device(0, "ts"));
    prepare(&preparer, &slice).await.unwrap();
    unprepare(&preparer, &slice).await.unwrap();
    node.offer(&config("Short"));
    let error = prepare(&preparer, &slice).await.unwrap_err().to_string();
    assert!(error.contains("nvidia-smi") && error.contains("interval"), "{error}");
    // Nothing was set, so nothing has to be restored: the card is free for others.
    assert_eq!(node.hardware(), [""; 0]);
    let whole = claim("whole");
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    prepare(&preparer, &whole).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tool_refuses_to_set_is_not_put_back() {
    let node = Node::new("t4");
    let tool = node.host.machine.root().join("bin/nvidia-smi");
    let real = std::fs::canonicalize(&tool).unwrap();
    let calls = node.host.directory().join("calls");
    let script = format!(
        "#!/bin/sh\n[ $1 = compute-policy ] || exec {} \"$@\"\necho \"$@\" >>{}\necho 'not this card'\nexit 3\n",
        real.display(),
        calls.display()
    );
    let new = tool.with_extension("new");
    std::fs::write(&new, script).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, &tool).unwrap();
    node.offer(&config("Short"));
    let preparer = node.start().await;
    let (slice, whole) = (claim("slice"), claim("whole"));
    node.allocate_time_slice(&slice, &node.device(0, "ts"));
    let error = prepare(&preparer, &slice).await.unwrap_err().to_string();
    assert!(error.contains("not this card"), "{error}");
    assert_eq!(node.hardware(), [""; 0]);
    assert_eq!(std::fs::read_to_string(calls).unwrap().lines().count(), 1);
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    prepare(&preparer, &whole).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_ends_although_the_tool_is_gone_and_its_card_waits_for_it() {
    let node = Node::new("t4");
    node.offer(&config("Short"));
    let preparer = node.start().await;
    let (slice, whole) = (claim("slice"), claim("whole"));
    node.allocate_time_slice(&slice, &node.device(0, "ts"));
    prepare(&preparer, &slice).await.unwrap();
    let tool = node.host.machine.root().join("bin/nvidia-smi");
    let aside = tool.with_extension("aside");
    std::fs::rename(&tool, &aside).unwrap();
    unprepare(&preparer, &slice).await.unwrap();
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    let error = prepare(&preparer, &whole).await.unwrap_err().to_string();
    assert!(error.contains("there is no nvidia-smi below"), "{error}");
    std::fs::rename(&aside, &tool).unwrap();
    assert_eq!(node.host.card(0)["timeSlice"], 1);
    prepare(&preparer, &whole).await.unwrap();
    assert_eq!(node.host.card(0)["timeSlice"], 0);
    unprepare(&preparer, &whole).await.unwrap();
    assert!(node.is_empty().await, "{:?}", node.hardware());
}
