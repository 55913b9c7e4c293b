//! Tessera as its users meet it: installed by helm on a real cluster, with emulated cards, pods really running.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod capacity;
mod container_view;
mod disruption;
mod partitions;
mod publication;
mod sharing;
mod stage;
