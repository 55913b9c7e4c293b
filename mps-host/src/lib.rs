//! MPS (Multi-Process Service): runs and looks after one control daemon for each shared card or partition.
//!
//! ```text
//! kubelet-plugin ──client──> host.sock ──> supervisor ────nvidia-cuda-mps-control──> daemon of a card ──> server
//!                                              │  restarted by                              ▲
//!                                              └── mps-host: pid 1 of its pod, reaps ───────┘
//! ```
//!
//! `mps-host` is a process of its own in a pod of its own, so that neither an upgrade of the plugin nor a crash of
//! anything here ends the daemons, and with them every client on the cards. It only reaps processes and restarts its
//! child, the supervisor. A new supervisor finds the running daemons again by their directories.
#![forbid(unsafe_code)]

mod abandoned;
mod census;
pub mod client;
mod client_process;
pub mod command;
mod compute_mode;
mod control;
mod control_output;
mod device;
mod directory;
mod driver;
mod error;
mod keeper;
pub mod launch;
mod logs;
pub mod options;
mod other_root;
mod partitions;
mod processes;
pub mod protocol;
mod readopt;
pub mod reaper;
mod record;
mod remove;
mod serve;
mod server_watch;
mod shared_memory;
mod slot;
mod start;
mod stop;
pub mod supervise;
mod supervisor;
mod wire;

pub use abandoned::{Abandoned, AbandonedError, end_abandoned};
pub use client_process::pod_uid;
pub use device::{DeviceUuid, InvalidDeviceUuid};
pub use directory::{DEFAULT_DIRECTORY, SOCKET};
