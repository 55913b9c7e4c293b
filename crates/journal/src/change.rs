use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::facts::Placement;

use crate::record::HardwareRecord;

/// What a [`HardwareRecord`] says was, or is being, changed, and how to recognise it after a crash.
///
/// Its form in the record is JSON with a `kind`. A kind that this build does not know is `None` of
/// [`HardwareRecord::known_change`], and left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HardwareChange {
    /// A GPU instance with a compute instance in it.
    MigPartition(PartitionChange),
    /// A card's MIG mode was switched: what it was before is put back when nobody needs the change any more.
    MigMode(ModeChange),
    /// An MPS control daemon runs for a card or partition, by mps-host.
    MpsDaemon(MpsDaemonChange),
    /// A card is shared by time.
    TimeSlice(TimeSliceChange),
}

/// An MPS daemon that runs, or shall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsDaemonChange {
    /// UUID of the card or partition by which mps-host knows the daemon: what it shares, or the first of the cards. Of a
    /// partition that is not made yet there is none, and then mps-host was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_uuid: Option<String>,
    /// UID of the claim for which alone it runs, where it is not that of all shares of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether it gives each share multiprocessors of its own, which it does from its start to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub static_partitions: bool,
}

/// How a card is shared by time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeSliceChange {
    /// How long each process computes before the next one's turn, as `nvidia-smi compute-policy` numbers it; 0 is the
    /// driver's own, which is not set.
    pub interval: u32,
    /// The compute mode before, where it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode_before: Option<String>,
}

/// A partition that is made, or shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionChange {
    /// The profile as NVIDIA writes it: `1g.10gb`.
    pub profile: String,
    /// The profile's id on this card.
    pub profile_id: u32,
    /// Where the GPU instance lies, in memory slices. Nothing else lay there when the record was written.
    pub placement: Placement,
    /// Ids of the GPU instances that were on the card before: the driver chooses ids, so whatever lies at the placement
    /// and is none of these is what was being made.
    pub present: Vec<u32>,
    /// The instances, once they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<PartitionInstances>,
}

/// The instances behind a partition, by what the driver calls them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionInstances {
    /// Id of the GPU instance on its card.
    pub gpu_instance: u32,
    /// Id of the compute instance in its GPU instance.
    pub compute_instance: u32,
    /// UUID by which CUDA programs know it: `MIG-…`.
    pub uuid: String,
}

/// A switch of MIG mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChange {
    /// The mode before: `true` is on.
    pub from: bool,
    /// The mode after.
    pub to: bool,
    /// Whether a claim asked that it stay switched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

impl HardwareChange {
    /// The form in a record.
    #[must_use]
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            // Numbers, texts and booleans under names: always an object.
            _ => Map::new(),
        }
    }
}

impl HardwareRecord {
    /// What was changed, where this build knows that kind of change.
    #[must_use]
    pub fn known_change(&self) -> Option<HardwareChange> {
        serde_json::from_value(Value::Object(self.change.clone())).ok()
    }

    /// The partition, where the record is of one.
    #[must_use]
    pub fn partition(&self) -> Option<PartitionChange> {
        match self.known_change()? {
            HardwareChange::MigPartition(partition) => Some(partition),
            _ => None,
        }
    }

    /// The switch of mode, where the record is of one.
    #[must_use]
    pub fn mode(&self) -> Option<ModeChange> {
        match self.known_change()? {
            HardwareChange::MigMode(mode) => Some(mode),
            _ => None,
        }
    }

    /// The MPS daemon, where the record is of one.
    #[must_use]
    pub fn daemon(&self) -> Option<MpsDaemonChange> {
        match self.known_change()? {
            HardwareChange::MpsDaemon(daemon) => Some(daemon),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is on the disk of nodes that run today.
    #[test]
    fn forms_of_version_1() {
        let partition = json!({
            "kind": "migPartition", "profile": "1g.10gb", "profileId": 15, "placement": {"start": 6, "size": 2},
            "present": [3], "made": {"gpuInstance": 5, "computeInstance": 0, "uuid": "MIG-1"},
        });
        let mode = json!({"kind": "migMode", "from": false, "to": true});
        let daemon = json!({"kind": "mpsDaemon", "deviceUuid": "GPU-1"});
        let own = json!({"kind": "mpsDaemon", "deviceUuid": "GPU-1", "owner": "uid-1"});
        let partitioned = json!({"kind": "mpsDaemon", "deviceUuid": "GPU-1", "staticPartitions": true});
        let slices = json!({"kind": "timeSlice", "interval": 1, "computeModeBefore": "ExclusiveProcess"});
        for form in [partition, mode, daemon, own, partitioned, slices] {
            let change: HardwareChange = serde_json::from_value(form.clone()).unwrap();
            assert_eq!(Value::Object(change.to_map()), form);
        }
    }
}
