//! Fair shares: the part of all managed cards due to each team by its weight.
//!
//! **Guarantee**: devices go from a team to one that has less afterwards than the first had before, so nothing goes back and forth.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_api::gpu_quota::{MILLIONTHS, Unit};
use tessera_cluster::worth::Worth;
use tessera_cluster::{Cluster, Key};
use tessera_placement::take_limit::{Rule, TakeLimit};

use super::covered::Covered;
use super::{Allowance, Amount, Team, TeamId, Teams, by_weight, count, used};
use crate::waits::Waits;
use crate::world::World;

/// How much devices are taken back for a team from others that borrow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReclaimTo {
    /// What is guaranteed to it.
    #[default]
    Guarantee,
    /// Its fair share, too: its part of all managed cards by weight, beside teams that have some or wait.
    FairShare,
}

/// Cards to be shared, and the teams among which.
#[derive(Debug)]
pub(crate) struct Division {
    /// Millionths of a card asked for: what a team uses, while none of its pods wait; else as much as its limits allow.
    asked: BTreeMap<TeamId, u64>,
    /// Millionths of a card.
    cards: u64,
}

impl Division {
    /// All managed cards, among teams that have devices or wait for some.
    pub fn of(World { teams, cluster, fleet, handed_over, .. }: &World, waits: &Waits) -> Self {
        let mut asked: BTreeMap<TeamId, u64> = BTreeMap::new();
        let waiting = waits.pods().map(|pod| (pod.namespace.as_str(), u64::MAX));
        let using = cluster.charges().namespaces();
        let using = using.map(|namespace| (namespace, used(cluster, [namespace].into_iter()).cards));
        for (namespace, cards) in using.chain(waiting) {
            let sum = asked.entry(teams.team_of(namespace)).or_default();
            *sum = sum.saturating_add(cards);
        }
        for (team, asked) in &mut asked {
            *asked = teams.get(*team).map_or(*asked, |team| team.within_limits(*asked));
        }
        let managed =
            handed_over.map(|before| fleet.nodes().map(move |node| node.managed_cards(before).len()));
        let cards: usize = managed.into_iter().flatten().sum();
        Division { asked, cards: MILLIONTHS.saturating_mul(cards as u64) }
    }
}

/// A team beside the one whose part is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Other {
    weight: u64,
    asked: u64,
}

impl Other {
    /// Who asks for less by weight comes first.
    fn cmp_by_weight(&self, other: &Self) -> Ordering {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        product(self.asked, other.weight).cmp(&product(other.asked, self.weight))
    }
}

/// The part of the whole by weight due to a team of this weight, which asks for all. What the others do not ask for is divided, too.
fn part(whole: u64, weight: u64, mut others: Vec<Other>) -> u64 {
    others.sort_by(Other::cmp_by_weight);
    let mut weights: u64 = others.iter().map(|other| other.weight).sum::<u64>() + weight;
    let mut left = whole;
    let by_weight = |left: u64, weight: u64, weights: u64| {
        let part = u128::from(left) * u128::from(weight) / u128::from(weights.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    for other in others {
        if other.asked >= by_weight(left, other.weight, weights) {
            break;
        }
        left -= other.asked;
        weights -= other.weight;
    }
    by_weight(left, weight, weights)
}

impl Team {
    /// The least of these millionths of a card and the limits in cards of any kind.
    fn within_limits(&self, cards: u64) -> u64 {
        let of_all = |amount: &&Amount| amount.unit == Unit::Cards && amount.covers.is_everything();
        self.amounts.iter().filter(of_all).filter_map(|amount| amount.limit).fold(cards, u64::min)
    }
}

impl Teams {
    fn weight(&self, team: TeamId) -> u64 {
        self.get(team).map_or(1, |found| found.weight)
    }

    /// The team's parent; itself without one.
    pub fn family(&self, team: TeamId) -> TeamId {
        self.get(team).and_then(|found| found.parent).or(team)
    }

    /// Millionths of a card used by the team.
    fn cards_of(&self, cluster: &Cluster, team: TeamId) -> u64 {
        let used: Worth = match self.get(team) {
            Some(found) => found.used_in_all(cluster),
            None => self.used_by_others(cluster),
        };
        used.cards
    }

    /// The team's fair share, in millionths of a card. Children divide that of their parent.
    fn fair_share(&self, team: TeamId, division: &Division) -> u64 {
        let share = |team: TeamId, asked: u64| Other { weight: self.weight(team), asked };
        let family = self.family(team);
        let mut families: BTreeMap<TeamId, u64> = BTreeMap::new();
        for (other, asked) in &division.asked {
            let sum = families.entry(self.family(*other)).or_default();
            *sum = sum.saturating_add(*asked);
        }
        families.remove(&family);
        let within_limits = |(other, asked): (TeamId, u64)| {
            share(other, self.get(other).map_or(asked, |other| other.within_limits(asked)))
        };
        let others = families.into_iter().map(within_limits).collect();
        let of_family = part(division.cards, self.weight(family), others);
        if family == team {
            return of_family;
        }
        let siblings =
            division.asked.iter().filter(|(other, _)| **other != team && self.family(**other) == family);
        part(of_family, self.weight(team), siblings.map(|(other, asked)| share(*other, *asked)).collect())
    }

    /// The limits on what the namespace's team may take within its fair share, beside its own and its parent's; `None` for a namespace
    /// in no quota.
    pub fn fair_limit(&self, driver: &str, namespace: &str, division: &Division) -> Option<TakeLimit> {
        let team = self.team_of(namespace);
        let mut limit = self.limit(namespace, Allowance::Limits).unwrap_or_default();
        limit.rules.push(Rule {
            namespaces: self.get(team)?.namespaces.clone(),
            covers: Arc::new(Covered::new(driver, None).ok()?),
            count: count(Unit::Cards),
            most: self.fair_share(team, division),
        });
        Some(limit)
    }

    /// Whether the team, with this many millionths of a card more, has less by weight than the other has now. Of other parents the parents
    /// are compared.
    pub fn would_have_less(&self, cluster: &Cluster, team: TeamId, more: u64, other: TeamId) -> bool {
        let (own, others) = match (self.family(team), self.family(other)) {
            (family, same) if family == same => (team, other),
            families => families,
        };
        let share = |team: TeamId, more: u64| {
            by_weight(self.cards_of(cluster, team).saturating_add(more), self.weight(team))
        };
        team != other && share(own, more) < share(others, 0)
    }

    /// The same beside the teams of all these pods.
    pub fn would_have_less_than_all<'k>(
        &self,
        cluster: &Cluster,
        (team, more): (TeamId, u64),
        others: impl Iterator<Item = &'k Key>,
    ) -> bool {
        let teams: BTreeSet<TeamId> = others.map(|pod| self.team_of(&pod.namespace)).collect();
        teams.into_iter().all(|other| self.would_have_less(cluster, team, more, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_do_not_ask_for_is_divided_by_weight() {
        const ALL: u64 = u64::MAX;
        for (whole, weight, others, wanted) in [
            (12, 1, vec![], 12),
            (12, 1, vec![(1, ALL), (1, ALL)], 4),
            (12, 2, vec![(1, ALL), (1, ALL)], 6),
            // One asks for less than its part, and then another does, too.
            (12, 1, vec![(1, 2), (1, ALL)], 5),
            (12, 1, vec![(1, ALL), (1, 2)], 5),
            (12, 2, vec![(2, 1), (1, 3), (1, ALL)], 5),
            (12, 1, vec![(1, 0), (1, 1)], 11),
            // More than its part is as good as all.
            (12, 1, vec![(1, 5), (1, 11)], 4),
            (12, 1, vec![(3, 9), (2, 6)], 2),
            (0, 1, vec![(1, ALL)], 0),
            (ALL, 1, vec![(1, ALL)], ALL / 2),
        ] {
            let shares = others.iter().map(|(weight, asked)| Other { weight: *weight, asked: *asked });
            assert_eq!(part(whole, weight, shares.collect()), wanted, "{whole}, {weight} beside {others:?}");
        }
    }
}
