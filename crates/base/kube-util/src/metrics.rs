//! Helpers for Prometheus metrics, used by all programs of Tessera.

use std::{fmt, hash::Hash};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};

/// Registers a metric with the initial value zero.
pub fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// A family of histograms in seconds, from 0.1 ms to about 52 s: past the kubelet's deadline of 45 s.
pub fn timed<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Histogram>
where
    L: EncodeLabelSet + Clone + Hash + Eq + fmt::Debug + Send + Sync + 'static,
{
    let family = Family::new_with_constructor(histogram as fn() -> Histogram);
    registry.register_with_unit(name, help, Unit::Seconds, family.clone());
    family
}

fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 20))
}
