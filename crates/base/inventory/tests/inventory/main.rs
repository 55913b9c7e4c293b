//! What is published of real, derived and random machines.
// Clippy sees tests only in functions with #[test], not in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod any_machine;
mod api_limits;
mod changes;
mod held;
mod layout;
mod managed;
mod mig;
mod mig_models;
mod nvidia_names;
mod pool;
mod shared;
mod topology;

use tessera_fakes::known_machines;
