//! Configuration objects as anybody may write them: decoding never panics, and takes nothing that it does not know.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tessera_api::config::{
    API_VERSION, DeviceConfig, MpsSharing, NVIDIA_API_VERSION, NVIDIA_DRIVER_NAME, Sharing,
};

const NAMES: &[&str] = &[
    "apiVersion",
    "kind",
    "sharing",
    "strategy",
    "timeSlicing",
    "timeSlicingConfig",
    "interval",
    "mps",
    "mpsConfig",
    "activeThreadPercentage",
    "defaultActiveThreadPercentage",
    "pinnedDeviceMemoryLimit",
    "defaultPinnedDeviceMemoryLimit",
    "defaultPerDevicePinnedMemoryLimit",
    "multiUser",
    "computeSlices",
    "migModeAfterUse",
    "0",
    "GPU-1",
    "other",
];

const TEXTS: &[&str] = &[
    "MPS",
    "TimeSlicing",
    "Short",
    "Keep",
    "10Gi",
    "0",
    "-1",
    "1e30",
    "16Ei",
    "1e-99999",
    ".Ki",
    "",
    "ü\u{0}",
];

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..110_u8).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(TEXTS).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(NAMES), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

fn object(api_version: &str, kind: &str, fields: &Value) -> Value {
    let mut object = fields.as_object().cloned().unwrap_or_default();
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    object.into()
}

const FORMS: [(&str, &str); 4] = [
    (API_VERSION, "GpuConfig"),
    (API_VERSION, "MigDeviceConfig"),
    (NVIDIA_API_VERSION, "GpuConfig"),
    (NVIDIA_API_VERSION, "MigDeviceConfig"),
];

/// What is taken has its promised ranges.
fn check(config: &DeviceConfig) {
    let sharing = match config {
        DeviceConfig::Gpu(config) => &config.sharing,
        DeviceConfig::Mig(config) => {
            assert_ne!(config.compute_slices, Some(0));
            assert!(!matches!(config.sharing, Some(Sharing::TimeSlicing(_))));
            &config.sharing
        }
        _ => unreachable!(),
    };
    if let Some(Sharing::Mps(mps)) = sharing {
        assert!(mps.active_thread_percentage.is_none_or(|percentage| (1..=100).contains(&percentage)));
        let limits = mps.memory_limit_mib.iter().chain(mps.device_memory_limits_mib.values());
        assert!(limits.into_iter().all(|limit| *limit > 0));
        let _ = mps.memory_limits(&["GPU-1", "GPU-2"]);
        let text = serde_json::to_string(mps).unwrap();
        assert_eq!(&serde_json::from_str::<MpsSharing>(&text).unwrap(), mps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoding_never_panics(value in values(), form in prop::sample::select(&FORMS[..]), has_head in any::<bool>()) {
        let value = if has_head { object(form.0, form.1, &value) } else { value };
        match DeviceConfig::decode(&value, NVIDIA_DRIVER_NAME) {
            Ok(config) => check(&config),
            Err(error) => {
                prop_assert!(error.to_string().len() < 500);
                prop_assert!(!error.to_string().contains("cannot be read"), "a form takes what its type does not: {}", error);
            }
        }
    }

    /// Whatever field is put anywhere into a good object that has none of this name there makes it a bad one.
    #[test]
    fn nothing_unknown_is_taken(form in prop::sample::select(&FORMS[..]), name in "[a-zA-Z]{1,12}", depth in 0..3_usize) {
        let (mps, limit) = if form.0 == API_VERSION {
            ("mps", "pinnedDeviceMemoryLimit")
        } else {
            ("mpsConfig", "defaultPinnedDeviceMemoryLimit")
        };
        let good = object(form.0, form.1, &json!({"sharing": {"strategy": "MPS", mps: {limit: "1Gi"}}}));
        DeviceConfig::decode(&good, NVIDIA_DRIVER_NAME).unwrap();
        prop_assume!(!NAMES.contains(&&*name));
        let mut bad = good;
        let place = match depth {
            0 => &mut bad,
            1 => &mut bad["sharing"],
            _ => &mut bad["sharing"][mps],
        };
        place[&*name] = json!("1");
        let error = DeviceConfig::decode(&bad, NVIDIA_DRIVER_NAME).unwrap_err();
        prop_assert!(error.to_string().contains(&format!("{name:?} is not one of the fields")), "{}", error);
    }
}
