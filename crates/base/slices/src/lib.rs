//! A ResourceSlice without the fields common to all slices of its pool. In: the API's devices or counter sets. Out: the same, as
//! JSON or as the API's types.
//!
//! Contents are kept as JSON: in the API's types each string is an allocation of its own, some 10 KiB for a device. They are read
//! back only for a write, which is rare. Pure.
#![forbid(unsafe_code)]

use std::{fmt, sync::Arc};

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};
use serde::{Serialize, de::DeserializeOwned};

/// One slice of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// End of the slice's name, a DNS label. kube-scheduler goes through the slices of a pool by name, so this sets the order.
    pub name_suffix: String,
    /// Its contents.
    pub contents: Contents,
}

/// The contents of one slice. Kubernetes allows either devices or counter sets. Clones share the memory.
#[derive(Clone, PartialEq, Eq)]
pub enum Contents {
    /// Devices, in kube-scheduler's order of trying.
    Devices {
        /// The devices' names, in order.
        names: Arc<[Arc<str>]>,
        /// The list, as the API's types are serialised.
        json: Arc<[u8]>,
    },
    /// Counter sets for devices of any slice of the pool.
    SharedCounters {
        /// The list, as the API's types are serialised.
        json: Arc<[u8]>,
    },
}

impl Contents {
    /// A list of devices.
    #[must_use]
    pub fn of_devices(devices: &[Device]) -> Self {
        let names = devices.iter().map(|device| device.name.as_str().into()).collect();
        Self::Devices { names, json: to_json(devices) }
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

    /// Names of the devices, in order; none for counter sets.
    #[must_use]
    pub fn device_names(&self) -> &[Arc<str>] {
        match self {
            Self::Devices { names, .. } => names,
            Self::SharedCounters { .. } => &[],
        }
    }

    /// The devices; none for counter sets.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        match self {
            Self::Devices { json, .. } => from_json(json),
            Self::SharedCounters { .. } => Vec::new(),
        }
    }

    /// The counter sets; none for devices.
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

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Devices { json, .. } | Self::SharedCounters { json }) = self;
        f.write_str(&String::from_utf8_lossy(json))
    }
}

/// One of the API's types, serialised.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "the API's types are plain data with keys of text, which always serialises"
)]
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Arc<[u8]> {
    serde_json::to_vec(value).expect("plain data").into()
}

/// The result of [`to_json`] in its type.
#[must_use]
#[expect(clippy::expect_used, reason = "made by serialising the same types, and never leaves the process")]
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> T {
    serde_json::from_slice(json).expect("serialised by ourselves")
}
