//! Metrics of the work on claims: counts and times.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use tessera_kube_util::metrics::{add, timed};

use crate::prepare::{HardwareWork, Operation, Phase, PrepareObserver};

/// Metrics of claims and of changes of cards. Clones share their values.
#[derive(Clone, Debug)]
pub struct PrepareMetrics {
    claims: Family<ClaimLabels, Histogram>,
    phases: Family<PhaseLabels, Histogram>,
    own: Family<OperationLabel, Histogram>,
    hardware: Family<HardwareLabels, Histogram>,
    hardware_present: Family<KindLabel, Gauge>,
    waiting: Family<ReasonLabel, Gauge>,
    /// Devices held by prepared claims.
    pub prepared_devices: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClaimLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    operation: &'static str,
    phase: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HardwareLabels {
    work: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl PrepareMetrics {
    /// Registers the metrics, all zero.
    pub fn register(registry: &mut Registry) -> Self {
        let own = Family::new_with_constructor(fine_histogram as fn() -> Histogram);
        let help = "Time of a claim's work without locks, API server, driver and disk syncs";
        registry.register_with_unit("claim_own_duration", help, Unit::Seconds, own.clone());
        Self {
            claims: timed(registry, "claim_duration", "Time from task start to answer, per claim"),
            phases: timed(registry, "claim_phase_duration", "Time in one phase of a claim's work"),
            own,
            hardware: timed(registry, "hardware_change_duration", "Time of one change of a card"),
            hardware_present: add(
                registry,
                "hardware_present",
                "Partitions, and switched MIG modes, that the journal says are there",
            ),
            waiting: add(registry, "claims_waiting", "Claims whose Prepare waits for something to pass"),
            prepared_devices: add(registry, "prepared_devices", "Devices that prepared claims hold"),
        }
    }

    /// Sets the number of partitions and of switched MIG modes, by kind.
    pub fn hardware_present(&self, present: &[(&'static str, usize)]) {
        for (kind, count) in present {
            let gauge = self.hardware_present.get_or_create(&KindLabel { kind });
            gauge.set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }
}

impl PrepareObserver for PrepareMetrics {
    fn phase(&self, operation: Operation, phase: Phase, succeeded: bool, elapsed: Duration) {
        let outcome = if succeeded { "success" } else { "error" };
        let labels = PhaseLabels { operation: operation.as_str(), phase: phase.as_str(), outcome };
        self.phases.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    fn waiting(&self, reason: &'static str, begins: bool) {
        self.waiting.get_or_create(&ReasonLabel { reason }).inc_by(if begins { 1 } else { -1 });
    }

    fn claim(&self, operation: Operation, outcome: &'static str, elapsed: Duration) {
        let labels = ClaimLabels { operation: operation.as_str(), outcome };
        self.claims.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    fn hardware(&self, work: HardwareWork, outcome: &'static str, elapsed: Duration) {
        let labels = HardwareLabels { work: work.as_str(), outcome };
        self.hardware.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    fn own(&self, operation: Operation, elapsed: Duration) {
        let label = OperationLabel { operation: operation.as_str() };
        self.own.get_or_create(&label).observe(elapsed.as_secs_f64());
    }
}

/// From 0.1 ms to about 0.5 s, in steps fine enough to read a percentile to within a quarter.
fn fine_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 1.25, 39))
}
