//! Configuration as people write it, right and wrong, by chance.

use fastrand::Rng;
use serde_json::{Map, Value, json};
use tessera_api::config::{API_VERSION, NVIDIA_API_VERSION, NVIDIA_DRIVER_NAME};

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
    "Sharing",
    "a-b.c/d",
    "ü\n\u{1b}[2J",
    "",
];

const TEXTS: &[&str] = &[
    "MPS",
    "mps",
    "TimeSlicing",
    "Short",
    "Long",
    "Keep",
    "GpuConfig",
    "MigDeviceConfig",
    "VfioDeviceConfig",
    "ComputeDomainChannelConfig",
    API_VERSION,
    NVIDIA_API_VERSION,
    "gpu.nvidia.com/v1alpha1",
    "10Gi",
    "1Mi",
    "1024Ki",
    "1023Ki",
    "1048575.5",
    "1048575",
    "1.5e9",
    "1E",
    "16Ei",
    "1e30",
    "1e99",
    "1e100",
    "-1Gi",
    "+2Gi",
    "1048576000m",
    "99999999999999999999999999999999",
    "999999999999999999999999999999999",
    "Gi",
    ".5Gi",
    "1 Gi",
    "1gi",
    "0",
    "",
    "say \"no\"\\",
    "ü\n\u{1b}[2J",
    "a text that is longer than the sixty-four characters that are shown of one",
];

fn pick<'a>(random: &mut Rng, all: &[&'a str]) -> &'a str {
    all[random.usize(..all.len())]
}

/// An object for a driver of this name: right, or with a mistake or two.
pub fn object(random: &mut Rng, driver: &str) -> Value {
    let is_nvidias = (driver == NVIDIA_DRIVER_NAME && random.bool()) || random.u8(..20) == 0;
    let mut object = if is_nvidias { nvidias(random) } else { own(random) };
    for _ in 0..random.u8(..3) {
        spoil(random, &mut object);
    }
    object
}

fn some(random: &mut Rng, fields: &mut Map<String, Value>, name: &str, value: Value) {
    if random.bool() {
        fields.insert(name.to_owned(), value);
    }
}

fn memory(random: &mut Rng) -> Value {
    match random.u8(..4) {
        0 => json!(random.u64((1 << 20)..(1 << 40))),
        1 => json!(2.5e9),
        _ => pick(random, &["10Gi", "1Mi", "1048575.5", "1.5e9", "16Ei", "1048576000m"]).into(),
    }
}

fn interval(random: &mut Rng) -> Value {
    json!({"interval": pick(random, &["Default", "Short", "Medium", "Long"])})
}

fn own(random: &mut Rng) -> Value {
    let is_card = random.bool();
    let mut object = Map::new();
    object.insert("apiVersion".into(), API_VERSION.into());
    object.insert("kind".into(), if is_card { "GpuConfig" } else { "MigDeviceConfig" }.into());
    let mut sharing = Map::new();
    if random.bool() || !is_card {
        let mut mps = Map::new();
        let percentage = random.u8(1..=100).into();
        some(random, &mut mps, "activeThreadPercentage", percentage);
        let limit = memory(random);
        some(random, &mut mps, "pinnedDeviceMemoryLimit", limit);
        sharing.insert("strategy".into(), "MPS".into());
        some(random, &mut sharing, "mps", mps.into());
    } else {
        sharing.insert("strategy".into(), "TimeSlicing".into());
        let interval = interval(random);
        some(random, &mut sharing, "timeSlicing", interval);
    }
    some(random, &mut object, "sharing", sharing.into());
    if !is_card {
        let slices = random.u32(1..8).into();
        some(random, &mut object, "computeSlices", slices);
        let mode = pick(random, &["Restore", "Keep"]).into();
        some(random, &mut object, "migModeAfterUse", mode);
    }
    object.into()
}

fn nvidias(random: &mut Rng) -> Value {
    let is_card = random.bool();
    let mut sharing = Map::new();
    if random.bool() {
        let mut mps = Map::new();
        let percentage = random.u8(..=100).into();
        some(random, &mut mps, "defaultActiveThreadPercentage", percentage);
        let limit = memory(random);
        some(random, &mut mps, "defaultPinnedDeviceMemoryLimit", limit);
        let limits = json!({"0": memory(random), "GPU-1": memory(random)});
        some(random, &mut mps, "defaultPerDevicePinnedMemoryLimit", limits);
        some(random, &mut mps, "multiUser", true.into());
        sharing.insert("strategy".into(), "MPS".into());
        some(random, &mut sharing, "mpsConfig", mps.into());
    } else {
        sharing.insert("strategy".into(), "TimeSlicing".into());
        if is_card {
            let interval = interval(random);
            some(random, &mut sharing, "timeSlicingConfig", interval);
        }
    }
    let kind = if is_card { "GpuConfig" } else { "MigDeviceConfig" };
    json!({"apiVersion": NVIDIA_API_VERSION, "kind": kind, "sharing": sharing})
}

/// Changes something somewhere in an object.
fn spoil(random: &mut Rng, value: &mut Value) {
    let Value::Object(fields) = value else {
        *value = any(random);
        return;
    };
    let names: Vec<String> = fields.keys().cloned().collect();
    let place = if names.is_empty() { None } else { Some(&names[random.usize(..names.len())]) };
    match (random.u8(..8), place) {
        (0 | 1, _) | (_, None) => {
            fields.insert(pick(random, NAMES).to_owned(), any(random));
        }
        (2, Some(place)) => {
            fields.remove(place);
        }
        (3, Some(place)) => {
            fields.insert(place.clone(), any(random));
        }
        (_, Some(place)) => spoil(random, &mut fields[place]),
    }
}

fn any(random: &mut Rng) -> Value {
    match random.u8(..12) {
        0 => Value::Null,
        1 => random.bool().into(),
        2 => [-1, 0, 1, 100, 101, 1 << 20, (1 << 20) - 1, i64::MAX, i64::MIN][random.usize(..9)].into(),
        3 => [0.5, 1.0, 100.0, 1e30, -1e300, 1_048_575.5][random.usize(..6)].into(),
        4 => u64::MAX.into(),
        5 => json!([]),
        6 => json!([pick(random, TEXTS)]),
        7 => json!({}),
        8 => json!({pick(random, NAMES): pick(random, TEXTS)}),
        _ => pick(random, TEXTS).into(),
    }
}
