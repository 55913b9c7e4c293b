//! The status of a GpuPool.

use k8s_openapi::jiff::Timestamp;
use tessera_api::fleet_view::cards;
use tessera_api::gpu_pool::condition::{self, Condition};
use tessera_api::gpu_pool::{GpuPoolStatus, UnmetDemand};
use tessera_decide::{PoolSummary, PoolVerdict};

use crate::status_writer::condition;

/// The status for a pool of this generation after the status `before`. `now` becomes the time of changed conditions.
#[must_use]
pub fn status(
    generation: Option<i64>,
    before: Option<&GpuPoolStatus>,
    summary: &PoolSummary,
    now: Timestamp,
) -> GpuPoolStatus {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let cards = |thousandths: u64| cards(thousandths as f64 / 1000.0);
    let unmet = summary.unmet.iter().map(|shape| UnmetDemand { shape: shape.text.clone(), pods: shape.pods });
    GpuPoolStatus {
        observed_generation: generation,
        nodes: summary.nodes,
        cards: summary.cards,
        offered: summary.offered,
        allocated: cards(summary.allocated),
        unallocatable: cards(summary.unallocatable),
        unmet_demand: unmet.collect(),
        conditions: vec![ready(summary, conditions, now)],
    }
}

fn ready(summary: &PoolSummary, before: &[Condition], now: Timestamp) -> Condition {
    let PoolVerdict { is_ready, reason, message } = summary.verdict();
    condition(condition::READY, (is_ready, reason), &message, before, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let well = PoolSummary { nodes: 1, cards: 2, allocated: 1255, ..PoolSummary::default() };
        let first = status(Some(1), None, &well, Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_second(60).unwrap();
        let again = status(Some(1), Some(&first), &well, later);
        assert_eq!(again, first);
        assert_eq!(again.allocated, "1.26", "as `kubectl gpu top` has it");
        let ill = status(Some(1), Some(&first), &PoolSummary::default(), later);
        assert_eq!(ill.conditions[0].last_transition_time, "1970-01-01T00:01:00Z");
    }
}
