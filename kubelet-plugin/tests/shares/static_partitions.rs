//! MPS shares with multiprocessors of their own.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::json;
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, ComputeCapability};
use tessera_kubelet_plugin::prepare::PrepareError;

use crate::container::Container;
use crate::host::{Host, kill};
use crate::machine::EmulatedMachine;
use crate::node::{Node, claim, prepare, unprepare};

/// A node with H100s and static partitions on offer; the published machine is not known yet.
pub fn node() -> Node {
    let mut node = Node::on(Host::on(EmulatedMachine::with("hgx-h100-80gb", &["--cuda-version", "13.1"])));
    node.host.start();
    ask_for(&node, true);
    node
}

fn ask_for(node: &Node, static_partitions: bool) {
    let config = json!({"sharing": {"mps": {"staticPartitions": static_partitions}}});
    node.offer(&config);
}

pub fn publish(node: &Node, cores: Option<u32>) {
    let cards = node.host.machine.cards();
    let card = |known: &serde_json::Value| {
        let mut card = Card::new(known["pci"].as_str().unwrap().parse().unwrap());
        card.uuid = Some(known["uuid"].as_str().unwrap().to_owned());
        card.compute_capability = Some(ComputeCapability { major: 9, minor: 0 });
        card.cores = cores;
        card
    };
    let cards = cards.iter().map(card).collect();
    let machine = Machine { cuda_driver_version: Some(13_010), cards, ..Machine::default() };
    node.published.send_replace(Some(Arc::new(machine)));
}

/// The same, with the machine published.
pub fn published_node() -> Node {
    let node = node();
    publish(&node, Some(16_896));
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_containers_programs_have_what_its_share_has() {
    let node = node();
    publish(&node, Some(16_896));
    let preparer = node.start().await;
    let device = node.device(0, "mps");
    let (one, other) = (claim("one"), claim("other"));
    // Two processes share one partition.
    node.allocate_mps(&one, &device, "20Gi", 50, 2);
    node.allocate_mps(&other, &device, "20Gi", 25, 1);
    for claim in [&one, &other] {
        prepare(&preparer, claim).await.unwrap();
    }
    let container = Container::of(&node.spec(&one));
    assert_eq!(container.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), None);
    assert_eq!(container.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Some("0=10240M"));
    let mut programs = [container.run(&node.host), container.run(&node.host)];
    for program in &mut programs {
        assert_eq!(program.device["multiprocessors"], 56, "7 of 15 chunks");
        assert_eq!(program.order("allocate 10000")["holdsMiB"], 10_000);
        assert_eq!(program.order("allocate 1000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    }
    assert_eq!(Container::of(&node.spec(&other)).run(&node.host).device["multiprocessors"], 24);
    drop(programs);

    // A later share gets the chunks of an ended one.
    unprepare(&preparer, &one).await.unwrap();
    let later = claim("later");
    node.allocate_mps(&later, &device, "20Gi", 75, 1);
    prepare(&preparer, &later).await.unwrap();
    assert_eq!(Container::of(&node.spec(&later)).run(&node.host).device["multiprocessors"], 88);
    for claim in [&other, &later] {
        unprepare(&preparer, claim).await.unwrap();
    }
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_stays_shared_as_it_is_until_its_last_share_leaves() {
    let node = node();
    publish(&node, Some(16_896));
    let preparer = node.start().await;
    let device = node.device(0, "mps");
    let (first, second, third) = (claim("first"), claim("second"), claim("third"));
    node.allocate_mps(&first, &device, "10Gi", 25, 1);
    prepare(&preparer, &first).await.unwrap();
    ask_for(&node, false);
    node.allocate_mps(&second, &device, "10Gi", 25, 1);
    prepare(&preparer, &second).await.unwrap();
    assert!(Container::of(&node.spec(&second)).variable("CUDA_MPS_SM_PARTITION").is_some());
    for claim in [&first, &second] {
        unprepare(&preparer, claim).await.unwrap();
    }
    node.allocate_mps(&third, &device, "10Gi", 25, 1);
    prepare(&preparer, &third).await.unwrap();
    assert_eq!(Container::of(&node.spec(&third)).variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("25"));
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_again_a_claim_has_the_partition_that_is_there_now() {
    let node = node();
    publish(&node, Some(16_896));
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "10Gi", 25, 1);
    let devices = prepare(&preparer, &share).await.unwrap();
    let before = Container::of(&node.spec(&share));
    let daemon = node.host.list().await[0].clone();
    kill(daemon.pid.unwrap(), Signal::KILL);
    node.host.other_than(daemon.pid).await;
    assert!(before.run(&node.host).device["error"].is_string(), "the old name is nobody's");
    assert_eq!(prepare(&preparer, &share).await.unwrap(), devices);
    assert_eq!(Container::of(&node.spec(&share)).run(&node.host).device["multiprocessors"], 24);

    // A restarted container gets the spec's edits, without another Prepare.
    let daemon = node.host.list().await[0].clone();
    kill(daemon.pid.unwrap(), Signal::KILL);
    node.host.other_than(daemon.pid).await;
    preparer.restore_specs().await.unwrap();
    let spec = node.spec(&share);
    assert_eq!(Container::of(&spec).run(&node.host).device["multiprocessors"], 24);
    assert_eq!(prepare(&preparer, &share).await.unwrap(), devices);
    assert_eq!(node.spec(&share), spec, "the claim is prepared with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_yet_is_waited_for_and_what_cannot_be_is_refused() {
    let node = node();
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "10Gi", 25, 1);
    let waiting = {
        let (preparer, share) = (preparer.clone(), share.clone());
        tokio::spawn(async move { prepare(&preparer, &share).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    publish(&node, Some(16_896));
    waiting.await.unwrap().unwrap();
    unprepare(&preparer, &share).await.unwrap();

    publish(&node, None);
    let error = prepare(&preparer, &share).await.unwrap_err();
    assert!(matches!(error, PrepareError::Mps { may_pass: false, .. }), "{error}");
    assert!(error.to_string().contains("how many multiprocessors"), "{error}");
    publish(&node, Some(16_896));
    // Less than the published minimum: such an allocation can only be written by hand.
    node.allocate_mps(&share, &node.device(0, "mps"), "10Gi", 5, 1);
    let error = prepare(&preparer, &share).await.unwrap_err().to_string();
    assert!(error.contains("larger share"), "{error}");
    assert!(node.is_empty().await);
}
