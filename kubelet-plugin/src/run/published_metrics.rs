//! Metrics of the publisher, including how long the first publication took.

use std::time::Instant;

use tokio::sync::watch;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tessera_kube_util::metrics::add;

use tessera_publish::{PublishStatus, Role};

/// Metrics of the publisher. Clones share their values.
#[derive(Clone, Debug)]
pub struct PublishedMetrics {
    devices: Gauge,
    slices: Gauge,
    publishing: Gauge,
    in_sync: Gauge,
    writes: Counter,
    request_failures: Counter,
    repairs: Counter,
}

impl PublishedMetrics {
    /// Registers the metrics, all zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            devices: add(registry, "published_devices", "Devices in this node's ResourceSlices"),
            slices: add(registry, "published_slices", "ResourceSlices of this node"),
            publishing: add(registry, "publishing", "1 while this instance publishes the ResourceSlices"),
            in_sync: add(registry, "published_in_sync", "1 while the ResourceSlices are as they shall be"),
            writes: add(registry, "resourceslice_writes", "Requests that changed ResourceSlices"),
            request_failures: add(
                registry,
                "resourceslice_request_failures",
                "Failed requests about ResourceSlices",
            ),
            repairs: add(
                registry,
                "resourceslice_repairs",
                "Times that ResourceSlices were put back after somebody else changed them",
            ),
        }
    }
}

/// Follows `status` until the publisher ends.
pub async fn follow(mut status: watch::Receiver<PublishStatus>, metrics: PublishedMetrics, started: Instant) {
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
        metrics.slices.set(now.slices.try_into().unwrap_or(i64::MAX));
        metrics.devices.set(now.devices.try_into().unwrap_or(i64::MAX));
        metrics.publishing.set((now.role == Role::Publishing).into());
        metrics.in_sync.set(now.in_sync.into());
        metrics.writes.inc_by(now.writes.saturating_sub(before.writes));
        metrics.request_failures.inc_by(now.failures.saturating_sub(before.failures));
        metrics.repairs.inc_by(now.repairs.saturating_sub(before.repairs));
        before = now;
        if status.changed().await.is_err() {
            return;
        }
    }
}
