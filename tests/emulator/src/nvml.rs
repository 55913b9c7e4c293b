//! The functions of `libnvidia-ml.so.1`.
//!
//! Every function of `nvml.h` is exported: functions of the modules here answer from the machine's state, all others
//! report "not supported" like the real library. Every function runs through [`call`], responsible for
//! initialisation, faults, delays and lost cards.

pub mod call;
mod context;
pub mod ffi;
pub mod handle;
pub mod session;

mod clocks;
mod conf_compute;
mod ecc;
mod events;
mod fabric;
mod faults;
mod fields;
mod gpm;
mod identity;
mod lookup;
mod memory;
mod mig;
mod modes;
mod nvlink;
mod pci;
mod pcie;
mod power;
mod processes;
mod system;
mod temperature;
mod topology;
mod unsupported;
mod utilization;
