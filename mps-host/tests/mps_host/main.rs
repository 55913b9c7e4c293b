//! `mps-host` as a process, with the driver's MPS programs of an emulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bad;
mod containers;
mod deaths;
mod hostile;
mod partitions;
mod roots;
mod sharing;
mod traces;

use tessera_fakes::{client, host, machine};
