//! How users configure their devices: the objects in `devices.config[].opaque.parameters` of claims and DeviceClasses.
//!
//! Decoding is strict: what is unknown or out of range is an error that says what is known, because a setting that is
//! silently left out is found only when something runs in a way that nobody asked for.

mod error;
mod mig_device;

use serde::Deserialize as _;
use serde_json::Value;

pub use error::ConfigError;
pub use mig_device::{MigDeviceConfig, MigModeAfterUse};

use crate::DeviceType;

/// The `apiVersion` of all configuration objects. Not that of the driver's name: it stays when `driverName` is another.
pub const API_VERSION: &str = "gpu.tessera.dev/v1alpha1";

/// One configuration object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceConfig {
    /// Kind `MigDeviceConfig`.
    Mig(MigDeviceConfig),
}

impl DeviceConfig {
    /// The kinds there are.
    pub const KINDS: &[&str] = &[MigDeviceConfig::KIND];

    /// Decodes an object.
    ///
    /// # Errors
    /// [`ConfigError`], for anything that is not exactly one of the known objects.
    pub fn decode(parameters: &Value) -> Result<Self, ConfigError> {
        let Value::Object(object) = parameters else { return Err(ConfigError::Form) };
        let text = |name: &'static str| match object.get(name) {
            Some(Value::String(text)) => Ok(text.as_str()),
            _ => Err(ConfigError::Missing(name)),
        };
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        if api_version != API_VERSION {
            return Err(ConfigError::ApiVersion(error::excerpt(api_version)));
        }
        let mut fields = object.clone();
        fields.remove("apiVersion");
        fields.remove("kind");
        let fields = Value::Object(fields);
        let invalid = |error: serde_json::Error| ConfigError::Invalid {
            kind: error::excerpt(kind),
            reason: error::excerpt(&error.to_string()),
        };
        match kind {
            MigDeviceConfig::KIND => {
                let config = MigDeviceConfig::deserialize(fields).map_err(invalid)?;
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
            Self::Mig(_) => MigDeviceConfig::KIND,
        }
    }

    /// Whether it says anything about devices of this type.
    #[must_use]
    pub fn is_for(&self, device: DeviceType) -> bool {
        match self {
            Self::Mig(_) => device == DeviceType::Mig,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(fields: Value) -> Result<DeviceConfig, ConfigError> {
        let mut object = json!({"apiVersion": API_VERSION, "kind": "MigDeviceConfig"});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        DeviceConfig::decode(&object)
    }

    #[test]
    fn all_settings_have_defaults() {
        assert_eq!(decode(json!({})), Ok(DeviceConfig::Mig(MigDeviceConfig::default())));
        let full = decode(json!({"computeSlices": 2, "migModeAfterUse": "Keep"})).unwrap();
        let expected = MigDeviceConfig { compute_slices: Some(2), mig_mode_after_use: MigModeAfterUse::Keep };
        assert_eq!(full, DeviceConfig::Mig(expected));
        assert_eq!(full.kind(), "MigDeviceConfig");
        assert!(full.is_for(DeviceType::Mig) && !full.is_for(DeviceType::Gpu));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (fields, parts) in [
            (json!({"kind": "GpuConfigs"}), ["GpuConfigs", "MigDeviceConfig"]),
            (
                json!({"apiVersion": "resource.nvidia.com/v1beta1"}),
                ["resource.nvidia.com/v1beta1", API_VERSION],
            ),
            (json!({"kind": null}), ["kind", "MigDeviceConfig"]),
            (json!({"computeslices": 1}), ["computeslices", "computeSlices"]),
            (json!({"computeSlices": 0}), ["computeSlices", "1"]),
            (json!({"computeSlices": -1}), ["MigDeviceConfig", "-1"]),
            (json!({"computeSlices": "all"}), ["MigDeviceConfig", "all"]),
            (json!({"migModeAfterUse": "keep"}), ["keep", "Restore"]),
        ] {
            let error = decode(fields.clone()).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{fields}: {error}");
        }
        for none in [json!(null), json!("a"), json!([])] {
            assert_eq!(DeviceConfig::decode(&none), Err(ConfigError::Form));
        }
    }

    #[test]
    fn hostile_values_make_no_long_errors() {
        let long = "é".repeat(10_000);
        for fields in [json!({"kind": long}), json!({"apiVersion": long}), json!({long.clone(): 1})] {
            let error = decode(fields).unwrap_err().to_string();
            assert!(error.len() < 1_000, "{} bytes", error.len());
        }
    }
}
