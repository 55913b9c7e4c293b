use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::offer::TimeSliceInterval;

/// How the pods and containers of one claim share a device held exclusively by the claim.
///
/// The serialised form is for this driver's own records; users write another form (`sharing_form`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Sharing {
    /// Processes take turns. Only for whole cards.
    TimeSlicing(TimeSlicing),
    /// Processes run side by side, as clients of an MPS daemon.
    Mps(MpsSharing),
}

/// Sharing by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeSlicing {
    /// Time slice of a process before the next process's turn.
    pub interval: TimeSliceInterval,
}

/// Sharing by MPS. Limits apply to each process; MPS has no others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MpsSharing {
    /// Percent of a device's multiprocessors available to a process, 1 to 100; `None` is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
    /// Memory of each device available to a process, MiB, 1 or more; `None` is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// Limits of single devices, MiB, in place of `memory_limit_mib`: by UUID, or by the position from 0 among the sorted
    /// UUIDs of the object's devices. Only NVIDIA's objects have per-device limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub device_memory_limits_mib: BTreeMap<String, u64>,
    /// Whether a limit above the device's memory is ignored, as in NVIDIA's objects, instead of being an error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_exceed_device: bool,
}

/// A limit names a device outside the configured ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a memory limit is for device {key:?}: expected a UUID of {devices}, or its position among them from 0",
    devices = devices.join(", ")
)]
pub struct InvalidDeviceKey {
    key: String,
    devices: Vec<String>,
}

impl MpsSharing {
    /// The memory limit of each device, MiB, in the order of `uuids`, which are sorted; `None` for a device without a
    /// limit.
    ///
    /// # Errors
    /// [`InvalidDeviceKey`] for a limit naming none of them.
    pub fn memory_limits(&self, uuids: &[&str]) -> Result<Vec<Option<u64>>, InvalidDeviceKey> {
        let mut limits = vec![self.memory_limit_mib; uuids.len()];
        // Positions before UUIDs, so that a limit by UUID wins over one by position.
        for (key, limit) in &self.device_memory_limits_mib {
            let position = uuids.iter().position(|uuid| uuid == key);
            let position = position.or_else(|| key.parse::<usize>().ok());
            match position.and_then(|position| limits.get_mut(position)) {
                Some(place) => *place = Some(*limit),
                None => {
                    let devices = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
                    return Err(InvalidDeviceKey { key: super::error::excerpt(key), devices });
                }
            }
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_single_devices_are_found_by_uuid_or_position() {
        let of = |limits: &[(&str, u64)]| {
            let limits = limits.iter().map(|(key, limit)| ((*key).to_owned(), *limit)).collect();
            let sharing = MpsSharing {
                memory_limit_mib: Some(10),
                device_memory_limits_mib: limits,
                ..MpsSharing::default()
            };
            sharing.memory_limits(&["GPU-a", "GPU-b"])
        };
        assert_eq!(of(&[]).unwrap(), [Some(10), Some(10)]);
        assert_eq!(of(&[("1", 20)]).unwrap(), [Some(10), Some(20)]);
        assert_eq!(of(&[("GPU-a", 30), ("0", 20)]).unwrap(), [Some(30), Some(10)]);
        for wrong in ["2", "-1", "", "GPU-c", "gpu-a"] {
            let error = of(&[(wrong, 20)]).unwrap_err().to_string();
            assert!(error.contains("GPU-a, GPU-b"), "{error}");
        }
    }

    /// The format in the journals of nodes running today.
    #[test]
    fn form_in_records() {
        for text in [
            r#"{"timeSlicing":{"interval":"Short"}}"#,
            r#"{"mps":{}}"#,
            r#"{"mps":{"activeThreadPercentage":50,"memoryLimitMib":1024,"deviceMemoryLimitsMib":{"0":1},"mayExceedDevice":true}}"#,
        ] {
            let sharing: Sharing = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&sharing).unwrap(), text);
        }
    }
}
