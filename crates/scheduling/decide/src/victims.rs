//! Pods that may be evicted, as units for [`tessera_placement::victims`].

mod over_limit;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::gpu_pool::IdleAction;
use tessera_cluster::Key;
use tessera_cluster::worth::Worth;
use tessera_placement::Time;
use tessera_placement::statement::{Base, Statement};
use tessera_placement::take_limit::{Rule, TakeLimit};
use tessera_placement::victims::{self, Unit, Units, key};

use crate::gangs::Gangs;
use crate::group::{Group, Member, Placement};
use crate::idle::groups::idle_groups;
use crate::open_seats::{self, FreeNodes};
use crate::round::NoVictims;
use crate::state::State;
use crate::teams::{Allowance, Borrowers, Division, TeamId, Teams};
use crate::world::World;
use crate::{hours_left, kueue, order, room, teams};
use units::{has_no_claims, units};

/// By what right a group gets the devices of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    /// Others do not use theirs, and their pools give idle devices to those who wait.
    Idle,
    /// Its priority is higher; where there are teams, only within its own, unless the group is exempt.
    Priority,
    /// Its team is below its guarantee, and others borrow.
    TakeBack,
    /// The parent of its team is below its guarantee, and teams of other parents borrow.
    TakeBackForParent,
    /// Its team is below its fair share, and others that borrow have more.
    FairShare,
}

impl Ask {
    /// Whether it concerns pods of the asking team, too, by their own priority; else what was lent, in the order of borrowing.
    pub fn is_of_own(self) -> bool {
        matches!(self, Ask::Idle | Ask::Priority)
    }
}

/// The obstacle between a group and its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shortage {
    /// No node has room.
    Room,
    /// Nodes have room, and a limit of its team is in the way.
    Limit,
}

/// Pods in want of nodes.
struct Wanted<'w, 'm> {
    open: &'w [&'m Member],
    /// Number of them that must get theirs.
    needed: usize,
    limit: Option<&'w TakeLimit>,
}

/// In place of a rank, for units that nobody may take back.
pub(crate) const STAYS: i32 = i32::MAX;

/// The first pods by name, with the number of others.
pub(crate) fn names(pods: &BTreeSet<Key>) -> String {
    const MOST: usize = 4;
    let first: Vec<String> = pods.iter().take(MOST).map(Key::to_string).collect();
    match pods.len().saturating_sub(MOST) {
        0 => first.join(", "),
        more => format!("{} and {more} more pods", first.join(", ")),
    }
}

/// Placements for the pods with the victims to evict, or why no eviction helps.
pub(crate) fn find_victims<'m>(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&'m Member],
    needed: usize,
    (ask, shortage): (Ask, Shortage),
) -> Result<(Vec<Placement<'m>>, BTreeSet<Key>), NoVictims> {
    let mut units = take_units(state, now, ask);
    units.look_up(&state.world.cluster, &mut state.world.fleet, &state.world.driver);
    let needs = if ask.is_of_own() { 0 } else { room::least_cards_of(state, open, needed) };
    let lower = evictable(state, group, &units, (ask, needs));
    let world = &state.world;
    let limit = |allowance| world.teams.limit(group.id.namespace(), allowance);
    let limit = match ask {
        Ask::TakeBack => limit(Allowance::Guarantee),
        Ask::TakeBackForParent => limit(Allowance::ParentGuarantee),
        Ask::FairShare => {
            let division = state.round.division.get_or_insert_with(|| Division::of(world, &state.waits));
            world.teams.fair_limit(&world.driver, group.id.namespace(), division)
        }
        Ask::Idle | Ask::Priority => limit(teams::allowance(world, open)),
    };
    let is_full = || is_full(world, &units, (ask, group.id.namespace()), limit.as_ref(), needs);
    if !lower.contains(&true) || is_full() {
        put_back(state, units, ask);
        return Err(NoVictims::Nobody);
    }
    let wanted = Wanted { open, needed, limit: limit.as_ref() };
    let with_devices = |(may, unit): (&bool, &Unit)| *may && !unit.claims.is_empty();
    let all: Vec<bool> = lower.iter().zip(units.all()).map(with_devices).collect();
    let within_budgets = within_budgets(&state.world, &units, &all);
    let plan = |state: &mut State, units: &mut Units, may: &[bool]| match shortage {
        Shortage::Room => plan(state, now, &wanted, units, may),
        Shortage::Limit => over_limit::plan(state, now, &wanted, units, may),
    };
    let mut found = plan(state, &mut units, &within_budgets);
    let mut is_kept = false;
    if found.is_none() && within_budgets != all {
        let without_budgets = plan(state, &mut units, &all);
        is_kept = without_budgets.is_some_and(|(_, victims)| !victims.is_empty());
    }
    let why = match &found {
        _ if is_kept => NoVictims::Kept,
        None if shortage == Shortage::Room && lower != all => {
            let wider = plan(state, &mut units, &lower);
            wider.map_or(NoVictims::Nobody, |(placed, victims)| in_the_way(&state.world, &placed, &victims))
        }
        _ => NoVictims::Nobody,
    };
    if ask == Ask::FairShare {
        let world = &state.world;
        let taker = world.teams.team_of(group.id.namespace());
        let less = |placed: &[Placement<'_>], victims: &BTreeSet<Key>| {
            let more = placed.iter().map(|placed| hours_left::cards_of(world, placed)).sum();
            world.teams.would_have_less_than_all(&world.cluster, (taker, more), victims.iter())
        };
        found = found.filter(|(placed, victims)| less(placed, victims));
    }
    // Pods already ending make enough room: nobody else has to go.
    found = found.filter(|(_, victims)| !victims.is_empty());
    put_back(state, units, ask);
    found.ok_or(why)
}

/// Whether the team's limits leave too little, whichever units go: victims by any right to what was lent are of other teams, and for a
/// parent's guarantee of other parents'.
fn is_full(
    World { teams, cluster, .. }: &World,
    units: &Units,
    (ask, namespace): (Ask, &str),
    limit: Option<&TakeLimit>,
    needs: u64,
) -> bool {
    let Some(limit) = limit.filter(|_| !ask.is_of_own()) else { return false };
    let taker = teams.team_of(namespace);
    let family = if ask == Ask::TakeBackForParent { teams.family(taker) } else { taker };
    let is_own = |pod: &Key| {
        let team = teams.team_of(&pod.namespace);
        team == taker || (family != taker && teams.family(team) == family)
    };
    // Pods that are ending give back what is counted now.
    let is_ending = |(place, unit): (usize, &Unit)| units.is_leaving(place) && unit.pods.iter().any(is_own);
    if units.all().iter().enumerate().any(is_ending) {
        return false;
    }
    let is_of_own = |rule: &&Rule| teams.is_rule_of(rule, taker) || teams.is_rule_of(rule, family);
    let own = TakeLimit { rules: limit.rules.iter().filter(is_of_own).cloned().collect(), only: None };
    let is_used_up = || own.rules.iter().all(|rule| rule.taken(cluster) >= rule.most);
    own.leaves_less(cluster, Worth { cards: needs, ..Worth::default() })
        || (ask == Ask::TakeBack && is_used_up())
}

/// The pods without devices among those that would have to go.
fn in_the_way(world: &World, placed: &[Placement<'_>], victims: &BTreeSet<Key>) -> NoVictims {
    let pods = &world.cluster.objects().pods;
    let is_without = |key: &&Key| pods.get(*key).is_some_and(|pod| has_no_claims(pod));
    let without: BTreeSet<Key> = victims.iter().filter(is_without).cloned().collect();
    let nodes: BTreeSet<&str> = placed.iter().map(|placed| placed.node.as_str()).collect();
    match nodes.first() {
        Some(node) if !without.is_empty() => {
            NoVictims::Room { node: (*node).to_owned(), pods: names(&without) }
        }
        _ => NoVictims::Nobody,
    }
}

fn plan<'m>(
    state: &mut State,
    now: Time,
    wanted: &Wanted<'_, 'm>,
    units: &mut Units,
    may: &[bool],
) -> Option<(Vec<Placement<'m>>, BTreeSet<Key>)> {
    let open = open_seats::open_seats(
        &state.world,
        &state.gangs,
        (&state.standing, &state.refusals),
        now,
        wanted.open,
    );
    let (base, rankings, _) = state.world.base();
    let mut statement = Statement::new(Base { limit: wanted.limit, ..base });
    let filter = FreeNodes { now, open: &open, refusals: &state.refusals, standing: &state.standing };
    let plan = victims::plan(&mut statement, rankings, &open.seats, wanted.needed, units, may, &filter);
    drop(statement);
    let plan = plan?;
    let pods = plan.victims.iter().flat_map(|unit| units.all()[*unit].pods.iter().cloned()).collect();
    Some((open_seats::placements(&state.world, &open, plan.placed), pods))
}

/// All units of the round; to be [put back](put_back).
pub(crate) fn take_units(state: &mut State, now: Time, ask: Ask) -> Units {
    let known = match ask.is_of_own() {
        true => state.round.units.take(),
        false => state.round.borrowed.take(),
    };
    known.unwrap_or_else(|| {
        let all = units(&state.world, &state.ledger, &state.gangs, now, ask);
        let (mut units, leaving): (Vec<Unit>, Vec<bool>) = all.into_iter().unzip();
        if ask.is_of_own() {
            let idle = idle_groups(&state.world, &state.gangs, &state.idle, IdleAction::WhenWanted);
            let is_idle = |pod: &Key| idle.contains_key(&state.gangs.group_of(pod));
            let are_idle = units.iter().map(|unit| !idle.is_empty() && unit.pods.iter().all(is_idle));
            state.round.is_idle = are_idle.collect();
        } else {
            let mut borrowers = Borrowers::of(&state.world, &state.gangs, &units);
            let found = borrowers.reclaimable(&state.world, &state.gangs, now, (&units, &leaving));
            state.round.borrowers = borrowers;
            state.round.next_take_back = found.next;
            state.round.is_in_family = found.is_in_family;
            units.iter_mut().zip(found.ranks).for_each(|(unit, rank)| unit.priority = rank.unwrap_or(STAYS));
        }
        Units::new(units, leaving)
    })
}

/// Keeps the units for the rest of the round.
pub(crate) fn put_back(state: &mut State, units: Units, ask: Ask) {
    match ask.is_of_own() {
        true => state.round.units = Some(units),
        false => state.round.borrowed = Some(units),
    }
}

/// Whether the group may ask a pod or gang of this team and priority to go because its own priority is higher.
pub(crate) fn is_higher(teams: &Teams, group: &Group, team: TeamId, priority: i32) -> bool {
    priority < group.priority()
        && group.may_preempt()
        && (teams.is_empty()
            || teams.team_of(group.id.namespace()) == team
            || group.members.iter().all(|member| teams.is_exempt(&member.pod)))
}

/// Whether all these pods are of units that may be taken back for a team now.
pub(crate) fn may_take_back(state: &mut State, now: Time, taker: TeamId, pods: &[Key]) -> bool {
    let found = take_units(state, now, Ask::TakeBack);
    let (world, units) = (&state.world, found.all());
    let borrowers = &mut state.round.borrowers;
    let mut known: BTreeMap<TeamId, BTreeSet<usize>> = BTreeMap::new();
    let may_go = pods.iter().all(|pod| {
        let team = world.teams.team_of(&pod.namespace);
        let is_family = world.teams.family(team) == world.teams.family(taker);
        let of_pod: Vec<usize> =
            borrowers.of_team(team).filter(|place| units[*place].pods.contains(pod)).collect();
        let may_go = known.entry(team).or_insert_with(|| {
            borrowers.may_go(world, &state.gangs, now, (team, is_family), (units, found.are_leaving()))
        });
        // A pod that gives back by itself is among its gang's, too.
        let is_alone = of_pod.iter().any(|place| !units[*place].is_gang);
        let may_go = |place: &usize| (is_alone && units[*place].is_gang) || may_go.contains(place);
        team != taker && !of_pod.is_empty() && of_pod.iter().all(may_go)
    });
    put_back(state, found, Ask::TakeBack);
    may_go
}

/// The pods that go with this one for a group of the team: its gang, or it alone if it gives devices back and the gang goes on without.
pub(crate) fn going_with(world: &World, gangs: &Gangs, taker: TeamId, pod: &Key) -> Vec<Key> {
    let is_surplus = || gangs.of(pod).is_some_and(|gang| order::surplus_of(world, gangs, gang).contains(pod));
    match world.teams.team_of(&pod.namespace) != taker && is_surplus() {
        true => vec![pod.clone()],
        false => order::with_its_gang(world, gangs, pod),
    }
}

/// By unit: whether the group, which needs this many millionths of a card, may ask it to go, and it is none of its own.
fn evictable(
    State { world, round, .. }: &State,
    group: &Group,
    units: &Units,
    (ask, needs): (Ask, u64),
) -> Vec<bool> {
    let World { teams, cluster, .. } = world;
    let taker = teams.team_of(group.id.namespace());
    let is_of_others = |team: TeamId| teams.family(team) != teams.family(taker);
    let mut has_more: BTreeMap<TeamId, bool> = BTreeMap::new();
    let own: BTreeSet<&Key> = group.members.iter().map(|member| &member.key).collect();
    let queue = kueue::cluster_queue_of(group);
    let is_lower = |unit: &Unit| {
        let team = || unit.pods.first().and_then(|pod| teams.team_of(&pod.namespace));
        unit.priority < group.priority() && is_higher(teams, group, team(), unit.priority)
    };
    let mut is_lent = |place: usize| {
        let team = round.borrowers.team_of(place);
        if team == taker || (round.is_in_family[place] && is_of_others(team)) {
            return false;
        }
        match ask {
            Ask::TakeBackForParent => is_of_others(team),
            Ask::FairShare => {
                let has_more = has_more.entry(team);
                *has_more.or_insert_with(|| teams.would_have_less(cluster, taker, needs, team))
            }
            Ask::Idle | Ask::Priority | Ask::TakeBack => true,
        }
    };
    let may = |(place, unit): (usize, &Unit)| {
        let may_ask = match ask {
            Ask::Idle => round.is_idle[place],
            Ask::Priority => round.is_idle[place] || is_lower(unit),
            _ => unit.priority != STAYS && is_lent(place),
        };
        // Budgets count pods that are ending already.
        may_ask
            && !units.is_leaving(place)
            && kueue::may_go_for(world, queue, &unit.pods)
            && !unit.pods.iter().any(|pod| own.contains(pod))
    };
    units.all().iter().enumerate().map(may).collect()
}

/// By unit: whether it is among these, and PodDisruptionBudgets allow its eviction beside those before.
fn within_budgets(world: &World, units: &Units, among: &[bool]) -> Vec<bool> {
    let objects = world.cluster.objects();
    if objects.budgets.is_empty() {
        return among.to_vec();
    }
    let mut left: BTreeMap<&Key, usize> = BTreeMap::new();
    for (key, budget) in &objects.budgets {
        left.insert(key, usize::try_from(budget.status.disruptions_allowed).unwrap_or(usize::MAX));
    }
    let mut order: Vec<usize> = (0..among.len()).filter(|unit| among[*unit]).collect();
    order.sort_by_cached_key(|unit| key(&units.all()[*unit]));
    let mut may = vec![false; among.len()];
    for place in order {
        let mut taken: BTreeMap<&Key, usize> = BTreeMap::new();
        for pod in units.all()[place].pods.iter().filter_map(|key| objects.pods.get(key)) {
            for (key, _) in objects.budgets_of(pod) {
                *taken.entry(key).or_default() += 1;
            }
        }
        may[place] = taken.iter().all(|(key, count)| left.get(key).is_none_or(|left| count <= left));
        if may[place] {
            for (key, count) in taken {
                left.entry(key).and_modify(|left| *left -= count);
            }
        }
    }
    may
}
