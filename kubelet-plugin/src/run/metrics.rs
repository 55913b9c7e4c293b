//! All metrics of the plugin, for Prometheus. Each part registers its own; all names start with `tessera_`.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, gauge::Gauge, info::Info},
    registry::Registry,
};
use tessera_dra_kubelet::KubeletMetrics;
use tessera_kube_util::metrics::add;

use super::{hardware_looks::LookMetrics, other_owners::OwnerMetrics, published_metrics::PublishedMetrics};
use crate::{
    driver::DriverMetrics,
    layout::LayoutMetrics,
    prepare::{MpsMetrics, PrepareMetrics},
    usage::UsageMetrics,
};

/// The metrics of all parts. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// The driver library.
    pub driver: DriverMetrics,
    /// Looks at the cards.
    pub looks: LookMetrics,
    /// Other owners of the cards.
    pub owners: OwnerMetrics,
    /// Static MIG layouts.
    pub layout: LayoutMetrics,
    /// Calls of the kubelet.
    pub kubelet: KubeletMetrics,
    /// Work on claims.
    pub prepare: PrepareMetrics,
    /// MPS daemons.
    pub mps: MpsMetrics,
    /// Activity of cards and claims.
    pub usage: UsageMetrics,
    /// ResourceSlices.
    pub published: PublishedMetrics,
    /// Cards that answered in the last look.
    pub cards: Gauge,
    /// Connections for metrics and probes that were closed at once because too many were open.
    pub http_connections_refused: Counter,
    /// Panics; each one is a bug.
    pub panics: Counter,
}

impl Metrics {
    /// Registers all metrics, all zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tessera");
        let info = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The plugin's version", info);
        Self {
            driver: DriverMetrics::register(&mut registry),
            looks: LookMetrics::register(&mut registry),
            owners: OwnerMetrics::register(&mut registry),
            layout: LayoutMetrics::register(&mut registry),
            kubelet: KubeletMetrics::register(&mut registry),
            prepare: PrepareMetrics::register(&mut registry),
            mps: MpsMetrics::register(&mut registry),
            usage: UsageMetrics::register(&mut registry),
            published: PublishedMetrics::register(&mut registry),
            cards: add(&mut registry, "cards", "Cards that answered when the hardware was last read"),
            http_connections_refused: add(
                &mut registry,
                "http_connections_refused",
                "Connections for metrics and probes that were closed because too many were open",
            ),
            panics: add(&mut registry, "panics", "Tasks that panicked"),
            registry: Arc::new(registry),
        }
    }

    /// The metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::prepare::{HardwareWork, Operation, Phase, PrepareObserver as _};

    #[test]
    fn names_labels_and_units() {
        let metrics = Metrics::new();
        metrics.prepare.phase(Operation::Prepare, Phase::Journal, true, Duration::from_millis(3));
        metrics.prepare.claim(Operation::Unprepare, "success", Duration::from_millis(3));
        metrics.prepare.own(Operation::Prepare, Duration::from_millis(1));
        metrics.prepare.waiting("held", true);
        metrics.prepare.waiting("held", true);
        metrics.prepare.waiting("held", false);
        metrics.kubelet.call("NodePrepareResources").answered(false);
        metrics.prepare.hardware(HardwareWork::MakePartition, "card_busy", Duration::from_secs(1));
        metrics.prepare.hardware_present(&[("mig_partition", 7)]);
        metrics.mps.daemons(&[("failed", 2)].into());
        metrics.mps.restarts.inc();
        metrics.kubelet.registered.set(1);
        metrics.looks.last_complete.set(1.5e9);
        let text = metrics.encode().unwrap();
        for line in [
            "tessera_build_info{version=\"0.1.0\"} 1",
            "tessera_claim_phase_duration_seconds_count{operation=\"prepare\",phase=\"journal\",outcome=\"success\"} 1",
            "tessera_claim_duration_seconds_count{operation=\"unprepare\",outcome=\"success\"} 1",
            "tessera_grpc_call_duration_seconds_count{method=\"NodePrepareResources\",outcome=\"error\"} 1",
            "tessera_claim_own_duration_seconds_count{operation=\"prepare\"} 1",
            "tessera_claims_waiting{reason=\"held\"} 1",
            "tessera_grpc_calls_in_flight{method=\"NodePrepareResources\"} 0",
            "tessera_hardware_change_duration_seconds_count{work=\"make_partition\",outcome=\"card_busy\"} 1",
            "tessera_hardware_present{kind=\"mig_partition\"} 7",
            "tessera_mps_daemons{state=\"failed\"} 2",
            "tessera_mps_daemons{state=\"running\"} 0",
            "tessera_mps_daemon_restarts_total 1",
            "tessera_last_complete_look_timestamp_seconds 1500000000.0",
            "tessera_mps_host_up 0",
            "tessera_registered 1",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
        assert!(text.lines().filter(|l| !l.starts_with('#')).all(|l| l.starts_with("tessera_")), "{text}");
    }

    #[test]
    fn a_dropped_call_counts_as_cancelled() {
        let metrics = Metrics::new();
        drop(metrics.kubelet.call("NodePrepareResources"));
        let text = metrics.encode().unwrap();
        assert!(text.contains("method=\"NodePrepareResources\",outcome=\"cancelled\"} 1"), "{text}");
    }
}
