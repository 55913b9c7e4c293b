//! Somebody else deletes or changes what was published.

use std::time::Duration;

use k8s_openapi::api::{events::v1::Event, resource::v1::ResourceSlice};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use tessera_publish::PublishStatus;
use tokio::time::Instant;

use crate::support::{DRIVER, LONG, TestNode, cards, eventually, marks};

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
    assert!(took < wiped + Duration::from_secs(10), "{took:?}");
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
    node.api().delete(&node.slice_name("1-cards-0000"), &DeleteParams::default()).await.expect("deleted");
    let status = publisher.until("repaired", |status| status.repairs == 1 && status.in_sync).await;
    assert_eq!(status.writes, before.writes + 1);
    assert_eq!(node.slices().await.len(), 2);
}

#[tokio::test]
async fn a_foreign_change_is_undone_and_what_others_may_set_stays() {
    let node = TestNode::new("changed").await;
    let publisher = node.publisher(Some(cards(2, "a"))).await;
    let before = publisher.in_sync().await;
    let name = node.slice_name("1-cards-0000");
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
    // What an older version of this driver left in another pool, and what anybody put into ours.
    let as_us =
        PostParams { field_manager: Some("tessera-kubelet-plugin".to_owned()), ..PostParams::default() };
    node.api().create(&as_us, &junk("old", &node.name, 3)).await.expect("created");
    node.api().create(&PostParams::default(), &junk("same-pool", &ours, 17)).await.expect("created");
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
    let name = node.slice_name("1-cards-0000");
    let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    let change = serde_json::json!({"spec": {"devices": [{"name": "theirs"}]}});
    let begin = Instant::now();
    let (mut wars, mut writes, mut told) = (0, None, None);
    while writes.is_none() || wars < 8 || told.is_none() {
        assert!(begin.elapsed() < LONG, "{wars} changes were undone, told: {told:?}");
        // It may be in sync for a moment.
        told = publisher.status.borrow().last_error.clone().or(told);
        if begin.elapsed() >= Duration::from_secs(4) {
            writes.get_or_insert_with(|| publisher.status.borrow().writes);
        }
        if !marks(&node.slices().await).is_empty() {
            node.api().patch(&name, &rival, &Patch::Merge(&change)).await.expect("patched");
            wars += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let writes = writes.expect("counted") - before.writes;
    assert!(writes <= 11, "{writes} writes in 4 s");
    let error = told.expect("the dispute is reported");
    assert!(error.contains("rival") && error.contains(&name), "{error}");
    // The rival gives up: what is published is right again, though later than at first.
    publisher.until("right again", |status| status.in_sync && status.last_error.is_none()).await;
    assert_eq!(marks(&node.slices().await), ["a"]);
}

#[tokio::test]
async fn a_name_that_another_driver_took_is_said() {
    let node = TestNode::new("taken").await;
    let name = node.slice_name("1-cards-0000");
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

/// As NVIDIA's driver publishes: in a pool called as the node.
fn of_another_driver(node: &TestNode) -> ResourceSlice {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": format!("{}-theirs", node.name)},
        "spec": {"driver": DRIVER, "nodeName": node.name, "devices": [{"name": "gpu-0"}],
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1}},
    }))
    .expect("a slice")
}

#[tokio::test]
async fn another_driver_of_our_name_is_told_of_and_left_alone() {
    let node = TestNode::new("twins").await;
    let them = PostParams { field_manager: Some("gpu-kubelet-plugin".to_owned()), ..PostParams::default() };
    let theirs = node.api().create(&them, &of_another_driver(&node)).await.expect("created");
    let publisher = node.publisher(Some(cards(2, "a"))).await;
    let told = |status: &PublishStatus| status.last_error.is_some() && !status.in_sync;
    let status = publisher.until("refusing", told).await;
    let error = status.last_error.expect("an error");
    for part in
        ["another driver is called", "gpu-kubelet-plugin", "kubectl delete resourceslices", "driverName"]
    {
        assert!(error.contains(part), "{error}");
    }
    eventually("the Node's Event", || async {
        let events: Api<Event> = Api::namespaced(node.client.clone(), "default");
        let events = events.list(&ListParams::default()).await.expect("listed").items;
        let of_node = |event: &Event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|regarding| regarding.name.as_deref() == Some(&node.name))
        };
        let event = events.into_iter().find(of_node)?;
        assert_eq!(
            (event.reason.as_deref(), event.type_.as_deref()),
            (Some("AnotherDriver"), Some("Warning"))
        );
        assert!(event.note.is_some_and(|note| note.contains("another driver")));
        Some(())
    })
    .await;
    let slices = node.slices().await;
    let versions: Vec<_> = slices.iter().map(|slice| &slice.metadata.resource_version).collect();
    assert_eq!((versions, publisher.status.borrow().writes), (vec![&theirs.metadata.resource_version], 0));

    // It goes: its place is taken.
    let name = format!("{}-theirs", node.name);
    node.api().delete(&name, &DeleteParams::default()).await.expect("deleted");
    let status = publisher.until("published", |status| status.in_sync && status.last_error.is_none()).await;
    assert_eq!(marks(&node.slices().await), ["a", "a"]);

    // It comes back and, as Kubernetes' library does, deletes the slices of pools that it does not know.
    node.api().create(&them, &of_another_driver(&node)).await.expect("created");
    publisher.until("refusing again", told).await;
    node.api().delete(&node.slice_name("1-cards-0000"), &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(publisher.status.borrow().writes, status.writes, "no war of writes");
    node.api().delete(&name, &DeleteParams::default()).await.expect("deleted");
    publisher.until("published again", |status| status.in_sync && status.last_error.is_none()).await;
    assert_eq!(marks(&node.slices().await), ["a", "a"]);
    assert_eq!(publisher.status.borrow().repairs, 0, "nobody disputes");
}
