//! Manifests written for NVIDIA's DRA driver, on a cluster where Tessera has its name, `gpu.nvidia.com`.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cards;
mod compute_domains;
mod dcgm;
mod partitions;
mod selectors;
mod shared;
mod stage;

use tessera_fakes::machine;
