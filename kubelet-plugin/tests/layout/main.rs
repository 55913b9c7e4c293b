//! Static layouts on emulated machines: from the file to partitions, through the driver's library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod combinations;
mod interrupted;
#[allow(dead_code)]
#[path = "../../../nvml/tests/emulator/machine.rs"]
mod machine;
mod node;
mod obstacles;
mod usual;
