//! MPS on an emulated machine: daemon, server and clients as processes, looked at as an administrator would.
#![allow(clippy::unwrap_used, missing_docs)]

mod client;
mod daemon;
mod lifecycle;
mod limits;
mod modes;
mod partitions;
mod utilization;
