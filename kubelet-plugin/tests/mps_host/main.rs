//! `kubelet-plugin mps-host` as a process, with the driver's MPS programs of an emulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bad;
mod client;
mod containers;
mod deaths;
mod host;
mod hostile;
#[path = "../../../nvml/tests/emulator/machine.rs"]
#[allow(dead_code)]
mod machine;
mod partitions;
mod roots;
mod sharing;
mod traces;
