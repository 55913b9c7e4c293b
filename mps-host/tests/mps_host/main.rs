//! `kubelet-plugin mps-host` as a process, with the driver's MPS programs of an emulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bad;
mod client;
mod containers;
mod deaths;
mod host;
mod hostile;
mod partitions;
mod roots;
mod sharing;
mod traces;

use tessera_fakes::machine;
