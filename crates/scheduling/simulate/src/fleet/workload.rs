//! Pods arriving on a fleet, with their times.

mod ask;
mod line;
mod list;
mod manifest;
mod manifests;
mod openb;
mod present;
mod shape;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass};
use tessera_cluster::{Key, Object};

use super::Quotas;

pub(super) use ask::Ask;
pub use list::{LineError, List, ListReader, time};
pub(super) use manifest::ends;
pub use manifest::{JobSet, LeaderWorkerSet, Manifest};
pub use manifests::{ManifestError, is_of_cards};
pub use shape::Shape;

/// Most pods of a workload.
pub const MOST_PODS: usize = 100_000;

/// Pods with their shapes.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Distinct shapes.
    pub shapes: Vec<Shape>,
    /// Pods in order of arrival.
    pub pods: Vec<Pods>,
    /// DeviceClasses of the pods, in addition to the chart's classes or replacing them.
    pub classes: Vec<DeviceClass>,
    /// Objects not simulated, with the reason.
    pub left_out: Vec<String>,
    /// Deviations of the simulation from the manifests.
    pub notes: Vec<String>,
    /// GpuQuotas in force, of effect on the policy `tessera` only.
    pub quotas: Quotas,
    /// Pods and claims present from the beginning.
    pub(super) standing: Vec<Object>,
    /// Holdings of these claims.
    pub(super) held: Vec<Held>,
}

/// Devices held by a claim from the beginning.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Name of its first pod.
    pub name: String,
    /// Key of the claim.
    pub claim: Key,
    /// All pods of the claim.
    pub pods: Vec<Key>,
    /// When these pods have ended; `None` for never.
    pub ends: Option<Duration>,
    /// Index of the node in the fleet.
    pub node: usize,
    pub allocation: AllocationResult,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Name of its line or owner, with a number.
    pub name: String,
    /// Index in [`Workload::shapes`].
    pub shape: usize,
    /// Time of arrival.
    pub at: Duration,
    /// Run time; `None` for ever.
    pub duration: Option<Duration>,
    /// Priority; higher values are placed first.
    pub priority: i32,
    /// Gang number and size. Pods with the same number start together.
    pub gang: Option<(u32, u32)>,
    /// Percent of its devices that the pod uses; `None`: not told, and counted as all.
    pub busy: Option<u8>,
    /// Whether the pod may move, by [`MOVABLE_LABEL`](tessera_api::gpu_pool::MOVABLE_LABEL).
    pub is_movable: bool,
}

impl Workload {
    /// Appends the pods of another workload.
    pub fn add(&mut self, other: Self) {
        let Self { shapes, pods, classes, left_out, notes, quotas, standing, held } = other;
        let (of_shape, gangs) = (self.shapes.len(), self.gangs());
        self.shapes.extend(shapes);
        self.pods.extend(pods.into_iter().map(|pod| Pods {
            shape: pod.shape + of_shape,
            gang: pod.gang.map(|(gang, size)| (gang + gangs, size)),
            ..pod
        }));
        self.pods.sort_by_key(|pod| pod.at);
        self.classes.extend(classes);
        self.left_out.extend(left_out);
        self.notes.extend(notes);
        self.quotas.add(quotas);
        self.standing.extend(standing);
        self.held.extend(held);
    }

    /// The name of a pod of the workload. Numbers above the pods' mean holders of devices from the beginning.
    #[must_use]
    pub fn name(&self, pod: usize) -> &str {
        match pod.checked_sub(self.pods.len()) {
            None => &self.pods[pod].name,
            Some(held) => &self.held[held].name,
        }
    }

    /// The holding with this number; numbers continue after the pods'.
    pub(super) fn held_by(&self, pod: usize) -> Option<&Held> {
        self.held.get(pod.checked_sub(self.pods.len())?)
    }

    /// Number of holdings from the beginning.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Namespace and name of a pod.
    pub(super) fn key(&self, pod: usize) -> (&str, &str) {
        let pod = &self.pods[pod];
        (&self.shapes[pod.shape].namespace, &pod.name)
    }

    /// Namespaces of the pods, those with devices from the beginning included.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        let held = self.held.iter().map(|held| held.claim.namespace.as_str());
        self.shapes.iter().map(|shape| shape.namespace.as_str()).chain(held).collect()
    }

    /// The next free gang number.
    fn gangs(&self) -> u32 {
        self.pods.iter().filter_map(|pod| Some(pod.gang?.0 + 1)).max().unwrap_or(0)
    }
}
