//! Whether the guarantees can be kept: with the cards that exist, and beside claims that cannot be taken back.

use std::collections::{BTreeMap, HashMap};

use tessera_api::gpu_pool::Allocation;
use tessera_api::gpu_quota::Unit;
use tessera_cluster::worth::Worth;
use tessera_cluster::{CardClass, Cluster};
use tessera_placement::fleet::{Fleet, NodeIndex};
use tessera_placement::take_limit::Covers as _;

use super::{Amount, QuotaSummary, TeamId, Teams, count};
use crate::world::World;

/// All cards of a class.
#[derive(Default, Clone, Copy)]
struct Stock {
    worth: Worth,
    /// Whether the controller allocates any of them, and so can take devices back.
    is_managed: bool,
}

/// Classes of cards, by their place in the stock.
type Classes = Vec<bool>;

/// A guarantee.
struct Guarantee<'t> {
    /// Index of the team.
    team: usize,
    amount: &'t Amount,
    classes: Classes,
}

/// Guarantees of all teams on some classes of cards, in millionths of a card or in bytes.
#[derive(Clone, Copy)]
struct Sums {
    guaranteed: u64,
    existing: u64,
    /// Guaranteed, and held by claims that cannot be taken back.
    held: u64,
}

struct Guarantees<'t> {
    teams: &'t Teams,
    /// Of each team those on fewer classes first.
    all: Vec<Guarantee<'t>>,
    /// By place of the class.
    stock: Vec<Stock>,
    /// Worth of devices that cannot be taken back: team of the holder, place of the class.
    fixed: Vec<(TeamId, usize, Worth)>,
}

/// Adds the guarantees that cannot be kept to the summaries.
pub(crate) fn add_shortfalls(world: &mut World, summaries: &mut BTreeMap<String, QuotaSummary>) {
    let mut amounts = world.teams.teams.iter().flat_map(|team| &team.amounts);
    if !amounts.any(|amount| amount.entitled > 0) {
        return;
    }
    for index in 0..world.fleet.len() as NodeIndex {
        world.fleet.cards(index, &world.cluster, &world.driver);
    }
    let guarantees = Guarantees::of(&world.teams, &world.cluster, &stock(&world.fleet));
    let mut known: HashMap<(Unit, &Classes), Sums> = HashMap::new();
    for guarantee in &guarantees.all {
        let Amount { name, unit, entitled, .. } = guarantee.amount;
        let sums = *known
            .entry((*unit, &guarantee.classes))
            .or_insert_with(|| guarantees.sums(*unit, &guarantee.classes));
        let Some(summary) = summaries.get_mut(&world.teams.teams[guarantee.team].name) else { continue };
        // No card may fit its expression.
        let most = sums.guaranteed.max(*entitled);
        let guaranteed = unit.text(most);
        if sums.existing < most {
            let existing = unit.text(sums.existing);
            summary.uncovered.push(format!("{name}: {guaranteed} guaranteed to all teams, {existing} exist"));
        }
        if sums.held > 0 {
            let held = unit.text(sums.held);
            summary.unenforceable.push(format!(
                "{name}: of {guaranteed} guaranteed to all teams, {held} are held by claims that cannot be taken back"
            ));
        }
    }
}

/// The cards of all nodes by class.
fn stock(fleet: &Fleet) -> BTreeMap<&CardClass, Stock> {
    let mut stock: BTreeMap<&CardClass, Stock> = BTreeMap::new();
    for node in fleet.nodes() {
        let report = node.report.as_ref().map(|(_, report)| report);
        for (address, class, worth) in node.parts().into_iter().flat_map(|parts| parts.worths()) {
            let card = report.and_then(|report| report.cards.get(address));
            let of_class = stock.entry(class).or_default();
            of_class.worth += worth;
            of_class.is_managed |= card.is_some_and(|card| card.allocation == Allocation::Managed);
        }
    }
    stock
}

impl<'t> Guarantees<'t> {
    fn of(teams: &'t Teams, cluster: &Cluster, stock: &BTreeMap<&CardClass, Stock>) -> Self {
        let mut all: Vec<Guarantee<'t>> = Vec::new();
        for (team, found) in teams.teams.iter().enumerate() {
            for amount in found.amounts.iter().filter(|amount| amount.entitled > 0) {
                let classes = stock.keys().map(|class| amount.covers.covers(class)).collect();
                all.push(Guarantee { team, amount, classes });
            }
        }
        all.sort_by_cached_key(|guarantee| {
            guarantee.classes.iter().filter(|is_covered| **is_covered).count()
        });
        let mut fixed = Vec::new();
        for namespace in cluster.charges().namespaces() {
            for (class, worth) in cluster.charges().of_namespace(namespace) {
                let place =
                    stock.iter().position(|(other, of_class)| **other == *class && !of_class.is_managed);
                fixed.extend(place.map(|place| (teams.team_of(namespace), place, worth)));
            }
        }
        Guarantees { teams, all, stock: stock.values().copied().collect(), fixed }
    }

    fn sums(&self, unit: Unit, among: &Classes) -> Sums {
        let own: Vec<u64> = (0..self.teams.teams.len()).map(|team| self.own(team, unit, among)).collect();
        let mut of_children = vec![0_u64; own.len()];
        for (team, found) in self.teams.teams.iter().enumerate() {
            if let Some(parent) = found.parent {
                of_children[parent] = of_children[parent].saturating_add(own[team]);
            }
        }
        let roots = (0..own.len()).filter(|team| self.teams.teams[*team].parent.is_none());
        let guaranteed = roots.map(|team| own[team].max(of_children[team])).fold(0, u64::saturating_add);
        let of_unit = count(unit);
        let stock = self.stock.iter().zip(among).filter(|(_, is_among)| **is_among);
        let existing = of_unit(stock.map(|(stock, _)| stock.worth).sum());
        let mut fixed: HashMap<TeamId, u64> = HashMap::new();
        for (team, _, worth) in self.fixed.iter().filter(|(_, place, _)| among[*place]) {
            *fixed.entry(*team).or_default() += of_unit(*worth);
        }
        // What a team holds within its own guarantee is in nobody's way.
        let beyond = fixed.into_iter().map(|(team, fixed)| {
            let own = team.map_or(0, |team| own[team].saturating_sub(of_children[team]));
            fixed.saturating_sub(own)
        });
        let beyond = beyond.fold(0, u64::saturating_add);
        let held = beyond.min(guaranteed.saturating_add(beyond).saturating_sub(existing));
        Sums { guaranteed, existing, held }
    }

    /// The least that the team's guarantees on these classes take together: those on the same cards overlap.
    fn own(&self, team: usize, unit: Unit, among: &Classes) -> u64 {
        let is_within = |classes: &Classes| {
            classes.contains(&true) && classes.iter().zip(among).all(|(one, other)| !one || *other)
        };
        let mut apart: Vec<(Classes, u64)> = Vec::new();
        let of_team = self.all.iter().filter(|guarantee| guarantee.team == team);
        for guarantee in of_team.filter(|own| own.amount.unit == unit && is_within(&own.classes)) {
            let overlaps = |(classes, _): &mut (Classes, u64)| {
                classes.iter().zip(&guarantee.classes).any(|(one, other)| *one && *other)
            };
            let mut joined = (guarantee.classes.clone(), 0_u64);
            for (classes, most) in apart.extract_if(.., overlaps) {
                joined.0.iter_mut().zip(classes).for_each(|(one, other)| *one |= other);
                joined.1 = joined.1.saturating_add(most);
            }
            joined.1 = joined.1.max(guarantee.amount.entitled);
            apart.push(joined);
        }
        apart.into_iter().map(|(_, most)| most).fold(0, u64::saturating_add)
    }
}
