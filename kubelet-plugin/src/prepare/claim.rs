//! What the API and a claim's author asked for.
//!
//! In: a claim's reference, its object in the API, the cards as published and as the driver describes them. Out: the allocated
//! devices with their needs. Only reads: the API server, the journal, the driver.

mod allocation;
pub(super) mod api;
mod config;
mod limits;
mod need;
mod own;
mod profiles;
pub(super) mod reference;

pub(super) use allocation::{AllocatedDevice, allocated_devices, is_of_allocation, recorded_devices};
pub(super) use api::{Found, is_leaving};
pub(super) use limits::{ShareLimits, most, static_shares};
pub(super) use need::{DeviceNeed, PartitionNeed, needs};
pub(super) use own::{OwnDaemon, OwnSharing};
pub(super) use profiles::Profiles;
