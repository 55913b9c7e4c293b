//! Obstacles to making a layout.

use std::time::Duration;

use tessera_inventory::machine::Health;
use tessera_kubelet_plugin::layout::LayoutState;
use tessera_publish::{PublishStatus, Role};

use tessera_fakes::poll::until;

use crate::node::{Node, one};

/// Waits for an Event with this reason and text.
async fn told(node: &Node, reason: &str, said: &str) {
    until(&format!("{reason}: {said}"), || {
        node.api.events().iter().any(|(of, note)| of == reason && note.contains(said))
    })
    .await;
}

const THREE: &str = r#"{"3g.40gb": 2}"#;

#[tokio::test]
async fn claims_and_programs_are_waited_for_and_named() {
    let mut node = Node::prepared("hgx-h100-80gb", &one(THREE), None, |machine| {
        machine.let_happen("process add --card 1 --pid 4711");
    });
    node.status.wait_for(|status| status.settled).await.unwrap();
    let (first, second, third) = (node.cards[0], node.cards[1], node.cards[2]);
    node.claims.lock().unwrap().insert(first, vec!["default/train (0b4e)".to_owned()]);
    let mut node = node.restart(Some("one"));
    let held = node.until("one", LayoutState::Pending).await;
    assert_eq!(held.message, "in use by claim default/train (0b4e)");
    let applied = |card| {
        move |status: &tessera_kubelet_plugin::layout::LayoutStatus| {
            status.cards.get(&card).is_some_and(|status| status.state == LayoutState::Applied)
        }
    };
    node.status.wait_for(applied(third)).await.unwrap();
    assert_eq!(node.partitions(2).len(), 2, "others need not wait");
    let others_are_done = |status: &tessera_kubelet_plugin::layout::LayoutStatus| {
        let done = status.cards.values().filter(|card| card.state == LayoutState::Applied).count();
        (status.cards.len(), done) == (8, 6)
    };
    node.status.wait_for(others_are_done).await.unwrap();
    let busy = node.status.borrow().cards[&second].clone();
    assert_eq!((busy.state, busy.message.as_str()), (LayoutState::Pending, "in use by process 4711"));
    assert!(!node.mode(0) && !node.mode(1));

    // Meanwhile they take no new claims.
    let machine = node.machines.borrow().clone().unwrap();
    let offered = node.status.borrow().offered(&machine);
    let closed: Vec<_> = offered
        .cards
        .iter()
        .filter(|card| card.health == Health::Unhealthy { reason: "mig-layout-pending".into() })
        .map(|card| card.pci)
        .collect();
    assert_eq!(closed, [first, second]);
    for line in [r#"{state="pending"} 2"#, r#"{state="applied"} 6"#] {
        let line = format!("tessera_mig_layout_cards{line}");
        until(&line, || node.metrics.encode().unwrap().contains(&line)).await;
    }
    for holder in ["default/train (0b4e)", "process 4711"] {
        told(&node, "MigLayoutPending", holder).await;
    }

    node.claims.lock().unwrap().clear();
    node.machine.let_happen("process remove --card 1 --pid 4711");
    node.until_all("one", LayoutState::Applied).await;
    assert_eq!((node.partitions(0).len(), node.partitions(1).len()), (2, 2));
}

#[tokio::test]
async fn others_partitions_are_never_touched() {
    let mut node = Node::prepared("hgx-h100-80gb", &one(THREE), None, |_| {});
    node.status.wait_for(|status| status.settled).await.unwrap();
    node.partition_by_hand(0, "1g.10gb", 6);
    let mut node = node.restart(Some("one"));
    let foreign = node.until("one", LayoutState::Failed).await;
    assert!(foreign.message.contains("somebody else's GPU instance") && foreign.message.contains("at 6"));
    assert_eq!(node.partitions(0), [("1g.10gb".to_owned(), 6)]);
    let machine = node.machines.borrow().clone().unwrap();
    let offered = node.status.borrow().offered(&machine);
    assert_eq!(offered.cards[0].health, Health::Healthy, "the administrator's partition stays in use");
}

#[tokio::test]
async fn what_can_not_be_is_said_and_the_card_stays_as_it_is() {
    let mut node = Node::start("hgx-h100-80gb", &one(r#"{"4g.40gb": 2}"#), "one");
    let failed = node.until("one", LayoutState::Failed).await;
    assert!(failed.message.contains("2 x 4g.40gb does not fit"), "{}", failed.message);
    assert!(failed.message.contains("nearest that do are 4g.40gb + 3g.40gb;"), "{}", failed.message);
    assert!(!node.mode(0));
    told(&node, "MigLayoutFailed", "nearest").await;

    let mut node = Node::start("t4", &one(r#"{"1g.5gb": 7}"#), "one");
    let failed = node.until("one", LayoutState::Failed).await;
    assert_eq!(failed.message, "the card has no MIG");
}

#[tokio::test]
async fn a_file_that_can_not_be_read_changes_nothing() {
    let mut node = Node::start("hgx-h100-80gb", &one(THREE), "one");
    node.until_all("one", LayoutState::Applied).await;
    for (file, said) in [
        ("version: v1\nmig-configs: {two: [{devices: all, mig-enabled: false}]}", "it has two"),
        ("version: v2", "version \"v2\""),
        ("[", "not YAML"),
    ] {
        node.write(file);
        told(&node, "MigLayoutUnreadable", said).await;
        assert_eq!(node.partitions(0).len(), 2);
    }
    let line = "tessera_mig_layout_file_wrong 1";
    until(line, || node.metrics.encode().unwrap().contains(line)).await;

    // The node is published at a start, too.
    std::fs::remove_file(node.file()).unwrap();
    let mut node = node.restart(Some("one"));
    node.status.wait_for(|status| status.settled).await.unwrap();
    assert_eq!(node.partitions(0).len(), 2);
}

/// During an upgrade two instances run, perhaps with different layouts: the publishing one decides.
#[tokio::test]
async fn an_instance_on_standby_changes_nothing() {
    let node = Node::prepared("hgx-h100-80gb", &one(THREE), None, |_| {});
    let mut node = node.restart(Some("one"));
    node.role.send_replace(PublishStatus { role: Role::Standby, ..PublishStatus::default() });
    node.until_all("one", LayoutState::Pending).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!node.mode(0));
    node.role.send_replace(PublishStatus { role: Role::Publishing, ..PublishStatus::default() });
    node.until_all("one", LayoutState::Applied).await;
}
