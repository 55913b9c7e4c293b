//! The journal on a real file system: forms of records, versions, references, group commit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tessera_journal::{
    BootId, ClaimDevice, ClaimRecord, HardwareRecord, Journal, JournalError, LocalFileSystem, Stage,
};

fn open(directory: &TempDir) -> Journal {
    let path = directory.path().join("journal");
    Journal::open(Arc::new(LocalFileSystem), path, BootId::from("boot-1")).unwrap()
}

fn path(directory: &TempDir, kind: &str, id: &str) -> PathBuf {
    directory.path().join("journal").join(kind).join(format!("{id}.json"))
}

fn record(uid: &str, hardware: &[&str]) -> ClaimRecord {
    let device = ClaimDevice {
        device: "gpu-3b-00".into(),
        card: "0000:3b:00.0".parse().unwrap(),
        pool: "gpu.tessera.dev/node".into(),
        request: "gpus".into(),
        alternative: None,
        share_id: None,
        admin_access: false,
        card_uuid: "GPU-0".into(),
        minor: 0,
        cdi_device_id: format!("gpu.tessera.dev/claim={uid}-gpu-3b-00"),
        partition: None,
        sharing: None,
        memory_mib: None,
        mps: None,
        hardware: hardware.iter().map(|id| (*id).to_owned()).collect(),
        other: Map::new(),
    };
    ClaimRecord {
        version: ClaimRecord::VERSION,
        namespace: "ns".into(),
        name: "claim".into(),
        uid: uid.into(),
        boot_id: BootId::from("boot-1"),
        stage: Stage::Intent,
        devices: vec![device],
        pods: Vec::new(),
        metadata: None,
        other: Map::new(),
    }
}

fn partition(id: &str) -> HardwareRecord {
    HardwareRecord {
        version: HardwareRecord::VERSION,
        id: id.into(),
        card: "0000:3b:00.0".parse().unwrap(),
        card_uuid: "GPU-0".into(),
        boot_id: BootId::from("boot-1"),
        stage: Stage::Intent,
        change: json!({"kind": "partition", "placement": 4}).as_object().unwrap().clone(),
        other: Map::new(),
    }
}

/// The form of version 1, which every later build must read.
#[tokio::test]
async fn records_of_version_1_are_read_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    let mut claim = record("u", &["p-1"]);
    claim.stage = Stage::Complete;
    journal.put_claim(&claim).unwrap();
    let written: Value = serde_json::from_slice(&fs::read(path(&directory, "claims", "u")).unwrap()).unwrap();
    let expected = json!({
        "version": 1, "namespace": "ns", "name": "claim", "uid": "u", "bootId": "boot-1", "stage": "complete",
        "devices": [{
            "device": "gpu-3b-00", "card": "0000:3b:00.0", "pool": "gpu.tessera.dev/node", "request": "gpus",
            "cardUuid": "GPU-0", "minor": 0, "cdiDeviceId": "gpu.tessera.dev/claim=u-gpu-3b-00", "hardware": ["p-1"],
        }],
    });
    assert_eq!(written, expected);
    assert_eq!(journal.claim("u").unwrap().unwrap(), claim);
    assert_eq!(claim.devices[0].uuid(), Some("GPU-0"));
    assert!(journal.claim("other").unwrap().is_none());
}

#[tokio::test]
async fn unknown_fields_live_through_a_rewrite() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    journal.put_claim(&record("u", &[])).unwrap();
    let file = path(&directory, "claims", "u");
    let mut value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    value["later"] = json!({"a": [1, 2]});
    value["devices"][0]["later"] = json!("b");
    fs::write(&file, value.to_string()).unwrap();

    let mut read = journal.claim("u").unwrap().unwrap();
    read.stage = Stage::Complete;
    journal.put_claim(&read).unwrap();
    value["stage"] = "complete".into();
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap(), value);
}

#[tokio::test]
async fn a_listing_sees_every_change_and_one_bad_record_spoils_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, other_instance) = (open(&directory), open(&directory));
    let listed = |journal: &Journal| -> Vec<(String, Option<Stage>)> {
        let entries = journal.claims().unwrap();
        entries.into_iter().map(|entry| (entry.id, entry.record.ok().map(|record| record.stage))).collect()
    };
    for uid in ["a", "b", "c"] {
        journal.put_claim(&record(uid, &[])).unwrap();
    }
    let intent = |uid: &str| (uid.to_owned(), Some(Stage::Intent));
    assert_eq!(listed(&journal), [intent("a"), intent("b"), intent("c")]);
    let mut complete = record("b", &[]);
    complete.stage = Stage::Complete;
    other_instance.put_claim(&complete).unwrap();
    other_instance.remove_claim("a").unwrap();
    fs::write(path(&directory, "claims", "c"), "{").unwrap();
    assert_eq!(listed(&journal), [("b".to_owned(), Some(Stage::Complete)), ("c".to_owned(), None)]);
    let error = journal.claim("c").unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }));
    assert!(error.to_string().contains("claims/c.json"), "{error}");
}

#[tokio::test]
async fn hardware_records_outlive_claims() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    for id in ["p-1", "p-2"] {
        journal.put_hardware(&[&partition(id)]).await.unwrap();
    }
    journal.put_claim(&record("b", &["p-1", "p-2", "p-1"])).unwrap();
    journal.remove_claim("b").unwrap();
    let hardware: Vec<HardwareRecord> =
        journal.hardware().unwrap().into_iter().map(|entry| entry.record.unwrap()).collect();
    assert_eq!(hardware, [partition("p-1"), partition("p-2")]);
    assert_eq!(journal.hardware_record("p-1").unwrap(), Some(partition("p-1")));
    journal.remove_hardware("p-2").await.unwrap();
    assert_eq!(journal.hardware().unwrap().len(), 1);
    // Removing a record that is gone succeeds.
    journal.remove_hardware("p-2").await.unwrap();
    journal.remove_claim("b").unwrap();
}

#[tokio::test]
async fn an_error_is_that_change_s_alone() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    // A directory in the place of a record can't be replaced.
    fs::create_dir(path(&directory, "hardware", "bad")).unwrap();
    let records: Vec<HardwareRecord> = ["a", "bad", "b"].into_iter().map(partition).collect();
    let results = join_all(records.iter().map(async |record| journal.put_hardware(&[record]).await)).await;
    assert!(results[0].is_ok() && results[2].is_ok());
    let error = results[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("bad.json"), "{error}");
    let names: Vec<_> = fs::read_dir(directory.path().join("journal/hardware"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".new"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
}

#[tokio::test]
async fn a_huge_file_or_a_pipe_in_the_place_of_a_record_is_a_bad_record() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    // A sparse file takes no space.
    fs::File::create(path(&directory, "claims", "huge")).unwrap().set_len(1 << 40).unwrap();
    let pipe = path(&directory, "claims", "pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for uid in ["huge", "pipe"] {
        assert!(journal.claim(uid).unwrap_err().is_corrupt(), "{uid}");
        journal.put_claim(&record(uid, &[])).unwrap();
        assert_eq!(journal.claim(uid).unwrap().unwrap(), record(uid, &[]));
    }
}

/// A failing disk says nothing about the record: it may be good, and must not be replaced.
#[tokio::test]
async fn a_record_that_can_not_be_read_is_no_bad_record() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    let file = path(&directory, "claims", "u");
    // A symlink to itself: not readable by root either.
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let error = journal.claim("u").unwrap_err();
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    assert!(matches!(journal.claims().unwrap()[0].record, Err(JournalError::Io { .. })));
}

#[tokio::test]
async fn what_can_not_be_removed_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    for name in ["u.json", ".u.json.new"] {
        fs::create_dir(directory.path().join("journal/claims").join(name)).unwrap();
    }
    for name in ["gpu-3b-00-mode.json", ".gpu-3b-00-mode.json.new"] {
        fs::create_dir(directory.path().join("journal/hardware").join(name)).unwrap();
    }
    let refused = |result: Result<(), JournalError>| {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("cannot remove "), "{error}");
    };
    refused(journal.remove_claim("u"));
    refused(journal.remove_unfinished_claim("u"));
    refused(journal.remove_hardware("gpu-3b-00-mode").await);
    refused(journal.remove_hardware_unsynced("gpu-3b-00-mode"));
    refused(journal.remove_unfinished_hardware("0000:3b:00.0".parse().unwrap()));
}

#[tokio::test]
async fn what_is_half_written_of_a_cards_records_is_removed_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory);
    let hardware = directory.path().join("journal/hardware");
    for name in [".gpu-3b-00-mode.json.new", ".gpu-5e-00-mode.json.new", "gpu-3b-00-mig-1g10gb-0.json"] {
        fs::write(hardware.join(name), "{").unwrap();
    }
    journal.remove_unfinished_hardware("0000:3b:00.0".parse().unwrap()).unwrap();
    let mut left: Vec<_> = fs::read_dir(&hardware)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, [".gpu-5e-00-mode.json.new", "gpu-3b-00-mig-1g10gb-0.json"]);
}
