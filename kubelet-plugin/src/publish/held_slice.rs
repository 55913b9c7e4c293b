//! A slice as the API server holds it, in little memory: all but its devices and counter sets, and a digest of those.

use std::{fmt, marker::PhantomData};

use k8s_openapi::{
    api::resource::v1::{CounterSet, Device, DeviceTaint, ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{
    digest::{ListDigest, SpecDigest},
    resource_slice::is_resource_slice,
};

/// See the module. Read from JSON, it takes no more memory on the way than one of its devices does.
#[derive(Clone, Debug)]
pub struct HeldSlice {
    /// Its metadata, without the names of managed fields.
    pub metadata: ObjectMeta,
    /// What it has in common with other slices; neither devices nor counter sets.
    pub spec: ResourceSliceSpec,
    /// What `spec` was, devices and counter sets included.
    pub digest: SpecDigest,
    /// When its devices' taints were added.
    pub taint_times: Vec<TaintTime>,
}

/// When a taint was added to a device.
#[derive(Clone, Debug, PartialEq)]
pub struct TaintTime {
    /// The device's name.
    pub device: String,
    /// The taint with its time.
    pub taint: DeviceTaint,
}

impl HeldSlice {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn new(mut metadata: ObjectMeta, spec: ResourceSliceSpec, holds: Holds) -> Self {
        for entry in metadata.managed_fields.iter_mut().flatten() {
            entry.fields_v1 = None;
        }
        let digest = SpecDigest::of_parts(&spec, holds.devices, holds.shared_counters);
        Self { metadata, spec, digest, taint_times: holds.taint_times }
    }
}

impl From<ResourceSlice> for HeldSlice {
    fn from(slice: ResourceSlice) -> Self {
        let ResourceSlice { metadata, mut spec } = slice;
        let mut holds = Holds::default();
        spec.devices.take().iter().flatten().for_each(|device| holds.add_device(device));
        spec.shared_counters
            .take()
            .iter()
            .flatten()
            .for_each(|set| holds.shared_counters.add_counter_set(set));
        Self::new(metadata, spec, holds)
    }
}

impl<'de> Deserialize<'de> for HeldSlice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Slice {
            #[serde(default)]
            metadata: ObjectMeta,
            spec: Spec,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            devices: Option<List<Device>>,
            shared_counters: Option<List<CounterSet>>,
            #[serde(flatten)]
            rest: ResourceSliceSpec,
        }
        let Slice { metadata, spec: Spec { devices, shared_counters, rest } } =
            Slice::deserialize(deserializer)?;
        let mut holds = devices.map(|list| list.holds).unwrap_or_default();
        holds.shared_counters = shared_counters.map(|list| list.holds.shared_counters).unwrap_or_default();
        Ok(Self::new(metadata, rest, holds))
    }
}

is_resource_slice!(HeldSlice);

/// What is kept of a slice's lists.
#[derive(Default)]
struct Holds {
    devices: ListDigest,
    shared_counters: ListDigest,
    taint_times: Vec<TaintTime>,
}

impl Holds {
    fn add_device(&mut self, device: &Device) {
        self.devices.add_device(device);
        let timed = device.taints.iter().flatten().filter(|taint| taint.time_added.is_some());
        let time = |taint: &DeviceTaint| TaintTime { device: device.name.clone(), taint: taint.clone() };
        self.taint_times.extend(timed.map(time));
    }
}

/// What a slice holds a list of.
trait Item {
    fn add_to(&self, holds: &mut Holds);
}

impl Item for Device {
    fn add_to(&self, holds: &mut Holds) {
        holds.add_device(self);
    }
}

impl Item for CounterSet {
    fn add_to(&self, holds: &mut Holds) {
        holds.shared_counters.add_counter_set(self);
    }
}

/// A list of which each item is dropped as soon as it was looked at.
struct List<T> {
    holds: Holds,
    items: PhantomData<T>,
}

impl<'de, T: Item + Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Item + Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
        let mut holds = Holds::default();
        while let Some(item) = items.next_element::<T>()? {
            item.add_to(&mut holds);
        }
        Ok(List { holds, items: PhantomData })
    }
}

/// The time of a taint like `taint` of this device among `times`.
#[must_use]
pub fn time_of<'a>(times: &'a [TaintTime], device: &str, taint: &DeviceTaint) -> Option<&'a Time> {
    let same = |other: &&TaintTime| {
        let other_taint = &other.taint;
        other.device == device
            && other_taint.key == taint.key
            && other_taint.value == taint.value
            && other_taint.effect == taint.effect
    };
    times.iter().find(same)?.taint.time_added.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_from_json_it_is_as_made_of_the_whole_slice() {
        let device = |name: &str| {
            json!({"name": name, "attributes": {"type": {"string": "gpu"}}, "unknown": {"a": [1]},
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-21T10:00:00Z"}, {"key": "l", "effect": "None"}]})
        };
        let json = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": "s", "uid": "u", "resourceVersion": "12", "labels": {"team": "a"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}, "time": "2026-11-21T10:00:00Z"}]},
            "spec": {"devices": [device("a"), device("b")], "driver": "d", "nodeName": "n", "unknown": 1, "sharedCounters": null,
                "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2}},
        });
        let whole: ResourceSlice = serde_json::from_value(json.clone()).unwrap();
        let digest = SpecDigest::of(&whole.spec);
        let read: HeldSlice = serde_json::from_str(&json.to_string()).unwrap();
        let made = HeldSlice::from(whole.clone());
        for held in [read, made] {
            assert_eq!(held.digest, digest);
            assert_eq!(held.name(), "s");
            assert_eq!(held.metadata.labels, whole.metadata.labels);
            let manager = &held.metadata.managed_fields.as_ref().unwrap()[0];
            assert_eq!((manager.manager.as_deref(), manager.fields_v1.is_none()), (Some("m"), true));
            assert_eq!(held.spec, ResourceSliceSpec { devices: None, ..whole.spec.clone() });
            let devices: Vec<&str> = held.taint_times.iter().map(|time| time.device.as_str()).collect();
            assert_eq!(devices, ["a", "b"]);
            let taint = &whole.spec.devices.as_ref().unwrap()[1].taints.as_ref().unwrap()[0];
            assert_eq!(time_of(&held.taint_times, "b", taint), taint.time_added.as_ref());
            assert_eq!(time_of(&held.taint_times, "c", taint), None);
        }
    }

    #[test]
    fn counter_sets_count_and_what_is_no_slice_is_an_error() {
        let read = |spec: serde_json::Value| {
            serde_json::from_value::<HeldSlice>(json!({"metadata": {}, "spec": spec}))
        };
        let pool = json!({"name": "p", "generation": 3, "resourceSliceCount": 2});
        let sets = |value: &str| {
            let spec = json!({"driver": "d", "pool": pool, "sharedCounters": [{"name": "a", "counters": {"m": {"value": value}}}]});
            read(spec).unwrap().digest
        };
        assert_eq!(sets("1Gi"), sets("1024Mi"));
        assert_ne!(sets("1Gi"), sets("2Gi"));
        assert!(read(json!({"driver": "d", "pool": pool, "devices": {"a": 1}})).is_err());
        assert!(read(json!({"driver": "d", "pool": pool, "devices": [{"name": 1}]})).is_err());
        assert!(serde_json::from_value::<HeldSlice>(json!({"metadata": {}})).is_err());
    }
}
