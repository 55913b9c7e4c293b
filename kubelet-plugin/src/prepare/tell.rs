//! What people and monitors are told: Events, `status.devices`, metrics, work in flight.
//!
//! In: errors, phases and durations. Out: requests to the API server from tasks of their own, and counters. Touches no journal and no
//! card, and no work waits for it.

pub(super) mod activity;
pub(super) mod claim_events;
mod device_status;
mod metrics;
mod mps_metrics;
mod own_time;
mod unreleased;

pub(super) use activity::Activities;
pub use activity::Activity;
pub(super) use claim_events::claim_reference;
pub use device_status::usage_condition::{UsageCondition, UsageConditionKind};
pub(super) use device_status::{DeviceStatus, usage_condition};
pub use metrics::PrepareMetrics;
pub use mps_metrics::MpsMetrics;
pub(super) use own_time::OwnTime;
pub(super) use unreleased::Unreleased;
