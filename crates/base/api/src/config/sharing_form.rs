//! Users' form of [`Sharing`].

use serde::{Deserialize, Deserializer};

use super::form::{Contradiction, Field, Form};
use super::memory_limit::MemoryLimit;
use super::sharing::{MpsSharing, Sharing, TimeSlicing};
use crate::offer::TimeSliceInterval;

/// Names of [`TimeSliceInterval`].
pub(super) const INTERVALS: Form = Form::OneOf(&["Default", "Short", "Medium", "Long"]);
/// Names of [`Strategy`].
pub(super) const STRATEGIES: Form = Form::OneOf(&["TimeSlicing", "MPS"]);

const FIELDS: &[Field] = &[
    Field::required("strategy", STRATEGIES),
    Field::optional("timeSlicing", Form::Object(&[Field::optional("interval", INTERVALS)], &[])),
    Field::optional(
        "mps",
        Form::Object(
            &[
                Field::optional(
                    "activeThreadPercentage",
                    Form::Whole(1, 100, "a percentage of threads: 1 to 100"),
                ),
                Field::optional("pinnedDeviceMemoryLimit", Form::MemoryLimit),
            ],
            &[],
        ),
    ),
];

const SLICING_WITHOUT_MPS: Contradiction = Contradiction {
    field: "strategy",
    text: "TimeSlicing",
    with: Some("mps"),
    reason: "does not go with settings of mps",
};
const MPS_WITHOUT_SLICING: Contradiction = Contradiction {
    field: "strategy",
    text: "MPS",
    with: Some("timeSlicing"),
    reason: "does not go with settings of timeSlicing",
};

/// Sharing of a whole card.
pub(super) const OF_CARD: Form = Form::Object(FIELDS, &[SLICING_WITHOUT_MPS, MPS_WITHOUT_SLICING]);

/// Sharing of a partition.
pub(super) const OF_PARTITION: Form = Form::Object(
    FIELDS,
    &[
        Contradiction {
            field: "strategy",
            text: "TimeSlicing",
            with: None,
            reason: "is not for a partition, which has no time-slices that could be set: its processes take turns without \
                     it. Leave sharing out, or use the strategy MPS",
        },
        MPS_WITHOUT_SLICING,
    ],
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    strategy: Strategy,
    #[serde(default)]
    time_slicing: Option<WrittenTimeSlicing>,
    #[serde(default)]
    mps: Option<WrittenMps>,
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
struct WrittenTimeSlicing {
    interval: TimeSliceInterval,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct WrittenMps {
    active_thread_percentage: Option<u8>,
    pinned_device_memory_limit: Option<MemoryLimit>,
}

/// Decodes a value accepted by [`Form::fault`].
pub(super) fn decode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sharing>, D::Error> {
    let Some(sharing) = Option::<Written>::deserialize(deserializer)? else { return Ok(None) };
    Ok(Some(match sharing.strategy {
        Strategy::TimeSlicing => {
            Sharing::TimeSlicing(TimeSlicing { interval: sharing.time_slicing.unwrap_or_default().interval })
        }
        Strategy::Mps => {
            let mps = sharing.mps.unwrap_or_default();
            Sharing::Mps(MpsSharing {
                active_thread_percentage: mps.active_thread_percentage,
                memory_limit_mib: mps.pinned_device_memory_limit.map(|limit| limit.mib),
                ..MpsSharing::default()
            })
        }
    }))
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
            (json!({}), ["sharing.strategy: null", "TimeSlicing, MPS"]),
            (json!({"strategy": "Mps"}), ["sharing.strategy: \"Mps\"", "TimeSlicing, MPS"]),
            (json!({"strategy": "MPS", "timeSlicing": {}}), ["sharing.strategy: \"MPS\"", "timeSlicing"]),
            (json!({"strategy": "TimeSlicing", "mps": {}}), ["sharing.strategy: ", "TimeSlicing"]),
            (json!({"strategy": "MPS", "mpsConfig": {}}), ["\"mpsConfig\"", "timeSlicing, mps"]),
            (
                json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "short"}}),
                ["sharing.timeSlicing.interval: \"short\"", "Short"],
            ),
            (
                mps(json!({"activeThreadPercentage": 0})),
                ["sharing.mps.activeThreadPercentage: 0", "1 to 100"],
            ),
            (mps(json!({"activeThreadPercentage": 101})), ["101", "1 to 100"]),
            (mps(json!({"activeThreadPercentage": -1})), ["-1", "1 to 100"]),
            (mps(json!({"activeThreadPercentage": "50"})), ["activeThreadPercentage: ", "50"]),
            (
                mps(json!({"activeThreadPercentage": 12.5})),
                ["activeThreadPercentage: this number", "1 to 100"],
            ),
            (mps(json!({"pinnedDeviceMemoryLimit": "0"})), ["pinnedDeviceMemoryLimit: \"0\"", "1Mi or more"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "512Ki"})), ["512Ki", "1Mi or more"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "-1Gi"})), ["-1Gi", "1Mi or more"]),
            (mps(json!({"pinnedDeviceMemoryLimit": "half"})), ["pinnedDeviceMemoryLimit: ", "half"]),
            (mps(json!({"pinnedDeviceMemoryLimit": {}})), ["pinnedDeviceMemoryLimit: ", "10Gi"]),
            (mps(json!({"memory": "1Gi"})), ["\"memory\"", "pinnedDeviceMemoryLimit"]),
        ] {
            for kind in DeviceConfig::KINDS {
                let error = decode(kind, sharing.clone()).unwrap_err();
                let mut expected = parts.iter().chain([kind]);
                assert!(expected.all(|part| error.contains(part)), "{kind} {sharing}: {error}");
            }
        }
        let error = decode("MigDeviceConfig", json!({"strategy": "TimeSlicing"})).unwrap_err();
        assert!(error.contains("is not for a partition"), "{error}");
    }
}
