//! Shares of cards, prepared with the real mps-host and the driver and programs of an emulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod consumable;
mod container;
mod crash;
mod follow;
mod host_away;
mod mps;
mod node;
mod own;
mod own_bad;
mod root_container;
mod static_partitions;
mod time_slices;
mod without_mps_host;

use tessera_fakes::{api, client, disk, host, machine};
