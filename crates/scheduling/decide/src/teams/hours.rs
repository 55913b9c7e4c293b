//! GPU hours of all teams: the use since the last round, times the time since.
//!
//! **Guarantees**
//! 1. Only observed allocations count: a plan costs nobody hours.
//! 2. Nothing else is booked. A term begins with the status of each quota, and with the existing claims.
//! 3. A next leader whose clock is behind takes no hours away, and counts none twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_quota::{GpuQuotaStatus, Period};
use tessera_cluster::worth::Worth;
use tessera_cluster::{CardClass, ClaimExt, Cluster, Hold, Holder};
use tessera_placement::Time;

use super::book::{Book, CardTime, Checkpoint, Model, PastPeriod, Recent, Running};
use super::prices::{Prices, Taken};
use super::{HoursSummary, PeriodSummary, Team, TeamId, Teams};
use crate::ledger::Ledger;
use crate::nominations::at;

/// Half-life of recent use, unless told.
const HALF_LIFE: Time = Time::from_secs(168 * 3600);

/// Places follow recent use at most this often: they are stable in between.
const PLACES: Time = Time::from_secs(60);

/// Hours beside the teams' own books.
#[derive(Debug)]
pub(crate) struct Hours {
    pub half_life: Time,
    /// By name of the quota, as observed last.
    checkpoints: HashMap<String, Checkpoint>,
    /// Time until which everything is counted; `None` before the first round of a term.
    counted: Option<Time>,
    /// By namespace and model, since then.
    uses: BTreeMap<String, BTreeMap<Model, Taken>>,
    /// Of namespaces in no quota: kept in no status.
    recent_of_others: Recent,
    pub placed_of_others: u64,
    placed_at: Time,
    /// By namespace, since the start of this process.
    of_namespaces: BTreeMap<String, CardTime>,
}

impl Default for Hours {
    fn default() -> Self {
        Hours {
            half_life: HALF_LIFE,
            checkpoints: HashMap::new(),
            counted: None,
            uses: BTreeMap::new(),
            recent_of_others: Recent::default(),
            placed_of_others: 0,
            placed_at: Time::ZERO,
            of_namespaces: BTreeMap::new(),
        }
    }
}

impl Hours {
    /// The quota's status was observed; `None`: the quota is gone.
    pub fn observe(&mut self, quota: &str, status: Option<&GpuQuotaStatus>) {
        match status.and_then(Checkpoint::of) {
            Some(checkpoint) => drop(self.checkpoints.insert(quota.to_owned(), checkpoint)),
            None => drop(self.checkpoints.remove(quota)),
        }
    }

    /// The namespace is gone.
    pub fn forget_namespace(&mut self, namespace: &str) {
        self.of_namespaces.remove(namespace);
        self.uses.remove(namespace);
    }

    /// The hours of the team, once its book is open.
    pub fn summary(&self, team: &Team) -> Option<HoursSummary> {
        let book = team.book.as_ref()?;
        let period = |past: &PastPeriod| PeriodSummary {
            span: past.span.clone(),
            card_seconds: past.used.all.seconds(),
            models: past.used.models(),
        };
        Some(HoursSummary {
            card_seconds: book.used.all.seconds(),
            models: book.used.models(),
            since: book.span.start,
            as_of: self.counted?,
            periods: book.past.iter().map(period).collect(),
            recent_use: book.recent.cards(),
        })
    }

    /// Card-seconds allocated to each namespace since the start of this process, while there were quotas.
    pub fn of_namespaces(&self) -> impl Iterator<Item = (&str, u64)> {
        self.of_namespaces.iter().map(|(namespace, time)| (namespace.as_str(), time.seconds()))
    }
}

impl Team {
    /// The period by which its hours are counted.
    pub fn period(&self) -> Period {
        self.spec.budget.as_ref().map(|budget| budget.period).unwrap_or_default()
    }
}

impl Teams {
    /// A term begins: another leader may have counted in the meantime.
    pub fn forget_hours(&mut self) {
        self.teams.iter_mut().for_each(|team| team.book = None);
        (self.hours.counted, self.hours.uses) = (None, BTreeMap::new());
    }

    /// Adds the hours since the last round. Before quotas and namespaces are followed: the hours are those of the teams until now.
    pub fn count_hours(&mut self, now: Time) {
        let Some(last) = self.hours.counted.filter(|last| *last < now) else { return };
        self.hours.counted = Some(now);
        let mut of_teams: HashMap<TeamId, BTreeMap<Model, Taken>> = HashMap::new();
        for (namespace, models) in &self.hours.uses {
            let cards = models.values().map(|taken| taken.cards).fold(0, u64::saturating_add);
            let time = CardTime::of(cards, now.saturating_sub(last));
            *self.hours.of_namespaces.entry(namespace.clone()).or_default() += time;
            let team = self.of_namespaces.get(namespace).copied();
            let parent = self.get(team).and_then(|team| team.parent);
            for team in [Some(team), parent.map(Some)].into_iter().flatten() {
                let of_team = of_teams.entry(team).or_default();
                for (model, taken) in models {
                    *of_team.entry(model.clone()).or_default() += *taken;
                }
            }
        }
        let running = |team: TeamId| -> Vec<Running> {
            let models = of_teams.get(&team).into_iter().flatten();
            let running = |(model, taken): (&Model, &Taken)| Running {
                model: model.clone(),
                taken: *taken,
                since: Time::ZERO,
            };
            models.map(running).collect()
        };
        let half_life = self.hours.half_life;
        for (place, team) in self.teams.iter_mut().enumerate() {
            let Some(book) = &mut team.book else { continue };
            let running = running(Some(place));
            book.count(&running, last, now);
            book.recent.advance(&running, last, now, half_life);
        }
        self.hours.recent_of_others.advance(&running(None), last, now, half_life);
        if self.hours.placed_at + PLACES <= now {
            self.hours.placed_at = now;
            let books = self.teams.iter_mut().filter_map(|team| team.book.as_mut());
            books.for_each(|book| book.placed = book.recent.millionths());
            self.hours.placed_of_others = self.hours.recent_of_others.millionths();
        }
    }

    /// Opens missing books: all in the first round of a term, later those of new quotas.
    pub fn open_books(&mut self, cluster: &Cluster, now: Time) {
        if self.teams.is_empty() {
            // The first round with quotas is as the first of a term.
            self.hours.counted = None;
            return;
        }
        let is_first = self.hours.counted.is_none();
        if !is_first && self.teams.iter().all(|team| team.book.is_some()) {
            return;
        }
        let half_life = self.hours.half_life;
        let of_namespaces = running(cluster, &self.prices);
        let of = |namespace: &String| of_namespaces.get(namespace.as_str()).into_iter().flatten().cloned();
        for team in self.teams.iter_mut().filter(|team| team.book.is_none()) {
            let running: Vec<Running> = team.namespaces.iter().flat_map(of).collect();
            let checkpoint = self.hours.checkpoints.get(&team.name);
            team.book = Some(Book::open(team.period(), checkpoint, &running, half_life, now));
        }
        if is_first {
            let others = of_namespaces.iter().filter(|(namespace, _)| self.team_of(namespace).is_none());
            let others: Vec<Running> = others.flat_map(|(_, running)| running).cloned().collect();
            let mut recent = Recent::default();
            recent.advance(&others, Time::ZERO, now, half_life);
            (self.hours.recent_of_others, self.hours.placed_of_others) = (recent, recent.millionths());
            (self.hours.counted, self.hours.placed_at) = (Some(now), now);
        }
    }

    /// Notes the use from the end of this round on.
    pub fn note_use(&mut self, cluster: &Cluster, ledger: &Ledger) {
        let uses = &mut self.hours.uses;
        uses.clear();
        for (namespace, class, cards) in cluster.charges().of_claims() {
            let models = uses.entry(namespace.to_owned()).or_default();
            *models.entry(model(class)).or_default() += self.prices.taken(class, cards);
        }
        if uses.is_empty() {
            return;
        }
        for (key, _) in ledger.claims.allocations() {
            let is_observed = cluster.objects().claims.get(key).is_some_and(|claim| claim.has_devices());
            let hold = cluster.hold(&Holder::Claim(key.clone())).filter(|_| !is_observed);
            for (class, worth) in hold.into_iter().flat_map(Hold::charge) {
                let models = uses.get_mut(&key.namespace);
                if let Some(taken) = models.and_then(|models| models.get_mut(&model(class))) {
                    *taken -= self.prices.taken(class, worth.cards);
                }
            }
        }
    }
}

/// Millionths of a card held.
pub(super) fn cards_of(hold: &Hold) -> u64 {
    hold.charge().map(|(_, worth)| worth).sum::<Worth>().cards
}

fn model(class: &CardClass) -> Model {
    class.product_name.as_deref().map(Arc::from)
}

/// Cards held by each namespace's claims, since their allocation. A claim allocated without a time counts from its creation.
fn running<'c>(cluster: &'c Cluster, prices: &Prices) -> BTreeMap<&'c str, Vec<Running>> {
    let mut all: BTreeMap<&'c str, Vec<Running>> = BTreeMap::new();
    for (key, claim) in cluster.objects().claims.iter().filter(|(_, claim)| claim.has_devices()) {
        let Some(hold) = cluster.hold(&Holder::Claim(key.clone())) else { continue };
        let created = || claim.metadata.creation_timestamp.as_ref().map(|created| created.0);
        let since: Option<Timestamp> = claim.allocated_at().or_else(created);
        let since = since.map(at).unwrap_or_default();
        let running = |(class, worth): (&CardClass, Worth)| Running {
            model: model(class),
            taken: prices.taken(class, worth.cards),
            since,
        };
        all.entry(key.namespace.as_str()).or_default().extend(hold.charge().map(running));
    }
    all
}
