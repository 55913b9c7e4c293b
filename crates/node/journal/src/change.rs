use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::facts::Placement;

/// A planned or completed change of a [`HardwareRecord`](crate::HardwareRecord), and how to recognise the change after a crash.
///
/// Stored as JSON with a `kind`. For a kind unknown to this build,
/// [`HardwareRecord::known_change`](crate::HardwareRecord::known_change) is `None`, and the record is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HardwareChange {
    /// A GPU instance with a compute instance in it.
    MigPartition(PartitionChange),
    /// A switch of a card's MIG mode; the previous mode is restored when no claim needs the change any more.
    MigMode(ModeChange),
    /// An MPS control daemon run by mps-host for a card or partition.
    MpsDaemon(MpsDaemonChange),
    /// A time-sliced card.
    TimeSlice(TimeSliceChange),
}

/// An MPS daemon, running or about to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsDaemonChange {
    /// UUID by which mps-host knows the daemon: the UUID of the shared card or partition, or of the first of several cards.
    /// `None` for a partition not made yet; mps-host was not asked then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_uuid: Option<String>,
    /// UID of the only claim served by the daemon; `None` for the daemon of all shares of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether the daemon gives each share multiprocessors of its own; fixed for the daemon's lifetime.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub static_partitions: bool,
}

/// Time-slicing of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeSliceChange {
    /// Length of a process's time slice, numbered as in `nvidia-smi compute-policy`. 0 is the driver's default, which
    /// is not set.
    pub interval: u32,
    /// The previous compute mode, if changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode_before: Option<String>,
}

/// A partition, existing or planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionChange {
    /// The profile as NVIDIA writes it: `1g.10gb`.
    pub profile: String,
    /// The profile's id on this card.
    pub profile_id: u32,
    /// Position of the GPU instance, in memory slices. The position was free when the record was written.
    pub placement: Placement,
    /// Ids of the GPU instances on the card beforehand. The driver chooses ids, so an instance at the placement
    /// whose id is not in this list is the one being made when the plugin stopped.
    pub present: Vec<u32>,
    /// The instances, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<PartitionInstances>,
    /// No claim needs the partition any more, but the driver does not destroy it: a program not named by the driver
    /// uses the partition. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_released: bool,
}

/// The instances behind a partition, by the driver's ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionInstances {
    /// Id of the GPU instance on its card.
    pub gpu_instance: u32,
    /// Id of the compute instance in its GPU instance.
    pub compute_instance: u32,
    /// UUID by which CUDA programs address the partition: `MIG-…`.
    pub uuid: String,
}

/// A switch of MIG mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChange {
    /// The previous mode: `true` is on.
    pub from: bool,
    /// The new mode.
    pub to: bool,
    /// Whether a claim asked for the new mode to stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

impl HardwareChange {
    /// The form stored in a record.
    #[must_use]
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            // Only structs of numbers, texts and booleans: always an object.
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The form on the disks of running nodes.
    #[test]
    fn forms_of_version_1() {
        let partition = json!({
            "kind": "migPartition", "profile": "1g.10gb", "profileId": 15, "placement": {"start": 6, "size": 2},
            "present": [3], "made": {"gpuInstance": 5, "computeInstance": 0, "uuid": "MIG-1"},
        });
        let mut held = partition.clone();
        held["notReleased"] = true.into();
        let mode = json!({"kind": "migMode", "from": false, "to": true});
        let daemon = json!({"kind": "mpsDaemon", "deviceUuid": "GPU-1"});
        let own = json!({"kind": "mpsDaemon", "deviceUuid": "GPU-1", "owner": "uid-1"});
        let partitioned = json!({"kind": "mpsDaemon", "deviceUuid": "GPU-1", "staticPartitions": true});
        let slices = json!({"kind": "timeSlice", "interval": 1, "computeModeBefore": "ExclusiveProcess"});
        for form in [partition, held, mode, daemon, own, partitioned, slices] {
            let change: HardwareChange = serde_json::from_value(form.clone()).unwrap();
            assert_eq!(Value::Object(change.to_map()), form);
        }
    }
}
