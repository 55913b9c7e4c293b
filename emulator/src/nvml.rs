//! The functions of `libnvidia-ml.so.1`.
//!
//! Every function of `nvml.h` is exported: those of the modules here answer from the machine, all others as the real
//! library does for what a card does not support. Functions run in [`call`], which knows about initialisation, faults,
//! delays and lost cards.

pub mod call;
pub mod ffi;
pub mod session;

mod device;
mod identity;
mod system;

pub use self::call::Failure;
