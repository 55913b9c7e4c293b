//! What the publisher says of itself, as metrics, and how long the first publishing took.

use std::time::Instant;

use tokio::sync::watch;

use crate::{
    metrics::Metrics,
    publish::{PublishStatus, Role},
};

/// Follows `status` until the publisher is gone.
pub async fn follow(mut status: watch::Receiver<PublishStatus>, metrics: Metrics, started: Instant) {
    let mut first = true;
    let mut before = PublishStatus::default();
    loop {
        let now = status.borrow_and_update().clone();
        if first && now.in_sync && now.role == Role::Publishing {
            first = false;
            tracing::info!(
                slices = now.slices,
                devices = now.devices,
                since_start_ms = started.elapsed().as_secs_f64() * 1e3,
                "ResourceSlices published"
            );
        }
        metrics.published_slices.set(now.slices.try_into().unwrap_or(i64::MAX));
        metrics.published_devices.set(now.devices.try_into().unwrap_or(i64::MAX));
        metrics.publishing.set((now.role == Role::Publishing).into());
        metrics.published_in_sync.set(now.in_sync.into());
        metrics.slice_writes.inc_by(now.writes.saturating_sub(before.writes));
        metrics.slice_request_failures.inc_by(now.failures.saturating_sub(before.failures));
        metrics.slice_repairs.inc_by(now.repairs.saturating_sub(before.repairs));
        before = now;
        if status.changed().await.is_err() {
            return;
        }
    }
}
