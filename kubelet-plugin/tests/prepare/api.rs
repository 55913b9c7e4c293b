//! Claims missing, replaced or changed in the API, and an API server without answers.

use std::time::{Duration, Instant};

use serde_json::json;
use tessera_dra_kubelet::ClaimReference;
use tessera_kubelet_plugin::prepare::PrepareError;

use crate::support::{Behaviour, Fault, Moment, Node, claim, prepare, result, unprepare};

#[tokio::test]
async fn errors_of_the_api_server_are_told_and_leave_nothing() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    for (behaviour, says) in [
        (Behaviour::Status(500, "etcd is on fire"), "etcd is on fire (500)"),
        (Behaviour::Status(403, "forbidden: no such right"), "no such right (403)"),
        (Behaviour::Status(429, "too many requests"), "too many requests (429)"),
        (Behaviour::Text("<html>"), "ns/a"),
        (Behaviour::Text(r#"{"metadata": 7}"#), "ns/a"),
        (Behaviour::Silent, "no answer within 1s"),
    ] {
        node.api.behave(behaviour.clone());
        let error = prepare(&preparer, &claim).await.unwrap_err();
        assert!(matches!(error, PrepareError::Api { .. }), "{behaviour:?}: {error}");
        assert!(error.to_string().contains(says), "{behaviour:?}: {error}");
    }
    assert!(node.settled().is_empty());
    node.api.behave(Behaviour::Slow(Duration::from_millis(100)));
    prepare(&preparer, &claim).await.unwrap();
}

#[tokio::test]
async fn a_prepared_claim_is_answered_while_the_api_server_is_away() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let prepared = prepare(&node.start().await, &claim).await.unwrap();
    let preparer = node.start().await;
    for behaviour in [Behaviour::Status(503, "starting"), Behaviour::Silent, Behaviour::Text("")] {
        node.api.behave(behaviour);
        let start = Instant::now();
        assert_eq!(prepare(&preparer, &claim).await.unwrap(), prepared);
        // A silent API server gets one second to answer.
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    }
    unprepare(&preparer, &claim).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn claims_that_cannot_be_prepared() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::Gone { .. })));
    node.api.put_status(&claim, json!({}));
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::NotAllocated { .. })));
    node.api.allocate(&ClaimReference { uid: "other".into(), ..claim.clone() }, &[("gpus", "gpu-01-00")]);
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::Replaced { .. })));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00-mig")]);
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::Device(_))));
    // A share without consumed capacity has no limits to enforce.
    node.api.allocate(&claim, &[("gpus", "gpu-01-00-mps")]);
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::Sharing { .. })));
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_claim_deleted_while_prepared_is_not_handed_out_again() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &claim).await.unwrap();
    node.api.delete(&claim);
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::Gone { .. })));
    // Its pod may still run.
    assert_eq!(node.settled().len(), 1);
    unprepare(&preparer, &claim).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_force_deleted_claim_keeps_its_card_until_the_kubelet_forgets_it() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let (old, new) = (claim("old"), claim("new"));
    node.api.allocate(&old, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &old).await.unwrap();
    node.api.delete(&old);
    node.api.allocate(&new, &[("gpus", "gpu-01-00")]);

    // First without a checkpoint of the kubelet, then with the old claim in the checkpoint.
    for known in [false, true] {
        if known {
            node.checkpoint(&[&old, &new]);
        }
        let error = prepare(&preparer, &new).await.unwrap_err().to_string();
        assert!(error.contains("ns/old (uid-old)") && error.contains("may still run"), "{error}");
    }

    // The kubelet has forgotten the claim and will never ask for Unprepare.
    node.checkpoint(&[&new]);
    prepare(&preparer, &new).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-new"]);
}

#[tokio::test]
async fn a_holder_that_the_api_confirms_is_never_released() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let (old, new) = (claim("old"), claim("new"));
    node.api.allocate(&old, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &old).await.unwrap();
    node.checkpoint(&[]);
    node.api.allocate(&new, &[("gpus", "gpu-01-00")]);
    let error = prepare(&preparer, &new).await.unwrap_err().to_string();
    assert!(error.contains("no pod uses it any more"), "{error}");
    node.api.put_status(
        &old,
        json!({
            "allocation": {"devices": {"results": [result("gpus", "gpu-01-00")]}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": "uid-pod"}],
        }),
    );
    let error = prepare(&preparer, &new).await.unwrap_err().to_string();
    assert!(error.contains("given to two claims"), "{error}");

    // Somebody deallocated the claim while the kubelet did not know it.
    node.api.put_status(&old, json!({}));
    prepare(&preparer, &new).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-new"]);
}

#[tokio::test]
async fn what_a_failed_undo_left_is_in_nobodys_way() {
    let node = Node::new(1);
    let (first, second) = (claim("first"), claim("second"));
    node.api.allocate(&first, &[("gpus", "gpu-01-00-mig-1g10gb-0")]);
    node.api.allocate(&second, &[("gpus", "gpu-01-00")]);
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    // After the intent every write fails, even for the undo, but the process lives.
    for number in 1.. {
        disk.set(Some(Fault::Die(number, Moment::After)));
        let answer = prepare(&preparer, &first).await;
        disk.set(None);
        assert!(answer.is_err(), "no effect leaves an intent");
        if node.record_path(&first).exists() {
            break;
        }
    }
    assert_eq!(node.record(&first)["stage"], "intent");
    prepare(&preparer, &second).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-second"]);
}

#[tokio::test]
async fn the_sweep_releases_what_nobody_will_unprepare() {
    let node = Node::new(2);
    let preparer = node.start().await;
    let (gone, lives) = (claim("gone"), claim("lives"));
    node.api.allocate(&gone, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&lives, &[("gpus", "gpu-02-00")]);
    preparer.prepare(vec![gone.clone(), lives.clone()]).await;
    node.api.delete(&gone);
    node.checkpoint(&[&gone]);
    preparer.sweep().await.unwrap();
    assert_eq!(node.settled().len(), 2);
    node.checkpoint(&[]);
    preparer.sweep().await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-lives"]);
}
