//! How users configure their devices: the objects in `devices.config[].opaque.parameters` of claims and DeviceClasses.
//!
//! Decoding is strict: an unknown or invalid setting is an error naming the valid ones, because a silently
//! ignored setting is noticed only when a program runs differently than requested.
//!
//! NVIDIA's own objects are translated into these ([`NVIDIA_API_VERSION`]), so that Prepare handles only one form.

mod admission;
mod error;
mod form;
mod gpu;
mod memory_limit;
mod mig_device;
mod nvidia;
mod sharing;
mod sharing_form;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use admission::{faults_expression, shown_expression};
pub use error::ConfigError;
pub use gpu::GpuConfig;
pub use mig_device::{MigDeviceConfig, MigModeAfterUse};
pub use sharing::{InvalidDeviceKey, MpsSharing, Sharing, TimeSlicing};

use crate::device_type::DeviceType;
use form::Form;

/// The `apiVersion` of all configuration objects. The version does not follow the driver's name and stays the same when
/// `driverName` is changed.
pub const API_VERSION: &str = "gpu.tessera.dev/v1alpha1";

/// The `apiVersion` of NVIDIA's configuration objects. They are understood where the driver's name is
/// [`NVIDIA_DRIVER_NAME`], so that manifests written for NVIDIA's driver need no change.
pub const NVIDIA_API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// The name of NVIDIA's DRA driver for cards. This driver can take over the name (chart value `driverName`).
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

    /// Decodes an object for the driver of this name.
    ///
    /// # Errors
    /// [`ConfigError`] for anything other than exactly one of the known objects.
    pub fn decode(parameters: &Value, driver_name: &str) -> Result<Self, ConfigError> {
        let Value::Object(object) = parameters else {
            return Err(ConfigError::new("parameters", parameters, NO_PARAMETERS));
        };
        let mut fields = object.clone();
        let mut head = |name| fields.remove(name).unwrap_or(Value::Null);
        let (api_version, kind) = (head("apiVersion"), head("kind"));
        let fields = Value::Object(fields);
        let wrong_version = |reason| Err(ConfigError::new("apiVersion", &api_version, reason));
        match api_version.as_str() {
            Some(API_VERSION) => Self::decode_own(&kind, fields),
            Some(NVIDIA_API_VERSION) if driver_name == NVIDIA_DRIVER_NAME => nvidia::decode(&kind, fields),
            Some(NVIDIA_API_VERSION) => wrong_version(NVIDIA_NAME_ONLY),
            _ => wrong_version(NOT_OUR_API_VERSION),
        }
    }

    fn decode_own(kind: &Value, fields: Value) -> Result<Self, ConfigError> {
        match kind.as_str() {
            Some(GpuConfig::KIND) => from_fields(GpuConfig::KIND, &GpuConfig::FORM, fields).map(Self::Gpu),
            Some(MigDeviceConfig::KIND) => {
                from_fields(MigDeviceConfig::KIND, &MigDeviceConfig::FORM, fields).map(Self::Mig)
            }
            _ => Err(ConfigError::new("kind", kind, &kind_reason())),
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

    /// Whether the object applies to devices of this type.
    #[must_use]
    pub fn is_for(&self, device: DeviceType) -> bool {
        match self {
            Self::Gpu(_) => device == DeviceType::Gpu,
            Self::Mig(_) => device == DeviceType::Mig,
        }
    }
}

const NO_PARAMETERS: &str = "is not an object with apiVersion, kind and settings";
const NOT_OUR_API_VERSION: &str = "is not gpu.tessera.dev/v1alpha1";
const NVIDIA_NAME_ONLY: &str = "is understood only where the driver's name is gpu.nvidia.com (chart value driverName): write \
                                the object with apiVersion gpu.tessera.dev/v1alpha1";

fn kind_reason() -> String {
    form::not_one_of(DeviceConfig::KINDS)
}

/// The settings of an object of this kind.
fn from_fields<T: DeserializeOwned>(kind: &str, form: &Form, fields: Value) -> Result<T, ConfigError> {
    if let Some(fault) = form.fault(kind, &fields) {
        return Err(fault);
    }
    // A form accepting values refused by the type is a defect, reported instead of ignored.
    let refused = |error: serde_json::Error| {
        ConfigError::new(
            kind,
            &Value::Null,
            &format!("cannot be read: {}", error::excerpt(&error.to_string())),
        )
    };
    serde_json::from_value(form::without_nulls(fields)).map_err(refused)
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
            (json!({"apiVersion": NVIDIA_API_VERSION}), [API_VERSION, NVIDIA_DRIVER_NAME]),
            (json!({"kind": null}), ["kind: null", "MigDeviceConfig"]),
            (json!({"computeslices": 1}), ["computeslices", "computeSlices"]),
            (json!({"computeSlices": 0}), ["computeSlices", "1"]),
            (json!({"computeSlices": -1}), ["MigDeviceConfig", "-1"]),
            (json!({"computeSlices": "all"}), ["computeSlices: ", "all"]),
            (json!({"migModeAfterUse": "keep"}), ["keep", "Restore"]),
            (json!({"computeSlices": 1.5}), ["computeSlices: this number", "1 or more"]),
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
            let error = DeviceConfig::decode(&none, NVIDIA_DRIVER_NAME).unwrap_err().to_string();
            assert!(error.contains("is not an object with apiVersion"), "{error}");
        }
    }

    #[test]
    fn null_is_as_good_as_absent() {
        let nothing = json!({"computeSlices": null, "migModeAfterUse": null, "sharing": null});
        assert_eq!(decode(nothing), decode(json!({})));
        let sharing =
            json!({"kind": "GpuConfig", "sharing": {"strategy": "MPS", "timeSlicing": null, "mps": null}});
        let without = json!({"kind": "GpuConfig", "sharing": {"strategy": "MPS"}});
        assert_eq!(decode(sharing), decode(without));
    }

    /// The variants' words equal the names in the constants.
    #[test]
    fn names_in_words() {
        assert!(NOT_OUR_API_VERSION.ends_with(API_VERSION) && NVIDIA_NAME_ONLY.ends_with(API_VERSION));
        assert!(NVIDIA_NAME_ONLY.contains(NVIDIA_DRIVER_NAME));
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
