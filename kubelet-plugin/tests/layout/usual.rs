//! The layouts used by administrators.

use tessera_kubelet_plugin::layout::LayoutState;

use crate::node::{Node, one};

fn owned(partitions: &[(&str, u32)]) -> Vec<(String, u32)> {
    partitions.iter().map(|(profile, start)| ((*profile).to_owned(), *start)).collect()
}

/// A100 80 GB: the mode needs a reset; afterwards one layout follows the other.
#[tokio::test]
async fn the_usual_options_of_an_a100() {
    let first = one(r#"{"1g.10gb": 7}"#);
    let mut node = Node::start("hgx-a100-80gb", &first, "one");
    node.until_all("one", LayoutState::NeedsReset).await;
    assert!(!node.mode(0));
    let (reason, note) = node.api.events()[0].clone();
    assert_eq!(reason, "MigLayoutNeedsReset");
    assert!(note.contains("nvidia-smi --gpu-reset"), "{note}");
    for card in 0..node.cards.len() {
        node.machine.let_happen(&format!("reset --card {card}"));
    }
    node.until_all("one", LayoutState::Applied).await;
    let sevenths: Vec<_> = (0..7).map(|start| ("1g.10gb", start)).collect();
    assert_eq!(node.partitions(0), owned(&sevenths));
    assert_eq!(node.records().len(), 8, "one for each card: {:?}", node.records());

    for (devices, expected) in [
        (
            r#"{"2g.20gb": 3, "1g.10gb": 1}"#,
            &[("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4), ("1g.10gb", 6)][..],
        ),
        (r#"{"3g.40gb": 2}"#, &[("3g.40gb", 0), ("3g.40gb", 4)]),
        (r#"{"4g.40gb": 1, "3g.40gb": 1}"#, &[("4g.40gb", 0), ("3g.40gb", 4)]),
        (r#"{"7g.80gb": 1}"#, &[("7g.80gb", 0)]),
        (
            r#"{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}"#,
            &[("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3), ("3g.40gb", 4)],
        ),
    ] {
        node.write(&one(devices));
        tokio::time::timeout(std::time::Duration::from_secs(120), async {
            while node.partitions(7) != owned(expected) || node.partitions(0) != owned(expected) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("never {devices}: {:?}", node.partitions(0)));
        node.until_all("one", LayoutState::Applied).await;
    }
}

/// Discovery reports the instances of a layout, for publishing as existing partitions.
#[tokio::test]
async fn a_layout_is_published_as_partitions_that_exist() {
    let mut node = Node::start("hgx-h100-80gb", &one(r#"{"3g.40gb": 2}"#), "one");
    node.until_all("one", LayoutState::Applied).await;
    let machine = node.machines.borrow().clone().unwrap();
    for card in &machine.cards {
        let mig = card.mig.as_ref().unwrap();
        assert!(mig.mode);
        assert_eq!(mig.instances.len(), 2, "seen before the card takes claims again");
    }
    let offered = node.status.borrow().offered(&machine);
    assert_eq!(offered, *machine, "nothing is held back any more");
}

#[tokio::test]
async fn a_layout_that_is_wanted_no_more_goes_with_the_mode() {
    let mut node = Node::start("hgx-h100-80gb", &one(r#"{"3g.40gb": 2}"#), "one");
    node.until_all("one", LayoutState::Applied).await;
    assert!(node.mode(0) && node.partitions(0).len() == 2);
    let mut node = node.restart(None);
    let gone = node.status.wait_for(|status| status.settled && status.cards.is_empty());
    tokio::time::timeout(std::time::Duration::from_secs(120), gone).await.unwrap().unwrap();
    for card in 0..node.cards.len() {
        assert!(!node.mode(card), "it was off before");
    }
    assert_eq!(node.records(), [""; 0]);
}

/// NVIDIA's names: `all-disabled` for whole cards, `all-enabled` for partitions made by others (here on demand),
/// selected by the label of the GPU Operator's MIG manager.
#[tokio::test]
async fn the_nodes_label_chooses() {
    let file = r#"
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-enabled: [{devices: all, mig-enabled: true, mig-devices: {}}]
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
  mixed:
  - {devices: all, device-filter: "0x20B210DE", mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  - {devices: [0], device-filter: ["0x233010DE"], mig-enabled: true, mig-devices: {"7g.80gb": 1}}
"#;
    let mut node = Node::prepared("hgx-h100-80gb", file, Some("all-disabled"), |_| {});
    node.until_all("all-disabled", LayoutState::Applied).await;
    let machine = node.machines.borrow().clone().unwrap();
    let offered = node.status.borrow().offered(&machine);
    assert!(offered.cards.iter().all(|card| card.mig.as_ref().unwrap().profiles.is_empty()), "whole only");

    node.api.label.send_replace(Some("mixed".to_owned()));
    node.until("mixed", LayoutState::Applied).await;
    assert_eq!(node.partitions(0), owned(&[("7g.80gb", 0)]));
    assert!(!node.mode(1) && node.status.borrow().cards.len() == 1, "the others are in no entry");

    node.api.label.send_replace(Some("all-enabled".to_owned()));
    node.until_all("all-enabled", LayoutState::Applied).await;
    assert!(!node.mode(0), "made on demand again");
    node.api.label.send_replace(None);
    node.until_all("all-disabled", LayoutState::Applied).await;
}

#[tokio::test]
async fn what_an_administrator_made_just_so_stays_his() {
    let mut node = Node::start("hgx-h100-80gb", &one("{}"), "one");
    node.until_all("one", LayoutState::Applied).await;
    node.partition_by_hand(0, "4g.40gb", 0);
    node.partition_by_hand(0, "3g.40gb", 4);
    node.write(&one(r#"{"4g.40gb": 1, "3g.40gb": 1}"#));
    node.until_all("one", LayoutState::Applied).await;
    tokio::time::timeout(std::time::Duration::from_secs(120), async {
        while node.partitions(1).len() != 2 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    node.until_all("one", LayoutState::Applied).await;
    assert_eq!(node.records().len(), 7, "the first card's are not ours: {:?}", node.records());
    node.write(&one("{}"));
    tokio::time::timeout(std::time::Duration::from_secs(120), async {
        while node.mode(1) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(node.partitions(0).len(), 2);
}

/// A100: a mode ordered by a layout is ordered off when the layout goes, and the need of a reset is reported, also
/// by a plugin restarted in between.
#[tokio::test]
async fn a_layout_of_an_a100_goes_with_the_mode() {
    let mut node = Node::start("hgx-a100-80gb", &one(r#"{"3g.40gb": 2}"#), "one");
    node.until_all("one", LayoutState::NeedsReset).await;
    let mut node = node.restart(Some("one"));
    node.until_all("one", LayoutState::NeedsReset).await;
    for card in 0..node.cards.len() {
        node.machine.let_happen(&format!("reset --card {card}"));
    }
    node.until_all("one", LayoutState::Applied).await;
    assert!(node.mode(0) && node.partitions(0).len() == 2);

    let mut node = node.restart(None);
    node.until_all("no layout", LayoutState::NeedsReset).await;
    assert!(node.mode(0) && node.partitions(0).is_empty());
    tessera_fakes::poll::until("the need of a reset is told", || {
        let is_told = |(reason, note): &(String, String)| {
            reason == "MigLayoutNeedsReset" && note.contains("whole card") && note.contains("MIG mode is off")
        };
        node.api.events().iter().any(is_told)
    })
    .await;
    for card in 0..node.cards.len() {
        node.machine.let_happen(&format!("reset --card {card}"));
    }
    let gone = node.status.wait_for(|status| status.settled && status.cards.is_empty());
    tokio::time::timeout(std::time::Duration::from_secs(120), gone).await.unwrap().unwrap();
    assert!(!node.mode(0) && !node.mode(7));
    assert_eq!(node.records(), [""; 0]);
}
