//! Cards replaced while the machine runs: partitions made on the old card are not searched on the new one.

use crate::support::{Node, claim, prepare, unprepare};

/// A claim has a partition. Then its card is replaced by one with an equal partition of the administrator's: same
/// profile, same placement, and the same id from the driver.
#[tokio::test]
async fn a_partition_on_a_replaced_card_is_not_touched() {
    let by_claim = async |node: &Node| {
        let preparer = node.start().await;
        unprepare(&preparer, &claim("mine")).await.unwrap();
    };
    let by_start = async |node: &Node| {
        // The claim's end was interrupted: only its hardware records are left.
        std::fs::remove_file(node.record_path(&claim("mine"))).unwrap();
        std::fs::remove_file(node.spec_path(&claim("mine"))).unwrap();
        node.start().await;
    };
    for is_start in [false, true] {
        let node = Node::new(1);
        let (preparer, mine) = (node.start().await, claim("mine"));
        node.api.allocate(&mine, &[("gpus", "gpu-01-00-mig-1g10gb-6")]);
        prepare(&preparer, &mine).await.unwrap();
        assert_eq!(node.cards.instances().1, [(0, 19, 6)]);
        drop(preparer);
        node.cards.replace(0);
        node.cards.admin_mode(0, true);
        node.cards.admin_instance((0, 19, 6), true);
        if is_start {
            by_start(&node).await
        } else {
            by_claim(&node).await
        }
        assert_eq!(node.cards.instances(), (vec![(0, 19, 6)], vec![]), "by start: {is_start}");
        assert_eq!(node.cards.mode(0), Some(true), "the mode is the administrator's");
        assert!(node.settled().is_empty());
    }
}
