//! How users configure their devices: the objects in `devices.config[].opaque.parameters` of claims and DeviceClasses.
//!
//! Decoding is strict: an unknown or invalid setting is an error that names the valid ones, because a setting that is
//! silently ignored is noticed only when a program runs differently than requested.
//!
//! NVIDIA's own objects are translated into these ([`NVIDIA_API_VERSION`]), so that Prepare handles only one form.

mod error;
mod gpu;
mod memory_limit;
mod mig_device;
mod nvidia;
mod sharing;
mod sharing_form;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::ConfigError;
pub use gpu::GpuConfig;
pub use mig_device::{MigDeviceConfig, MigModeAfterUse};
pub use sharing::{InvalidDeviceKey, MpsSharing, Sharing, TimeSlicing};

use crate::device_type::DeviceType;

/// The `apiVersion` of all configuration objects. It does not follow the driver's name: it stays the same when
/// `driverName` is changed.
pub const API_VERSION: &str = "gpu.tessera.dev/v1alpha1";

/// The `apiVersion` of NVIDIA's configuration objects. They are understood where the driver's name is
/// [`NVIDIA_DRIVER_NAME`], so that manifests written for NVIDIA's driver need no change.
pub const NVIDIA_API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// The name of NVIDIA's DRA driver for cards, which this driver can take over (chart value `driverName`).
pub const NVIDIA_DRIVER_NAME: &str = "gpu.nvidia.com";

/// One configuration object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceConfig {
    /// Kind `GpuConfig`.
    Gpu(GpuConfig),
    /// Kind `MigDeviceConfig`.
    Mig(MigDeviceConfig),
}

impl DeviceConfig {
    /// The known kinds.
    pub const KINDS: &[&str] = &[GpuConfig::KIND, MigDeviceConfig::KIND];

    /// Decodes an object that is meant for the driver of this name.
    ///
    /// # Errors
    /// [`ConfigError`], for anything that is not exactly one of the known objects.
    pub fn decode(parameters: &Value, driver_name: &str) -> Result<Self, ConfigError> {
        let Value::Object(object) = parameters else { return Err(ConfigError::Form) };
        let text = |name: &'static str| match object.get(name) {
            Some(Value::String(text)) => Ok(text.as_str()),
            _ => Err(ConfigError::Missing(name)),
        };
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        let mut fields = object.clone();
        fields.remove("apiVersion");
        fields.remove("kind");
        let fields = Value::Object(fields);
        match api_version {
            API_VERSION => Self::decode_own(kind, fields),
            NVIDIA_API_VERSION if driver_name == NVIDIA_DRIVER_NAME => nvidia::decode(kind, fields),
            NVIDIA_API_VERSION => Err(ConfigError::NvidiaApiVersion(error::excerpt(driver_name))),
            _ => Err(ConfigError::ApiVersion(error::excerpt(api_version))),
        }
    }

    fn decode_own(kind: &str, fields: Value) -> Result<Self, ConfigError> {
        match kind {
            GpuConfig::KIND => from_fields(kind, fields).map(Self::Gpu),
            MigDeviceConfig::KIND => {
                let config: MigDeviceConfig = from_fields(kind, fields)?;
                config.check()?;
                Ok(Self::Mig(config))
            }
            _ => Err(ConfigError::Kind(error::excerpt(kind))),
        }
    }

    /// The object's kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Gpu(_) => GpuConfig::KIND,
            Self::Mig(_) => MigDeviceConfig::KIND,
        }
    }

    /// Whether it applies to devices of this type.
    #[must_use]
    pub fn is_for(&self, device: DeviceType) -> bool {
        match self {
            Self::Gpu(_) => device == DeviceType::Gpu,
            Self::Mig(_) => device == DeviceType::Mig,
        }
    }
}

/// The settings of an object; an error says where it is wrong.
fn from_fields<T: DeserializeOwned>(kind: &str, fields: Value) -> Result<T, ConfigError> {
    // Derived decoding also accepts a list in place of an object.
    let list = list_in(&fields);
    let decoded = serde_path_to_error::deserialize(fields).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        format!("{place}{}", error.inner())
    });
    let decoded = decoded.and_then(|settings| match list {
        Some(path) => Err(format!("{path}: a list, where an object is expected")),
        None => Ok(settings),
    });
    decoded.map_err(|reason| ConfigError::Invalid {
        kind: error::excerpt(kind),
        reason: error::excerpt(&reason),
    })
}

/// The path of the first list, if any. No setting is a list.
fn list_in(fields: &Value) -> Option<String> {
    fields.as_object()?.iter().find_map(|(name, value)| match value {
        Value::Array(_) => Some(name.clone()),
        value => list_in(value).map(|path| format!("{name}.{path}")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(fields: Value) -> Result<DeviceConfig, ConfigError> {
        let mut object = json!({"apiVersion": API_VERSION, "kind": "MigDeviceConfig"});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        DeviceConfig::decode(&object, crate::DEFAULT_DRIVER_NAME)
    }

    #[test]
    fn all_settings_have_defaults() {
        assert_eq!(decode(json!({})), Ok(DeviceConfig::Mig(MigDeviceConfig::default())));
        let full = decode(json!({"computeSlices": 2, "migModeAfterUse": "Keep"})).unwrap();
        let expected = MigDeviceConfig {
            compute_slices: Some(2),
            mig_mode_after_use: MigModeAfterUse::Keep,
            ..MigDeviceConfig::default()
        };
        assert_eq!(full, DeviceConfig::Mig(expected));
        assert_eq!(full.kind(), "MigDeviceConfig");
        assert!(full.is_for(DeviceType::Mig) && !full.is_for(DeviceType::Gpu));
        let gpu = decode(json!({"kind": "GpuConfig"})).unwrap();
        assert_eq!(gpu, DeviceConfig::Gpu(GpuConfig::default()));
        assert!(gpu.is_for(DeviceType::Gpu) && !gpu.is_for(DeviceType::Mps));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (fields, parts) in [
            (json!({"kind": "GpuConfigs"}), ["GpuConfigs", "MigDeviceConfig"]),
            (json!({"apiVersion": "gpu.nvidia.com/v1alpha1"}), ["gpu.nvidia.com/v1alpha1", API_VERSION]),
            (json!({"apiVersion": NVIDIA_API_VERSION}), [crate::DEFAULT_DRIVER_NAME, NVIDIA_DRIVER_NAME]),
            (json!({"kind": null}), ["kind", "MigDeviceConfig"]),
            (json!({"computeslices": 1}), ["computeslices", "computeSlices"]),
            (json!({"computeSlices": 0}), ["computeSlices", "1"]),
            (json!({"computeSlices": -1}), ["MigDeviceConfig", "-1"]),
            (json!({"computeSlices": "all"}), ["computeSlices: ", "all"]),
            (json!({"migModeAfterUse": "keep"}), ["keep", "Restore"]),
            (json!({"sharing": ["MPS", null, null]}), ["sharing: a list", "MigDeviceConfig"]),
            (
                json!({"kind": "GpuConfig", "sharing": {"strategy": "MPS", "mps": [50, "1Gi"]}}),
                ["sharing.mps: a list", "GpuConfig"],
            ),
        ] {
            let error = decode(fields.clone()).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{fields}: {error}");
        }
        for none in [json!(null), json!("a"), json!([])] {
            assert_eq!(DeviceConfig::decode(&none, NVIDIA_DRIVER_NAME), Err(ConfigError::Form));
        }
    }

    #[test]
    fn hostile_values_make_no_long_errors() {
        let long = "é".repeat(10_000);
        let sharing = |mps: Value| json!({"kind": "GpuConfig", "sharing": {"strategy": "MPS", "mps": mps}});
        for fields in [
            json!({"kind": long}),
            json!({"apiVersion": long}),
            json!({long.clone(): 1}),
            sharing(json!({"pinnedDeviceMemoryLimit": long})),
            sharing(json!({"activeThreadPercentage": long})),
            json!({"kind": "GpuConfig", "sharing": {"strategy": long}}),
        ] {
            let error = decode(fields).unwrap_err().to_string();
            assert!(error.len() < 1_000, "{} bytes", error.len());
        }
    }
}
