//! The whole way through the emulator's `libnvidia-ml.so.1`, as with the real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod activity;
mod events;
mod faults;
mod mig;
mod mig_faults;
mod readings;
mod telemetry;

use tessera_fakes::machine;
