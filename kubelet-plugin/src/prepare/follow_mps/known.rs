use std::collections::BTreeMap;

use crate::mps::DeviceUuid;
use crate::mps::protocol::{Daemon, DaemonState};

/// What was last seen of each daemon.
#[derive(Debug, Default)]
pub(super) struct Known {
    servers: BTreeMap<DeviceUuid, u32>,
    restarts: BTreeMap<DeviceUuid, u32>,
}

/// A daemon whose clients lost their contexts, and nobody told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub device: DeviceUuid,
    /// Whether there is no daemon in its place.
    pub is_gone: bool,
}

impl Known {
    /// Takes over what is seen now: how often daemons were started again since the last look, and whose servers are others.
    pub fn update(&mut self, daemons: &[Daemon]) -> (u64, Vec<Missing>) {
        let mut missing = Vec::new();
        let mut restarts = 0;
        for daemon in daemons {
            let before = self.restarts.insert(daemon.device.clone(), daemon.restarts);
            restarts += u64::from(daemon.restarts.saturating_sub(before.unwrap_or(daemon.restarts)));
            let Some(server) = daemon.server_pid else { continue };
            let before = self.servers.insert(daemon.device.clone(), server);
            if before.is_some_and(|before| before != server) && daemon.state == DaemonState::Running {
                missing.push(Missing { device: daemon.device.clone(), is_gone: false });
            }
        }
        let is_listed = |device: &DeviceUuid| daemons.iter().any(|daemon| daemon.device == *device);
        let gone: Vec<DeviceUuid> =
            self.servers.keys().filter(|device| !is_listed(device)).cloned().collect();
        for device in gone {
            self.servers.remove(&device);
            missing.push(Missing { device, is_gone: true });
        }
        self.restarts.retain(|device, _| is_listed(device));
        (restarts, missing)
    }

    /// What changed of this device until the next look was told.
    pub fn is_told(&mut self, device: &DeviceUuid) {
        self.servers.remove(device);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: &str = "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d";

    fn daemon(server: Option<u32>, restarts: u32) -> Daemon {
        let daemon = json!({
            "device": ONE, "card": "0000:3b:00.0", "settings": {}, "state": "running", "pid": 1, "serverPid": server,
            "pipeDirectory": "/p", "shmDirectory": null, "logDirectory": "/l", "restarts": restarts,
        });
        serde_json::from_value(daemon).unwrap()
    }

    #[test]
    fn a_server_in_the_place_of_another_is_news_unless_it_was_told_of() {
        let mut known = Known::default();
        let device: DeviceUuid = ONE.parse().unwrap();
        let missing = |is_gone| vec![Missing { device: device.clone(), is_gone }];
        assert_eq!(
            known.update(&[daemon(Some(5), 3)]),
            (0, vec![]),
            "what was before this plugin is not its news"
        );
        assert_eq!(known.update(&[daemon(Some(5), 3)]), (0, vec![]));
        assert_eq!(known.update(&[daemon(Some(6), 4)]), (1, missing(false)));
        known.is_told(&device);
        assert_eq!(known.update(&[daemon(Some(7), 6)]), (2, vec![]));
        assert_eq!(known.update(&[daemon(None, 6)]), (0, vec![]), "it is being started");
        assert_eq!(known.update(&[daemon(Some(8), 6)]), (0, missing(false)));
        assert_eq!(known.update(&[]), (0, missing(true)));
        assert_eq!(known.update(&[]), (0, vec![]));
        assert_eq!(known.update(&[daemon(Some(9), 0)]), (0, vec![]));
        known.is_told(&device);
        assert_eq!(known.update(&[]), (0, vec![]), "it was ended by order");
    }
}
