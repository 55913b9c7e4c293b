//! Many concurrent claims, dropped calls, retries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_kubelet_plugin::prepare::PrepareError;

use crate::support::{Behaviour, Node, claim, prepare, unprepare};

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_claims_wait_for_no_other_card() {
    let node = Node::new(64);
    let claims: Vec<_> = (0..64).map(|number| claim(&format!("c{number}"))).collect();
    for (number, claim) in claims.iter().enumerate() {
        node.api.allocate(claim, &[("gpus", &format!("gpu-{:02x}-00", number + 1))]);
    }
    let preparer = node.start().await;
    node.cards.delay(Duration::from_millis(400));
    let start = Instant::now();
    let answers = preparer.prepare(claims.clone()).await;
    let elapsed = start.elapsed();
    assert!(answers.values().all(Result::is_ok));
    // One after the other they would take 25.6 s.
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
    assert_eq!(node.settled().len(), 64);
    let answers = preparer.unprepare(claims).await;
    assert!(answers.values().all(Result::is_ok));
    assert!(node.settled().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_claims_share_their_syncs() {
    let node = Node::new(64);
    let claims: Vec<_> = (0..64).map(|number| claim(&format!("c{number}"))).collect();
    for (number, claim) in claims.iter().enumerate() {
        node.api.allocate(claim, &[("gpus", &format!("gpu-{:02x}-00-mig-1g10gb-0", number + 1))]);
    }
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    disk.slow_syncs(Duration::from_millis(20));
    let answers = preparer.prepare(claims).await;
    assert!(answers.values().all(Result::is_ok));
    let (files, directories) = disk.syncs();
    assert_eq!(files, 128, "one sync for each intent: the mode's and the partition's");
    assert!(directories < 48, "{directories} directory syncs: no group commit");
    assert_eq!(node.settled().len(), 64);
}

#[tokio::test]
async fn a_dropped_call_goes_on_and_its_retry_joins() {
    let mut node = Node::new(1);
    node.answer_within = Duration::from_secs(30);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.api.behave(Behaviour::Slow(Duration::from_secs(2)));
    let call = tokio::time::timeout(Duration::from_millis(20), prepare(&preparer, &claim)).await;
    assert!(call.is_err(), "the kubelet gives up");
    let (one, other) = tokio::join!(prepare(&preparer, &claim), prepare(&preparer, &claim));
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(node.api.requests().len(), 1, "three calls, one piece of work");
    assert_eq!(node.seen.claims().len(), 1);
}

#[tokio::test]
async fn unprepare_waits_for_the_prepare_of_its_claim() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.api.behave(Behaviour::Slow(Duration::from_millis(100)));
    let (prepared, unprepared) = tokio::join!(prepare(&preparer, &claim), async {
        tokio::task::yield_now().await;
        unprepare(&preparer, &claim).await
    });
    prepared.unwrap();
    unprepared.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn one_slow_card_keeps_no_other_waiting() {
    let node = Node::new(2);
    let preparer = node.start().await;
    let (slow, fast) = (claim("slow"), claim("fast"));
    node.api.allocate(&slow, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&fast, &[("gpus", "gpu-02-00")]);
    node.cards.delay(Duration::from_secs(8));
    let working = tokio::spawn({
        let (preparer, slow) = (preparer.clone(), slow.clone());
        async move { prepare(&preparer, &slow).await }
    });
    while node.cards.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.cards.delay(Duration::ZERO);
    let start = Instant::now();
    prepare(&preparer, &fast).await.unwrap();
    unprepare(&preparer, &fast).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn draining_waits_for_what_runs_and_takes_nothing_new() {
    let mut node = Node::new(2);
    node.answer_within = Duration::from_secs(30);
    let node = Arc::new(node);
    let (preparer, claim, late) = (node.start().await, claim("a"), claim("late"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&late, &[("gpus", "gpu-02-00")]);
    node.api.behave(Behaviour::Slow(Duration::from_secs(1)));
    let call = tokio::time::timeout(Duration::from_millis(10), prepare(&preparer, &claim)).await;
    assert!(call.is_err());
    let drain = tokio::spawn({
        let preparer = preparer.clone();
        async move { preparer.drain().await }
    });
    tokio::task::yield_now().await;
    assert!(matches!(prepare(&preparer, &late).await, Err(PrepareError::Stopping)));
    drain.await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-a"]);
}
