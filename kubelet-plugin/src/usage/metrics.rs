use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::{Registry, Unit};
use tessera_kube_util::metrics::add;
use tokio::sync::watch;

use super::{Report, UsageCollector};

/// Metrics of card and claim activity, and of the sweep itself. Clones share their values.
#[derive(Clone, Debug)]
pub struct UsageMetrics {
    failures: Family<FigureLabel, Counter>,
    duration: Gauge<f64, AtomicU64>,
    at: Gauge<f64, AtomicU64>,
    /// The last report, whence the figures of cards and claims come.
    pub report: watch::Sender<Option<Arc<Report>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FigureLabel {
    figure: &'static str,
}

impl UsageMetrics {
    /// Registers the metrics, without figures before the first sweep.
    pub fn register(registry: &mut Registry) -> Self {
        let report = watch::Sender::new(None);
        registry.register_collector(Box::new(UsageCollector::new(report.subscribe())));
        let duration = Gauge::default();
        let help = "How long the last look at what cards do took, with waiting for the driver";
        registry.register_with_unit("usage_sweep_duration", help, Unit::Seconds, duration.clone());
        let at = Gauge::default();
        let help = "Unix time of the last look at what cards do";
        registry.register_with_unit("usage_timestamp", help, Unit::Seconds, at.clone());
        Self {
            at,
            failures: add(
                registry,
                "usage_failures",
                "Figures of a card that the driver could not tell, other than those that it does not have",
            ),
            duration,
            report,
        }
    }

    /// Counts an unreadable figure.
    pub fn failed(&self, figure: &'static str) {
        self.failures.get_or_create(&FigureLabel { figure }).inc();
    }

    /// Records the duration and report of a sweep.
    pub fn swept(&self, took: Duration, report: Report) {
        self.duration.set(took.as_secs_f64());
        self.at.set(report.at as f64);
        self.report.send_replace(Some(Arc::new(report)));
    }
}
