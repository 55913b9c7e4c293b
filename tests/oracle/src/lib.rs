//! Kubernetes' own allocator and CEL environment, as a program queried by tests, and the tests' requests.
//!
//! The program is the Go module of this folder, on `k8s.io/dynamic-resource-allocation`, built once into the cache
//! for each queried release.
// Test code: a broken expectation ends the test.
#![allow(clippy::expect_used)]
#![forbid(unsafe_code)]

pub mod ours;
pub mod program;
pub mod requests;
mod running;

pub use requests::Generator;
pub use running::Oracle;
