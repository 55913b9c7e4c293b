//! The status of a GpuQuota.

use k8s_openapi::jiff::Timestamp;
use tessera_api::fleet_view::cards;
use tessera_api::gpu_quota::condition::{
    self, COVERED, Condition, ENFORCEABLE, ENOUGH_CARDS, EXCLUSIVE, HELD, NO_OVERLAP, NOTHING_HELD, OVERLAPS,
    TOO_FEW_CARDS,
};
use tessera_api::gpu_quota::{AmountStatus, GpuQuotaStatus, HoursStatus, PeriodStatus};
use tessera_decide::{HoursSummary, PeriodSummary, QuotaSummary, Time};

use crate::status_writer::condition;

/// Seconds between two writes for hours alone.
const HOURS_PAUSE: i64 = 60;

/// The status for a quota of this generation after the status `before`. `now` becomes the time of changed conditions.
#[must_use]
pub fn status(
    generation: Option<i64>,
    before: Option<&GpuQuotaStatus>,
    summary: &QuotaSummary,
    now: Timestamp,
) -> GpuQuotaStatus {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let wanted = GpuQuotaStatus {
        observed_generation: generation,
        amounts: summary.amounts.iter().map(AmountStatus::from).collect(),
        waiting: u32::try_from(summary.waiting).unwrap_or(u32::MAX),
        share: format!("{}.{}", summary.share / 10, summary.share % 10),
        conditions: all_conditions(summary, conditions, now),
        ..GpuQuotaStatus::default()
    };
    with_hours(wanted, before, summary.hours.as_ref(), now)
}

/// The status with the hours, or with those `before` where they need no write: they are unknown here, changed a moment ago or not at all,
/// or are those of a later leader.
fn with_hours(
    wanted: GpuQuotaStatus,
    before: Option<&GpuQuotaStatus>,
    hours: Option<&HoursSummary>,
    now: Timestamp,
) -> GpuQuotaStatus {
    let told = before.map(|before| GpuQuotaStatus {
        hours: before.hours.clone(),
        periods: before.periods.clone(),
        recent_use: before.recent_use.clone(),
        ..wanted.clone()
    });
    let Some(hours) = hours else { return told.unwrap_or(wanted) };
    let fresh = GpuQuotaStatus {
        hours: Some(HoursStatus {
            used: gpu_hours(hours.card_seconds),
            card_seconds: hours.card_seconds,
            since: text(hours.since),
            as_of: text(hours.as_of),
            models: hours.models.clone(),
        }),
        periods: hours.periods.iter().map(period).collect(),
        recent_use: format!("{:.6}", hours.recent_use),
        ..wanted
    };
    let Some((told, known)) = told.and_then(|told| Some((told.clone(), told.hours?))) else { return fresh };
    let Ok(as_of) = known.as_of.parse::<Timestamp>() else { return fresh };
    let second = i64::try_from(hours.as_of.as_secs()).unwrap_or(i64::MAX);
    let counted = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    // This process' own clock goes on where the machine's is set back.
    if as_of > now.max(counted) {
        tracing::warn!(as_of = known.as_of, "a quota's hours are of the future: is a clock wrong?");
        return fresh;
    }
    let is_same = known.since == text(hours.since) && known.card_seconds == hours.card_seconds;
    let is_recent = counted.duration_since(as_of).as_secs() < HOURS_PAUSE && known.since == text(hours.since);
    // A status written for another reason has the hours, too.
    let is_for_hours_alone = before == Some(&told);
    match counted < as_of || is_same || (is_recent && is_for_hours_alone) {
        true => told,
        false => fresh,
    }
}

fn period(past: &PeriodSummary) -> PeriodStatus {
    PeriodStatus {
        since: text(past.span.start),
        until: text(past.span.end),
        used: gpu_hours(past.card_seconds),
        card_seconds: past.card_seconds,
        models: past.models.clone(),
    }
}

fn gpu_hours(card_seconds: u64) -> String {
    cards(card_seconds as f64 / 3600.0)
}

fn text(time: Time) -> String {
    let second = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX).to_string()
}

fn ready(summary: &QuotaSummary, before: &[Condition], now: Timestamp) -> Condition {
    let (verdict, message) = if !summary.problems.is_empty() {
        ((false, condition::MISTAKES), summary.problems.join("; "))
    } else if summary.namespaces == 0 {
        ((false, condition::NOTHING_SELECTED), "selects no namespace".to_owned())
    } else if let Some(spent) = &summary.spent {
        ((false, condition::SPENT), spent.clone())
    } else {
        let noun = if summary.namespaces == 1 { "namespace" } else { "namespaces" };
        ((true, condition::IN_FORCE), format!("holds for {} {noun}", summary.namespaces))
    };
    condition(condition::READY, verdict, &message, before, now)
}

/// [`condition::READY`], and those that are false where there is something to tell.
fn all_conditions(summary: &QuotaSummary, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    let told = |r#type, problems: &[String], (well, bad), message: &str| match problems {
        [] => condition(r#type, (true, well), message, before, now),
        _ => condition(r#type, (false, bad), &problems.join("; "), before, now),
    };
    let no_overlap = "no other quota selects its namespaces";
    let enough = "cards exist for the guarantees of all teams";
    let nothing_held = "claims that cannot be taken back leave the guarantees of all teams";
    vec![
        ready(summary, before, now),
        told(EXCLUSIVE, &summary.overlaps, (NO_OVERLAP, OVERLAPS), no_overlap),
        told(COVERED, &summary.uncovered, (ENOUGH_CARDS, TOO_FEW_CARDS), enough),
        told(ENFORCEABLE, &summary.unenforceable, (NOTHING_HELD, HELD), nothing_held),
    ]
}

#[cfg(test)]
mod tests {
    use tessera_api::gpu_quota::Unit;
    use tessera_decide::AmountSummary;

    use super::*;

    /// 2026-11-28T12:00:00Z.
    const NOON: u64 = 1_795_867_200;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_second(second as i64).unwrap()
    }

    fn summary(card_seconds: u64, as_of: u64) -> QuotaSummary {
        let hours = HoursSummary {
            card_seconds,
            models: [("H100".to_owned(), card_seconds)].into(),
            since: Time::from_secs(NOON - 12 * 3600),
            as_of: Time::from_secs(as_of),
            periods: vec![PeriodSummary {
                span: Time::from_secs(NOON - 36 * 3600)..Time::from_secs(NOON - 12 * 3600),
                card_seconds: 5400,
                models: [("L4".to_owned(), 5400)].into(),
            }],
            recent_use: 1.25,
        };
        QuotaSummary { hours: Some(hours), ..QuotaSummary::default() }
    }

    #[test]
    fn hours_alone_are_written_once_a_minute() {
        let first = status(Some(1), None, &summary(4500, NOON), at(NOON));
        let hours = first.hours.clone().unwrap();
        assert_eq!((hours.used.as_str(), hours.as_of.as_str()), ("1.25", "2026-11-28T12:00:00Z"));
        assert_eq!(first.periods[0].used, "1.50");
        assert_eq!((hours.models["H100"], first.periods[0].models["L4"]), (4500, 5400));
        assert_eq!(
            (first.periods[0].until.as_str(), first.recent_use.as_str()),
            ("2026-11-28T00:00:00Z", "1.250000")
        );
        let after = |summary: &QuotaSummary, second: u64| status(Some(1), Some(&first), summary, at(second));
        assert_eq!(after(&summary(4559, NOON + 59), NOON + 59), first);
        assert_eq!(after(&summary(4560, NOON + 60), NOON + 60).hours.unwrap().card_seconds, 4560);
        assert_eq!(after(&summary(4500, NOON + 600), NOON + 600), first, "nothing was used");
        let waiting = QuotaSummary { waiting: 1, ..summary(4510, NOON + 10) };
        assert_eq!(after(&waiting, NOON + 10).hours.unwrap().card_seconds, 4510, "written anyway");
    }

    /// The machine's clock was set back: this process' own clock goes on.
    #[test]
    fn a_clock_that_is_set_back_writes_no_more_often() {
        let ahead = status(Some(1), None, &summary(4500, NOON + 300), at(NOON));
        assert_eq!(status(Some(1), Some(&ahead), &summary(4510, NOON + 310), at(NOON + 10)), ahead);
    }

    #[test]
    fn a_spent_budget_is_the_state() {
        let spent = QuotaSummary {
            spent: Some("new pods wait until 2026-12-01".to_owned()),
            namespaces: 1,
            ..QuotaSummary::default()
        };
        let ready = &status(Some(1), None, &spent, at(NOON)).conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", condition::SPENT));
        assert_eq!(ready.message, "new pods wait until 2026-12-01");
    }

    #[test]
    fn guarantees_that_cannot_be_kept_are_told() {
        let condition_of = |summary: &QuotaSummary, r#type: &str| {
            let all = status(Some(1), None, summary, at(NOON)).conditions;
            let found = all.into_iter().find(|condition| condition.r#type == r#type).unwrap();
            (found.status, found.reason, found.message)
        };
        let mut summary = QuotaSummary { namespaces: 1, ..QuotaSummary::default() };
        assert_eq!(condition_of(&summary, COVERED).0, "True");
        assert_eq!(condition_of(&summary, ENFORCEABLE).1, NOTHING_HELD);
        summary.uncovered = ["cards: 5.00", "memory: 1Ti"].map(str::to_owned).into();
        let (verdict, reason, message) = condition_of(&summary, COVERED);
        let told = (verdict.as_str(), reason.as_str(), message.as_str());
        assert_eq!(told, ("False", TOO_FEW_CARDS, "cards: 5.00; memory: 1Ti"));
        assert_eq!(condition_of(&summary, condition::READY).0, "True", "no mistake of this quota");
    }

    /// A follower, and a leader of the past.
    #[test]
    fn who_does_not_know_the_hours_changes_none() {
        let first = status(Some(1), None, &summary(4500, NOON), at(NOON));
        for ignorant in [QuotaSummary::default(), summary(9, NOON - 1)] {
            let ignorant = QuotaSummary { waiting: 7, ..ignorant };
            let after = status(Some(1), Some(&first), &ignorant, at(NOON + 300));
            assert_eq!(
                (after.waiting, after.hours, after.periods),
                (7, first.hours.clone(), first.periods.clone())
            );
        }
        // Unless that leader is of the future.
        let after = status(Some(1), Some(&first), &summary(9, NOON - 100), at(NOON - 100));
        assert_eq!(after.hours.unwrap().card_seconds, 9);
    }

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
