//! The plugin closes cards of daemons killed together with mps-host.

use std::fs::{self, File};

use serde_json::json;
use tessera_mps_host::Abandoned;
use tessera_nvml::ComputeMode;

use crate::support::{Cards, real_uuid};

/// A running mps-host restarts a dead daemon and opens the card for the daemon. Nobody else may close the card meanwhile.
#[test]
fn cards_of_dead_daemons_are_closed_only_while_no_mps_host_works() {
    let directory = tempfile::tempdir().unwrap();
    let cards = Cards::new(1, &directory.path().join("proc"));
    cards.real_uuids();
    cards.change_compute_mode(0, ComputeMode::ExclusiveProcess);
    let (mps, uuid) = (directory.path().join("mps"), real_uuid(0));
    fs::create_dir_all(mps.join(&uuid)).unwrap();
    let record = json!({
        "version": 1, "device": uuid, "card": "0000:01:00.0", "settings": {}, "wanted": true, "computeModeBefore": 0,
    });
    fs::write(mps.join(&uuid).join("daemon.json"), record.to_string()).unwrap();

    let close = || {
        let Some(abandoned) = Abandoned::find(&mps).unwrap() else { return Vec::new() };
        let modes = abandoned.cards().into_iter().map(|card| (card, Some(cards.compute_mode(0)))).collect();
        abandoned.close(&modes, &cards).unwrap()
    };
    let mps_host = File::create(mps.join("host.lock")).unwrap();
    mps_host.lock().unwrap();
    assert_eq!(close(), []);
    assert_eq!(cards.compute_mode(0), ComputeMode::ExclusiveProcess);
    drop(mps_host);
    assert_eq!(close(), ["0000:01:00.0".parse().unwrap()]);
    assert_eq!(cards.compute_mode(0), ComputeMode::Prohibited);
}
