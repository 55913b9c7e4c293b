//! Reports looks at the hardware as metrics.

use std::{
    sync::atomic::AtomicU64,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::watch;

use prometheus_client::{
    metrics::gauge::Gauge,
    registry::{Registry, Unit},
};
use tessera_kube_util::metrics::add;

use crate::discovery::Looks;

/// Metrics of the looks at the cards. Clones share their values.
#[derive(Clone, Debug)]
pub struct LookMetrics {
    not_answering: Gauge,
    unknown_recoveries: Gauge,
    /// Unix time of the last look in which every call of the driver returned.
    pub(super) last_complete: Gauge<f64, AtomicU64>,
}

impl LookMetrics {
    /// Registers the metrics, all zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let last_complete = Gauge::default();
        let help = "Unix time of the last look at the hardware in which every call of the driver returned";
        registry.register_with_unit(
            "last_complete_look_timestamp",
            help,
            Unit::Seconds,
            last_complete.clone(),
        );
        Self {
            not_answering: add(
                registry,
                "cards_not_answering",
                "Cards about which a call of the driver does not return",
            ),
            unknown_recoveries: add(
                registry,
                "cards_with_unknown_recovery",
                "Cards for which the driver recommends a recovery by a number that this version does not know",
            ),
            last_complete,
        }
    }
}

/// Follows `looks` until discovery ends.
pub async fn follow(mut looks: watch::Receiver<Looks>, metrics: LookMetrics) {
    while looks.changed().await.is_ok() {
        let Looks { complete, hanging, unknown_recoveries, .. } = looks.borrow_and_update().clone();
        metrics.not_answering.set(hanging.len().try_into().unwrap_or(i64::MAX));
        metrics.unknown_recoveries.set(unknown_recoveries.len().try_into().unwrap_or(i64::MAX));
        let time = complete.and_then(|at: Instant| SystemTime::now().checked_sub(at.elapsed()));
        if let Some(since) = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()) {
            metrics.last_complete.set(since.as_secs_f64());
        }
    }
}
