//! Several instances of the plugin on one node, as during a rolling upgrade.

use std::time::Duration;

use tessera_kube_util::client;
use tessera_publish::Role;

use crate::support::{TestNode, administrator, cards, eventually, marks};

#[tokio::test]
async fn the_newest_instance_takes_over_and_there_is_no_war() {
    let node = TestNode::new("upgrade").await;
    let connect = || async { client::connect(administrator().await).expect("a client") };
    let old = node.start(connect().await, Some(cards(2, "old")), "old");
    old.in_sync().await;

    // A new version that describes the cards otherwise, and whose hardware is not read yet.
    let new = node.start(connect().await, None, "new");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(old.status.borrow().role, Role::Publishing, "until the new one has something to publish");

    new.offer(cards(2, "new"));
    new.in_sync().await;
    old.until("superseded", |status| status.role == Role::Standby).await;
    assert_eq!(marks(&node.slices().await), ["new", "new"]);
    let writes = (old.status.borrow().writes, new.status.borrow().writes);
    assert_eq!(writes, (2, 1));

    // The one in waiting never answers what it sees: only the newest repairs.
    node.wipe().await;
    new.until("repaired", |status| status.repairs > 0 && status.in_sync).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(old.status.borrow().writes, 2);
    assert_eq!(marks(&node.slices().await), ["new", "new"]);

    // The old one ends, as the upgrade goes on: nothing changes.
    old.stop().await;
    assert_eq!(new.status.borrow().role, Role::Publishing);
}

#[tokio::test]
async fn an_older_instance_takes_over_again_when_the_newest_is_killed() {
    let node = TestNode::new("rollback").await;
    let connect = || async { client::connect(administrator().await).expect("a client") };
    let old = node.start(connect().await, Some(cards(2, "old")), "old");
    old.in_sync().await;
    let new = node.start(connect().await, Some(cards(2, "new")), "new");
    new.until("published", |status| status.in_sync && status.role == Role::Publishing).await;
    old.until("superseded", |status| status.role == Role::Standby).await;
    new.kill().await;
    old.until("publishing", |status| status.role == Role::Publishing).await;
    eventually("the old one's view", || async {
        (marks(&node.slices().await) == ["old", "old"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_read_only_plugin_directory_is_said_and_waited_for() {
    let node = TestNode::new("directory").await;
    let missing = node.directory.path().join("plugins");
    let connection = client::connect(administrator().await).expect("a client");
    let publisher = crate::support::start(connection, &missing, &node.name, Some(cards(1, "a")), "x");
    let status = publisher.until("failing", |status| status.last_error.is_some()).await;
    assert!(status.last_error.expect("an error").contains("must exist, be writable and have room"));
    assert_eq!(node.slices().await, []);
    std::fs::create_dir(&missing).expect("created");
    assert_eq!(publisher.in_sync().await.last_error, None);
}
