//! What the plugin counts and times, for Prometheus. All names start with `tessera_`.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};

mod mps;

use crate::layout::LayoutState;
use crate::prepare::{HardwareWork, Operation, Phase, PrepareObserver};

pub use mps::MpsMetrics;

/// Every metric of the plugin. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    claims: Family<ClaimLabels, Histogram>,
    phases: Family<PhaseLabels, Histogram>,
    own: Family<OperationLabel, Histogram>,
    hardware: Family<HardwareLabels, Histogram>,
    hardware_present: Family<KindLabel, Gauge>,
    waiting: Family<ReasonLabel, Gauge>,
    calls: Family<CallLabels, Histogram>,
    calls_in_flight: Family<MethodLabel, Gauge>,
    hardware_failures: Family<ReasonLabel, Counter>,
    /// Devices that prepared claims hold.
    pub prepared_devices: Gauge,
    /// Devices in the slices as last published.
    pub published_devices: Gauge,
    /// Slices as last published, those of counters included.
    pub published_slices: Gauge,
    /// 1 while this instance is the one that publishes.
    pub publishing: Gauge,
    /// 1 while the API server holds exactly what can be published.
    pub published_in_sync: Gauge,
    /// Requests that changed slices.
    pub slice_writes: Counter,
    /// Requests about slices that failed.
    pub slice_request_failures: Counter,
    /// Times that slices were put back because somebody else had changed or deleted them.
    pub slice_repairs: Counter,
    /// 1 while the kubelet has this instance registered.
    pub registered: Gauge,
    /// Registrations that the kubelet refused.
    pub registrations_refused: Counter,
    /// Connections open on the two sockets.
    pub connections: Gauge,
    /// Connections for metrics and probes that were closed at once, since too many were open.
    pub http_connections_refused: Counter,
    /// 1 while the driver library is open and answers.
    pub hardware_ready: Gauge,
    /// Cards that answered when the hardware was last read.
    pub cards: Gauge,
    /// Cards about which a call of the driver hangs.
    pub cards_not_answering: Gauge,
    /// Unix time of the last look at the hardware in which every call of the driver returned.
    pub last_complete_look: Gauge<f64, AtomicU64>,
    /// 1 while the file of MIG layouts, or the node's label that names one, can't be read.
    pub layout_file_wrong: Gauge,
    layout_cards: Family<StateLabel, Gauge>,
    /// MPS daemons.
    pub mps: MpsMetrics,
    /// Tasks that panicked.
    pub panics: Counter,
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
struct CallLabels {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// A gRPC call while it runs; counted when it is dropped.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct CallInFlight {
    metrics: Metrics,
    method: &'static str,
    outcome: &'static str,
    since: std::time::Instant,
}

impl Metrics {
    /// A set of metrics, all zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tessera");
        let info = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The plugin's version", info);
        let seconds = || Unit::Seconds;
        Self {
            claims: timed(
                &mut registry,
                "claim_duration",
                "Time from task start to answer, per claim",
                seconds(),
            ),
            phases: timed(
                &mut registry,
                "claim_phase_duration",
                "Time in one phase of a claim's work",
                seconds(),
            ),
            own: {
                let own = Family::new_with_constructor(fine_histogram as fn() -> Histogram);
                let help = "Time of a claim's work without locks, API server, driver and disk syncs";
                registry.register_with_unit("claim_own_duration", help, seconds(), own.clone());
                own
            },
            hardware: timed(
                &mut registry,
                "hardware_change_duration",
                "Time of one change of a card",
                seconds(),
            ),
            hardware_present: add(
                &mut registry,
                "hardware_present",
                "Partitions, and switched MIG modes, that the journal says are there",
            ),
            waiting: add(&mut registry, "claims_waiting", "Claims whose Prepare waits for something to pass"),
            calls: timed(
                &mut registry,
                "grpc_call_duration",
                "Time to answer a call of the kubelet",
                seconds(),
            ),
            calls_in_flight: add(
                &mut registry,
                "grpc_calls_in_flight",
                "Calls of the kubelet that are running",
            ),
            hardware_failures: add(
                &mut registry,
                "hardware_failures",
                "Failed attempts to read the hardware",
            ),
            prepared_devices: add(&mut registry, "prepared_devices", "Devices that prepared claims hold"),
            published_devices: add(
                &mut registry,
                "published_devices",
                "Devices in this node's ResourceSlices",
            ),
            published_slices: add(&mut registry, "published_slices", "ResourceSlices of this node"),
            publishing: add(
                &mut registry,
                "publishing",
                "1 while this instance publishes the ResourceSlices",
            ),
            published_in_sync: add(
                &mut registry,
                "published_in_sync",
                "1 while the ResourceSlices are as they shall be",
            ),
            slice_writes: add(&mut registry, "resourceslice_writes", "Requests that changed ResourceSlices"),
            slice_request_failures: add(
                &mut registry,
                "resourceslice_request_failures",
                "Failed requests about ResourceSlices",
            ),
            slice_repairs: add(
                &mut registry,
                "resourceslice_repairs",
                "Times that ResourceSlices were put back after somebody else changed them",
            ),
            registered: add(&mut registry, "registered", "1 while the kubelet has this instance registered"),
            registrations_refused: add(
                &mut registry,
                "registrations_refused",
                "Registrations the kubelet refused",
            ),
            connections: add(&mut registry, "socket_connections", "Open connections on the plugin's sockets"),
            http_connections_refused: add(
                &mut registry,
                "http_connections_refused",
                "Connections for metrics and probes that were closed because too many were open",
            ),
            hardware_ready: add(&mut registry, "hardware_ready", "1 while the driver library answers"),
            cards: add(&mut registry, "cards", "Cards that answered when the hardware was last read"),
            cards_not_answering: add(
                &mut registry,
                "cards_not_answering",
                "Cards about which a call of the driver does not return",
            ),
            last_complete_look: {
                let look = Gauge::default();
                let help =
                    "Unix time of the last look at the hardware in which every call of the driver returned";
                registry.register_with_unit("last_complete_look_timestamp", help, seconds(), look.clone());
                look
            },
            layout_file_wrong: add(
                &mut registry,
                "mig_layout_file_wrong",
                "1 while the file of MIG layouts or the node's label cannot be read",
            ),
            layout_cards: add(
                &mut registry,
                "mig_layout_cards",
                "Cards that a MIG layout is for, by how far it has come",
            ),
            mps: MpsMetrics::register(&mut registry),
            panics: add(&mut registry, "panics", "Tasks that panicked"),
            registry: Arc::new(registry),
        }
    }

    /// The metrics as Prometheus reads them.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a call of the kubelet until the answer is dropped; as cancelled unless told otherwise.
    pub fn call(&self, method: &'static str) -> CallInFlight {
        self.calls_in_flight.get_or_create(&MethodLabel { method }).inc();
        CallInFlight { metrics: self.clone(), method, outcome: "cancelled", since: std::time::Instant::now() }
    }

    /// Tells how many partitions and switches of MIG mode there are, by kind.
    pub fn hardware_present(&self, present: &[(&'static str, usize)]) {
        for (kind, count) in present {
            let gauge = self.hardware_present.get_or_create(&KindLabel { kind });
            gauge.set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// Cards whose MIG layout is in this state.
    pub(crate) fn layout_cards(&self, state: LayoutState) -> Gauge {
        self.layout_cards.get_or_create(&StateLabel { state: state.as_str() }).clone()
    }

    /// Counts a failed attempt to read the hardware.
    pub fn hardware_failed(&self, reason: &'static str) {
        self.hardware_failures.get_or_create(&ReasonLabel { reason }).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl PrepareObserver for Metrics {
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

impl CallInFlight {
    /// The call was answered: every claim succeeded, or some failed.
    pub fn answered(mut self, succeeded: bool) {
        self.outcome = if succeeded { "success" } else { "error" };
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        let Self { metrics, method, outcome, since } = self;
        metrics.calls_in_flight.get_or_create(&MethodLabel { method }).dec();
        let labels = CallLabels { method, outcome };
        metrics.calls.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
    }
}

fn add<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: prometheus_client::registry::Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// A family of histograms from 0.1 ms to about 52 s, past the kubelet's deadline of 45 s.
fn timed<L>(registry: &mut Registry, name: &str, help: &str, unit: Unit) -> Family<L, Histogram>
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + fmt::Debug + Send + Sync + 'static,
{
    let family = Family::new_with_constructor(histogram as fn() -> Histogram);
    registry.register_with_unit(name, help, unit, family.clone());
    family
}

fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 20))
}

/// From 0.1 ms to about 0.5 s, in steps fine enough to tell a percentile within a quarter.
fn fine_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 1.25, 39))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_units() {
        let metrics = Metrics::new();
        metrics.phase(Operation::Prepare, Phase::Journal, true, Duration::from_millis(3));
        metrics.claim(Operation::Unprepare, "success", Duration::from_millis(3));
        metrics.own(Operation::Prepare, Duration::from_millis(1));
        metrics.waiting("held", true);
        metrics.waiting("held", true);
        metrics.waiting("held", false);
        metrics.call("NodePrepareResources").answered(false);
        metrics.hardware_failed("not_found");
        metrics.hardware(HardwareWork::MakePartition, "card_busy", Duration::from_secs(1));
        metrics.hardware_present(&[("mig_partition", 7)]);
        metrics.mps.daemons(&[("failed", 2)].into());
        metrics.mps.restarts.inc();
        metrics.registered.set(1);
        metrics.last_complete_look.set(1.5e9);
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
            "tessera_hardware_failures_total{reason=\"not_found\"} 1",
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
        drop(metrics.call("NodePrepareResources"));
        let text = metrics.encode().unwrap();
        assert!(text.contains("method=\"NodePrepareResources\",outcome=\"cancelled\"} 1"), "{text}");
    }
}
