//! The Container Device Interface (CDI) specs for a claim's containers, read by the container runtime.
//!
//! One transient spec per claim, `<driver>-claim_<uid>.json`, of kind `<driver>/claim`, with one CDI device for each
//! allocated device. For each of its devices a container gets the node of the card, and for a partition also its two
//! capability nodes. In addition the container gets the nodes needed by all CUDA programs (`nvidiactl`, `nvidia-uvm`, …), the
//! driver's files, and these variables:
//!
//! - `GPU_DEVICE_<PCI address>=<uuid>` for each device, `GPU_DEVICE_3B_00=GPU-…`; for a partition
//!   `GPU_DEVICE_3B_00_MIG_1G10GB_6=MIG-…`. The prefix is from Kubernetes' own example DRA driver. There is one
//!   variable per device and not one list, because a container with two claims has two specs, and a variable set by
//!   both would have the last one's value.
//! - `NVIDIA_VISIBLE_DEVICES=void`, as in NVIDIA's DRA driver: the variable keeps the older NVIDIA runtime hook, if a node
//!   still has one, from adding every card of the node to images asking for `all`.
//!
//! A second spec of kind `<driver>/metadata` mounts a file for each request with the properties of its devices (KEP-5304,
//! [`RequestMetadata`]).
//!
//! The types are our own: the spec is a public format, and a claim's spec needs only a small part.

mod capabilities;
mod claim_spec;
mod device_nodes;
mod directory;
mod driver_files;
mod error;
mod host_nodes;
mod metadata;
mod names;
mod other_drivers;
mod roots;
mod spec;
mod version;

pub use capabilities::{CapabilityError, partition_nodes};
pub use claim_spec::{ClaimSpecDevice, claim_spec};
pub use device_nodes::has_unified_memory;
pub use directory::{Directory, SpecFile};
pub use driver_files::{DriverFiles, DriverFilesSource, cuda_versions, find_driver_files};
pub use error::CdiError;
pub use host_nodes::{HostNodeError, complete_host_nodes};
pub use metadata::{DeviceMetadata, MetadataClaim, RequestMetadata, metadata_device_id};
pub use names::{CLASS, Vendor, device_name};
pub use other_drivers::OtherDriver;
pub use roots::Roots;
pub use spec::{ContainerEdits, Device, DeviceNode, Hook, Mount, Spec};
