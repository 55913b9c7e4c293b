//! What the API and a claim's author asked for.
//!
//! In: a claim's reference, its object in the API, the cards as published and as the driver describes them. Out: the allocated
//! devices with their needs. Only reads: the API server, the journal, the driver.

pub(super) mod allocation;
pub(super) mod api;
pub(super) mod config;
pub(super) mod limits;
pub(super) mod need;
pub(super) mod own;
pub(super) mod profiles;
pub(super) mod reference;
