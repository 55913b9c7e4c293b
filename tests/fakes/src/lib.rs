//! Fakes used by tests instead of hardware.
// Test code: a broken expectation ends the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod disk;
pub mod host;
pub mod known_machines;
pub mod machine;
pub mod poll;
pub mod proxy;
