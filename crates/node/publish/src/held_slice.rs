//! Our knowledge of a slice on the API server.

use std::sync::Arc;

use k8s_openapi::{
    api::resource::v1::{DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use tessera_slices::{Contents, from_json, to_json};

use crate::compare;

/// See the module.
#[derive(Clone, Debug)]
pub struct HeldSlice {
    /// Its metadata, without the names of managed fields.
    pub metadata: ObjectMeta,
    /// The slice's `spec`; `None` if possibly changed since the last read or write.
    pub spec: Option<HeldSpec>,
}

/// The retained form of a `spec`.
#[derive(Clone, Debug)]
pub struct HeldSpec {
    /// Its pool.
    pub pool: ResourcePool,
    /// Its contents.
    pub contents: HeldContents,
    /// When its devices' taints were added.
    pub taint_times: Vec<TaintTime>,
}

/// The contents of a slice on the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum HeldContents {
    /// Exactly these, as desired.
    Same(Contents),
    /// Anything else: the whole `spec`, as JSON.
    Other(Arc<[u8]>),
}

/// When a taint was added to a device.
#[derive(Clone, Debug, PartialEq)]
pub struct TaintTime {
    /// The device's name.
    pub device: String,
    /// The taint, with its time.
    pub taint: DeviceTaint,
}

impl HeldSlice {
    /// A slice known only by its metadata.
    #[must_use]
    pub fn unread(mut metadata: ObjectMeta) -> Self {
        for entry in metadata.managed_fields.iter_mut().flatten() {
            entry.fields_v1 = None;
        }
        Self { metadata, spec: None }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The name of its pool, if known.
    #[must_use]
    pub fn pool_name(&self) -> Option<&str> {
        self.spec.as_ref().map(|spec| spec.pool.name.as_str())
    }
}

impl From<ResourceSlice> for HeldSlice {
    fn from(ResourceSlice { metadata, spec }: ResourceSlice) -> Self {
        let mut taint_times = Vec::new();
        for device in spec.devices.iter().flatten() {
            let timed = device.taints.iter().flatten().filter(|taint| taint.time_added.is_some());
            taint_times
                .extend(timed.map(|taint| TaintTime { device: device.name.clone(), taint: taint.clone() }));
        }
        let contents = HeldContents::Other(to_json(&spec));
        Self { spec: Some(HeldSpec { pool: spec.pool, contents, taint_times }), ..Self::unread(metadata) }
    }
}

impl HeldSpec {
    /// The whole `spec`, if different from the desired one.
    #[must_use]
    pub fn other(&self) -> Option<ResourceSliceSpec> {
        match &self.contents {
            HeldContents::Same(_) => None,
            HeldContents::Other(json) => Some(from_json(json)),
        }
    }

    /// Compares the slice with the `wanted` `spec`, given without contents, and `contents`. If they are equal, only the
    /// shared `contents` are kept.
    pub fn recognise(&mut self, mut wanted: ResourceSliceSpec, contents: &Contents) {
        let Some(held) = self.other() else { return };
        contents.put_into(&mut wanted);
        if same(wanted, &held) {
            self.contents = HeldContents::Same(contents.clone());
        }
    }
}

/// Whether `held` equals `wanted`, apart from the pool's generation and number of slices.
#[must_use]
pub fn same(mut wanted: ResourceSliceSpec, held: &ResourceSliceSpec) -> bool {
    wanted.pool.generation = held.pool.generation;
    wanted.pool.resource_slice_count = held.pool.resource_slice_count;
    compare::differences(&wanted, held).is_empty()
}

/// The time in `times` of the same taint of the same device.
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

    fn slice(spec: serde_json::Value) -> ResourceSlice {
        let metadata = json!({"name": "s", "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]});
        let mut slice: ResourceSlice =
            serde_json::from_value(json!({"metadata": metadata, "spec": {"driver": "d", "pool":
                {"name": "p", "generation": 3, "resourceSliceCount": 2}}}))
            .unwrap();
        slice.spec.devices = serde_json::from_value(spec).unwrap();
        slice
    }

    #[test]
    fn what_is_the_same_is_kept_as_what_was_wanted() {
        let device = |memory: &str| {
            json!([{"name": "a", "capacity": {"memory": {"value": memory}},
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-21T10:00:00Z"}]}])
        };
        let mut wanted = slice(device("1024Mi")).spec;
        let mut devices = wanted.devices.take().unwrap();
        devices[0].taints.as_mut().unwrap()[0].time_added = None;
        wanted.pool.generation = 1;
        let contents = Contents::of_devices(&devices);
        let recognised = |memory: &str, wanted: &ResourceSliceSpec| {
            let held = HeldSlice::from(slice(device(memory)));
            assert_eq!((held.name(), held.pool_name()), ("s", Some("p")));
            assert_eq!(held.metadata.managed_fields.unwrap()[0].fields_v1, None);
            let mut spec = held.spec.unwrap();
            assert!(time_of(&spec.taint_times, "a", &devices[0].taints.as_ref().unwrap()[0]).is_some());
            spec.recognise(wanted.clone(), &contents);
            spec.contents == HeldContents::Same(contents.clone())
        };
        assert!(recognised("1Gi", &wanted));
        assert!(!recognised("2Gi", &wanted));
        wanted.node_name = Some("n".to_owned());
        assert!(!recognised("1Gi", &wanted), "whose slice it is counts");
    }
}
