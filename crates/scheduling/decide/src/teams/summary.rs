//! What teams use, for the status of GpuQuotas.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tessera_api::fleet_view::TeamView;
use tessera_api::gpu_quota::{AmountStatus, Unit};
use tessera_cluster::Kind;
use tessera_placement::Time;

use super::{Amount, Team, count};
use crate::state::State;

/// Use of a quota.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuotaSummary {
    /// By amount, in the order of the spec.
    pub amounts: Vec<AmountSummary>,
    /// Number of its namespaces, those of its children included.
    pub namespaces: usize,
    /// Number of the team's pods that wait for devices.
    pub waiting: usize,
    /// Thousandths of the use of all teams, by weight.
    pub share: u64,
    /// GPU hours; `None` until they are known to a leader.
    pub hours: Option<HoursSummary>,
    /// GPU hours of a period that the team may use; `None` without a budget.
    pub budget: Option<u32>,
    /// The effect of a spent budget, and its end; `None` while hours are left.
    pub spent: Option<String>,
    /// Mistakes in the quota.
    pub problems: Vec<String>,
    /// Quotas that select some of the same namespaces, and which of them decides.
    pub overlaps: Vec<String>,
    /// Guarantees of all teams beyond the cards that exist, by amount.
    pub uncovered: Vec<String>,
    /// Guaranteed cards held by claims that cannot be taken back, by amount.
    pub unenforceable: Vec<String>,
}

/// GPU hours of a quota, with those of its children.
#[derive(Debug, Clone, PartialEq)]
pub struct HoursSummary {
    /// Seconds of a card in the current period.
    pub card_seconds: u64,
    /// The same by product name, as far as the card was known.
    pub models: BTreeMap<String, u64>,
    /// The start of the current period.
    pub since: Time,
    /// Time until which the hours are counted.
    pub as_of: Time,
    /// The last 12 periods, the latest first.
    pub periods: Vec<PeriodSummary>,
    /// Recent use in cards: see [`crate::Decider::with_quota_half_life`].
    pub recent_use: f64,
}

/// GPU hours of an ended period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodSummary {
    /// The start and the end.
    pub span: Range<Time>,
    /// Seconds of a card.
    pub card_seconds: u64,
    /// The same by product name, as far as the card was known.
    pub models: BTreeMap<String, u64>,
}

/// Use of an amount, in millionths of a card or in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmountSummary {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// What is guaranteed.
    pub guaranteed: u64,
    /// The most that may be used, if limited.
    pub limit: Option<u64>,
    /// What is used.
    pub used: u64,
    /// The part of `used` beyond the guarantee.
    pub borrowed: u64,
    /// The part of the guarantee that is not used, as far as others borrow.
    pub lent: u64,
}

impl From<&AmountSummary> for AmountStatus {
    fn from(amount: &AmountSummary) -> Self {
        AmountStatus {
            name: amount.name.clone(),
            guaranteed: amount.unit.text(amount.guaranteed),
            limit: amount.limit.map(|limit| amount.unit.text(limit)),
            used: amount.unit.text(amount.used),
            borrowed: amount.unit.text(amount.borrowed),
            lent: amount.unit.text(amount.lent),
        }
    }
}

/// The teams for display.
pub(crate) fn views(state: &State) -> Vec<TeamView> {
    let teams = &state.world.teams;
    let mut namespaces: Vec<Vec<String>> = vec![Vec::new(); teams.teams.len()];
    for (namespace, team) in &teams.of_namespaces {
        namespaces[*team].push(namespace.clone());
    }
    namespaces.iter_mut().for_each(|names| names.sort_unstable());
    let mut summaries = summaries(state);
    let view = |(team, namespaces): (&Team, Vec<String>)| {
        let summary = summaries.remove(&team.name).unwrap_or_default();
        TeamView {
            name: team.name.clone(),
            parent: team.spec.parent.clone(),
            namespaces,
            amounts: summary.amounts.iter().map(AmountStatus::from).collect(),
            waiting: u32::try_from(summary.waiting).unwrap_or(u32::MAX),
        }
    };
    teams.teams.iter().zip(namespaces).map(view).collect()
}

/// The summary of each quota.
pub(crate) fn summaries(state: &State) -> BTreeMap<String, QuotaSummary> {
    let teams = &state.world.teams;
    let cluster = &state.world.cluster;
    let mut waiting: BTreeMap<usize, usize> = BTreeMap::new();
    for pod in state.waits.pods() {
        let team = teams.team_of(&pod.namespace);
        for team in team.into_iter().chain(teams.get(team).and_then(|team| team.parent)) {
            *waiting.entry(team).or_default() += 1;
        }
    }
    let used = |team: &Team, amount: &Amount| team.used(cluster, amount);
    let borrowed = |team: &Team, amount: &Amount| used(team, amount).saturating_sub(amount.guaranteed);
    // A parent's use is its children's.
    let parents: BTreeSet<usize> = teams.teams.iter().filter_map(|team| team.parent).collect();
    let leaves =
        || teams.teams.iter().enumerate().filter(|(place, _)| !parents.contains(place)).map(|(_, team)| team);
    let all_borrowed = |unit: Unit| {
        let of_team = |team: &Team| {
            let of_unit = team.amounts.iter().filter(|amount| amount.unit == unit);
            let most = of_unit.map(|amount| borrowed(team, amount)).max();
            most.unwrap_or_else(|| count(unit)(team.used_in_all(cluster)))
        };
        // Namespaces in no quota have no guarantee.
        let others = count(unit)(teams.used_by_others(cluster));
        leaves().map(of_team).fold(others, u64::saturating_add)
    };
    let (borrowed_cards, borrowed_memory) = (all_borrowed(Unit::Cards), all_borrowed(Unit::Memory));
    let all_borrowed = |unit: Unit| match unit {
        Unit::Cards => borrowed_cards,
        Unit::Memory => borrowed_memory,
    };
    let total =
        leaves().map(|team| team.share(cluster, &teams.prices).by_weight).fold(0, u64::saturating_add);
    // Nothing is anybody's to lend in no namespace.
    let lent = |team: &Team, amount: &Amount| match team.namespaces.is_empty() {
        true => 0,
        false => amount.guaranteed.saturating_sub(used(team, amount)).min(all_borrowed(amount.unit)),
    };
    let summary = |(place, team): (usize, &Team)| {
        let amount = |amount: &Amount| AmountSummary {
            name: amount.name.clone(),
            unit: amount.unit,
            guaranteed: amount.guaranteed,
            limit: amount.limit,
            used: used(team, amount),
            borrowed: borrowed(team, amount),
            lent: lent(team, amount),
        };
        let summary = QuotaSummary {
            amounts: team.amounts.iter().map(amount).collect(),
            namespaces: team.namespaces.len(),
            waiting: waiting.get(&place).copied().unwrap_or_default(),
            share: (team.share(cluster, &teams.prices).by_weight.saturating_mul(1000))
                .checked_div(total)
                .unwrap_or_default()
                .min(1000),
            hours: teams.hours.summary(team),
            budget: team.spec.budget.as_ref().map(|budget| budget.gpu_hours),
            spent: team.spent_text(),
            problems: team.problems.clone(),
            overlaps: team.overlaps.clone(),
            ..QuotaSummary::default()
        };
        (team.name.clone(), summary)
    };
    let unreadable = cluster.objects().unreadable.iter().filter(|((kind, _), _)| *kind == Kind::GpuQuota);
    let unreadable = unreadable.map(|((_, key), why)| {
        let problems = vec![format!("counts as absent: {why}")];
        (key.name.clone(), QuotaSummary { problems, ..QuotaSummary::default() })
    });
    teams.teams.iter().enumerate().map(summary).chain(unreadable).collect()
}
