//! What arrives on a fleet, and when.

mod ask;
mod line;
mod list;
mod manifest;
mod manifests;
mod openb;
mod present;
mod shape;

use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass};
use tessera_cluster::{Key, Object};

pub(super) use ask::Ask;
pub use list::{LineError, List, ListReader, time};
pub(super) use manifest::ends;
pub use manifest::{JobSet, LeaderWorkerSet, Manifest};
pub use manifests::{ManifestError, is_of_cards};
pub(super) use shape::EPOCH;
pub use shape::Shape;

/// Most pods of a workload.
pub const MOST_PODS: usize = 100_000;

/// Pods, each of a shape.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// What they are, each once.
    pub shapes: Vec<Shape>,
    /// In the order of their arrival.
    pub pods: Vec<Pods>,
    /// DeviceClasses that they name besides those of the chart, or in their place.
    pub classes: Vec<DeviceClass>,
    /// What is not simulated, and why.
    pub left_out: Vec<String>,
    /// What is simulated in another way than it is written.
    pub notes: Vec<String>,
    /// Pods and claims that are there from the beginning.
    pub(super) standing: Vec<Object>,
    /// What these claims hold.
    pub(super) held: Vec<Held>,
}

/// What a claim holds from the beginning.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Of its pod.
    pub name: String,
    /// Its claim.
    pub claim: Key,
    /// All pods that have it.
    pub pods: Vec<Key>,
    /// When these are gone; `None` for never.
    pub ends: Option<Duration>,
    /// Place of the node in the fleet.
    pub node: usize,
    pub allocation: AllocationResult,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Its name: that of its line, or of its owner, and a number.
    pub name: String,
    /// Place in [`Workload::shapes`].
    pub shape: usize,
    /// When it arrives.
    pub at: Duration,
    /// How long it runs; `None` for ever.
    pub duration: Option<Duration>,
    /// Those with more go first.
    pub priority: i32,
    /// Those with the same start together: number and size.
    pub gang: Option<(u32, u32)>,
}

impl Workload {
    /// Adds the pods of another.
    pub fn add(&mut self, other: Self) {
        let Self { shapes, pods, classes, left_out, notes, standing, held } = other;
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
        self.standing.extend(standing);
        self.held.extend(held);
    }

    /// The name of a pod of the workload, or, above them, of one that holds devices from the beginning.
    #[must_use]
    pub fn name(&self, pod: usize) -> &str {
        match pod.checked_sub(self.pods.len()) {
            None => &self.pods[pod].name,
            Some(held) => &self.held[held].name,
        }
    }

    /// What is held from the beginning under this number, above those of the pods.
    pub(super) fn held_by(&self, pod: usize) -> Option<&Held> {
        self.held.get(pod.checked_sub(self.pods.len())?)
    }

    /// How many hold devices from the beginning.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Namespace and name of a pod.
    pub(super) fn key(&self, pod: usize) -> (&str, &str) {
        let pod = &self.pods[pod];
        (&self.shapes[pod.shape].namespace, &pod.name)
    }

    /// Above the numbers of its gangs.
    fn gangs(&self) -> u32 {
        self.pods.iter().filter_map(|pod| Some(pod.gang?.0 + 1)).max().unwrap_or(0)
    }
}
