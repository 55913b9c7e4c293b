//! Two instances of the plugin on one node, as during an upgrade.

use std::sync::Arc;
use std::time::Duration;

use tessera_kubelet_plugin::prepare::PrepareError;

use crate::support::{Behaviour, Node, claim, prepare, unprepare};

#[tokio::test]
async fn prepared_by_one_and_unprepared_by_the_other() {
    let node = Node::new(2);
    let (old, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let prepared = prepare(&old, &claim).await.unwrap();
    let new = node.start().await;
    assert_eq!(prepare(&new, &claim).await.unwrap(), prepared);
    unprepare(&new, &claim).await.unwrap();
    assert!(node.settled().is_empty());
    unprepare(&old, &claim).await.unwrap();
    prepare(&old, &claim).await.unwrap();
    assert_eq!(node.settled().len(), 1);
}

#[tokio::test]
async fn one_sees_what_the_other_holds() {
    let node = Node::new(1);
    let (old, new) = (node.start().await, node.start().await);
    let (first, second) = (claim("first"), claim("second"));
    node.api.allocate(&first, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&second, &[("gpus", "gpu-01-00")]);
    prepare(&old, &first).await.unwrap();
    assert!(matches!(prepare(&new, &second).await, Err(PrepareError::Held { .. })));
    unprepare(&old, &first).await.unwrap();
    prepare(&new, &second).await.unwrap();
    assert!(matches!(prepare(&old, &first).await, Err(PrepareError::Held { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_instances_have_one_winner_for_each_card() {
    let node = Node::new(4);
    let instances = [node.start().await, node.start().await];
    let claims: Vec<_> = (0..24).map(|number| claim(&format!("c{number}"))).collect();
    for (number, claim) in claims.iter().enumerate() {
        node.api.allocate(claim, &[("gpus", &format!("gpu-0{}-00", number % 4 + 1))]);
    }
    let (one, other) =
        tokio::join!(instances[0].prepare(claims.clone()), instances[1].prepare(claims.clone()));
    // Both were asked for every claim; each repeats the other's prepared devices.
    let won = claims.iter().filter(|claim| one[&claim.uid].is_ok() || other[&claim.uid].is_ok()).count();
    assert_eq!(won, 4);
    assert_eq!(node.settled().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_leaves_the_work_of_the_other_instance_alone() {
    let node = Arc::new(Node::new(1));
    let (old, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.cards.delay(Duration::from_millis(300));
    let working = tokio::spawn({
        let claim = claim.clone();
        async move { prepare(&old, &claim).await }
    });
    let new = loop {
        // The new instance starts while the driver is asked about the card.
        let new = node.start().await;
        if node.cards.calls() > 0 {
            break new;
        }
    };
    working.await.unwrap().unwrap();
    assert_eq!(node.settled().len(), 1);
    prepare(&new, &claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unprepare_in_one_waits_for_prepare_in_the_other() {
    let node = Node::new(1);
    let (old, new, claim) = (node.start().await, node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.api.behave(Behaviour::Slow(Duration::from_millis(200)));
    let working = tokio::spawn({
        let claim = claim.clone();
        async move { prepare(&old, &claim).await }
    });
    while node.api.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    unprepare(&new, &claim).await.unwrap();
    working.await.unwrap().unwrap();
    assert!(node.settled().is_empty());
}
