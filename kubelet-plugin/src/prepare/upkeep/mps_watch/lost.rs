//! Shares whose MPS server was replaced, or is gone.
//!
//! A claim's record names the MPS server of its share. After a change of server, the pods get a report and the record gets the
//! new name, so each change is reported once, even by the next instance of the plugin.

use std::collections::BTreeMap;

use tessera_journal::{ClaimDevice, ClaimRecord};
use tessera_mps_host::protocol::{Daemon, DaemonState};

use crate::prepare::cards::Worker;
use crate::prepare::claim::reference;
use crate::prepare::{ClaimReference, PrepareError};

/// A former MPS server with shares.
#[derive(Debug)]
pub(super) struct Lost {
    /// UUID of the (first) device.
    pub uuid: String,
    /// Whether no other server has taken its place.
    pub is_gone: bool,
    /// The devices' names, and the claims with shares on the server.
    pub shares: Vec<(String, ClaimReference)>,
}

impl Worker {
    /// Former servers of claims, no longer running on their devices, by mps-host's names for them. Each is found once. `daemons`
    /// are those of mps-host.
    pub(super) async fn lost_servers(
        &self,
        daemons: &[Daemon],
    ) -> Result<BTreeMap<String, Lost>, PrepareError> {
        let mut lost = BTreeMap::new();
        for entry in self.disk(|journal, _| journal.shared_claims()).await? {
            if entry.record.is_ok_and(|record| self.is_prepared(&record) && has_other(&record, daemons)) {
                self.take_over_servers(&entry.id, &mut lost).await?;
            }
        }
        Ok(lost)
    }

    /// Updates the servers in a claim's record, and adds the lost ones to `lost`.
    async fn take_over_servers(
        &self,
        uid: &str,
        lost: &mut BTreeMap<String, Lost>,
    ) -> Result<(), PrepareError> {
        // Work in flight on the claim may be about to change record and daemon: the next look is soon enough.
        let Some(_claim_lock) = self.locks.try_claim(uid)? else { return Ok(()) };
        let Some(mut record) = self.recorded(uid).await?.filter(|record| self.is_prepared(record)) else {
            return Ok(());
        };
        // The earlier list may be older than the record.
        let Ok(daemons) = self.sharing.mps_daemons().await else { return Ok(()) };
        if !has_other(&record, &daemons) {
            return Ok(());
        }
        let claim = reference::of_record(&record);
        for device in &mut record.devices {
            let Some(now) = other(device, &daemons) else { continue };
            let (name, uuid) = (device.device.clone(), device.uuid().unwrap_or_default().to_owned());
            let Some(mps) = &mut device.mps else { continue };
            let is_gone = now.is_none();
            if let Some(server) = std::mem::replace(&mut mps.server, now) {
                let shares = Vec::new();
                let lost = lost.entry(server).or_insert(Lost { uuid, is_gone, shares });
                lost.shares.push((name, claim.clone()));
            }
        }
        self.disk(move |journal, _| journal.put_claim(&record)).await
    }
}

/// Whether a device of the claim has another server than its record.
fn has_other(record: &ClaimRecord, daemons: &[Daemon]) -> bool {
    record.devices.iter().any(|device| other(device, daemons).is_some())
}

/// The present server of a device, if different from the record's.
fn other(device: &ClaimDevice, daemons: &[Daemon]) -> Option<Option<String>> {
    other_server(device.mps.as_ref()?.server.as_deref(), device.uuid()?, daemons)
}

/// The server of a device, if different from `had`.
fn other_server(had: Option<&str>, uuid: &str, daemons: &[Daemon]) -> Option<Option<String>> {
    let now = match daemons.iter().find(|daemon| daemon.serves(uuid)) {
        // The server of a starting daemon is not known yet.
        Some(daemon) if daemon.state == DaemonState::Running => Some(daemon.server_identity()?),
        Some(_) => return None,
        None => None,
    };
    (now.as_deref() != had).then_some(now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: &str = "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d";

    fn daemon(state: &str, server: Option<&str>) -> Daemon {
        let daemon = json!({
            "device": ONE, "card": "0000:3b:00.0", "settings": {}, "state": state, "pid": 1, "serverPid": 5,
            "serverInstance": server, "pipeDirectory": "/p", "shmDirectory": null, "logDirectory": "/l", "restarts": 0,
        });
        serde_json::from_value(daemon).unwrap()
    }

    #[test]
    fn a_server_in_the_place_of_another_is_found_when_it_runs() {
        let other = |had, daemons: &[Daemon]| other_server(had, ONE, daemons);
        let running = daemon("running", Some("6-77"));
        assert_eq!(other(Some("5-77"), std::slice::from_ref(&running)), Some(Some("6-77".to_owned())));
        assert_eq!(other(Some("6-77"), std::slice::from_ref(&running)), None);
        assert_eq!(other(None, &[running]), Some(Some("6-77".to_owned())), "a record of an earlier version");
        assert_eq!(other(Some("5-77"), &[daemon("starting", None)]), None);
        assert_eq!(other(Some("5-77"), &[]), Some(None), "the daemon is gone");
        assert_eq!(other(None, &[]), None);
        let mut without = daemon("running", None);
        without.server_pid = None;
        assert_eq!(other(Some("5-77"), &[without]), None);
    }
}
