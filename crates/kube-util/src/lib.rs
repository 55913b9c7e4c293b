//! What every program of Tessera needs beside its own work: the API server's client, Events, labels of the node, back-off,
//! log lines, tasks that end together, and an HTTP endpoint that anybody may connect to. Nothing of NVIDIA is in here.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod backoff;
pub mod client;
pub mod error_text;
pub mod events;
pub mod http_server;
pub mod incoming;
pub mod logging;
pub mod metrics;
pub mod node_label;
pub mod open_files;
pub mod retry;
pub mod signals;
pub mod tasks;
