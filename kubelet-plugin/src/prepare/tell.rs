//! What people and monitors are told: Events, `status.devices`, metrics, work in flight.
//!
//! In: errors, phases and durations. Out: requests to the API server from tasks of their own, and counters. Touches no journal and no
//! card, and no work waits for it.

pub(super) mod activity;
pub(super) mod claim_events;
pub(super) mod device_status;
pub(super) mod metrics;
pub(super) mod mps_metrics;
pub(super) mod own_time;
pub(super) mod unreleased;
