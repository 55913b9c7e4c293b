//! Somebody else deletes or changes what was published.

use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use tokio::time::Instant;

use crate::support::{DRIVER, TestNode, cards, eventually, marks};

#[tokio::test]
async fn what_a_kubelet_wiped_comes_back_at_once() {
    let node = TestNode::new("wiped").await;
    let publisher = node.publisher(Some(cards(16, "a"))).await;
    let before = publisher.in_sync().await;
    let begin = Instant::now();
    node.wipe().await;
    let wiped = begin.elapsed();
    eventually("put back", || async { (node.slices().await.len() == 3).then_some(()) }).await;
    let took = begin.elapsed();
    println!("wiped in {wiped:?}, back {:?} later", took.saturating_sub(wiped));
    assert!(took < wiped + Duration::from_secs(2), "{took:?}");
    let status = publisher.until("in sync", |status| status.in_sync && status.repairs > 0).await;
    assert_eq!(status.generation, Some(1));
    assert!(status.writes >= before.writes + 3);
    assert_eq!(marks(&node.slices().await), ["a"; 16]);
}

#[tokio::test]
async fn one_deleted_slice_is_one_write() {
    let node = TestNode::new("deleted").await;
    let publisher = node.publisher(Some(cards(2, "a"))).await;
    let before = publisher.in_sync().await;
    node.api().delete(&node.slice_name("2-cards-0000"), &DeleteParams::default()).await.expect("deleted");
    let status = publisher.until("repaired", |status| status.repairs == 1 && status.in_sync).await;
    assert_eq!(status.writes, before.writes + 1);
    assert_eq!(node.slices().await.len(), 2);
}

#[tokio::test]
async fn a_foreign_change_is_undone_and_what_others_may_set_stays() {
    let node = TestNode::new("changed").await;
    let publisher = node.publisher(Some(cards(2, "a"))).await;
    let before = publisher.in_sync().await;
    let name = node.slice_name("2-cards-0000");
    let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    let label = serde_json::json!({"metadata": {"labels": {"team": "a"}}});
    node.api().patch(&name, &rival, &Patch::Merge(label)).await.expect("patched");
    let change = serde_json::json!({"spec": {"devices": []}});
    node.api().patch(&name, &rival, &Patch::Merge(change)).await.expect("patched");
    let status = publisher.until("repaired", |status| status.repairs == 1 && status.in_sync).await;
    assert_eq!(status.writes, before.writes + 1, "the label alone is no reason to write");
    let slice = node.api().get(&name).await.expect("the slice");
    assert_eq!(marks(std::slice::from_ref(&slice)), ["a", "a"]);
    assert_eq!(slice.metadata.labels.expect("labels")["team"], "a");
}

#[tokio::test]
async fn foreign_slices_of_our_driver_and_node_go_and_higher_generations_are_honoured() {
    let node = TestNode::new("junk").await;
    let junk = |name: &str, pool: &str, generation: i64| -> ResourceSlice {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": format!("{}-{name}", node.name)},
            "spec": {"driver": DRIVER, "nodeName": node.name, "devices": [{"name": "junk"}],
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1}},
        }))
        .expect("a slice")
    };
    let ours = format!("{DRIVER}/{}", node.name);
    for slice in [junk("old", &node.name, 3), junk("same-pool", &ours, 17)] {
        node.api().create(&PostParams::default(), &slice).await.expect("created");
    }
    let publisher = node.publisher(Some(cards(2, "a"))).await;
    let status = publisher.in_sync().await;
    assert_eq!(status.generation, Some(18));
    assert_eq!(node.slices().await.len(), 2);

    // And while it runs.
    node.api().create(&PostParams::default(), &junk("later", &ours, 40)).await.expect("created");
    let status = publisher.until("higher", |status| status.generation > Some(40) && status.in_sync).await;
    assert_eq!(status.generation, Some(41));
    assert_eq!(node.slices().await.len(), 2);
}

#[tokio::test]
async fn a_dispute_is_no_war_of_writes() {
    let node = TestNode::new("war").await;
    let publisher = node.publisher(Some(cards(1, "a"))).await;
    let before = publisher.in_sync().await;
    let name = node.slice_name("2-cards-0000");
    let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    let change = serde_json::json!({"spec": {"devices": [{"name": "theirs"}]}});
    let begin = Instant::now();
    let mut wars = 0;
    while begin.elapsed() < Duration::from_secs(4) {
        if !marks(&node.slices().await).is_empty() {
            node.api().patch(&name, &rival, &Patch::Merge(&change)).await.expect("patched");
            wars += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = publisher.status.borrow().clone();
    assert!(wars >= 8, "{wars}");
    assert!(status.writes - before.writes <= 11, "{} writes in 4 s", status.writes - before.writes);
    let error = status.last_error.expect("the dispute is reported");
    assert!(error.contains("rival") && error.contains(&name), "{error}");
    // The rival gives up: what is published is right again, though later than at first.
    publisher.until("right again", |status| status.in_sync && status.last_error.is_none()).await;
    assert_eq!(marks(&node.slices().await), ["a"]);
}

#[tokio::test]
async fn a_name_that_another_driver_took_is_said() {
    let node = TestNode::new("taken").await;
    let name = node.slice_name("2-cards-0000");
    let slice: ResourceSlice = serde_json::from_value(serde_json::json!({
        "metadata": {"name": name},
        "spec": {"driver": "other.example.com", "nodeName": node.name, "devices": [],
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
    }))
    .expect("a slice");
    node.api().create(&PostParams::default(), &slice).await.expect("created");
    let publisher = node.publisher(Some(cards(1, "a"))).await;
    let status = publisher.until("failing", |status| status.last_error.is_some()).await;
    let error = status.last_error.expect("an error");
    assert!(error.contains(&name) && error.contains("other.example.com"), "{error}");
    node.api().delete(&name, &DeleteParams::default()).await.expect("deleted");
    publisher.in_sync().await;
}
