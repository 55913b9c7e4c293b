//! Metrics of the node's MPS daemons, as reported by mps-host.

use std::collections::BTreeMap;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use tessera_kube_util::metrics::add;

/// Metrics of MPS daemons. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct MpsMetrics {
    /// 1 while mps-host answers.
    pub host_up: Gauge,
    daemons: Family<StateLabel, Gauge>,
    /// Processes using a device by MPS.
    pub clients: Gauge,
    /// Running daemons without a report of their clients.
    pub silent_daemons: Gauge,
    /// How often a daemon or its server was restarted.
    pub restarts: Counter,
    /// Number of faults of a client, each ending the contexts of all clients of its server.
    pub server_faults: Counter,
    /// Processes whose contexts were ended because the processes outlived the last share.
    pub clients_ended: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

impl MpsMetrics {
    /// All states of a daemon, as labels.
    pub const STATES: [&'static str; 6] =
        ["starting", "running", "fault", "waiting_for_clients", "failed", "stopping"];

    /// Registers the metrics, all zero.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            host_up: add(registry, "mps_host_up", "1 while mps-host answers"),
            daemons: add(registry, "mps_daemons", "MPS daemons of the node's shared cards and partitions"),
            clients: add(registry, "mps_clients", "Processes that use a shared card or partition by MPS"),
            silent_daemons: add(
                registry,
                "mps_silent_daemons",
                "MPS daemons that run and do not say who their clients are",
            ),
            restarts: add(
                registry,
                "mps_daemon_restarts",
                "Times that an MPS daemon or its server was started again",
            ),
            server_faults: add(
                registry,
                "mps_server_faults",
                "Times that a program faulted, and with it all clients of its MPS server lost their contexts",
            ),
            clients_ended: add(
                registry,
                "mps_clients_ended",
                "Processes that lost their contexts because they outlived the last share of their device",
            ),
        };
        metrics.daemons(&BTreeMap::new());
        metrics
    }

    /// Number of daemons in a state at the last look.
    #[must_use]
    pub fn daemons_in(&self, state: &'static str) -> i64 {
        self.daemons.get_or_create(&StateLabel { state }).get()
    }

    /// Sets the number of daemons in each state.
    pub fn daemons(&self, by_state: &BTreeMap<&'static str, i64>) {
        for state in Self::STATES {
            let count = by_state.get(state).copied().unwrap_or_default();
            self.daemons.get_or_create(&StateLabel { state }).set(count);
        }
    }
}
