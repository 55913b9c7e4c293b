//! Tessera as users see it: installed by helm on a real cluster, with emulated cards and running pods.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod capacity;
mod claim_of_many;
mod claims_in_use;
mod configured_sharing;
mod container_view;
mod dashboards;
mod disruption;
mod mps_shares;
mod node_labels;
mod partitions;
mod program;
mod publication;
mod share_disruption;
mod shares;
mod sharing;
mod stage;
mod time_slices;
