//! Common parts of Tessera's programs: the API server's client and version, Events, node labels, leader election, backoff,
//! logging, tasks with a common end, and an HTTP endpoint for untrusted clients. Nothing here is specific to NVIDIA.
//!
//! In: arguments, objects of the API server, HTTP requests. Out: watches, writes, Events, log lines, answers. May touch
//! API server, network, clock, signals and standard error, and starts tasks; no hardware. Wing `base`: may use
//! neither `node` nor `scheduling`.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod backoff;
pub mod client;
pub mod error_text;
pub mod events;
pub mod http_server;
pub mod incoming;
pub mod lease;
pub mod logging;
pub mod metrics;
pub mod node_labels;
pub mod objects;
pub mod open_files;
pub mod probe_command;
pub mod retry;
pub mod server_version;
pub mod signals;
pub mod tasks;
