//! The last known state of the MPS daemons, to detect changes.

use std::collections::BTreeMap;

use tessera_journal::MpsServers;
use tessera_mps_host::DeviceUuid;
use tessera_mps_host::protocol::{Daemon, DaemonState};

/// What was last seen of each daemon.
#[derive(Debug, Default)]
pub(super) struct Known {
    servers: BTreeMap<DeviceUuid, String>,
    restarts: BTreeMap<DeviceUuid, u32>,
    /// Faults that were reported, by their ids.
    faults: BTreeMap<DeviceUuid, String>,
}

/// A daemon whose clients lost their contexts without an event about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub device: DeviceUuid,
    /// The server that is gone.
    pub server: String,
    /// The server that replaced it, if any.
    pub now: Option<String>,
}

/// Changes between two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// How often daemons were restarted.
    pub restarts: u64,
    /// Daemons whose servers were replaced or are gone.
    pub missing: Vec<Missing>,
    /// Daemons with a fault not seen before.
    pub faults: Vec<DeviceUuid>,
}

impl Known {
    /// Starts from what an earlier instance of the plugin saw in this boot.
    pub fn of(seen: MpsServers) -> Self {
        let known = |seen: BTreeMap<String, String>| {
            seen.into_iter().filter_map(|(device, value)| Some((device.parse().ok()?, value))).collect()
        };
        Self { servers: known(seen.servers), faults: known(seen.faults), ..Self::default() }
    }

    /// What the next instance of the plugin needs to know.
    pub fn to_journal(&self) -> MpsServers {
        let seen = |known: &BTreeMap<DeviceUuid, String>| {
            known.iter().map(|(device, value)| (device.to_string(), value.clone())).collect()
        };
        MpsServers { servers: seen(&self.servers), faults: seen(&self.faults) }
    }

    /// Takes over the present state; returns what changed.
    pub fn update(&mut self, daemons: &[Daemon]) -> Changes {
        let mut changes = Changes::default();
        for daemon in daemons {
            let before = self.restarts.insert(daemon.device.clone(), daemon.restarts);
            changes.restarts += u64::from(daemon.restarts.saturating_sub(before.unwrap_or(daemon.restarts)));
            match &daemon.fault {
                None => drop(self.faults.remove(&daemon.device)),
                Some(fault) => {
                    let before = self.faults.insert(daemon.device.clone(), fault.id.clone());
                    if before.is_none_or(|before| before != fault.id) {
                        changes.faults.push(daemon.device.clone());
                    }
                }
            }
            // The server of a starting daemon may not be reported yet.
            if daemon.state != DaemonState::Running {
                continue;
            }
            let Some(server) = daemon.server_identity() else { continue };
            let before = self.servers.insert(daemon.device.clone(), server.clone());
            if let Some(before) = before.filter(|before| *before != server) {
                let (device, now) = (daemon.device.clone(), Some(server));
                changes.missing.push(Missing { device, server: before, now });
            }
        }
        let is_listed = |device: &DeviceUuid| daemons.iter().any(|daemon| daemon.device == *device);
        let gone: Vec<DeviceUuid> =
            self.servers.keys().filter(|device| !is_listed(device)).cloned().collect();
        for device in gone {
            let server = self.servers.remove(&device).unwrap_or_default();
            changes.missing.push(Missing { device, server, now: None });
        }
        self.restarts.retain(|device, _| is_listed(device));
        self.faults.retain(|device, _| is_listed(device));
        changes
    }

    /// Notes that changes of this device up to the next look were reported.
    pub fn is_told(&mut self, device: &DeviceUuid) {
        self.servers.remove(device);
    }

    /// Notes that this fault on the device was reported.
    pub fn fault_is_told(&mut self, device: &DeviceUuid, id: &str) {
        self.faults.insert(device.clone(), id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use tessera_mps_host::protocol::Fault;

    const ONE: &str = "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d";

    fn daemon(server: Option<u32>, restarts: u32) -> Daemon {
        let daemon = json!({
            "device": ONE, "card": "0000:3b:00.0", "settings": {}, "state": "running", "pid": 1, "serverPid": server,
            "serverInstance": server.map(|server| format!("{server}-77")),
            "pipeDirectory": "/p", "shmDirectory": null, "logDirectory": "/l", "restarts": restarts,
        });
        serde_json::from_value(daemon).unwrap()
    }

    fn missing(server: &str, now: Option<&str>) -> Vec<Missing> {
        let (device, now) = (ONE.parse().unwrap(), now.map(str::to_owned));
        vec![Missing { device, server: server.to_owned(), now }]
    }

    /// Number of restarts, and daemons whose servers were replaced or are gone.
    fn update(known: &mut Known, daemons: &[Daemon]) -> (u64, Vec<Missing>) {
        let changes = known.update(daemons);
        (changes.restarts, changes.missing)
    }

    #[test]
    fn a_server_in_the_place_of_another_is_news_unless_it_was_told_of() {
        let mut known = Known::default();
        let device: DeviceUuid = ONE.parse().unwrap();
        let seen = update(&mut known, &[daemon(Some(5), 3)]);
        assert_eq!(seen, (0, vec![]), "what was before this plugin is not its news");
        assert_eq!(update(&mut known, &[daemon(Some(5), 3)]), (0, vec![]));
        assert_eq!(update(&mut known, &[daemon(Some(6), 4)]), (1, missing("5-77", Some("6-77"))));
        known.is_told(&device);
        assert_eq!(update(&mut known, &[daemon(Some(7), 6)]), (2, vec![]));
        assert_eq!(update(&mut known, &[daemon(None, 6)]), (0, vec![]), "it is being started");
        assert_eq!(update(&mut known, &[daemon(Some(8), 6)]), (0, missing("7-77", Some("8-77"))));
        assert_eq!(update(&mut known, &[]), (0, missing("8-77", None)));
        assert_eq!(update(&mut known, &[]), (0, vec![]));
        assert_eq!(update(&mut known, &[daemon(Some(9), 0)]), (0, vec![]));
        known.is_told(&device);
        assert_eq!(update(&mut known, &[]), (0, vec![]), "it was ended by order");
    }

    #[test]
    fn the_next_instance_of_the_plugin_goes_on_where_the_last_one_ended() {
        let mut known = Known::default();
        known.update(&[daemon(Some(5), 0)]);
        let mut next = Known::of(known.to_journal());
        assert_eq!(update(&mut next, &[daemon(Some(5), 0)]), (0, vec![]), "nothing happened meanwhile");
        let mut next = Known::of(known.to_journal());
        let starting = Daemon { state: DaemonState::Starting, ..daemon(None, 1) };
        assert_eq!(update(&mut next, &[starting]), (0, vec![]));
        assert_eq!(update(&mut next, &[daemon(Some(6), 1)]), (0, missing("5-77", Some("6-77"))));
        let rubbish =
            MpsServers { servers: [("GPU".to_owned(), "5".to_owned())].into(), ..MpsServers::default() };
        assert_eq!(Known::of(rubbish).to_journal(), MpsServers::default());
    }

    #[test]
    fn a_fault_is_news_once() {
        let mut known = Known::default();
        let device: DeviceUuid = ONE.parse().unwrap();
        let faulted = |id: &str| {
            let fault = Fault { id: id.to_owned(), clients: vec![4711] };
            Daemon { fault: Some(fault), ..daemon(Some(5), 0) }
        };
        assert_eq!(known.update(&[faulted("1")]).faults, std::slice::from_ref(&device));
        assert_eq!(known.update(&[faulted("1")]).faults, []);
        assert_eq!(
            Known::of(known.to_journal()).update(&[faulted("1")]).faults,
            [],
            "nor is it for the next instance"
        );
        assert_eq!(known.update(&[faulted("2")]).faults, std::slice::from_ref(&device));
        assert_eq!(known.update(&[daemon(Some(5), 0)]).faults, []);
        known.fault_is_told(&device, "3");
        assert_eq!(known.update(&[faulted("3")]).faults, []);
    }
}
