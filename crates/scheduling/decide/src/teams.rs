//! Teams: the namespaces of each GpuQuota together, what they may take, and whose turn it is.
//!
//! **Guarantees**
//! 1. The use of now is in no book: it is the sum of the charges of all holds ([`tessera_cluster::Charges`]), expected ones among them, so a plan of this
//!    round counts for the next plan.
//! 2. A limit is checked where devices are chosen, trials included ([`tessera_placement::take_limit`]).
//! 3. Without any GpuQuota nothing is charged, and all namespaces are alike.

mod book;
mod borrowed;
mod budget;
mod covered;
mod fair_share;
mod hours;
mod prices;
mod resolve;
mod shortfalls;
mod summary;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_quota::{GpuQuotaSpec, Unit};
use tessera_cluster::Cluster;
use tessera_cluster::worth::Worth;
use tessera_placement::Time;
use tessera_placement::take_limit::{Covers, Rule, TakeLimit};

pub(crate) use book::CardTime;
pub(crate) use borrowed::{Allowance, Borrowers, allowance, charge_of, limit_text, may_borrow};
pub(crate) use budget::{Start, deadline};
pub(crate) use fair_share::Division;
pub use fair_share::ReclaimTo;
pub(crate) use prices::Prices;
pub(crate) use shortfalls::add_shortfalls;
pub use summary::{AmountSummary, HoursSummary, PeriodSummary, QuotaSummary};
pub(crate) use summary::{summaries, views};

/// Place of a namespace's teams in the queue: of the parent, then of the team itself. The least goes first; whether the team has its guarantee
/// comes before its parent's use.
pub(crate) type Place = [Share; 2];

/// Use of a team.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    /// Whether the team has what is guaranteed to it.
    is_above_guarantee: bool,
    /// Recent use ([`book::Recent`]), by weight, in the unit of the next.
    recent: u64,
    /// Thousandths of a millionth of a card, by weight, as often as cards count by their prices.
    by_weight: u64,
}

/// Whose devices are counted together: a GpuQuota by its index, or `None` for all namespaces in no quota.
pub(crate) type TeamId = Option<usize>;

/// All teams.
#[derive(Debug)]
pub(crate) struct Teams {
    /// By name of the quota.
    teams: Vec<Team>,
    of_namespaces: HashMap<String, usize>,
    /// Whether quotas or namespaces changed since.
    is_outdated: bool,
    /// Devices are not taken back before: a mistake in a quota just written must not evict anybody.
    reclaim_from: Time,
    /// How long nothing is taken back after a quota changed.
    pub grace: Time,
    /// Priority classes of pods that no quota refuses.
    pub exempt: BTreeSet<String>,
    pub reclaim_to: ReclaimTo,
    pub prices: Prices,
    pub hours: hours::Hours,
}

impl Default for Teams {
    fn default() -> Self {
        Teams {
            teams: Vec::new(),
            of_namespaces: HashMap::new(),
            is_outdated: false,
            reclaim_from: Time::ZERO,
            grace: Time::from_secs(60),
            exempt: BTreeSet::new(),
            reclaim_to: ReclaimTo::default(),
            prices: Prices::default(),
            hours: hours::Hours::default(),
        }
    }
}

/// The namespaces of a quota.
#[derive(Debug)]
pub(crate) struct Team {
    pub name: String,
    weight: u64,
    parent: Option<usize>,
    /// Its namespaces, those of its children included.
    namespaces: Arc<[String]>,
    amounts: Vec<Amount>,
    /// How long borrowed devices may be used before they are taken back.
    pub min_runtime: Time,
    spec: GpuQuotaSpec,
    /// Mistakes in the quota.
    problems: Vec<String>,
    /// Quotas that select some of the same namespaces.
    overlaps: Vec<String>,
    /// `None` until the first round in which it is known.
    book: Option<book::Book>,
    budget_state: budget::BudgetState,
}

/// Devices counted for a quota.
#[derive(Debug)]
struct Amount {
    name: String,
    unit: Unit,
    /// The guarantee of the spec.
    entitled: u64,
    /// The guarantee now: nothing while a budget is spent ([`Teams::follow_budgets`]).
    guaranteed: u64,
    limit: Option<u64>,
    covers: Arc<covered::Covered>,
}

impl Amount {
    /// This amount of the namespaces, limited to `most`.
    fn rule(&self, namespaces: &Arc<[String]>, most: u64) -> Rule {
        Rule { namespaces: namespaces.clone(), covers: self.covers.clone(), count: count(self.unit), most }
    }
}

/// The number counted of a worth.
fn count(unit: Unit) -> fn(Worth) -> u64 {
    match unit {
        Unit::Cards => |worth| worth.cards,
        Unit::Memory => |worth| worth.memory,
    }
}

/// Use of the namespaces.
fn used<'n>(cluster: &Cluster, namespaces: impl Iterator<Item = &'n str>) -> Worth {
    namespaces.flat_map(|namespace| cluster.charges().of_namespace(namespace)).map(|(_, worth)| worth).sum()
}

/// Millionths of a card, by weight.
fn by_weight(cards: u64, weight: u64) -> u64 {
    cards.saturating_mul(1000) / weight.max(1)
}

impl Team {
    fn used(&self, cluster: &Cluster, amount: &Amount) -> u64 {
        amount.rule(&self.namespaces, 0).taken(cluster)
    }

    fn used_in_all(&self, cluster: &Cluster) -> Worth {
        used(cluster, self.namespaces.iter().map(String::as_str))
    }

    fn share(&self, cluster: &Cluster, prices: &Prices) -> Share {
        let guaranteed: Vec<&Amount> = self.amounts.iter().filter(|amount| amount.guaranteed > 0).collect();
        let is_below = |amount: &&Amount| self.used(cluster, amount) < amount.guaranteed;
        let is_above_guarantee = guaranteed.is_empty() || !guaranteed.iter().all(is_below);
        let recent = self.book.as_ref().map_or(0, |book| by_weight(book.placed, self.weight));
        let taken = prices.of_namespaces(cluster, self.namespaces.iter().map(String::as_str));
        let by_weight = by_weight(taken.by_price, self.weight);
        Share { is_above_guarantee, recent, by_weight }
    }

    /// Whether anything is guaranteed to the team.
    pub fn has_guarantee(&self) -> bool {
        self.amounts.iter().any(|amount| amount.guaranteed > 0)
    }

    pub fn parent(&self) -> TeamId {
        self.parent
    }

    /// Whether other teams count to the same limits.
    pub fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Each guarantee, as a limit.
    fn guarantees(&self) -> Vec<Rule> {
        let guaranteed = self.amounts.iter().filter(|amount| amount.guaranteed > 0);
        guaranteed.map(|amount| amount.rule(&self.namespaces, amount.guaranteed)).collect()
    }

    /// The cards of which something is guaranteed.
    fn guaranteed_cards(&self) -> Vec<Arc<dyn Covers>> {
        let guaranteed = self.amounts.iter().filter(|amount| amount.guaranteed > 0);
        guaranteed.map(|amount| amount.covers.clone() as Arc<dyn Covers>).collect()
    }

    /// The most that may be taken, if anything limits it. Within its guarantee, an amount without one is no limit, unless all are.
    fn most(&self, amount: &Amount, is_own_only: bool) -> Option<u64> {
        let is_guaranteed = amount.guaranteed > 0 || !self.has_guarantee();
        let own = (is_own_only && is_guaranteed).then_some(amount.guaranteed);
        [amount.limit, own].into_iter().flatten().min()
    }

    /// Each limit on the team. `is_own_only`: what is guaranteed is the limit.
    fn rules(&self, is_own_only: bool) -> impl Iterator<Item = Rule> {
        let of_amount =
            move |amount: &Amount| Some(amount.rule(&self.namespaces, self.most(amount, is_own_only)?));
        self.amounts.iter().filter_map(of_amount)
    }
}

impl Teams {
    /// Whether there is no quota.
    pub fn is_empty(&self) -> bool {
        self.teams.is_empty()
    }

    /// Whether quotas charge for the pod, and never refuse it.
    pub fn is_exempt(&self, pod: &Pod) -> bool {
        let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_ref());
        !self.is_empty() && class.is_some_and(|class| self.exempt.contains(class))
    }

    /// Quotas or namespaces changed.
    pub fn mark_outdated(&mut self) {
        self.is_outdated = true;
    }

    /// When devices may be taken back.
    pub fn reclaim_from(&self) -> Time {
        self.reclaim_from
    }

    /// The team of the namespace.
    pub fn team_of(&self, namespace: &str) -> TeamId {
        self.of_namespaces.get(namespace).copied()
    }

    /// Whether the use of one changes the place of the other.
    pub fn is_counted_with(&self, team: TeamId, other: TeamId) -> bool {
        let parent = |team| self.get(team).and_then(|found| found.parent).or(team);
        parent(team) == parent(other)
    }

    /// Whether the rule is on what this team takes.
    pub fn is_rule_of(&self, rule: &Rule, team: TeamId) -> bool {
        self.get(team).is_some_and(|team| Arc::ptr_eq(&rule.namespaces, &team.namespaces))
    }

    pub fn get(&self, team: TeamId) -> Option<&Team> {
        self.teams.get(team?)
    }

    /// The limits on what the namespace's team may take, if any. Nothing is guaranteed to a namespace in no quota.
    pub fn limit(&self, namespace: &str, allowance: Allowance) -> Option<TakeLimit> {
        if allowance == Allowance::Unlimited {
            return None;
        }
        let is_own_only = allowance == Allowance::Guarantee;
        let is_of_parent = allowance == Allowance::ParentGuarantee;
        let nothing = || TakeLimit { rules: Vec::new(), only: Some(Vec::new()) };
        let Some(team) = self.get(self.team_of(namespace)) else {
            return ((is_own_only || is_of_parent) && !self.is_empty()).then(nothing);
        };
        let parent = self.get(team.parent);
        if is_of_parent && (parent.is_none() || team.only_borrows()) {
            return Some(nothing());
        }
        let of_parent = parent.into_iter().flat_map(|parent| parent.rules(is_of_parent));
        let rules: Vec<Rule> = team.rules(is_own_only).chain(of_parent).collect();
        let only = match allowance {
            Allowance::Guarantee => Some(team.guaranteed_cards()),
            Allowance::ParentGuarantee => parent.map(Team::guaranteed_cards),
            Allowance::Limits | Allowance::Unlimited => None,
        };
        (!rules.is_empty() || only.is_some()).then_some(TakeLimit { rules, only })
    }

    /// The team's place in the queue now.
    pub fn place(&self, cluster: &Cluster, team: TeamId) -> Place {
        if self.is_empty() {
            return Place::default();
        }
        let Some(found) = self.get(team) else { return [self.share_of_others(cluster), Share::default()] };
        match self.get(found.parent) {
            Some(parent) => {
                let own = found.share(cluster, &self.prices);
                let mut of_parent = parent.share(cluster, &self.prices);
                of_parent.is_above_guarantee &= own.is_above_guarantee;
                [of_parent, own]
            }
            None => [found.share(cluster, &self.prices), Share::default()],
        }
    }

    /// The same by the use of now alone: devices are taken back from those that have them.
    pub fn place_now(&self, cluster: &Cluster, team: TeamId) -> Place {
        self.place(cluster, team).map(|share| Share { recent: 0, ..share })
    }

    /// Share of the namespaces in no quota: together one team of weight 1 without a guarantee.
    fn share_of_others(&self, cluster: &Cluster) -> Share {
        Share {
            is_above_guarantee: true,
            recent: by_weight(self.hours.placed_of_others, 1),
            by_weight: by_weight(self.prices.of_namespaces(cluster, self.others(cluster)).by_price, 1),
        }
    }

    /// Use of the namespaces in no quota.
    fn used_by_others(&self, cluster: &Cluster) -> Worth {
        used(cluster, self.others(cluster))
    }

    /// The namespaces in no quota that use anything.
    fn others<'c>(&self, cluster: &'c Cluster) -> impl Iterator<Item = &'c str> {
        cluster.charges().namespaces().filter(|namespace| self.team_of(namespace).is_none())
    }

    /// Use and guarantees, as text for members; `None` for a team with all of its guarantees.
    pub fn guarantee_text(&self, cluster: &Cluster, namespace: &str) -> Option<String> {
        let team = self.get(self.team_of(namespace))?;
        let missing = |amount: &Amount| {
            let used = team.used(cluster, amount);
            let (used, guaranteed) = (used < amount.guaranteed)
                .then(|| (amount.unit.text(used), amount.unit.text(amount.guaranteed)))?;
            Some(format!("team {} has {used} of {guaranteed} guaranteed ({})", team.name, amount.name))
        };
        let texts: Vec<String> = team.amounts.iter().filter_map(missing).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// What the team has of its limits.
    fn limit_text(&self, cluster: &Cluster, namespace: &str, allowance: Allowance) -> String {
        let is_own_only = allowance == Allowance::Guarantee;
        let Some(team) = self.get(self.team_of(namespace)) else {
            return "it does not borrow, and nothing is guaranteed to a namespace in no GpuQuota".to_owned();
        };
        let mut texts = Vec::new();
        for (team, is_own_only) in [(Some(team), is_own_only), (self.get(team.parent), false)] {
            let Some(team) = team else { continue };
            for amount in &team.amounts {
                let Some(most) = team.most(amount, is_own_only) else { continue };
                let used = team.used(cluster, amount);
                let (used, most) = (amount.unit.text(used), amount.unit.text(most));
                texts.push(format!("team {} has {used} of {most} ({})", team.name, amount.name));
            }
        }
        texts.join(", ")
    }
}
