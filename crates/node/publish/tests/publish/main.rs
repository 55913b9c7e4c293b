//! The publisher against a real API server, through a proxy where the server has to misbehave.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests, not only tests")]

mod answers;
mod features;
mod instances;
mod log;
mod proxy;
mod publishing;
mod rivals;
mod support;
