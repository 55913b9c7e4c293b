//! The contents of one slice, as JSON. In the API's own types a device takes some 10 KiB, because each of its strings is an
//! allocation.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};
use serde::{Serialize, de::DeserializeOwned};

/// The contents of one slice. Clones share the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Devices, in the order in which kube-scheduler should try them.
    Devices {
        /// Number of devices.
        count: usize,
        /// The list, as the API's types are serialised.
        json: Arc<[u8]>,
    },
    /// Counter sets consumed by devices of any slice of the pool.
    SharedCounters {
        /// The list, as the API's types are serialised.
        json: Arc<[u8]>,
    },
}

impl Contents {
    /// A list of devices.
    #[must_use]
    pub fn of_devices(devices: &[Device]) -> Self {
        Self::Devices { count: devices.len(), json: to_json(devices) }
    }

    /// A list of counter sets.
    #[must_use]
    pub fn of_shared_counters(sets: &[CounterSet]) -> Self {
        Self::SharedCounters { json: to_json(sets) }
    }

    /// The contents of `spec`.
    #[must_use]
    pub fn of(spec: &ResourceSliceSpec) -> Self {
        match &spec.shared_counters {
            Some(sets) if !sets.is_empty() => Self::of_shared_counters(sets),
            _ => Self::of_devices(spec.devices.as_deref().unwrap_or_default()),
        }
    }

    /// Number of devices.
    #[must_use]
    pub fn device_count(&self) -> usize {
        match self {
            Self::Devices { count, .. } => *count,
            Self::SharedCounters { .. } => 0,
        }
    }

    /// The devices; empty for a slice of counter sets.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        match self {
            Self::Devices { json, .. } => from_json(json),
            Self::SharedCounters { .. } => Vec::new(),
        }
    }

    /// The counter sets; empty for a slice of devices.
    #[must_use]
    pub fn shared_counters(&self) -> Vec<CounterSet> {
        match self {
            Self::Devices { .. } => Vec::new(),
            Self::SharedCounters { json } => from_json(json),
        }
    }

    /// Writes the contents into `spec`.
    pub fn put_into(&self, spec: &mut ResourceSliceSpec) {
        match self {
            Self::Devices { .. } => spec.devices = Some(self.devices()),
            Self::SharedCounters { .. } => spec.shared_counters = Some(self.shared_counters()),
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the API's types are plain data with keys of text, which always serialises"
)]
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Arc<[u8]> {
    serde_json::to_vec(value).expect("plain data").into()
}

#[expect(clippy::expect_used, reason = "made by serialising the same types, and never leaves the process")]
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> T {
    serde_json::from_slice(json).expect("serialised by ourselves")
}
