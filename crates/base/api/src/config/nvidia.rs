//! NVIDIA's configuration objects (`api/nvidia.com/resource/v1beta1` of `kubernetes-sigs/dra-driver-nvidia-gpu`), translated.
//!
//! Everything accepted by NVIDIA's driver is accepted, with these differences:
//! - `defaultActiveThreadPercentage: 0` limits nothing. NVIDIA's driver passes it to the daemon, which accepts only
//!   percentages above 0.
//! - `timeSlicingConfig: {}` is the default interval; NVIDIA's driver fails.
//! - A limit below 1Mi is an error when the object is decoded, not only when the claim is prepared.
//! - `multiUser` is ignored: our daemons serve all users.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::form::{Contradiction, Field, Form};
use super::memory_limit::MemoryLimit;
use super::sharing_form::{INTERVALS, STRATEGIES, Strategy};
use super::{
    ConfigError, DeviceConfig, GpuConfig, MigDeviceConfig, MpsSharing, Sharing, TimeSlicing, from_fields,
};
use crate::offer::TimeSliceInterval;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config<S> {
    #[serde(default = "Option::default")]
    sharing: Option<S>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GpuSharing {
    strategy: Strategy,
    #[serde(default)]
    time_slicing_config: Option<TimeSlicingConfig>,
    #[serde(default)]
    mps_config: Option<MpsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MigDeviceSharing {
    strategy: Strategy,
    #[serde(default)]
    mps_config: Option<MpsConfig>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TimeSlicingConfig {
    interval: Option<TimeSliceInterval>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct MpsConfig {
    default_active_thread_percentage: Option<u8>,
    default_pinned_device_memory_limit: Option<MemoryLimit>,
    default_per_device_pinned_memory_limit: Option<BTreeMap<String, MemoryLimit>>,
    #[serde(rename = "multiUser")]
    _multi_user: Option<bool>,
}

const MPS_CONFIG: Field = Field::optional(
    "mpsConfig",
    Form::Object(
        &[
            Field::optional(
                "defaultActiveThreadPercentage",
                Form::Whole(0, 100, "a percentage of threads: 0 to 100"),
            ),
            Field::optional("defaultPinnedDeviceMemoryLimit", Form::MemoryLimit),
            Field::optional("defaultPerDevicePinnedMemoryLimit", Form::MemoryLimits),
            Field::optional("multiUser", Form::Boolean),
        ],
        &[],
    ),
);

/// Supported kinds.
pub(super) const FORMS: &[(&str, Form)] = &[
    (
        GpuConfig::KIND,
        Form::Object(
            &[Field::optional(
                "sharing",
                Form::Object(
                    &[
                        Field::required("strategy", STRATEGIES),
                        Field::optional(
                            "timeSlicingConfig",
                            Form::Object(&[Field::optional("interval", INTERVALS)], &[]),
                        ),
                        MPS_CONFIG,
                    ],
                    &[
                        Contradiction {
                            field: "strategy",
                            text: "TimeSlicing",
                            with: Some("mpsConfig"),
                            reason: "does not go with settings of mpsConfig",
                        },
                        Contradiction {
                            field: "strategy",
                            text: "MPS",
                            with: Some("timeSlicingConfig"),
                            reason: "does not go with settings of timeSlicingConfig",
                        },
                    ],
                ),
            )],
            &[],
        ),
    ),
    (
        MigDeviceConfig::KIND,
        Form::Object(
            &[Field::optional(
                "sharing",
                Form::Object(&[Field::required("strategy", STRATEGIES), MPS_CONFIG], &[]),
            )],
            &[],
        ),
    ),
];

const VIRTUAL_MACHINES: &str = "is not supported: this driver does not hand cards to virtual machines";
const COMPUTE_DOMAINS: &str = "is not supported: compute domains are the work of NVIDIA's driver compute-domain.nvidia.com, which can run beside this one";

/// NVIDIA's kinds for features missing in this driver.
pub(super) const UNSUPPORTED: &[(&str, &str)] = &[
    ("VfioDeviceConfig", VIRTUAL_MACHINES),
    ("ComputeDomainChannelConfig", COMPUTE_DOMAINS),
    ("ComputeDomainDaemonConfig", COMPUTE_DOMAINS),
];

/// Decodes one of NVIDIA's objects.
pub(super) fn decode(kind: &Value, fields: Value) -> Result<DeviceConfig, ConfigError> {
    let named = FORMS.iter().find(|(name, _)| kind == name);
    match named {
        Some((name @ GpuConfig::KIND, form)) => {
            let config: Config<GpuSharing> = from_fields(name, form, fields)?;
            Ok(DeviceConfig::Gpu(GpuConfig { sharing: config.sharing.map(GpuSharing::translate) }))
        }
        Some((name, form)) => {
            let config: Config<MigDeviceSharing> = from_fields(name, form, fields)?;
            let sharing = config.sharing.and_then(MigDeviceSharing::translate);
            Ok(DeviceConfig::Mig(MigDeviceConfig { sharing, ..MigDeviceConfig::default() }))
        }
        None => {
            let unsupported = UNSUPPORTED.iter().find(|(name, _)| kind == name);
            let reason = unsupported.map_or_else(super::kind_reason, |(_, reason)| (*reason).to_owned());
            Err(ConfigError::new("kind", kind, &reason))
        }
    }
}

impl GpuSharing {
    fn translate(self) -> Sharing {
        match self.strategy {
            Strategy::TimeSlicing => {
                let interval = self.time_slicing_config.unwrap_or_default().interval.unwrap_or_default();
                Sharing::TimeSlicing(TimeSlicing { interval })
            }
            Strategy::Mps => Sharing::Mps(self.mps_config.unwrap_or_default().translate()),
        }
    }
}

impl MigDeviceSharing {
    /// Time-slicing of a partition sets nothing in NVIDIA's driver either.
    fn translate(self) -> Option<Sharing> {
        match self.strategy {
            Strategy::TimeSlicing => None,
            Strategy::Mps => Some(Sharing::Mps(self.mps_config.unwrap_or_default().translate())),
        }
    }
}

impl MpsConfig {
    fn translate(self) -> MpsSharing {
        let of_devices = self.default_per_device_pinned_memory_limit.unwrap_or_default();
        MpsSharing {
            active_thread_percentage: self
                .default_active_thread_percentage
                .filter(|percentage| *percentage > 0),
            memory_limit_mib: self.default_pinned_device_memory_limit.map(|limit| limit.mib),
            device_memory_limits_mib: of_devices.into_iter().map(|(key, limit)| (key, limit.mib)).collect(),
            may_exceed_device: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{NVIDIA_API_VERSION, NVIDIA_DRIVER_NAME};

    fn decode(kind: &str, fields: Value) -> Result<DeviceConfig, String> {
        let mut object = json!({"apiVersion": NVIDIA_API_VERSION, "kind": kind});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        DeviceConfig::decode(&object, NVIDIA_DRIVER_NAME).map_err(|error| error.to_string())
    }

    fn gpu(sharing: Option<Sharing>) -> Result<DeviceConfig, String> {
        Ok(DeviceConfig::Gpu(GpuConfig { sharing }))
    }

    fn mig(sharing: Option<Sharing>) -> Result<DeviceConfig, String> {
        Ok(DeviceConfig::Mig(MigDeviceConfig { sharing, ..MigDeviceConfig::default() }))
    }

    #[test]
    fn manifests_of_its_documentation() {
        let slicing = |interval| Some(Sharing::TimeSlicing(TimeSlicing { interval }));
        let long = json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}});
        assert_eq!(decode("GpuConfig", long), gpu(slicing(TimeSliceInterval::Long)));
        for without in [json!({}), json!({"timeSlicingConfig": null}), json!({"timeSlicingConfig": {}})] {
            let mut sharing = json!({"strategy": "TimeSlicing"});
            sharing.as_object_mut().unwrap().extend(without.as_object().unwrap().clone());
            let decoded = decode("GpuConfig", json!({"sharing": sharing}));
            assert_eq!(decoded, gpu(slicing(TimeSliceInterval::Default)), "{without}");
        }
        assert_eq!(decode("GpuConfig", json!({})), gpu(None));
        assert_eq!(decode("MigDeviceConfig", json!({})), mig(None));
        assert_eq!(decode("MigDeviceConfig", json!({"sharing": {"strategy": "TimeSlicing"}})), mig(None));

        let mps = json!({"sharing": {"strategy": "MPS", "mpsConfig": {
            "defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi",
            "defaultPerDevicePinnedMemoryLimit": {"0": "2Gi", "GPU-1": 1_073_741_824}, "multiUser": true,
        }}});
        let expected = MpsSharing {
            active_thread_percentage: Some(50),
            memory_limit_mib: Some(10_240),
            device_memory_limits_mib: BTreeMap::from([("0".into(), 2048), ("GPU-1".into(), 1024)]),
            may_exceed_device: true,
        };
        assert_eq!(decode("GpuConfig", mps.clone()), gpu(Some(Sharing::Mps(expected.clone()))));
        assert_eq!(decode("MigDeviceConfig", mps), mig(Some(Sharing::Mps(expected))));
        let bare = MpsSharing { may_exceed_device: true, ..MpsSharing::default() };
        let zero = json!({"sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 0}}});
        for sharing in [json!({"sharing": {"strategy": "MPS"}}), zero] {
            assert_eq!(decode("GpuConfig", sharing), gpu(Some(Sharing::Mps(bare.clone()))));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let sharing = |sharing: Value| json!({"sharing": sharing});
        let mps = |config: Value| sharing(json!({"strategy": "MPS", "mpsConfig": config}));
        for (kind, fields, parts) in [
            ("GpuConfig", sharing(json!({})), ["sharing.strategy: null", "MPS"]),
            ("GpuConfig", sharing(json!({"strategy": "Fabric"})), ["Fabric", "MPS"]),
            (
                "GpuConfig",
                sharing(json!({"strategy": "MPS", "timeSlicingConfig": {}})),
                ["timeSlicingConfig", "MPS"],
            ),
            (
                "GpuConfig",
                sharing(json!({"strategy": "TimeSlicing", "mpsConfig": {}})),
                ["mpsConfig", "Time"],
            ),
            ("GpuConfig", sharing(json!({"strategy": "MPS", "mps": {}})), ["\"mps\"", "mpsConfig"]),
            (
                "MigDeviceConfig",
                sharing(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {}})),
                ["timeSlicingConfig", "mpsConfig"],
            ),
            ("GpuConfig", mps(json!({"defaultActiveThreadPercentage": 101})), ["101", "0 to 100"]),
            ("GpuConfig", mps(json!({"defaultActiveThreadPercentage": -1})), ["-1", "0 to 100"]),
            (
                "MigDeviceConfig",
                mps(json!({"defaultPinnedDeviceMemoryLimit": "1Ki"})),
                ["\"1Ki\" is not", "1Mi or more"],
            ),
            (
                "GpuConfig",
                mps(json!({"defaultPerDevicePinnedMemoryLimit": {"1": "0"}})),
                ["defaultPerDevicePinnedMemoryLimit: \"1\" has a value", "1Mi or more"],
            ),
            ("VfioDeviceConfig", json!({}), ["not supported", "virtual machines"]),
            (
                "ComputeDomainChannelConfig",
                json!({"domainID": "1"}),
                ["not supported", "compute-domain.nvidia.com"],
            ),
            ("ComputeDomainDaemonConfig", json!({"domainID": "1"}), ["not supported", "beside"]),
            ("ImexChannelConfig", json!({}), ["ImexChannelConfig", "GpuConfig"]),
        ] {
            let error = decode(kind, fields.clone()).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{kind} {fields}: {error}");
        }
    }

    #[test]
    fn only_under_its_name() {
        let object = json!({"apiVersion": NVIDIA_API_VERSION, "kind": "GpuConfig"});
        let error = DeviceConfig::decode(&object, "gpu.example.com").unwrap_err().to_string();
        for part in [NVIDIA_API_VERSION, "gpu.nvidia.com", "driverName"] {
            assert!(error.contains(part), "{error}");
        }
        let own = json!({"apiVersion": crate::config::API_VERSION, "kind": "GpuConfig"});
        DeviceConfig::decode(&own, NVIDIA_DRIVER_NAME).unwrap();
    }
}
