//! Fair shares: the part of all managed cards due to each team by its weight.
//!
//! **Guarantee**: devices go from a team to one that has less afterwards than the first had before, so nothing goes back and forth.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_api::gpu_quota::{MILLIONTHS, Unit};
use tessera_cluster::worth::Worth;
use tessera_cluster::{Cluster, Key};
use tessera_placement::take_limit::{Rule, TakeLimit};

use super::covered::Covered;
use super::{Allowance, TeamId, Teams, by_weight, count};
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
    among: BTreeSet<TeamId>,
    /// Millionths of a card.
    cards: u64,
}

impl Division {
    /// All managed cards, among teams that have devices or wait for some.
    pub fn of(World { teams, cluster, fleet, handed_over, .. }: &World, waits: &Waits) -> Self {
        let waiting = waits.pods().map(|pod| pod.namespace.as_str());
        let among = cluster.charges().namespaces().chain(waiting).map(|namespace| teams.team_of(namespace));
        let managed =
            handed_over.map(|before| fleet.nodes().map(move |node| node.managed_cards(before).len()));
        let cards: usize = managed.into_iter().flatten().sum();
        Division { among: among.collect(), cards: MILLIONTHS.saturating_mul(cards as u64) }
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
        let part = |all: u64, team: TeamId, among: BTreeSet<TeamId>| {
            let weights: u64 = among.into_iter().map(|other| self.weight(other)).sum();
            let part = u128::from(all) * u128::from(self.weight(team)) / u128::from(weights.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let family = self.family(team);
        let families = division.among.iter().map(|other| self.family(*other)).chain([family]);
        let of_family = part(division.cards, family, families.collect());
        if family == team {
            return of_family;
        }
        let siblings = division.among.iter().copied().filter(|other| self.family(*other) == family);
        part(of_family, team, siblings.chain([team]).collect())
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
