//! How the plugin follows mps-host's daemons.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tessera_dra_kubelet::ClaimReference;
use tessera_fakes::poll::until_async;
use tessera_kubelet_plugin::prepare::MpsMetrics;
use tessera_kubelet_plugin::prepare::Preparer;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::container::Container;
use crate::host::kill;
use crate::node::{Node, claim, prepare, unprepare};
use crate::static_partitions;

/// A preparer that follows mps-host until dropped.
pub struct Following {
    pub metrics: MpsMetrics,
    _stop: DropGuard,
}

impl Following {
    pub fn start(preparer: &Preparer) -> Self {
        let (metrics, stop) = (MpsMetrics::default(), CancellationToken::new());
        let (preparer, copy, token) = (preparer.clone(), metrics.clone(), stop.clone());
        tokio::spawn(async move { preparer.follow_mps(copy, token).await });
        Self { metrics, _stop: stop.drop_guard() }
    }

    pub async fn is_connected(&self) {
        until_async("followed", async || self.metrics.host_up.get() == 1).await;
    }
}

/// Allocates a share to a claim of a pod with the same name.
pub fn allocate(node: &Node, claim: &ClaimReference, memory: &str) {
    let mut share = crate::api::result("gpu", &node.device(0, "mps"));
    share["shareID"] = format!("5ba7e000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 47)).into();
    share["consumedCapacity"] = json!({"memory": memory, "compute": "25", "clients": "1"});
    let pod = json!({"resource": "pods", "name": claim.name, "uid": format!("pod-{}", claim.uid)});
    let status = json!({"allocation": {"devices": {"results": [share]}}, "reservedFor": [pod]});
    node.api.put_status(claim, status);
}

/// A node with one card, whose preparer follows mps-host and has prepared a share of the card.
pub async fn with_share() -> (Node, Preparer, Following, ClaimReference) {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    following.is_connected().await;
    let share = claim("share");
    allocate(&node, &share, "4Gi");
    prepare(&preparer, &share).await.unwrap();
    (node, preparer, following, share)
}

/// The Events with this reason: kind and name of their objects, with their notes.
fn events(node: &Node, reason: &str) -> Vec<(String, String)> {
    let events = node.api.events();
    let of_reason = events.iter().filter(|event| event["reason"] == reason);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of_reason
        .map(|event| {
            let object = &event["regarding"];
            let about = format!("{} {}", text(&object["kind"]), text(&object["name"]));
            (about, text(&event["note"]))
        })
        .collect()
}

async fn told(node: &Node, reason: &str, about: &[&str], note: &str) {
    until_async(&format!("{reason} of {about:?}"), async || {
        let events = events(node, reason);
        about.iter().all(|about| events.iter().any(|(is, says)| is == about && says.contains(note)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_told_of_a_dead_server_and_only_they() {
    let node = Node::new("hgx-a100-80gb");
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    following.is_connected().await;
    let claims = [claim("one"), claim("two")];
    for claim in &claims {
        allocate(&node, claim, "4Gi");
        prepare(&preparer, claim).await.unwrap();
    }
    let other = claim("other");
    node.allocate_mps(&other, &node.device(1, "mps"), "4Gi", 25, 1);
    prepare(&preparer, &other).await.unwrap();
    let device = node.device(0, "mps");
    let daemons = node.host.list().await;
    let uuid = node.host.machine.cards()[0]["uuid"].clone();
    let daemon = daemons.iter().find(|daemon| daemon.device.as_str() == uuid.as_str().unwrap()).unwrap();
    kill(daemon.server_pid.unwrap(), Signal::KILL);
    told(&node, "MPSServerDied", &["Pod one", "Pod two"], &device).await;
    told(&node, "MPSRestarted", &["Pod one", "Pod two"], &device).await;
    assert_eq!(events(&node, "MPSServerDied").len(), 2);
    let metrics = &following.metrics;
    until_async("counted", async || metrics.restarts.get() == 1).await;
    // A loop of deaths is reported only once.
    for _ in 0..5 {
        let pid = node.host.list().await.iter().find(|daemon| daemon.device.as_str() == uuid).unwrap().pid;
        if let Some(pid) = pid {
            kill(pid, Signal::KILL);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    until_async("counted", async || metrics.restarts.get() > 1).await;
    for reason in ["MPSServerDied", "MPSRestarted"] {
        assert_eq!(events(&node, reason).len(), 2, "{:?}", node.api.events());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_lost_their_contexts_with_mps_hosts_pod_are_told_when_it_is_back() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    let share = claim("share");
    allocate(&node, &share, "4Gi");
    prepare(&preparer, &share).await.unwrap();
    following.is_connected().await;
    let program = Container::of(&node.spec(&share)).run(&node.host);
    until_async("seen", async || following.metrics.daemons_in("running") == 1).await;
    node.host.end_pod();
    until_async("lost", async || following.metrics.host_up.get() == 0).await;
    drop(program);
    node.host.start();
    following.is_connected().await;
    told(&node, "MPSServerDied", &["Pod share"], "mps-host's pod").await;
    // Its directory is lost too: the daemon is made again without a call.
    let pipe = node.host.list().await[0].pipe_directory.clone();
    node.host.end_pod();
    // The plugin records the closed card there.
    until_async("closed", async || node.host.card(0)["computeMode"] == 2).await;
    fs::remove_dir_all(pipe.parent().unwrap()).unwrap();
    node.host.start();
    until_async("made anew", async || node.host.list().await.len() == 1 && pipe.exists()).await;
    unprepare(&preparer, &share).await.unwrap();
    // The card's earlier compute mode is lost with the directory.
    assert_eq!((node.hardware(), node.host.list().await), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_go_down_with_the_largest_share() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    following.is_connected().await;
    let [small, middle, large] = ["small", "middle", "large"].map(claim);
    for (claim, memory) in [(&small, "1Gi"), (&large, "8Gi"), (&middle, "4Gi")] {
        allocate(&node, claim, memory);
        prepare(&preparer, claim).await.unwrap();
    }
    let limit = async || node.host.list().await[0].settings.memory_limit_mib;
    assert_eq!(limit().await, Some(8192));
    unprepare(&preparer, &large).await.unwrap();
    assert_eq!(limit().await, Some(4096));
    let container = Container::of(&node.spec(&small));
    let hostile = Container { environment: Vec::new(), pipe: container.pipe.clone() };
    assert_eq!(hostile.run(&node.host).device["memoryLimitMiB"], 4096);
    // A pod ends without mps-host, and mps-host gets the change on return.
    let supervisor = node.host.supervisor().unwrap();
    kill(supervisor, Signal::STOP);
    unprepare(&preparer, &middle).await.unwrap();
    kill(supervisor, Signal::CONT);
    until_async("lowered", async || limit().await == Some(1024)).await;
    unprepare(&preparer, &small).await.unwrap();
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_will_not_leave_is_ended_in_its_time_and_its_pod_told() {
    let (node, preparer, following, share) = with_share().await;
    let mut program = Container::of(&node.spec(&share)).run(&node.host);
    let since = Instant::now();
    unprepare(&preparer, &share).await.unwrap();
    // The kubelet gives a call 45 s.
    assert!(since.elapsed() < Duration::from_secs(40), "{:?}", since.elapsed());
    assert_eq!(program.says()["error"], "CUDA_ERROR_MPS_RPC_FAILURE");
    let process = format!("process {} (cuda-sample)", program.pid());
    told(&node, "MPSClientsEnded", &["Pod share"], &process).await;
    until_async("counted", async || following.metrics.clients_ended.get() == 1).await;
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_told_with_who_must_end_and_a_share_waits_for_that() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    following.is_connected().await;
    let (share, next) = (claim("share"), claim("next"));
    for claim in [&share, &next] {
        allocate(&node, claim, "4Gi");
    }
    prepare(&preparer, &share).await.unwrap();
    let container = Container::of(&node.spec(&share));
    let (mut notebook, mut faulty) = (container.run(&node.host), container.run(&node.host));
    notebook.order("linger");
    assert_eq!(faulty.order("fault")["error"], "CUDA_ERROR_LAUNCH_FAILED");
    drop(faulty);
    let process = format!("process {} (cuda-sample)", notebook.pid());
    told(&node, "MPSServerFault", &["Pod share"], &process).await;
    until_async("counted", async || {
        following.metrics.daemons_in("fault") == 1 && following.metrics.server_faults.get() == 1
    })
    .await;
    // The next claim would find no server, so has to wait for one.
    let (copy, waiting) = (preparer.clone(), next.clone());
    let prepared = tokio::spawn(async move { prepare(&copy, &waiting).await });
    told(&node, "MPSNotReady", &["ResourceClaim next"], &process).await;
    drop(notebook);
    prepared.await.unwrap().unwrap();
    told(&node, "MPSRecovered", &["Pod share"], &node.device(0, "mps")).await;
    assert!(Container::of(&node.spec(&next)).run(&node.host).device["error"].is_null());
    assert_eq!(following.metrics.restarts.get(), 0);
    // Both can be unprepared as usual.
    for claim in [&share, &next] {
        unprepare(&preparer, claim).await.unwrap();
    }
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_while_no_plugin_ran_is_told_once_by_the_next_ones() {
    let node = Node::new("t4");
    let (preparer, share) = (node.start().await, claim("share"));
    allocate(&node, &share, "4Gi");
    prepare(&preparer, &share).await.unwrap();
    let container = Container::of(&node.spec(&share));
    let (mut notebook, mut faulty) = (container.run(&node.host), container.run(&node.host));
    notebook.order("linger");
    assert_eq!(faulty.order("fault")["error"], "CUDA_ERROR_LAUNCH_FAILED");
    drop(faulty);
    node.host.daemon("at fault", |daemon| daemon.fault.is_some()).await;
    let following = Following::start(&preparer);
    let process = format!("process {} (cuda-sample)", notebook.pid());
    told(&node, "MPSServerFault", &["Pod share"], &process).await;
    assert_eq!(following.metrics.server_faults.get(), 0, "it was before this plugin");
    drop(following);
    let second = node.start().await;
    let following = Following::start(&second);
    following.is_connected().await;
    drop(notebook);
    told(&node, "MPSRecovered", &["Pod share"], &node.device(0, "mps")).await;
    drop(following);
    let stored = node.api.stored_events();
    let faults: Vec<&Value> = stored.iter().filter(|event| event["reason"] == "MPSServerFault").collect();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0]["series"].is_null(), "told once: {faults:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_of_an_upgrade_tell_the_same_once() {
    let node = Node::new("t4");
    let preparer = node.start().await;
    let share = claim("share");
    allocate(&node, &share, "4Gi");
    prepare(&preparer, &share).await.unwrap();
    let second = node.start().await;
    let instances = [Following::start(&preparer), Following::start(&second)];
    for following in &instances {
        following.is_connected().await;
    }
    let of_reason = |reason: &str| {
        let events = node.api.stored_events();
        events.into_iter().filter(|event| event["reason"] == reason).collect::<Vec<Value>>()
    };
    kill(node.host.list().await[0].server_pid.unwrap(), Signal::KILL);
    for following in &instances {
        until_async("running again", async || following.metrics.restarts.get() == 1).await;
    }
    told(&node, "MPSRestarted", &["Pod share"], "").await;
    // Each instance sends its Events in order: when this one has arrived, all earlier ones have.
    for (preparer, name) in [(&preparer, "first"), (&second, "second")] {
        let marker = claim(name);
        node.api.put_status(
            &marker,
            json!({"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.tessera.dev", "pool": "elsewhere", "device": "gpu-00-00"},
            ]}}}),
        );
        prepare(preparer, &marker).await.unwrap_err();
        told(&node, "PrepareFailed", &[&format!("ResourceClaim {name}")], "").await;
    }
    for reason in ["MPSServerDied", "MPSRestarted"] {
        let events = of_reason(reason);
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0]["series"].is_null(), "told once: {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_neither_the_plugin_nor_mps_host_ran_is_told() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    following.is_connected().await;
    let (share, late) = (claim("share"), claim("late"));
    for claim in [&share, &late] {
        allocate(&node, claim, "4Gi");
    }
    prepare(&preparer, &share).await.unwrap();
    drop((following, preparer));
    node.host.end_pod();
    node.host.start();
    node.host.daemon("running", |daemon| daemon.server_pid.is_some()).await;
    let preparer = node.start().await;
    // A claim prepared on the new server has lost nothing.
    prepare(&preparer, &late).await.unwrap();
    let following = Following::start(&preparer);
    told(&node, "MPSServerDied", &["Pod share"], "mps-host's pod").await;
    assert_eq!(events(&node, "MPSServerDied").len(), 1, "{:?}", node.api.events());
    // The next instance has nothing to report: the claim's record has the new server.
    drop(following);
    let following = Following::start(&preparer);
    following.is_connected().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(events(&node, "MPSServerDied").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn specs_follow_the_static_partitions_of_a_new_daemon() {
    let node = static_partitions::node();
    static_partitions::publish(&node, Some(16_896));
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    following.is_connected().await;
    let share = claim("share");
    allocate(&node, &share, "10Gi");
    prepare(&preparer, &share).await.unwrap();
    let before = node.spec(&share);
    kill(node.host.list().await[0].pid.unwrap(), Signal::KILL);
    // Right after mps-host's report: the next look at all specs is minutes away.
    until_async("other", async || node.spec(&share) != before).await;
    assert_eq!(Container::of(&node.spec(&share)).run(&node.host).device["multiprocessors"], 24);
}
