//! A machine with emulated NVIDIA cards.
//!
//! Built as a `cdylib`, this crate is the `libnvidia-ml.so.1` of such a machine: every NVML program loading it sees
//! the cards written down by `gpu-emulator create`. The binaries use the same code as a library. Nobody else may: the
//! emulator is reached through its library file and its programs, like the real driver.

pub mod cli;
pub mod cuda;
pub mod directory;
pub mod failure;
pub mod machine;
pub mod mig;
pub mod mps;
pub mod mps_programs;
pub mod nvml;
pub mod smi;
pub mod state;

pub use tessera_hardware as hardware;
