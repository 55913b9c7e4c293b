//! Entries in a claim's `status.devices` for devices that cannot be prepared.

use std::time::{Duration, Instant};

use serde_json::Value;
use tessera_dra_kubelet::ClaimReference;

use crate::support::{Behaviour, Node, claim, prepare, unprepare};

const LONG: Duration = Duration::from_secs(30);

/// The claim's entries: device, status, reason, message, time.
fn told(node: &Node, claim: &ClaimReference) -> Vec<[String; 5]> {
    let status = node.api.claim(claim).unwrap()["status"].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |entry: &Value| {
        assert_eq!(
            (&entry["driver"], &entry["pool"]),
            (&"gpu.tessera.dev".into(), &"gpu.tessera.dev/node-a".into())
        );
        let condition = &entry["conditions"][0];
        assert_eq!((entry["conditions"].as_array().unwrap().len(), &condition["type"]), (1, &"Ready".into()));
        let fields =
            ["status", "reason", "message", "lastTransitionTime"].map(|field| text(&condition[field]));
        let [status, reason, message, time] = fields;
        [text(&entry["device"]), status, reason, message, time]
    };
    status["devices"].as_array().into_iter().flatten().map(entry).collect()
}

/// Waits until the claim says this of its devices: device, status, reason.
async fn until(node: &Node, claim: &ClaimReference, expected: &[[&str; 3]]) -> Vec<[String; 5]> {
    let since = Instant::now();
    loop {
        let now = told(node, claim);
        if now
            .iter()
            .map(|[device, status, reason, ..]| [&**device, status, reason])
            .eq(expected.iter().copied())
        {
            return now;
        }
        assert!(since.elapsed() < LONG, "{now:?} instead of {expected:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The writes of statuses so far.
fn writes(node: &Node) -> usize {
    node.api.requests().iter().filter(|path| path.ends_with("/status")).count()
}

/// A node with a GPU instance made by hand, the claim of two partitions whose second one lies in its place, and the
/// instance.
fn in_the_way() -> (Node, ClaimReference, u32) {
    let node = Node::new(1);
    node.cards.admin_mode(0, true);
    let instance = node.cards.admin_instance((0, 9, 4), false);
    let claim = claim("a");
    let devices = [("gpus", "gpu-01-00-mig-1g10gb-0"), ("gpus", "gpu-01-00-mig-1g10gb-5")];
    node.api.allocate(&claim, &devices);
    (node, claim, instance)
}

const FAILED: [&str; 3] = ["gpu-01-00-mig-1g10gb-5", "False", "ForeignInstance"];

#[tokio::test]
async fn a_device_that_cannot_be_prepared_says_so_until_it_can() {
    let (node, claim, instance) = in_the_way();
    let preparer = node.start().await;
    let error = prepare(&preparer, &claim).await.unwrap_err();
    let first = until(&node, &claim, &[FAILED]).await;
    assert_eq!(first[0][3], error.to_string());

    // The kubelet tries again: nothing is new.
    prepare(&preparer, &claim).await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!((writes(&node), told(&node, &claim)), (1, first.clone()));
    // Something else is in the way; the time is that of the first failure.
    node.cards.admin_destroys(0, instance);
    let other = node.cards.admin_instance((0, 9, 4), true);
    let error = prepare(&preparer, &claim).await.unwrap_err().to_string();
    let since = Instant::now();
    while told(&node, &claim)[0][3] != error {
        assert!(since.elapsed() < LONG, "{:?}", told(&node, &claim));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(told(&node, &claim)[0][4], first[0][4]);

    // Another instance of the plugin has never failed.
    node.cards.admin_destroys(0, other);
    let preparer = node.start().await;
    prepare(&preparer, &claim).await.unwrap();
    let prepared = until(&node, &claim, &[["gpu-01-00-mig-1g10gb-5", "True", "Prepared"]]).await;
    assert_ne!(prepared[0][4], first[0][4]);
    let before = node.api.requests().len();
    prepare(&preparer, &claim).await.unwrap();
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!(node.api.requests().len(), before + 1, "the claim, to prepare it again");
}

#[tokio::test]
async fn a_claim_that_is_prepared_at_once_costs_no_request() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &claim).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.api.requests().len(), 1);
    assert_eq!(told(&node, &claim), Vec::<[String; 5]>::new());
}

#[tokio::test]
async fn what_cannot_be_written_delays_nothing_and_is_written_with_the_next_attempt() {
    let (node, claim, instance) = in_the_way();
    let preparer = node.start().await;
    node.api.behave_for_status(Behaviour::Status(403, "forbidden"));
    prepare(&preparer, &claim).await.unwrap_err();
    let since = Instant::now();
    while writes(&node) == 0 {
        assert!(since.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.api.behave_for_status(Behaviour::Silent);
    let start = Instant::now();
    prepare(&preparer, &claim).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(told(&node, &claim), Vec::<[String; 5]>::new());
    node.api.behave_for_status(Behaviour::Good);
    prepare(&preparer, &claim).await.unwrap_err();
    until(&node, &claim, &[FAILED]).await;

    // Prepared while the failure may still be in flight: the last write wins.
    node.api.behave_for_status(Behaviour::Slow(Duration::from_millis(300)));
    node.cards.admin_destroys(0, instance);
    prepare(&preparer, &claim).await.unwrap();
    until(&node, &claim, &[["gpu-01-00-mig-1g10gb-5", "True", "Prepared"]]).await;
}

#[tokio::test]
async fn a_failure_that_is_still_being_written_is_taken_back() {
    let (node, claim, instance) = in_the_way();
    let preparer = node.start().await;
    node.api.behave_for_status(Behaviour::Slow(Duration::from_millis(500)));
    prepare(&preparer, &claim).await.unwrap_err();
    node.cards.admin_destroys(0, instance);
    prepare(&preparer, &claim).await.unwrap();
    assert_eq!(told(&node, &claim), Vec::<[String; 5]>::new(), "prepared before anything was said");
    until(&node, &claim, &[["gpu-01-00-mig-1g10gb-5", "True", "Prepared"]]).await;
}

#[tokio::test]
async fn a_wrong_configuration_is_told_of_the_requests_devices() {
    let node = Node::new(2);
    let (preparer, claim) = (node.start().await, claim("a"));
    let results = [("good", "gpu-01-00"), ("bad", "gpu-02-00")]
        .map(|(request, device)| crate::support::result(request, device));
    let wrong =
        serde_json::json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuConfig", "sharin": {}});
    node.api.put_configured(&claim, results.to_vec(), "gpu.tessera.dev", &[("FromClaim", &["bad"], wrong)]);
    let error = prepare(&preparer, &claim).await.unwrap_err();
    assert!(!error.another_device_would_help(), "{error}");
    until(&node, &claim, &[["gpu-02-00", "False", "InvalidConfig"]]).await;
}

#[tokio::test]
async fn what_is_no_devices_fault_says_nothing() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.hardware.send_replace(None);
    prepare(&preparer, &claim).await.unwrap_err();
    node.api.behave(Behaviour::Status(500, "etcd is on fire"));
    prepare(&preparer, &claim).await.unwrap_err();
    node.api.behave(Behaviour::Good);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((writes(&node), told(&node, &claim)), (0, vec![]));
}
