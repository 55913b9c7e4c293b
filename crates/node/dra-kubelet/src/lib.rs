//! The kubelet's side of a DRA driver: sockets, registration, claims, device health. Nothing here is specific to
//! NVIDIA.
//!
//! ```text
//! socket_paths ─> listening_socket ─┐
//! stale_sockets ────────────────────┤
//!                                   server ─> connections ─> authority ─> HTTP/2, gRPC ─┬─> registration
//!                                                                                       ├─> claims
//!                                                                                       └─> device_health
//! ```
//!
//! `grpc_health` answers gRPC probes on a port: whether the plugin's own sockets answer.
//!
//! In: the kubelet's calls, and the plugin's answers and health of devices. Out: gRPC to the kubelet. May touch
//! sockets and their folders, clock and tasks; neither hardware nor the API server. Wing `node`: may use `base`,
//! never `scheduling`.
#![forbid(unsafe_code)]

pub mod authority;
mod claim;
pub mod claims;
mod connections;
pub mod device_health;
pub mod grpc_health;
pub mod listening_socket;
pub mod metrics;
pub mod probe;
pub mod registration;
pub mod server;
pub mod socket_paths;
mod stale_sockets;

pub use claim::{Answers, ClaimReference, PreparedDevice};
pub use metrics::KubeletMetrics;
