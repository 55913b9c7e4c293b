//! Manifests written for NVIDIA's DRA driver, on a cluster where Tessera has its name, `gpu.nvidia.com`.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cards;
#[path = "../../../nvml/tests/emulator/machine.rs"]
#[allow(dead_code, reason = "shared with the driver's own tests, which use more of it")]
mod machine;
mod partitions;
mod selectors;
mod shared;
mod stage;
