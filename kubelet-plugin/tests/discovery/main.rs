//! From an emulated machine's driver and `/sys` to the facts that are published.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod facts;
#[path = "../../../nvml/tests/emulator/machine.rs"]
mod machine;
mod mig;
mod pools;
mod running;
