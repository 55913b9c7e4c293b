//! Shares ending after mps-host was removed for good, for example by switching `sharing.mps.enabled` off.

use std::fs;

use tessera_kubelet_plugin::prepare::PrepareError;

use crate::container::Container;
use tessera_fakes::poll::until_async;

use crate::follow::Following;
use crate::node::{Node, claim, is_there, prepare, unprepare};

/// Number of the compute mode PROHIBITED.
const CLOSED: u64 = 2;

/// Ends mps-host like the deletion of its DaemonSet, when mps-host closes the cards of shares.
async fn take_mps_host_away(node: &mut Node) {
    node.host.terminate();
    while !node.host.has_ended() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    node.host.end_pod();
    assert_eq!(node.host.card(0)["computeMode"], CLOSED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_share_leaves_the_card_as_it_was() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let shares = [claim("one"), claim("two")];
    for share in &shares {
        node.allocate_mps(share, &node.device(0, "mps"), "4Gi", 25, 1);
        prepare(&preparer, share).await.unwrap();
    }
    let directory = node.host.list().await[0].pipe_directory.parent().unwrap().to_owned();
    take_mps_host_away(&mut node).await;
    unprepare(&preparer, &shares[0]).await.unwrap();
    assert_eq!(
        node.host.card(0)["computeMode"],
        CLOSED,
        "a share is left, and nothing holds it to its limits"
    );
    assert!(is_there(&directory.join("daemon.json")));
    let whole = claim("whole");
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    let error = prepare(&preparer, &whole).await.unwrap_err();
    assert!(matches!(error, PrepareError::Held { .. }), "{error}");

    unprepare(&preparer, &shares[1]).await.unwrap();
    assert_eq!(node.host.card(0)["computeMode"], 0);
    assert!(node.hardware().is_empty() && !is_there(&directory), "{:?}", node.hardware());
    prepare(&preparer, &whole).await.unwrap();
    assert!(Container::of(&node.spec(&whole)).run(&node.host).device["error"].is_null());
}

/// The claim's own daemon serves two cards, each with a record in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_claims_own_daemon_leaves_all_its_cards_as_they_were() {
    let mut node = Node::new("hgx-a100-80gb");
    let preparer = node.start().await;
    let own = claim("own");
    let (first, second) = (node.device(0, ""), node.device(1, ""));
    let sharing = serde_json::json!({"strategy": "MPS"});
    node.allocate_configured(&own, &[("a", &first), ("b", &second)], &[(&["a", "b"], "GpuConfig", sharing)]);
    prepare(&preparer, &own).await.unwrap();
    take_mps_host_away(&mut node).await;
    assert_eq!(node.host.card(1)["computeMode"], CLOSED);
    unprepare(&preparer, &own).await.unwrap();
    for card in [0, 1] {
        assert_eq!(node.host.card(card)["computeMode"], 0, "{card}");
    }
    assert!(node.hardware().is_empty(), "{:?}", node.hardware());
}

/// A leftover mps-host could not remove itself, no longer in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_daemon_that_was_cut_off_is_brought_to_its_end() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    prepare(&preparer, &share).await.unwrap();
    let directory = node.host.list().await[0].pipe_directory.parent().unwrap().to_owned();
    take_mps_host_away(&mut node).await;
    let record = directory.join("daemon.json");
    let text = fs::read_to_string(&record).unwrap();
    let _following = Following::start(&preparer);
    // A wanted daemon's card stays closed: its share may have a pod with restarts to come.
    preparer.sweep().await.unwrap();
    assert_eq!(node.host.card(0)["computeMode"], CLOSED);
    let ended = text.replace("\"wanted\": true", "\"wanted\": false");
    assert_ne!(text, ended);
    fs::write(directory.join("daemon.json.ended"), ended).unwrap();
    fs::rename(directory.join("daemon.json.ended"), &record).unwrap();
    until_async("taken away", async || !is_there(&directory)).await;
    assert_eq!(node.host.card(0)["computeMode"], 0);
}

/// A card in a daemon's compute mode is held if there is no record of the daemon: the daemon may run elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_card_whose_daemon_may_run_elsewhere_is_kept() {
    let mut node = Node::new("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    prepare(&preparer, &share).await.unwrap();
    let directory = node.host.list().await[0].pipe_directory.parent().unwrap().to_owned();
    take_mps_host_away(&mut node).await;
    let elsewhere = node.host.directory().join("elsewhere");
    fs::rename(&directory, &elsewhere).unwrap();
    unprepare(&preparer, &share).await.unwrap();
    assert_eq!(node.hardware(), [node.device(0, "mps")]);
    fs::rename(&elsewhere, &directory).unwrap();
    preparer.sweep().await.unwrap();
    assert_eq!(node.host.card(0)["computeMode"], 0);
    assert!(node.hardware().is_empty(), "{:?}", node.hardware());
}

/// A share recorded while there was no mps-host.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_was_never_made_is_in_nobodys_way() {
    let node = Node::without("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    let error = prepare(&preparer, &share).await.unwrap_err();
    assert!(matches!(error, PrepareError::Mps { .. }), "{error}");
    unprepare(&preparer, &share).await.unwrap();
    assert!(node.hardware().is_empty(), "{:?}", node.hardware());
}
