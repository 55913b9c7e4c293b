//! Shares of cards, prepared: the preparer, mps-host as a process, and the driver of an emulated machine with its programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../prepare/support/api.rs"]
#[allow(dead_code)]
mod api;
#[path = "../mps_host/client.rs"]
#[allow(dead_code)]
mod client;
mod container;
mod crash;
#[path = "../prepare/support/disk.rs"]
#[allow(dead_code)]
mod disk;
mod follow;
#[path = "../mps_host/host.rs"]
#[allow(dead_code)]
mod host;
mod mps;
mod node;
mod own;
mod own_bad;
mod root_container;
mod static_partitions;
mod time_slices;
mod without_mps_host;

use tessera_fakes::machine;
