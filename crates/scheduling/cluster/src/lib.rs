//! A cluster as kube-scheduler sees it: an index of the objects deciding which claim gets which devices.
//!
//! [`Cluster::apply`] and [`Cluster::delete`] feed the index, from a single read or from watches. Reads need only `&`, so many
//! threads can read at once. Compiled selectors and new share ids are per reader, in an [`Asker`].
//!
//! In: Kubernetes' objects. Out: claims, devices and nodes as the allocator reads them. Pure: no I/O, no clock, no
//! threads. Wing `scheduling`: may use `base`, never `node`.
#![forbid(unsafe_code)]

pub mod anti_affinity;
mod change;
mod charge;
mod claim;
mod cluster;
mod error;
mod expected;
pub mod gang;
mod holder;
mod holds;
mod key;
pub mod kueue;
pub mod node_fit;
mod objects;
pub mod outcome;
mod pod;
mod project;
mod quota;
pub mod subject;
mod taken;
mod tried;
pub mod usage;
pub mod workloads;
pub mod worth;

pub use change::{Kind, Object};
pub use charge::{CardClass, Charges};
pub use claim::{AllocationExt, ClaimExt, DeviceClaimExt};
pub use cluster::{Asker, Cluster, PlacementLimits};
pub use error::ObjectError;
pub use holder::Holder;
pub use holds::holds_of;
pub use key::Key;
pub use objects::{Objects, reference};
pub use pod::{DEFAULT_SCHEDULER, PodExt};
pub use quota::GpuQuota;
pub use taken::{Hold, Replaced};
