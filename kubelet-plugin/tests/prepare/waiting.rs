//! Prepare waits for obstacles that pass by themselves, and reports the reason to users.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_dra_kubelet::{ClaimReference, PreparedDevice};
use tessera_kubelet_plugin::prepare::{Phase, PrepareError, Preparer};
use tokio::task::JoinHandle;

use tessera_fakes::poll::until;

use crate::support::{Behaviour, Node, claim, prepare, result, unprepare};

/// Far more time than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Work done within this time did not wait for [`LONG`], however busy the machine.
const SOON: Duration = Duration::from_secs(15);

fn patient(cards: u8) -> Node {
    let mut node = Node::new(cards);
    node.answer_within = LONG;
    node
}

/// A node where waits end only by notification: the next regular attempt is minutes away.
fn woken(cards: u8) -> Node {
    let mut node = patient(cards);
    node.retry_pauses = (LONG * 10, LONG * 10);
    node
}

fn spawn(
    preparer: &Preparer,
    claim: &ClaimReference,
) -> JoinHandle<Result<Vec<PreparedDevice>, PrepareError>> {
    let (preparer, claim) = (preparer.clone(), claim.clone());
    tokio::spawn(async move { prepare(&preparer, &claim).await })
}

/// `old` holds the card, was deleted by force and its pod still runs; `new` is allocated the card.
async fn contested(node: &Node, preparer: &Preparer) -> (ClaimReference, ClaimReference) {
    let (old, new) = (claim("old"), claim("new"));
    node.api.allocate(&old, &[("gpus", "gpu-01-00")]);
    prepare(preparer, &old).await.unwrap();
    node.api.delete(&old);
    node.checkpoint(&[&old, &new]);
    node.api.allocate(&new, &[("gpus", "gpu-01-00")]);
    (old, new)
}

async fn waits_for(node: &Node, reason: &'static str) {
    until(reason, || node.seen.waiting().contains(&(reason, true))).await;
}

#[tokio::test]
async fn a_device_is_prepared_as_soon_as_its_holder_is_unprepared() {
    let node = woken(1);
    let preparer = node.start().await;
    let (old, new) = contested(&node, &preparer).await;
    let waiting = spawn(&preparer, &new);
    let joining = spawn(&preparer, &new);
    waits_for(&node, "held").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished() && !joining.is_finished());
    assert!(node.settled().contains_key("uid-old"));
    unprepare(&preparer, &old).await.unwrap();
    let freed = Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap(), joining.await.unwrap().unwrap());
    assert!(freed.elapsed() < SOON, "{:?}", freed.elapsed());
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-new"]);
    assert_eq!(node.seen.waiting(), [("held", true), ("held", false)]);
    assert!(node.seen.phases().contains(&(Phase::Wait, true)));
}

#[tokio::test]
async fn a_device_that_another_instance_or_the_kubelet_frees_is_noticed() {
    let node = patient(1);
    let (preparer, other) = (node.start().await, node.start().await);
    let (old, new) = contested(&node, &preparer).await;
    let waiting = spawn(&preparer, &new);
    waits_for(&node, "held").await;
    unprepare(&other, &old).await.unwrap();
    waiting.await.unwrap().unwrap();
    unprepare(&preparer, &new).await.unwrap();

    let (old, new) = contested(&node, &preparer).await;
    let waiting = spawn(&preparer, &new);
    until("the second wait", || node.seen.waiting().len() == 3).await;
    node.checkpoint(&[&new]);
    waiting.await.unwrap().unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-new"]);
    unprepare(&preparer, &old).await.unwrap();
}

#[tokio::test]
async fn it_answers_in_time_with_the_error_it_always_had() {
    let mut node = patient(1);
    node.answer_within = Duration::from_millis(700);
    let preparer = node.start().await;
    let (_, new) = contested(&node, &preparer).await;
    let start = Instant::now();
    let error = prepare(&preparer, &new).await.unwrap_err();
    let elapsed = start.elapsed();
    assert!(error.to_string().starts_with("device gpu-01-00 is held by claim ns/old (uid-old); "), "{error}");
    assert!(elapsed >= Duration::from_millis(700) && elapsed < SOON, "{elapsed:?}");
    // With back-off: hundreds of requests without.
    let asked = node.api.requests().len();
    assert!(asked < 20, "{asked} requests");
    assert_eq!(node.seen.waiting(), [("held", true), ("held", false)]);
    assert!(node.seen.phases().contains(&(Phase::Wait, false)));
}

#[tokio::test]
async fn nothing_is_held_while_it_waits() {
    let node = patient(2);
    let (preparer, other) = (node.start().await, node.start().await);
    let (old, both) = contested(&node, &preparer).await;
    node.api.allocate(&both, &[("gpus", "gpu-01-00"), ("gpus", "gpu-02-00")]);
    let waiting = spawn(&preparer, &both);
    waits_for(&node, "held").await;
    // Another claim gets the waiting claim's free card, through either instance.
    for (number, instance) in [&preparer, &other].into_iter().enumerate() {
        let third = claim(&format!("third-{number}"));
        node.api.allocate(&third, &[("gpus", "gpu-02-00")]);
        tokio::time::timeout(SOON, prepare(instance, &third)).await.unwrap().unwrap();
        unprepare(instance, &third).await.unwrap();
    }
    // The waiting claim itself is unprepared by the other instance.
    tokio::time::timeout(SOON, unprepare(&other, &both)).await.unwrap().unwrap();
    unprepare(&other, &old).await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn unprepare_ends_the_wait_of_its_claim() {
    let node = woken(1);
    let preparer = node.start().await;
    let (old, new) = contested(&node, &preparer).await;
    let waiting = spawn(&preparer, &new);
    waits_for(&node, "held").await;
    let start = Instant::now();
    unprepare(&preparer, &new).await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(PrepareError::Overtaken)));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-old"]);

    // Also during the wait for an answer that never comes. Later calls start new work.
    node.api.behave(Behaviour::Silent);
    let waiting = spawn(&preparer, &new);
    let asked = node.api.requests().len();
    until("the request", || node.api.requests().len() > asked).await;
    let start = Instant::now();
    unprepare(&preparer, &new).await.unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(matches!(waiting.await.unwrap(), Err(PrepareError::Overtaken)));
    node.api.behave(Behaviour::Good);
    unprepare(&preparer, &old).await.unwrap();
    prepare(&preparer, &new).await.unwrap();
}

#[tokio::test]
async fn stopping_ends_all_waits() {
    let node = woken(1);
    let preparer = node.start().await;
    let (_, new) = contested(&node, &preparer).await;
    let waiting = spawn(&preparer, &new);
    waits_for(&node, "held").await;
    let start = Instant::now();
    preparer.drain().await;
    assert!(matches!(waiting.await.unwrap(), Err(PrepareError::Stopping)));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_does_not_hold_up_the_end() {
    let mut node = patient(1);
    node.drain_within = Duration::from_secs(10);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.cards.delay(Duration::from_secs(11));
    let working = spawn(&preparer, &claim);
    until("the driver's call", || node.cards.calls() > 0).await;
    let start = Instant::now();
    preparer.drain().await;
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    assert!(matches!(working.await.unwrap(), Err(PrepareError::Stopping)));
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_driver_that_comes_is_waited_for() {
    let node = woken(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.hardware.send_replace(None);
    let waiting = spawn(&preparer, &claim);
    waits_for(&node, "no_driver").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    node.hardware.send_replace(Some(node.cards.clone()));
    let opened = Instant::now();
    waiting.await.unwrap().unwrap();
    assert!(opened.elapsed() < SOON, "{:?}", opened.elapsed());
}

#[tokio::test]
async fn an_api_server_that_comes_back_is_waited_for_and_a_refusal_is_not() {
    let node = patient(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let away = [Behaviour::Status(429, "slow down"), Behaviour::Status(503, "starting"), Behaviour::Silent];
    for (number, behaviour) in away.into_iter().enumerate() {
        node.api.behave(behaviour);
        let waiting = spawn(&preparer, &claim);
        until("the wait", || node.seen.waiting().len() == 2 * number + 1).await;
        assert!(!waiting.is_finished());
        node.api.behave(Behaviour::Good);
        waiting.await.unwrap().unwrap();
        unprepare(&preparer, &claim).await.unwrap();
    }
    for behaviour in [Behaviour::Status(403, "no right"), Behaviour::Text("<html>")] {
        node.api.behave(behaviour);
        let start = Instant::now();
        assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::Api { .. })));
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_lock_of_another_instance_is_waited_for() {
    let node = patient(1);
    let (preparer, other) = (node.start().await, node.start().await);
    let (first, second) = (claim("first"), claim("second"));
    node.api.allocate(&first, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&second, &[("gpus", "gpu-01-00")]);
    node.cards.delay(Duration::from_secs(3));
    let working = spawn(&other, &first);
    until("the driver's call", || node.cards.calls() > 0).await;
    node.cards.delay(Duration::ZERO);
    let waiting = spawn(&preparer, &second);
    waits_for(&node, "busy").await;
    working.await.unwrap().unwrap();
    unprepare(&preparer, &first).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-second"]);
}

#[tokio::test]
async fn what_cannot_pass_is_refused_at_once() {
    let node = patient(2);
    let (preparer, holder, other) = (node.start().await, claim("holder"), claim("other"));
    let reserved = |device: &str| {
        json!({
            "allocation": {"devices": {"results": [result("gpus", device)]}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": "uid-pod"}],
        })
    };
    node.api.put_status(&holder, reserved("gpu-01-00"));
    prepare(&preparer, &holder).await.unwrap();
    let start = Instant::now();
    assert!(matches!(prepare(&preparer, &other).await, Err(PrepareError::Gone { .. })));
    node.api.put_status(&other, json!({}));
    assert!(matches!(prepare(&preparer, &other).await, Err(PrepareError::NotAllocated { .. })));
    // A holder reserved for a pod again stays.
    node.api.put_status(&other, reserved("gpu-01-00"));
    let error = prepare(&preparer, &other).await.unwrap_err();
    assert!(error.to_string().contains("given to two claims"), "{error}");
    node.cards.lose(1);
    node.api.put_status(&other, reserved("gpu-02-00"));
    assert!(matches!(prepare(&preparer, &other).await, Err(PrepareError::Hardware { .. })));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(node.seen.waiting().is_empty());
}

fn told(events: &[Value], kind: &str, name: &str, reason: &str) -> Vec<String> {
    let of_object = events.iter().filter(|event| {
        event["regarding"]["kind"] == kind
            && event["regarding"]["name"] == name
            && event["reason"] == reason
            && event["metadata"]["namespace"] == "ns"
            && event["reportingController"] == "gpu.tessera.dev"
            && event["reportingInstance"] == "node-a"
    });
    of_object.map(|event| event["note"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn users_are_told_what_is_waited_for_and_what_failed() {
    let mut node = patient(1);
    node.answer_within = Duration::from_secs(6);
    let preparer = node.start().await;
    let (_, new) = contested(&node, &preparer).await;
    let mut status = json!({"allocation": {"devices": {"results": [result("gpus", "gpu-01-00")]}}});
    status["reservedFor"] = json!([
        {"resource": "pods", "name": "pod", "uid": "uid-pod"},
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "uid-group"},
    ]);
    node.api.put_status(&new, status);
    let waiting = spawn(&preparer, &new);
    waits_for(&node, "held").await;
    until("Events of claim and pod", || node.api.events().len() == 2).await;
    assert!(!waiting.is_finished());
    let events = node.api.events();
    for (kind, name) in [("ResourceClaim", "new"), ("Pod", "pod")] {
        let notes = told(&events, kind, name, "DeviceHeld");
        assert_eq!(notes.len(), 1, "{kind}: {events:?}");
        assert!(notes[0].contains("ns/old (uid-old)") && notes[0].ends_with("waiting for this to pass"));
    }

    // The wait ends, then everything happens again: repeated Events are counted up.
    waiting.await.unwrap().unwrap_err();
    until("the failure", || !told(&node.api.events(), "ResourceClaim", "new", "PrepareFailed").is_empty())
        .await;
    prepare(&preparer, &new).await.unwrap_err();
    until("the series", || node.api.events().len() == 6).await;
    assert!(node.api.events()[3..].iter().all(|event| event["series"]["count"] == 2));
}

#[tokio::test]
async fn short_waits_are_not_told_and_trouble_with_events_is_nobodys() {
    let mut node = patient(1);
    // All waits of this test are too short to be reported.
    node.tell_after = LONG;
    let preparer = node.start().await;
    let (old, new) = contested(&node, &preparer).await;
    let waiting = spawn(&preparer, &new);
    waits_for(&node, "held").await;
    unprepare(&preparer, &old).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(node.api.events().is_empty());

    // The API server does not answer to Events: even for the maximum number of claims, work goes on.
    let preparer = Arc::new(preparer);
    let unknown: Vec<_> = (0..300).map(|number| claim(&format!("unknown-{number}"))).collect();
    node.api.behave(Behaviour::Status(403, "may not create events"));
    let start = Instant::now();
    assert!(preparer.prepare(unknown).await.values().all(Result::is_err));
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}
