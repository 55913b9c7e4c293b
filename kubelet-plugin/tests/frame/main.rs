//! The plugin's process as a whole, with an emulated machine, a real API server, and a stand-in for the kubelet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod away;
mod command_line;
mod crowd;
mod gpu_pools;
mod hung_card;
mod idle;
mod instances;
mod layouts;
mod managed;
mod node;
mod other_owners;
mod overuse;
mod partitions;
mod plugin;
mod replaced;
mod resets;
mod usage;
mod whole;

use tessera_fakes::machine;
