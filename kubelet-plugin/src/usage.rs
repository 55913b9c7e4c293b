//! What the node's cards do, and what claims use of them: looked up in one sweep for all readers.
//!
//! ```text
//! Nvml ──> look (card by card, on a thread that may hang) ──┐
//! journal ──> claims ──> their devices ──────────────────────┼─> Report ─┬─> OpenMetrics (/metrics)
//! /proc ──> pods of processes, where cards are shared ───────┘           └─> NodeUsage  (/usage)
//! ```
//!
//! Readers get the last report, so that none of them costs a call of the driver, and what is gone has no series any more.

mod claims;
mod collector;
mod counter;
mod look;
mod metrics;
mod pods;
mod report;
mod sweep;

pub use collector::UsageCollector;
pub use metrics::UsageMetrics;
pub use report::{CardReport, ClaimReport, DeviceReport, Report};
pub use sweep::UsageSweep;
