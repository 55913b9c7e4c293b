//! Metrics of the kubelet's calls.

use std::time::Instant;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tessera_kube_util::metrics::{add, timed};

/// Metrics of calls, connections and registration. Clones share their values.
#[derive(Clone, Debug)]
pub struct KubeletMetrics {
    calls: Family<CallLabels, Histogram>,
    calls_in_flight: Family<MethodLabel, Gauge>,
    /// 1 while the kubelet has this instance registered.
    pub registered: Gauge,
    /// Registrations refused by the kubelet.
    pub registrations_refused: Counter,
    /// Connections open on the two sockets.
    pub connections: Gauge,
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

/// A running gRPC call; counted when dropped.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct CallInFlight {
    metrics: KubeletMetrics,
    method: &'static str,
    outcome: &'static str,
    since: Instant,
}

impl KubeletMetrics {
    /// All zero, and registered in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            calls: timed(registry, "grpc_call_duration", "Time to answer a call of the kubelet"),
            calls_in_flight: add(registry, "grpc_calls_in_flight", "Calls of the kubelet that are running"),
            registered: add(registry, "registered", "1 while the kubelet has this instance registered"),
            registrations_refused: add(
                registry,
                "registrations_refused",
                "Registrations the kubelet refused",
            ),
            connections: add(registry, "socket_connections", "Open connections on the plugin's sockets"),
        }
    }

    /// Counts a call of the kubelet when the answer is dropped: as cancelled unless [`CallInFlight::answered`] was
    /// called.
    pub fn call(&self, method: &'static str) -> CallInFlight {
        self.calls_in_flight.get_or_create(&MethodLabel { method }).inc();
        CallInFlight { metrics: self.clone(), method, outcome: "cancelled", since: Instant::now() }
    }
}

impl CallInFlight {
    /// The call was answered: `succeeded` when every claim succeeded.
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
