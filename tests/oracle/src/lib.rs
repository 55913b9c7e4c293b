//! Kubernetes' own allocator and CEL environment, as a program that tests ask, and what they ask it.
//!
//! The program is the Go module of this folder, on `k8s.io/dynamic-resource-allocation`; it is built once into the cache
//! for each release that is asked.
// Test code: a broken expectation ends the test.
#![allow(clippy::expect_used)]
#![forbid(unsafe_code)]

pub mod ours;
pub mod program;
pub mod requests;
mod running;

pub use requests::Generator;
pub use running::Oracle;
