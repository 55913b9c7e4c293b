//! The sockets the kubelet talks to: registration and DRA.
//!
//! ```text
//! socket_paths ─> listening_socket ─┐
//! stale_sockets ────────────────────┤
//!                                   server ─> connections ─> authority ─> HTTP/2, gRPC ─┬─> registration
//!                                                                                       ├─> claims
//!                                                                                       └─> device_health
//! ```

pub mod authority;
pub mod claims;
mod connections;
pub mod device_health;
pub mod listening_socket;
pub mod probe;
pub mod registration;
pub mod server;
pub mod socket_paths;
mod stale_sockets;
