//! Full and read-only disks, damaged and foreign records.

use std::fs;

use serde_json::{Value, json};
use tessera_journal::JournalError;
use tessera_kubelet_plugin::prepare::PrepareError;

use crate::support::{Fault, Node, claim, names, prepare, result, unprepare};

#[tokio::test]
async fn a_full_disk_loses_nothing_and_can_be_emptied() {
    let node = Node::new(2);
    let (old, new) = (claim("old"), claim("new"));
    node.api.allocate(&old, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&new, &[("gpus", "gpu-02-00")]);
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    prepare(&preparer, &old).await.unwrap();

    disk.set(Some(Fault::Full));
    let error = prepare(&preparer, &new).await.unwrap_err();
    assert!(error.to_string().contains("free space"), "{error}");
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-old"]);
    // Prepared claims are still answered, and ending a pod needs no space.
    prepare(&preparer, &old).await.unwrap();
    unprepare(&preparer, &old).await.unwrap();
    assert!(node.settled().is_empty());

    disk.set(None);
    prepare(&preparer, &new).await.unwrap();
}

/// For each kind of change to a card: a node, and the allocation of a claim in need of the change.
pub fn kinds() -> [(&'static str, Node, Value); 4] {
    let share = |device: &str, consumed: Value| {
        let mut share = result("gpus", device);
        share["shareID"] = json!("5ba7e000-0000-4000-8000-000000000001");
        share["consumedCapacity"] = consumed;
        share
    };
    let sharing = |config: Value| {
        let node = Node::sharing(1);
        node.offer(&config);
        node
    };
    let in_mig_mode = Node::new(1);
    in_mig_mode.cards.admin_mode(0, true);
    let slices = json!({"sharing": {"timeSlicing": {"replicas": 10, "interval": "Long"}}});
    let mps = json!({"sharing": {"mps": {"defaultShares": 4}}});
    let of_mps = json!({"memory": "4Gi", "compute": "25", "clients": "1"});
    [
        ("partition", Node::new(1), result("gpus", "gpu-01-00-mig-1g10gb-6")),
        ("whole card in MIG mode", in_mig_mode, result("gpus", "gpu-01-00")),
        ("time-slice", sharing(slices), share("gpu-01-00-ts", json!({"slots": "1"}))),
        ("MPS", sharing(mps), share("gpu-01-00-mps", of_mps)),
    ]
}

/// A pod that can't end keeps its files, so eviction could not free the disk either.
#[tokio::test(flavor = "multi_thread")]
async fn ending_needs_no_space_and_preparing_fails_cleanly() {
    for (kind, node, allocated) in kinds() {
        let mine = claim("mine");
        node.api.put(&mine, vec![allocated]);
        let (preparer, disk) = node.start_on(None).await;
        let preparer = preparer.unwrap();
        for is_started_again in [false, true] {
            prepare(&preparer, &mine).await.unwrap();
            disk.set(Some(Fault::Full));
            let preparer = if is_started_again {
                let (preparer, full) = node.start_on(Some(Fault::Full)).await;
                full.set(Some(Fault::Full));
                preparer.unwrap()
            } else {
                preparer.clone()
            };
            unprepare(&preparer, &mine).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert!(node.settled().is_empty(), "{kind}");
            let error = prepare(&preparer, &mine).await.unwrap_err();
            assert!(error.to_string().contains("free space"), "{kind}: {error}");
            assert!(node.settled().is_empty(), "{kind}");
            disk.set(None);
        }
        prepare(&preparer, &mine).await.unwrap();
    }
}

#[tokio::test]
async fn a_read_only_disk_is_told_and_loses_nothing() {
    let node = Node::new(2);
    let (old, new) = (claim("old"), claim("new"));
    node.api.allocate(&old, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&new, &[("gpus", "gpu-02-00")]);
    let (preparer, disk) = node.start_on(None).await;
    let preparer = preparer.unwrap();
    prepare(&preparer, &old).await.unwrap();

    disk.set(Some(Fault::ReadOnly));
    for error in [prepare(&preparer, &new).await.unwrap_err(), unprepare(&preparer, &old).await.unwrap_err()]
    {
        assert!(error.to_string().contains("read-only"), "{error}");
    }
    prepare(&preparer, &old).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-old"]);
    disk.set(None);
    unprepare(&preparer, &old).await.unwrap();
    prepare(&preparer, &new).await.unwrap();
}

#[tokio::test]
async fn a_journal_that_cannot_be_made_is_an_error_of_the_start() {
    let node = Node::new(1);
    let (preparer, _disk) = node.start_on(Some(Fault::Full)).await;
    let error = preparer.unwrap_err().to_string();
    assert!(error.contains("journal") && error.contains("free space"), "{error}");

    fs::remove_dir_all(node.path().join("driver/proc")).unwrap();
    let (preparer, _disk) = node.start_on(None).await;
    let error = preparer.unwrap_err().to_string();
    assert!(error.contains("boot_id") && error.contains("--proc-root"), "{error}");
}

#[tokio::test]
async fn a_damaged_record_costs_its_own_claim_only() {
    let node = Node::new(3);
    let (damaged, other, third) = (claim("damaged"), claim("other"), claim("third"));
    node.api.allocate(&damaged, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&other, &[("gpus", "gpu-02-00")]);
    let preparer = node.start().await;
    prepare(&preparer, &damaged).await.unwrap();
    prepare(&preparer, &other).await.unwrap();
    let good = fs::read(node.record_path(&damaged)).unwrap();

    for content in ["{", "", "null", "{\"version\":1}", "\u{0}\u{0}", "{\"version\":\"x\"}", "[]"] {
        fs::write(node.record_path(&damaged), content).unwrap();
        let preparer = node.start().await;
        // The record stays unchanged, and the claim's devices stay held: nobody else gets the card.
        assert_eq!(fs::read_to_string(node.record_path(&damaged)).unwrap(), content);
        assert!(node.spec_path(&damaged).exists());
        prepare(&preparer, &other).await.unwrap();
        node.api.allocate(&third, &[("gpus", "gpu-01-00")]);
        let error = prepare(&preparer, &third).await.unwrap_err().to_string();
        assert!(error.contains("uid-damaged") && error.contains("can't be read"), "{content:?}: {error}");
    }
    let mut renamed: Value = serde_json::from_slice(&good).unwrap();
    renamed["uid"] = "uid-someone-else".into();
    fs::write(node.record_path(&damaged), renamed.to_string()).unwrap();
    assert!(prepare(&node.start().await, &third).await.is_err());

    // The kubelet's next Prepare repairs the record; Unprepare removes it.
    let preparer = node.start().await;
    prepare(&preparer, &damaged).await.unwrap();
    assert_eq!(node.record(&damaged), serde_json::from_slice::<Value>(&good).unwrap());
    fs::write(node.record_path(&damaged), "{").unwrap();
    unprepare(&preparer, &damaged).await.unwrap();
    prepare(&preparer, &third).await.unwrap();
    assert_eq!(node.settled().len(), 2);
}

#[tokio::test]
async fn a_damaged_record_of_nothing_is_dropped() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &claim).await.unwrap();
    // As after a power failure: an empty file, and everything in memory is gone.
    fs::write(node.record_path(&claim), "").unwrap();
    node.boot("boot-2");
    node.start().await;
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_left_alone() {
    let node = Node::new(1);
    let (preparer, newer, other) = (node.start().await, claim("newer"), claim("other"));
    node.api.allocate(&newer, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &newer).await.unwrap();
    let record = json!({"version": 2, "form": "unknown"}).to_string();
    fs::write(node.record_path(&newer), &record).unwrap();

    let preparer = node.start().await;
    for error in
        [prepare(&preparer, &newer).await.unwrap_err(), unprepare(&preparer, &newer).await.unwrap_err()]
    {
        assert!(matches!(error, PrepareError::Journal(JournalError::Newer { version: 2, .. })), "{error}");
    }
    node.api.allocate(&other, &[("gpus", "gpu-01-00")]);
    assert!(matches!(prepare(&preparer, &other).await, Err(PrepareError::Held { .. })));
    assert_eq!(fs::read_to_string(node.record_path(&newer)).unwrap(), record);
    assert!(node.spec_path(&newer).exists());
}

#[tokio::test]
async fn strange_files_in_the_journal_are_not_ours() {
    let node = Node::new(1);
    node.start().await;
    let claims = node.path().join("kubelet/plugins/gpu.tessera.dev/journal/claims");
    fs::create_dir(claims.join("directory.json")).unwrap();
    fs::write(claims.join("notes.txt"), "remember the milk").unwrap();
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &claim).await.unwrap();
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!(names(&claims), ["directory.json", "notes.txt"]);
}
