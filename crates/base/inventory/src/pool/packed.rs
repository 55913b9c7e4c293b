//! Published slices in compact form.
//!
//! The API's types hold every text of each device apart: nearly 2,000 devices of 64 cards take 20 MiB in these types, and a
//! fraction as JSON. They are unpacked only for a write, which is rare.

use std::{fmt, sync::Arc};

use k8s_openapi::api::resource::v1::{CounterSet, Device};
use serde_json::Error as JsonError;
use tessera_api::health::{HealthFault, HealthPolicy};

use super::{Contents, Pool, Slice, taints};
use crate::warning::Warning;

/// A [`Pool`] in compact form.
///
/// If [`PackedPool::slices`] are equal, nothing needs to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedPool {
    /// The slices by ascending [`PackedSlice::name_suffix`].
    pub slices: Vec<PackedSlice>,
    /// See [`Pool::warnings`].
    pub warnings: Vec<Warning>,
    /// Names of the devices published, tainted, only because claims hold them: devices no longer offered, and cards
    /// allocated when nothing else of them was offered, with a larger offer after the end of their
    /// claims.
    pub no_longer_offered: Vec<String>,
}

/// A [`Slice`] in compact form.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedSlice {
    /// See [`Slice::name_suffix`].
    pub name_suffix: String,
    /// Its contents.
    pub contents: PackedContents,
}

/// Stored [`Contents`]: the names at hand, the rest as JSON.
///
/// Contents are equal exactly if their packed forms are.
#[derive(Clone, PartialEq)]
pub struct PackedContents {
    kind: Kind,
    names: Box<[Arc<str>]>,
    json: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Devices,
    SharedCounters,
}

impl PackedPool {
    /// Names of all devices, in the order of publication.
    pub fn device_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slices.iter().flat_map(|slice| slice.contents.device_names())
    }

    /// The pool as the API's types.
    #[must_use]
    pub fn unpack(&self) -> Pool {
        let slice = |slice: &PackedSlice| Slice {
            name_suffix: slice.name_suffix.clone(),
            contents: slice.contents.unpack(),
        };
        Pool { slices: self.slices.iter().map(slice).collect(), warnings: self.warnings.clone() }
    }
}

impl From<&Pool> for PackedPool {
    /// Its `held` is empty.
    fn from(pool: &Pool) -> Self {
        let slice = |slice: &Slice| PackedSlice {
            name_suffix: slice.name_suffix.clone(),
            contents: PackedContents::from(&slice.contents),
        };
        Self {
            slices: pool.slices.iter().map(slice).collect(),
            warnings: pool.warnings.clone(),
            no_longer_offered: Vec::new(),
        }
    }
}

impl PackedContents {
    /// Packs devices.
    #[must_use]
    pub fn of_devices(devices: &[Device]) -> Self {
        let names = devices.iter().map(|device| device.name.as_str().into()).collect();
        Self::new(Kind::Devices, names, serde_json::to_vec(devices))
    }

    /// Packs counter sets.
    #[must_use]
    pub fn of_shared_counters(sets: &[CounterSet]) -> Self {
        let names = sets.iter().map(|set| set.name.as_str().into()).collect();
        Self::new(Kind::SharedCounters, names, serde_json::to_vec(sets))
    }

    /// Names of the devices, in order; none for counter sets.
    #[must_use]
    pub fn device_names(&self) -> &[Arc<str>] {
        match self.kind {
            Kind::Devices => &self.names,
            Kind::SharedCounters => &[],
        }
    }

    /// Whether this holds counter sets.
    #[must_use]
    pub fn is_shared_counters(&self) -> bool {
        self.kind == Kind::SharedCounters
    }

    /// The list of devices or counter sets, as the API's types are serialised.
    #[must_use]
    pub fn json(&self) -> &Arc<[u8]> {
        &self.json
    }

    /// The contents as the API's types.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "these bytes were made by `new` of the same types and never leave the process"
    )]
    pub fn unpack(&self) -> Contents {
        let contents: Result<Contents, JsonError> = match self.kind {
            Kind::Devices => serde_json::from_slice(&self.json).map(Contents::Devices),
            Kind::SharedCounters => serde_json::from_slice(&self.json).map(Contents::SharedCounters),
        };
        contents.expect("written by ourselves")
    }

    /// The same with the taint of `fault` at each device, beside its other taints. Equal for a fault without effect on claims.
    #[must_use]
    pub fn with_fault(&self, driver_name: &str, fault: &HealthFault, policy: &HealthPolicy) -> Self {
        let Some(taint) = taints::of_fault(driver_name, fault, policy) else { return self.clone() };
        let Contents::Devices(mut devices) = self.unpack() else { return self.clone() };
        for device in &mut devices {
            taints::add(device, taint.clone());
        }
        Self::of_devices(&devices)
    }

    #[expect(
        clippy::expect_used,
        reason = "the API's types are plain data with keys of text, which always serialises"
    )]
    fn new(kind: Kind, names: Box<[Arc<str>]>, json: Result<Vec<u8>, JsonError>) -> Self {
        Self { kind, names, json: json.expect("plain data").into() }
    }
}

impl From<&Contents> for PackedContents {
    fn from(contents: &Contents) -> Self {
        match contents {
            Contents::Devices(devices) => Self::of_devices(devices),
            Contents::SharedCounters(sets) => Self::of_shared_counters(sets),
        }
    }
}

impl fmt::Debug for PackedContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedContents")
            .field("kind", &self.kind)
            .field("names", &self.names)
            .field("bytes", &self.json.len())
            .finish_non_exhaustive()
    }
}
