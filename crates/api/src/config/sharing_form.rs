//! How users write [`Sharing`].

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::memory_limit::MemoryLimit;
use super::sharing::{MpsSharing, Sharing, TimeSlicing};
use crate::offer::TimeSliceInterval;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Form {
    strategy: Strategy,
    #[serde(default)]
    time_slicing: Option<TimeSlicingForm>,
    #[serde(default)]
    mps: Option<MpsForm>,
}

/// The strategies, as NVIDIA's driver names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Strategy {
    TimeSlicing,
    #[serde(rename = "MPS")]
    Mps,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct TimeSlicingForm {
    interval: TimeSliceInterval,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct MpsForm {
    #[serde(deserialize_with = "percentage")]
    active_thread_percentage: Option<u8>,
    pinned_device_memory_limit: Option<MemoryLimit>,
}

/// Of a whole card.
pub(super) fn of_card<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sharing>, D::Error> {
    let Some(form) = Option::<Form>::deserialize(deserializer)? else { return Ok(None) };
    match (form.strategy, form.time_slicing, form.mps) {
        (Strategy::TimeSlicing, slicing, None) => {
            let interval = slicing.unwrap_or_default().interval;
            Ok(Some(Sharing::TimeSlicing(TimeSlicing { interval })))
        }
        (Strategy::Mps, None, mps) => {
            let mps = mps.unwrap_or_default();
            Ok(Some(Sharing::Mps(MpsSharing {
                active_thread_percentage: mps.active_thread_percentage,
                memory_limit_mib: mps.pinned_device_memory_limit.map(|limit| limit.mib),
                ..MpsSharing::default()
            })))
        }
        (Strategy::TimeSlicing, _, Some(_)) => {
            Err(D::Error::custom("settings of mps do not go with the strategy TimeSlicing"))
        }
        (Strategy::Mps, Some(_), _) => {
            Err(D::Error::custom("settings of timeSlicing do not go with the strategy MPS"))
        }
    }
}

/// Of a partition.
pub(super) fn of_partition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sharing>, D::Error> {
    match of_card(deserializer)? {
        Some(Sharing::TimeSlicing(_)) => Err(D::Error::custom(
            "a partition has no time-slices that could be set: its processes take turns without it. Leave sharing out, or \
             use the strategy MPS",
        )),
        sharing => Ok(sharing),
    }
}

fn percentage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    let Some(number) = Option::<i64>::deserialize(deserializer)? else { return Ok(None) };
    match u8::try_from(number) {
        Ok(percentage @ 1..=100) => Ok(Some(percentage)),
        _ => Err(D::Error::custom(format!("{number} is no percentage of threads: 1 to 100"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::config::*;

    fn decode(kind: &str, sharing: Value) -> Result<Option<Sharing>, String> {
        let object = json!({"apiVersion": API_VERSION, "kind": kind, "sharing": sharing});
        match DeviceConfig::decode(&object, crate::DEFAULT_DRIVER_NAME).map_err(|error| error.to_string())? {
            DeviceConfig::Gpu(config) => Ok(config.sharing),
            DeviceConfig::Mig(config) => Ok(config.sharing),
        }
    }

    #[test]
    fn of_cards_and_partitions() {
        let slicing = |interval| Some(Sharing::TimeSlicing(TimeSlicing { interval }));
        let time = json!({"strategy": "TimeSlicing"});
        assert_eq!(decode("GpuConfig", time), Ok(slicing(crate::offer::TimeSliceInterval::Default)));
        let short = json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Short"}});
        assert_eq!(decode("GpuConfig", short), Ok(slicing(crate::offer::TimeSliceInterval::Short)));
        assert_eq!(decode("GpuConfig", json!(null)), Ok(None));
        let mps = json!({
            "strategy": "MPS", "mps": {"activeThreadPercentage": 25, "pinnedDeviceMemoryLimit": "10Gi"},
        });
        for kind in DeviceConfig::KINDS {
            let expected = MpsSharing {
                active_thread_percentage: Some(25),
                memory_limit_mib: Some(10_240),
                ..MpsSharing::default()
            };
            assert_eq!(decode(kind, mps.clone()), Ok(Some(Sharing::Mps(expected))));
            let bare = decode(kind, json!({"strategy": "MPS"}));
            assert_eq!(bare, Ok(Some(Sharing::Mps(MpsSharing::default()))));
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let mps = |mps: Value| json!({"strategy": "MPS", "mps": mps});
        for (sharing, parts) in [
            (json!({}), ["sharing: ", "strategy"]),
            (json!({"strategy": "Mps"}), ["sharing.strategy: ", "`MPS`"]),
            (json!({"strategy": "MPS", "timeSlicing": {}}), ["sharing: ", "timeSlicing"]),
            (json!({"strategy": "TimeSlicing", "mps": {}}), ["sharing: ", "TimeSlicing"]),
            (json!({"strategy": "MPS", "mpsConfig": {}}), ["mpsConfig", "`mps`"]),
            (
                json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "short"}}),
                ["sharing.timeSlicing.interval: ", "`Short`"],
            ),
            (
                mps(json!({"activeThreadPercentage": 0})),
                ["sharing.mps.activeThreadPercentage: 0", "1 to 100"],
            ),
            (mps(json!({"activeThreadPercentage": 101})), ["101", "1 to 100"]),
            (mps(json!({"activeThreadPercentage": -1})), ["-1", "1 to 100"]),
            (mps(json!({"activeThreadPercentage": "50"})), ["activeThreadPercentage: ", "50"]),
            (mps(json!({"activeThreadPercentage": 12.5})), ["activeThreadPercentage: ", "12.5"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "0"})), ["pinnedDeviceMemoryLimit: 0", "1Mi or more"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "512Ki"})), ["512Ki", "1Mi or more"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "-1Gi"})), ["-1Gi", "1Mi or more"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "half"})), ["pinnedDeviceMemoryLimit: ", "half"]),
            (mps(json!({"pinnedDeviceMemoryLimit": {}})), ["pinnedDeviceMemoryLimit: ", "10Gi"]),
            (mps(json!({"memory": "1Gi"})), ["`memory`", "pinnedDeviceMemoryLimit"]),
        ] {
            for kind in DeviceConfig::KINDS {
                let error = decode(kind, sharing.clone()).unwrap_err();
                let mut expected = parts.iter().chain([kind]);
                assert!(expected.all(|part| error.contains(part)), "{kind} {sharing}: {error}");
            }
        }
        let error = decode("MigDeviceConfig", json!({"strategy": "TimeSlicing"})).unwrap_err();
        assert!(error.contains("a partition has no time-slices"), "{error}");
    }
}
