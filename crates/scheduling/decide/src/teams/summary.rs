//! What teams use, for the status of GpuQuotas.

use std::collections::BTreeMap;

use tessera_api::gpu_quota::Unit;

use super::{Amount, Team, Teams};
use crate::state::State;

/// Use of a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaSummary {
    /// By amount, in the order of the spec.
    pub amounts: Vec<AmountSummary>,
    /// Number of its namespaces, those of its children included.
    pub namespaces: usize,
    /// Number of the team's pods that wait for devices.
    pub waiting: usize,
    /// Thousandths of the use of all teams, by weight.
    pub share: u64,
    /// Mistakes in the quota.
    pub problems: Vec<String>,
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
    let is_leaf = |team: &Team| {
        !teams
            .teams
            .iter()
            .any(|child| child.parent.is_some_and(|parent| teams.teams[parent].name == team.name))
    };
    // Namespaces in no quota have no guarantee.
    let others = teams.used_by_others(cluster);
    let all_borrowed = |unit: Unit| -> u64 {
        let of_teams = teams.teams.iter().filter(|team| is_leaf(team)).map(|team| {
            let of_unit = team.amounts.iter().filter(|amount| amount.unit == unit);
            of_unit
                .map(|amount| borrowed(team, amount))
                .max()
                .unwrap_or_else(|| team.used_in_all(cluster, unit))
        });
        of_teams.sum::<u64>() + unit_of(unit, others)
    };
    let total: u64 =
        teams.teams.iter().filter(|team| is_leaf(team)).map(|team| team.share(cluster).by_weight).sum();
    let summary = |(place, team): (usize, &Team)| {
        let amount = |amount: &Amount| AmountSummary {
            name: amount.name.clone(),
            unit: amount.unit,
            guaranteed: amount.guaranteed,
            limit: amount.limit,
            used: used(team, amount),
            borrowed: borrowed(team, amount),
            lent: amount.guaranteed.saturating_sub(used(team, amount)).min(all_borrowed(amount.unit)),
        };
        let summary = QuotaSummary {
            amounts: team.amounts.iter().map(amount).collect(),
            namespaces: team.namespaces.len(),
            waiting: waiting.get(&place).copied().unwrap_or_default(),
            share: (team.share(cluster).by_weight.saturating_mul(1000))
                .checked_div(total)
                .unwrap_or_default()
                .min(1000),
            problems: team.problems.clone(),
        };
        (team.name.clone(), summary)
    };
    teams.teams.iter().enumerate().map(summary).collect()
}

fn unit_of(unit: Unit, worth: tessera_cluster::worth::Worth) -> u64 {
    match unit {
        Unit::Cards => worth.cards,
        Unit::Memory => worth.memory,
    }
}

impl Teams {
    fn used_by_others(&self, cluster: &tessera_cluster::Cluster) -> tessera_cluster::worth::Worth {
        let others = cluster.charges().namespaces().filter(|namespace| self.team_of(namespace).is_none());
        let worths = others.flat_map(|namespace| cluster.charges().of_namespace(namespace));
        worths.fold(tessera_cluster::worth::Worth::default(), |sum, (_, worth)| sum + worth)
    }
}

impl Team {
    fn used_in_all(&self, cluster: &tessera_cluster::Cluster, unit: Unit) -> u64 {
        let worths = self.namespaces.iter().flat_map(|namespace| cluster.charges().of_namespace(namespace));
        worths.map(|(_, worth)| unit_of(unit, worth)).sum()
    }
}
