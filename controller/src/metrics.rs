//! The controller's metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_kube_util::metrics::add;
use tokio::sync::watch;

use crate::decide_loop::Summaries;
use crate::quota_metrics::QuotaCollector;

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Intents by outcome.
    pub outcomes: Family<OutcomeLabels, Counter>,
    /// Pods with our gate.
    pub waiting: Gauge,
    /// Creation of the oldest waiting pod, in seconds since the Unix epoch; 0 while no pod waits.
    pub oldest_waiting: Gauge,
    /// Pods released from the gate and not bound yet.
    pub on_their_way: Gauge,
    /// 1 while this replica is the leader.
    pub leads: Gauge,
    /// Duration of one round of decisions.
    pub round: Histogram,
    /// Time slices spent on a view of the fleet, delaying decisions.
    pub view_step: Histogram,
    /// Unusable objects.
    pub unusable: Counter,
    /// Writes to ResourceClaims rejected by the API server for a lasting reason.
    pub claims_refused: Counter,
    /// Writes to pods rejected by the API server for a lasting reason.
    pub pods_refused: Counter,
    /// Seconds of a card allocated to each namespace, while there are GpuQuotas.
    pub card_seconds: Family<NamespaceLabels, Counter>,
    /// Seconds of a card kept busy by each namespace, at the same times as [`Self::card_seconds`].
    pub busy_card_seconds: Family<NamespaceLabels, Counter<f64, AtomicU64>>,
    /// Panics.
    pub panics: Counter,
    /// Refused connections for metrics.
    pub http_connections_refused: Counter,
    /// Use of GpuQuotas, while this replica is the leader.
    pub quotas: watch::Sender<Option<Summaries>>,
    registry: Arc<Registry>,
}

/// Labels of [`Metrics::card_seconds`] and [`Metrics::busy_card_seconds`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NamespaceLabels {
    /// The namespace.
    pub namespace: String,
}

/// Labels of [`Metrics::outcomes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// Outcome of the intent.
    pub outcome: Outcome,
}

/// Outcome of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// A node was proposed and the gate removed.
    Steered,
    /// Devices were allocated in a managed pool.
    Allocated,
    /// Devices kube-scheduler could not use were deallocated.
    TakenBack,
    /// A pod whose devices could not be prepared was evicted.
    Evicted,
    /// The gate was removed without a proposal.
    Released,
    /// A write failed, and the decision is made anew.
    Failed,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tessera_controller");
        let round = Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        registry.register_with_unit("round", "Time of one round of decisions", Unit::Seconds, round.clone());
        let view_step = Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        registry.register_with_unit(
            "fleet_view_step",
            "Time for which decisions wait for a view of the fleet, at a time",
            Unit::Seconds,
            view_step.clone(),
        );
        let quotas = watch::Sender::new(None);
        registry.register_collector(Box::new(QuotaCollector(quotas.subscribe())));
        Metrics {
            outcomes: add(&mut registry, "pods", "Pods by what was done for them"),
            waiting: add(&mut registry, "gated_pods", "Pods that wait with the steering gate"),
            oldest_waiting: add(
                &mut registry,
                "oldest_waiting_pod_timestamp_seconds",
                "Unix time at which the oldest waiting pod was created; 0 while none waits",
            ),
            on_their_way: add(&mut registry, "steered_pods_unbound", "Steered pods that are not bound yet"),
            leads: add(&mut registry, "leads", "1 while this replica leads"),
            unusable: add(&mut registry, "unusable_objects", "Objects that cannot be used"),
            claims_refused: add(
                &mut registry,
                "claims_refused",
                "Writes to ResourceClaims that the API server refused for a reason that stays",
            ),
            pods_refused: add(
                &mut registry,
                "pods_refused",
                "Writes to pods that the API server refused for a reason that stays",
            ),
            card_seconds: add(
                &mut registry,
                "allocated_card_seconds",
                "Time for which cards, or parts of them, were allocated, while this replica led and there were GpuQuotas",
            ),
            busy_card_seconds: add(
                &mut registry,
                "busy_card_seconds",
                "Allocated time for which multiprocessors were busy, as far as measured, while this replica led and there were GpuQuotas",
            ),
            panics: add(&mut registry, "panics", "Panics"),
            http_connections_refused: add(
                &mut registry,
                "http_connections_refused",
                "Connections for metrics that were refused",
            ),
            quotas,
            round,
            view_step,
            registry: Arc::new(registry),
        }
    }

    /// Sets the seconds of a card by namespace. `told`: the namespaces of the call before: those that are gone have no series any more.
    pub fn set_card_seconds<'n>(
        &self,
        of_namespaces: impl Iterator<Item = (&'n str, u64)>,
        told: &mut BTreeSet<String>,
    ) {
        let before = std::mem::take(told);
        for (namespace, seconds) in of_namespaces {
            let labels = NamespaceLabels { namespace: namespace.to_owned() };
            self.card_seconds.get_or_create(&labels).inner().store(seconds, Ordering::Relaxed);
            told.insert(labels.namespace);
        }
        for namespace in before.difference(told).cloned() {
            let labels = NamespaceLabels { namespace };
            self.card_seconds.remove(&labels);
            self.busy_card_seconds.remove(&labels);
        }
    }

    /// Adds seconds of a card kept busy, by namespace.
    pub fn add_busy<'n>(&self, of_namespaces: impl Iterator<Item = (&'n str, f64)>) {
        for (namespace, seconds) in of_namespaces {
            let labels = NamespaceLabels { namespace: namespace.to_owned() };
            self.busy_card_seconds.get_or_create(&labels).inc_by(seconds);
        }
    }

    /// Encodes the metrics in the text format of OpenMetrics.
    ///
    /// # Errors
    /// Never, as far as known. The library's signature allows errors.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_gone_has_no_series() {
        let metrics = Metrics::new();
        let mut told = BTreeSet::new();
        metrics.set_card_seconds([("vision", 60), ("nlp", 5)].into_iter(), &mut told);
        metrics.add_busy([("nlp", 2.5), ("vision", 1.25), ("vision", 1.25)].into_iter());
        metrics.set_card_seconds([("vision", 90)].into_iter(), &mut told);
        let text = metrics.encode().unwrap();
        for line in [
            "allocated_card_seconds_total{namespace=\"vision\"} 90\n",
            "busy_card_seconds_total{namespace=\"vision\"} 2.5\n",
        ] {
            assert!(text.contains(line) && !text.contains("nlp"), "{line}: {text}");
        }
    }
}
