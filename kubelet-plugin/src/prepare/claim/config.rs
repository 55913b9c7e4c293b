//! The configuration of a claim's devices, as written by its author.

use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceClaimConfiguration, OpaqueDeviceConfiguration,
};
use tessera_api::DeviceType;
use tessera_api::config::{DeviceConfig, MigDeviceConfig, Sharing};

use crate::prepare::PrepareError;
use tessera_journal::ClaimSharing;

/// The configuration objects of an allocation for this driver, by precedence: first those of its DeviceClasses, then the claim's,
/// each in their order. A later object replaces an earlier one of the same kind as a whole.
pub(in crate::prepare) struct Configs<'a> {
    objects: Vec<Object<'a>>,
    driver_name: &'a str,
}

struct Object<'a> {
    source: Source,
    requests: &'a [String],
    opaque: &'a OpaqueDeviceConfiguration,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Class,
    Claim,
}

/// The settings of one device. Kinds without a setting for the device have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::prepare) struct Settings {
    pub mig: MigDeviceConfig,
    /// How the claim's own pods share the device.
    pub sharing: Option<ClaimSharing>,
}

/// How an object names a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// By its own name.
    Exactly,
    /// Among others: the object names no request, or the parent request of this alternative.
    Among,
}

impl<'a> Configs<'a> {
    pub fn new(configs: &'a [DeviceAllocationConfiguration], driver_name: &'a str) -> Self {
        let object = |config: &'a DeviceAllocationConfiguration| {
            let opaque = config.opaque.as_ref().filter(|opaque| opaque.driver == driver_name)?;
            let source = if config.source == "FromClass" { Source::Class } else { Source::Claim };
            Some(Object { source, requests: config.requests.as_deref().unwrap_or_default(), opaque })
        };
        let mut objects: Vec<Object<'a>> = configs.iter().filter_map(object).collect();
        objects.sort_by_key(|object| object.source);
        Self { objects, driver_name }
    }

    /// With the request names of the claim's spec. From Kubernetes 1.37 on an allocation names none where the claim's
    /// configuration covers all of its requests (`allocator_incubating.go` of `k8s.io/dynamic-resource-allocation` 0.37), so a
    /// kind for other devices would no longer be an error.
    pub fn named_by(mut self, spec: &'a [DeviceClaimConfiguration]) -> Self {
        let of_claim = self
            .objects
            .iter_mut()
            .filter(|object| object.source == Source::Claim && object.requests.is_empty());
        for object in of_claim {
            let same = spec.iter().filter(|config| config.opaque.as_ref() == Some(object.opaque));
            let mut named: Vec<&[String]> =
                same.map(|config| config.requests.as_deref().unwrap_or_default()).collect();
            named.sort_by_key(|requests| requests.len());
            // Of several objects with equal content the allocation has cleared the longest list; one without any is for all.
            if let [shortest, ..] = &*named
                && !shortest.is_empty()
            {
                object.requests = named[named.len() - 1];
            }
        }
        self
    }

    /// The settings of a device allocated for `request`, of a prioritised list `request/alternative`.
    ///
    /// # Errors
    /// [`PrepareError::Config`] if an object meant for the request can't be understood, or names this very request but is not for
    /// devices of this type.
    pub fn of(&self, request: &str, device: DeviceType) -> Result<Settings, PrepareError> {
        let mut settings = Settings::default();
        for (number, object) in (0..).zip(&self.objects) {
            let Some(named) = object.names(request) else { continue };
            let error = |reason: String| PrepareError::Config {
                request: request.to_owned(),
                origin: object.source.origin(),
                reason,
            };
            let config = DeviceConfig::decode(&object.opaque.parameters.0, self.driver_name)
                .map_err(|invalid| error(invalid.to_string()))?;
            if config.is_for(device) {
                settings.set(config, number);
            } else if named == Named::Exactly && object.source == Source::Claim {
                // For a class, the scheduler lists every request using the class, of any type.
                let kind = config.kind();
                return Err(error(format!("{kind} is not for devices of type {device}")));
            }
        }
        Ok(settings)
    }
}

impl Object<'_> {
    fn names(&self, request: &str) -> Option<Named> {
        let parent = request.split_once('/').map(|(parent, _)| parent);
        if self.requests.iter().any(|named| named == request) {
            Some(Named::Exactly)
        } else if self.requests.is_empty() || self.requests.iter().any(|named| Some(&**named) == parent) {
            Some(Named::Among)
        } else {
            None
        }
    }
}

impl Source {
    const fn origin(self) -> &'static str {
        match self {
            Self::Class => "DeviceClass",
            Self::Claim => "claim",
        }
    }
}

impl Settings {
    fn set(&mut self, config: DeviceConfig, object: u32) {
        let sharing = match config {
            DeviceConfig::Gpu(gpu) => gpu.sharing,
            DeviceConfig::Mig(mig) => {
                let sharing = mig.sharing.clone();
                self.mig = mig;
                sharing
            }
            // Other kinds are unknown to this build, and `decode` never returns them.
            _ => return,
        };
        self.sharing = sharing.map(|how| ClaimSharing { object, how });
    }

    /// Whether the memory of the device is limited per process.
    pub fn has_memory_limit(&self) -> bool {
        match self.sharing.as_ref().map(|sharing| &sharing.how) {
            Some(Sharing::Mps(mps)) => {
                mps.memory_limit_mib.is_some() || !mps.device_memory_limits_mib.is_empty()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tessera_api::config::{API_VERSION, MigModeAfterUse};

    use super::*;

    fn config(source: &str, requests: &[&str], fields: Value) -> DeviceAllocationConfiguration {
        let mut parameters = json!({"apiVersion": API_VERSION, "kind": "MigDeviceConfig"});
        parameters.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "source": source, "requests": requests,
            "opaque": {"driver": "gpu.tessera.dev", "parameters": parameters},
        }))
        .unwrap()
    }

    fn slices(configs: &[DeviceAllocationConfiguration], request: &str) -> Option<u32> {
        let settings = Configs::new(configs, "gpu.tessera.dev").of(request, DeviceType::Mig);
        settings.unwrap().mig.compute_slices
    }

    #[test]
    fn claims_win_over_classes_and_later_over_earlier() {
        let width = |slices: u32| json!({"computeSlices": slices});
        let configs = [
            config("FromClaim", &[], width(1)),
            config("FromClaim", &["b"], width(2)),
            config("FromClass", &["a"], width(3)),
            config("FromClass", &["a"], width(4)),
        ];
        assert_eq!(slices(&configs, "a"), Some(1));
        assert_eq!(slices(&configs, "b"), Some(2));
        assert_eq!(slices(&configs[2..], "a"), Some(4));
        assert_eq!(slices(&configs[2..], "b"), None);
        // The winner replaces the whole object.
        let keep = config("FromClass", &[], json!({"migModeAfterUse": "Keep", "computeSlices": 1}));
        let both = [keep, config("FromClaim", &[], width(2))];
        let settings = Configs::new(&both, "gpu.tessera.dev").of("a", DeviceType::Mig).unwrap();
        assert_eq!(settings.mig.mig_mode_after_use, MigModeAfterUse::Restore);
    }

    #[test]
    fn an_allocation_that_names_no_requests_has_those_of_the_claim() {
        let cleared = [config("FromClaim", &[], json!({}))];
        let of = |named: &[&[&str]], request: &str| {
            let spec: Vec<DeviceClaimConfiguration> = named
                .iter()
                .map(|requests| DeviceClaimConfiguration {
                    requests: Some(requests.iter().map(|&request| request.to_owned()).collect()),
                    opaque: cleared[0].opaque.clone(),
                })
                .collect();
            Configs::new(&cleared, "gpu.tessera.dev").named_by(&spec).of(request, DeviceType::Gpu)
        };
        of(&[], "a").unwrap();
        of(&[&[]], "a").unwrap();
        of(&[&["a"], &[]], "a").unwrap();
        of(&[&["a"]], "a/whole").unwrap();
        for named in [&[&["a"] as &[&str]] as &[&[&str]], &[&["b"], &["b", "a"]]] {
            let error = of(named, "a").unwrap_err().to_string();
            assert!(error.contains("MigDeviceConfig is not for devices of type gpu"), "{error}");
        }
    }

    #[test]
    fn a_request_covers_its_alternatives() {
        let configs = [config("FromClaim", &["req"], json!({"computeSlices": 1}))];
        assert_eq!(slices(&configs, "req/small"), Some(1));
        assert_eq!(slices(&configs, "request"), None);
        let configs = [config("FromClaim", &["req/small"], json!({"computeSlices": 1}))];
        assert_eq!(slices(&configs, "req/small"), Some(1));
        assert_eq!(slices(&configs, "req/large"), None);
    }

    #[test]
    fn other_types_of_device_are_only_an_error_where_they_are_named() {
        let of = |source: &str, requests: &[&str], request: &str| {
            let configs = [config(source, requests, json!({}))];
            Configs::new(&configs, "gpu.tessera.dev").of(request, DeviceType::Gpu)
        };
        of("FromClaim", &[], "a").unwrap();
        of("FromClaim", &["a"], "a/whole").unwrap();
        of("FromClass", &["a"], "a").unwrap();
        let error = of("FromClaim", &["a"], "a").unwrap_err().to_string();
        assert!(error.contains("claim") && error.contains("MigDeviceConfig"), "{error}");
        assert!(error.contains("type gpu"), "{error}");
    }

    #[test]
    fn how_a_claim_shares_its_own_devices() {
        let gpu = |interval: &str| json!({"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicing": {"interval": interval}}});
        let configs = [
            config("FromClaim", &["a"], gpu("Long")),
            config("FromClass", &[], gpu("Short")),
            config("FromClaim", &["b"], json!({"kind": "GpuConfig"})),
            config("FromClaim", &[], json!({"sharing": {"strategy": "MPS"}})),
        ];
        let of =
            |request, device| Configs::new(&configs, "gpu.tessera.dev").of(request, device).unwrap().sharing;
        let text =
            |sharing: Option<ClaimSharing>| sharing.map(|sharing| serde_json::to_string(&sharing).unwrap());
        let long = r#"{"object":1,"how":{"timeSlicing":{"interval":"Long"}}}"#;
        assert_eq!(text(of("a", DeviceType::Gpu)).as_deref(), Some(long));
        let short = r#"{"object":0,"how":{"timeSlicing":{"interval":"Short"}}}"#;
        assert_eq!(text(of("c", DeviceType::Gpu)).as_deref(), Some(short));
        assert_eq!(of("b", DeviceType::Gpu), None, "the winner counts as a whole");
        let mps = r#"{"object":3,"how":{"mps":{}}}"#;
        assert_eq!(text(of("c", DeviceType::Mig)).as_deref(), Some(mps));
        assert_eq!(of("c", DeviceType::Mps), None, "a share has its own limits");
        let error = Configs::new(&configs, "gpu.tessera.dev").of("a", DeviceType::Mps).unwrap_err();
        assert!(error.to_string().contains("GpuConfig is not for devices of type mps"), "{error}");
    }

    #[test]
    fn nvidias_kinds_are_understood_under_its_name() {
        let parameters = json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"},
        });
        let of = |driver: &str| {
            let config =
                json!({"source": "FromClaim", "opaque": {"driver": driver, "parameters": parameters}});
            let configs = [serde_json::from_value(config).unwrap()];
            Configs::new(&configs, driver).of("a", DeviceType::Gpu)
        };
        assert!(matches!(of("gpu.nvidia.com").unwrap().sharing.unwrap().how, Sharing::Mps(_)));
        let error = of("gpu.tessera.dev").unwrap_err().to_string();
        assert!(error.contains("only where the driver's name is gpu.nvidia.com"), "{error}");
    }

    #[test]
    fn what_is_not_for_a_request_or_driver_is_not_even_read() {
        let configs = [config("FromClaim", &["other"], json!({"nonsense": 1}))];
        assert_eq!(slices(&configs, "a"), None);
        let nonsense = [config("FromClaim", &[], json!({"nonsense": 1}))];
        let other_driver = Configs::new(&nonsense, "gpu.nvidia.com").of("a", DeviceType::Mig);
        assert_eq!(other_driver.unwrap(), Settings::default());
        let error = Configs::new(&nonsense, "gpu.tessera.dev").of("a", DeviceType::Mig).unwrap_err();
        assert!(matches!(&error, PrepareError::Config { origin: "claim", .. }));
        assert!(error.to_string().contains("computeSlices"), "{error}");
    }
}
