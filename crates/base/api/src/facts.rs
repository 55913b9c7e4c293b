//! Facts stated by a card or its driver, in the types used by every part of Tessera: NVML answers with these types, the
//! inventory is computed from them, and the journal keeps them on disk.
//!
//! Types that derive `Serialize` are parts of files on disk; their JSON does not change.

mod common_ancestor;
mod compute_capability;
mod fabric;
mod mig;
mod nvlink;

pub use common_ancestor::CommonAncestor;
pub use compute_capability::ComputeCapability;
pub use fabric::{ClusterUuid, Fabric, FabricState};
pub use mig::{ComputeInstance, GpuInstance, GpuInstanceProfile, Placement};
pub use nvlink::{NvLink, NvLinkRemote, NvLinkVersion};
