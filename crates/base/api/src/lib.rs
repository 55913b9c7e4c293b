//! Names, attributes and addresses visible to users of Tessera: the contract between the parts of the driver, its
//! DeviceClasses and the claims written against them. Also [`facts`]: the types in which the parts of the driver
//! describe cards.
//!
//! In: names, quantities and configuration as users and drivers write them. Out: types, or an error for the user.
//! Pure: no I/O, no clock, no threads, nothing of Kubernetes' client types. Wing `base`, at the bottom: uses no
//! other crate of Tessera.
#![forbid(unsafe_code)]

pub mod attribute;
pub mod capacity;
mod card_name;
pub mod condition;
pub mod config;
pub mod conversion;
pub mod counter;
mod device_name;
pub mod device_status;
mod device_type;
pub mod facts;
pub mod fleet_view;
pub mod gang;
pub mod gpu_pool;
pub mod gpu_quota;
pub mod health;
pub mod kubernetes;
pub mod kueue;
pub mod label_selector;
pub mod limits;
pub mod managed;
pub mod node_report;
pub mod offer;
mod partition_name;
mod pci_bus_id;
mod profile_spelling;
pub mod quantity;
pub mod steering;
pub mod taint;
pub mod usage;
pub mod version;
pub mod waiting;

pub use device_name::{DeviceName, DeviceNameError};
pub use device_type::DeviceType;
pub use gpu_pool::GpuPoolSpec;
pub use gpu_quota::GpuQuotaSpec;
pub use node_report::NodeReport;
pub use offer::Offer;
pub use partition_name::{ExistingInstance, PartitionName};
pub use pci_bus_id::{PciBusId, PciBusIdError};
pub use profile_spelling::{ProfileSpelling, ProfileSpellingError};
pub use quantity::Quantity;

/// API group of Tessera's own kinds, whatever the driver's name.
pub const API_GROUP: &str = "gpu.tessera.dev";
/// Default name of the DRA driver (chart value `driverName`), and the domain of every
/// unqualified attribute and capacity name.
pub const DEFAULT_DRIVER_NAME: &str = "gpu.tessera.dev";
