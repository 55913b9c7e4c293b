//! Bodies of the fuzz targets, run on one input, and a runner for a few seconds on stable Rust; see README.md.
// Test code: a broken expectation ends the test.
#![allow(clippy::expect_used, clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod allocate;
mod choices;
pub mod claims;
pub mod selectors;
pub mod slices;
pub mod time_boxed;
