//! Stubs of NVIDIA's MPS control daemon, its shell and its server.
//!
//! Commands, options, environment variables, files and texts visible to users are those of the real programs (NVIDIA's MPS
//! documentation, its man page, and listings of a running daemon's directories).
//!
//! ```text
//! nvidia-cuda-mps-control (shell) ──control_privileged──> nvidia-cuda-mps-control -d ──pipes──> nvidia-cuda-mps-server
//! cuda-sample (client) ──────────────────control────────────────┘                                    │
//!          └──────────────────────────────server-PID──────────────────────────────────────────────────┘
//! ```

pub mod control;
mod daemon;
mod log;
pub mod server;
mod shell;
