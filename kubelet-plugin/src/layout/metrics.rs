//! Metrics of the cards' MIG layouts.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tessera_kube_util::metrics::add;

use super::status::LayoutState;

/// Metrics of static MIG layouts. Clones share their values.
#[derive(Clone, Debug)]
pub struct LayoutMetrics {
    /// 1 while the file of MIG layouts, or the node's label with a layout's name, can't be read.
    pub(super) file_wrong: Gauge,
    cards: Family<StateLabel, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

impl LayoutMetrics {
    /// Registers the metrics, all zero.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            file_wrong: add(
                registry,
                "mig_layout_file_wrong",
                "1 while the file of MIG layouts or the node's label cannot be read",
            ),
            cards: add(
                registry,
                "mig_layout_cards",
                "Cards that a MIG layout is for, by how far it has come",
            ),
        }
    }

    /// Number of cards whose layout is in this state.
    pub(super) fn cards(&self, state: LayoutState) -> Gauge {
        self.cards.get_or_create(&StateLabel { state: state.as_str() }).clone()
    }
}
