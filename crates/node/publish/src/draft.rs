//! A slice to be written, before its contents are read from JSON.

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use tessera_slices::Contents;

use crate::held_slice::{TaintTime, time_of};

/// See the module.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The `spec` without devices and counter sets.
    pub spec: ResourceSliceSpec,
    /// Its devices or counter sets.
    pub contents: Contents,
    /// When existing taints were added. A remaining taint keeps its time, because `tolerationSeconds` counts from then.
    pub taint_times: Vec<TaintTime>,
}

impl Draft {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The slice as sent.
    #[must_use]
    pub fn slice(&self) -> ResourceSlice {
        let mut spec = self.spec.clone();
        self.contents.put_into(&mut spec);
        for device in spec.devices.iter_mut().flatten() {
            for taint in device.taints.iter_mut().flatten().filter(|taint| taint.time_added.is_none()) {
                taint.time_added = time_of(&self.taint_times, &device.name, taint).cloned();
            }
        }
        ResourceSlice { metadata: self.metadata.clone(), spec }
    }
}
