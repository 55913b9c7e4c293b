//! What the container runtime adds to the containers of a claim, as Container Device Interface specs.
//!
//! One transient spec a claim, `<driver>-claim_<uid>.json`, of kind `<driver>/claim`, with one CDI device for each
//! allocated device. A container gets the card of each device it was given, of a partition also the two nodes of
//! the right to use it, the nodes all CUDA programs need
//! (`nvidiactl`, `nvidia-uvm`, …), the driver's files, and these variables:
//!
//! - `GPU_DEVICE_<PCI address>=<uuid>` for each device, `GPU_DEVICE_3B_00=GPU-…`; of a partition
//!   `GPU_DEVICE_3B_00_MIG_1G10GB_6=MIG-…`. The prefix is that of Kubernetes' own
//!   example DRA driver. One variable a device, and not one list: two claims of a container are two specs, and a
//!   variable they share would hold the last one's value.
//! - `NVIDIA_VISIBLE_DEVICES=void`, as NVIDIA's DRA driver sets it: it keeps the older NVIDIA runtime hook, where a node
//!   still has it, from adding every card of the node to images that ask for `all`.
//!
//! The types are our own: the spec is a public format, and what a spec needs of it is small.

mod capabilities;
mod claim_spec;
mod device_nodes;
mod directory;
mod driver_files;
mod error;
mod names;
mod roots;
mod spec;
mod version;

pub use capabilities::{CapabilityError, partition_nodes};
pub use claim_spec::{ClaimSpecDevice, claim_spec};
pub use directory::{Directory, SpecFile};
pub use driver_files::{DriverFiles, DriverFilesSource, find_driver_files};
pub use error::CdiError;
pub use names::{CLASS, Vendor, device_name};
pub use roots::Roots;
pub use spec::{ContainerEdits, Device, DeviceNode, Hook, Mount, Spec};
