//! `cuda-sample`: a program using an emulated card as a CUDA program uses a real one.
//!
//! Computes nothing. The program allocates memory, keeps a card busy, and fails where a CUDA program would: at a card whose
//! compute mode excludes it, beyond its memory limit, when another client of its MPS server faults.

pub mod client;
pub mod contexts;
pub mod device;
pub mod direct;
pub mod library;
pub mod machine;
pub mod program;

pub use program::main;
