//! The plugin dies at every step of making and ending shares. Afterwards cards, daemons, records and claims agree.

use std::sync::Arc;

use serde_json::json;
use tessera_dra_kubelet::ClaimReference;
use tessera_kubelet_plugin::prepare::Preparer;

use crate::disk::{Disk, Fault, Moment};
use crate::node::{Node, claim, prepare, unprepare};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Mps,
    Static,
    TimeSlice,
    Partition,
    /// A claim shared by its pods: two cards with one daemon, a card by time, a partition.
    Own,
}

fn allocate(node: &Node, kind: Kind, claim: &ClaimReference) {
    match kind {
        Kind::Mps | Kind::Static => node.allocate_mps(claim, &node.device(0, "mps"), "4Gi", 25, 1),
        Kind::TimeSlice => node.allocate_time_slice(claim, &node.device(0, "ts")),
        Kind::Partition => {
            node.allocate_mps(claim, &node.device(0, "mig-3g40gb-4-mps"), "4Gi", 25, 1);
        }
        Kind::Own => {
            let mps = json!({"strategy": "MPS", "mps": {"pinnedDeviceMemoryLimit": "4Gi"}});
            let slicing = json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Short"}});
            node.allocate_configured(
                claim,
                &[
                    ("pair", &node.device(0, "")),
                    ("pair", &node.device(1, "")),
                    ("slice", &node.device(2, "")),
                    ("part", &node.device(3, "mig-1g10gb-6")),
                ],
                &[
                    (&["pair"], "GpuConfig", mps.clone()),
                    (&["slice"], "GpuConfig", slicing),
                    (&["part"], "MigDeviceConfig", mps),
                ],
            );
        }
    }
}

async fn dies(node: &Node, fault: Fault) -> (Option<Preparer>, Arc<Disk>) {
    let disk = Arc::new(Disk::new(Some(fault), Arc::default()));
    (node.start_on(disk.clone()).await.ok(), disk)
}

/// Loops over the number of the fatal effect, until a run ends before reaching it.
async fn at_every_step(kind: Kind, hardware: &str, moments: &[Moment]) {
    let node = match kind {
        Kind::Static => crate::static_partitions::published_node(),
        _ => Node::new(hardware),
    };
    let config = json!({
        "sharing": {
            "mps": {"staticPartitions": matches!(kind, Kind::Static)},
            "timeSlicing": {"replicas": 10, "interval": "Short"}},
    });
    node.offer(&config);
    let share = claim("share");
    let mut steps = 0;
    for moment in moments {
        for number in 1.. {
            allocate(&node, kind, &share);
            let (preparer, disk) = dies(&node, Fault::Die(number, *moment)).await;
            if let Some(preparer) = preparer
                && prepare(&preparer, &share).await.is_ok()
            {
                let _ = unprepare(&preparer, &share).await;
            }
            let is_over = !disk.is_reached();
            let after = node.start().await;
            // Complete work stays, interrupted work is gone.
            let daemons = node.host.list().await.len();
            let records = node.hardware().len();
            assert!(
                (records > 0) == (daemons > 0 || matches!(kind, Kind::TimeSlice) && records > 0),
                "{kind:?} {moment:?} {number}: {daemons} daemons, {records} records"
            );
            prepare(&after, &share)
                .await
                .unwrap_or_else(|error| panic!("{kind:?} {moment:?} {number}: {error}"));
            unprepare(&after, &share).await.unwrap();
            assert!(node.is_empty().await, "{kind:?} {moment:?} {number}: {:?}", node.hardware());
            steps += 1;
            if is_over {
                break;
            }
        }
    }
    assert!(steps > 10, "{steps}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_by_mps() {
    at_every_step(Kind::Mps, "t4", &[Moment::Before, Moment::After]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_with_a_static_partition() {
    at_every_step(Kind::Static, "hgx-h100-80gb", &[Moment::After]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_by_time() {
    at_every_step(Kind::TimeSlice, "t4", &[Moment::Before, Moment::After]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_a_partition() {
    at_every_step(Kind::Partition, "hgx-h100-80gb", &[Moment::After]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_one_claim_shares_among_its_pods() {
    at_every_step(Kind::Own, "hgx-h100-80gb", &[Moment::After]).await;
}
