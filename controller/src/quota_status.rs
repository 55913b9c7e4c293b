//! The status of a GpuQuota.

use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_quota::condition::{self, Condition};
use tessera_api::gpu_quota::{AmountStatus, GpuQuotaStatus};
use tessera_decide::QuotaSummary;

use crate::status_writer::condition;

/// The status for a quota of this generation after the status `before`. `now` becomes the time of changed conditions.
#[must_use]
pub fn status(
    generation: Option<i64>,
    before: Option<&GpuQuotaStatus>,
    summary: &QuotaSummary,
    now: Timestamp,
) -> GpuQuotaStatus {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    GpuQuotaStatus {
        observed_generation: generation,
        amounts: summary.amounts.iter().map(AmountStatus::from).collect(),
        waiting: u32::try_from(summary.waiting).unwrap_or(u32::MAX),
        share: format!("{}.{}", summary.share / 10, summary.share % 10),
        conditions: vec![ready(summary, conditions, now), exclusive(summary, conditions, now)],
    }
}

fn ready(summary: &QuotaSummary, before: &[Condition], now: Timestamp) -> Condition {
    let (verdict, message) = if !summary.problems.is_empty() {
        ((false, condition::MISTAKES), summary.problems.join("; "))
    } else if summary.namespaces == 0 {
        ((false, condition::NOTHING_SELECTED), "selects no namespace".to_owned())
    } else {
        let noun = if summary.namespaces == 1 { "namespace" } else { "namespaces" };
        ((true, condition::IN_FORCE), format!("holds for {} {noun}", summary.namespaces))
    };
    condition(condition::READY, verdict, &message, before, now)
}

fn exclusive(summary: &QuotaSummary, before: &[Condition], now: Timestamp) -> Condition {
    let verdict = match summary.overlaps.is_empty() {
        true => (true, condition::NO_OVERLAP),
        false => (false, condition::OVERLAPS),
    };
    let message = match summary.overlaps.is_empty() {
        true => "no other quota selects its namespaces".to_owned(),
        false => summary.overlaps.join("; "),
    };
    condition(condition::EXCLUSIVE, verdict, &message, before, now)
}

#[cfg(test)]
mod tests {
    use tessera_api::gpu_quota::Unit;
    use tessera_decide::AmountSummary;

    use super::*;

    #[test]
    fn amounts_are_told_as_users_write_them() {
        let amount = AmountSummary {
            name: "memory".to_owned(),
            unit: Unit::Memory,
            guaranteed: 80 << 30,
            limit: None,
            used: 120 << 30,
            borrowed: 40 << 30,
            lent: 0,
        };
        let summary =
            QuotaSummary { amounts: vec![amount], namespaces: 1, share: 333, ..QuotaSummary::default() };
        let status = status(Some(2), None, &summary, Timestamp::UNIX_EPOCH);
        let told = &status.amounts[0];
        assert_eq!((told.used.as_str(), told.borrowed.as_str(), told.lent.as_str()), ("120Gi", "40Gi", "0"));
        assert_eq!((status.share.as_str(), status.conditions[0].reason.as_str()), ("33.3", "InForce"));
    }
}
