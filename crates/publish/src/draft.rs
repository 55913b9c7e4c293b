//! A slice that is to be written, before its contents are read from JSON.

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    contents::Contents,
    held_slice::{TaintTime, time_of},
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it has in common with other slices; neither devices nor counter sets.
    pub spec: ResourceSliceSpec,
    /// Its devices or counter sets.
    pub contents: Contents,
    /// A taint that stays keeps the time it was added, from which tolerations for a while are counted.
    pub taint_times: Vec<TaintTime>,
}

impl Draft {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The slice to send.
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
