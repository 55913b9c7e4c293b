//! Helpers for tests of shares: claims, and the state of the node.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use futures::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_harness::installation;
use tessera_mps_host::{client::MpsHost, protocol::Daemon};
use tokio::time::sleep;

use crate::stage::{LIMIT, Mig, Scene, Stage, eventually};

/// The DeviceClass of MPS shares.
pub const MPS_CLASS: &str = "mps.gpu.tessera.dev";
/// The DeviceClass of time-slices.
pub const TIME_SLICE_CLASS: &str = "timeslice.gpu.tessera.dev";
/// `NVML_COMPUTEMODE_EXCLUSIVE_PROCESS`
pub const EXCLUSIVE_PROCESS: u32 = 3;

/// A request for an MPS share of a card. What `capacity` leaves out gets the node's default. The selector is needed
/// because the node also offers shares of partitions, and of the shares on a card the smallest comes first.
pub fn share(name: &str, capacity: &Value) -> Value {
    share_of(name, r#"!has(device.attributes["gpu.tessera.dev"].profile)"#, capacity)
}

/// A request for an MPS share of a partition.
pub fn share_of_partition(name: &str, profile: &str, capacity: &Value) -> Value {
    let expression = format!(
        r#"has(device.attributes["gpu.tessera.dev"].profile) && device.attributes["gpu.tessera.dev"].profile == "{profile}""#
    );
    share_of(name, &expression, capacity)
}

fn share_of(name: &str, expression: &str, capacity: &Value) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": MPS_CLASS, "capacity": {"requests": capacity},
        "selectors": [{"cel": {"expression": expression}}]}})
}

/// A request for a time-slice.
pub fn time_slice(name: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": TIME_SLICE_CLASS}})
}

/// Use of a card, from the machine's state.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardUse {
    pub compute_mode: u32,
    pub time_slice: u32,
    pub processes: Vec<Value>,
    pub mig: Mig,
}

impl Stage {
    /// Use of the cards, in the order of their indexes.
    pub fn card_uses(&self) -> Vec<CardUse> {
        // A real driver notices when a process is gone; the emulator only when the cards are read.
        let smi = installation::machine(self.node()).join("bin/nvidia-smi");
        assert!(Command::new(smi).arg("-L").output().unwrap().status.success());
        let machine: Value = serde_json::from_str(&self.emulator("show", &["-o", "json"])).unwrap();
        let cards = machine["state"]["cards"].as_array().unwrap();
        cards.iter().map(|card| CardUse::deserialize(card).unwrap()).collect()
    }

    /// Use of the card with this UUID.
    pub fn card_use(&self, uuid: &str) -> CardUse {
        let machine: Value = serde_json::from_str(&self.emulator("show", &["-o", "json"])).unwrap();
        let index =
            machine["machine"]["cards"].as_array().unwrap().iter().position(|card| card["uuid"] == uuid);
        CardUse::deserialize(&machine["state"]["cards"][index.unwrap()]).unwrap()
    }

    /// mps-host's directory.
    pub fn mps_directory(&self) -> PathBuf {
        self.node().directory().join("run/tessera/mps")
    }

    /// The node's MPS daemons.
    pub async fn daemons(&self) -> Vec<Daemon> {
        MpsHost::new(&self.mps_directory()).list(LIMIT).await.unwrap()
    }

    /// Remains of shares and of partitions on the node, in words.
    pub async fn traces_of_shares(&self) -> Vec<String> {
        let mut traces: Vec<String> =
            self.daemons().await.iter().map(|daemon| format!("a daemon: {daemon:?}")).collect();
        let names = |directory: PathBuf| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
        };
        let is_own = |path: &String| path.contains("/mps/GPU-") || path.contains("/mps/MIG-");
        traces.extend(names(self.mps_directory()).into_iter().filter(is_own));
        traces.extend(names(self.node().plugins_directory().join("gpu.tessera.dev/journal/hardware")));
        for (index, card) in self.card_uses().into_iter().enumerate() {
            let is_idle = card.compute_mode == 0 && card.time_slice == 0 && card.processes.is_empty();
            if !is_idle || card.mig.enabled || !card.mig.instances.is_empty() {
                traces.push(format!("card {index}: {card:?}"));
            }
        }
        traces
    }

    /// Waits until nothing remains of shares.
    pub async fn nothing_is_shared(&self) {
        let end = Instant::now() + LIMIT;
        loop {
            let traces = self.traces_of_shares().await;
            if traces.is_empty() {
                return;
            }
            assert!(
                Instant::now() < end,
                "{} s after the last share there still is: {traces:#?}",
                LIMIT.as_secs()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Scene {
    /// Deletes pods, all at once.
    pub async fn delete_pods(&self, names: &[&str]) {
        join_all(names.iter().map(|name| self.delete_pod(name))).await;
    }

    /// Waits until the published devices fulfil `is_so`.
    pub async fn published(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) {
        eventually(what, async || {
            let slices = self.stage.slices().await;
            let devices: Vec<Value> = slices
                .iter()
                .flat_map(|slice| slice.spec.devices.iter().flatten())
                .map(|device| serde_json::to_value(device).unwrap())
                .collect();
            is_so(&devices).then_some(())
        })
        .await;
    }
}
