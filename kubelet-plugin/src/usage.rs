//! Activity of the node's cards and their use by claims: read in one sweep for all readers.
//!
//! ```text
//! Nvml ──> look (card by card, on a thread that may hang) ──┐
//! journal ──> claims ──> their devices ──────────────────────┼─> Report ─┬─> OpenMetrics (/metrics)
//! /proc ──> pods of processes, where cards are shared ───────┘           └─> NodeUsage  (/usage)
//! ```
//!
//! The reports also say which claims are idle (`idle_follower`), and which hold more memory than their part (`overuse_follower`). Readers get the last report, so no reader costs a call of the driver, and removed cards and claims have no series any more.

mod claims;
mod collector;
mod counter;
mod idle;
mod idle_follower;
mod look;
mod metrics;
mod overuse;
mod overuse_follower;
mod pods;
mod report;
mod sweep;
mod teller;

pub use collector::UsageCollector;
pub use idle_follower::IdleFollower;
pub use metrics::UsageMetrics;
pub use overuse_follower::OveruseFollower;
pub use report::{CardReport, ClaimReport, DeviceReport, Report};
pub use sweep::UsageSweep;
pub use teller::Teller;
