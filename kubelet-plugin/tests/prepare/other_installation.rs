//! Two installations of Tessera on one node, as after a change of the driver's name: neither takes the other's cards.

use std::sync::Arc;

use serde_json::{Value, json};
use tessera_journal::LocalFileSystem;
use tessera_kubelet_plugin::prepare::{PrepareError, PrepareObserver, PrepareOptions, Preparer};

use crate::support::{Node, claim, prepare, result, unprepare};

const OTHER: &str = "gpu.nvidia.com";

/// Starts an instance with another driver name on the same node.
async fn start_other(node: &Node) -> Preparer {
    let base = node.options(Arc::new(LocalFileSystem));
    let mut options = PrepareOptions::new(OTHER, "node-a", &node.path().join("kubelet"));
    options.cdi_directory = base.cdi_directory;
    options.roots = base.roots;
    options.patience = base.patience;
    options.short_patience = base.short_patience;
    options.answer_within = base.answer_within;
    options.mps_directory = base.mps_directory;
    let journal = Arc::new(options.open_journal().unwrap());
    let seen: Arc<dyn PrepareObserver> = node.seen.clone();
    let (client, hardware, published) =
        (node.api.client(), node.hardware.subscribe(), node.published.subscribe());
    Preparer::open(options, journal, client, hardware, published, seen).await.unwrap()
}

fn of_other(device: &str) -> Vec<Value> {
    let mut result = result("gpus", device);
    result["driver"] = json!(OTHER);
    result["pool"] = json!(format!("{OTHER}/node-a"));
    vec![result]
}

fn names_holder(error: &PrepareError, uid: &str, driver: &str) {
    assert_eq!(error.reason(), "held", "{error}");
    let text = error.to_string();
    assert!(text.contains(uid) && text.contains(driver), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_takes_what_the_other_has_prepared() {
    let node = Node::new(3);
    let (ours, theirs) = (node.start().await, start_other(&node).await);
    let (whole, part) = (claim("whole"), claim("part"));
    node.api.allocate(&whole, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&part, &[("gpus", "gpu-02-00-mig-1g10gb-6")]);
    prepare(&ours, &whole).await.unwrap();
    prepare(&ours, &part).await.unwrap();
    let instance = &node.record(&part)["devices"][0]["partition"]["instances"]["gpuInstance"].to_string();

    let contested = claim("contested");
    for (device, holder) in [
        ("gpu-01-00".to_owned(), &whole),
        ("gpu-01-00-mig-1g10gb-0".to_owned(), &whole),
        ("gpu-02-00".to_owned(), &part),
        // The same partition for the other installation: an existing one.
        (format!("gpu-02-00-mig-1g10gb-6-gi{instance}-ci0"), &part),
    ] {
        node.api.put(&contested, of_other(&device));
        names_holder(&prepare(&theirs, &contested).await.unwrap_err(), &holder.uid, "gpu.tessera.dev");
    }
    // The other way round, and with a free card.
    node.api.put(&contested, of_other("gpu-03-00"));
    prepare(&theirs, &contested).await.unwrap();
    let late = claim("late");
    node.api.allocate(&late, &[("gpus", "gpu-03-00")]);
    names_holder(&prepare(&ours, &late).await.unwrap_err(), &contested.uid, OTHER);
    // Neither cleans up the other's devices.
    ours.sweep().await.unwrap();
    theirs.sweep().await.unwrap();
    assert_eq!(node.cards.instances().1.len(), 1);

    unprepare(&ours, &part).await.unwrap();
    node.api.put(&claim("next"), of_other("gpu-02-00"));
    prepare(&theirs, &claim("next")).await.unwrap();
    unprepare(&theirs, &contested).await.unwrap();
    prepare(&ours, &late).await.unwrap();
}

/// The old installation is gone for good, so nobody unprepares its claims.
#[tokio::test]
async fn what_the_kubelet_has_forgotten_holds_nothing() {
    let node = Node::new(1);
    let (old, new) = (claim("old"), claim("new"));
    node.api.put(&old, of_other("gpu-01-00"));
    prepare(&start_other(&node).await, &old).await.unwrap();
    let ours = node.start().await;
    node.api.allocate(&new, &[("gpus", "gpu-01-00")]);
    node.checkpoint(&[&old, &new]);
    names_holder(&prepare(&ours, &new).await.unwrap_err(), &old.uid, OTHER);
    node.checkpoint(&[&new]);
    prepare(&ours, &new).await.unwrap();
}

/// Both ask at the same moment: the card lock belongs to the node, not to one driver.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_ask_at_once_one_is_refused() {
    for _ in 0..20 {
        let node = Node::new(1);
        let (ours, theirs) = (node.start().await, start_other(&node).await);
        let (one, other) = (claim("one"), claim("other"));
        node.api.allocate(&one, &[("gpus", "gpu-01-00")]);
        node.api.put(&other, of_other("gpu-01-00"));
        let (first, second) = tokio::join!(prepare(&ours, &one), prepare(&theirs, &other));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    }
}
