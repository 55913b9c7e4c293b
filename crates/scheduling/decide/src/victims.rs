//! Pods that may be evicted, as units for [`tessera_placement::victims`].

mod over_limit;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::GangId;
use tessera_cluster::usage::is_daemon;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::statement::{Base, Statement};
use tessera_placement::take_limit::TakeLimit;
use tessera_placement::victims::{self, Unit, Units, key};

use crate::gangs::Gangs;
use crate::group::{Group, Member, Placement};
use crate::ledger::Ledger;
use crate::open_seats::{self, FreeNodes};
use crate::pod::{ends_soon, reference};
use crate::round::NoVictims;
use crate::state::State;
use crate::teams::{Allowance, Division, TeamId, Teams};
use crate::world::World;
use crate::{holders, hours_left, order, room, teams};

/// By what right a group gets the devices of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    /// Its priority is higher; where there are teams, only within its own, unless the group is exempt.
    Priority,
    /// Its team is below its guarantee, and others borrow.
    TakeBack,
    /// Its team is below its fair share, and others that borrow have more.
    FairShare,
}

/// The obstacle between a group and its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shortage {
    /// No node has room.
    Room,
    /// Nodes have room, and a limit of its team is in the way.
    Limit,
}

/// A gang with pods that may be evicted.
struct OfGang {
    /// Its bound pods, sorted.
    bound: Vec<Key>,
    /// Pods that give devices back by themselves.
    surplus: BTreeSet<Key>,
    priority: i32,
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

fn has_no_claims(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()).next().is_none()
}

/// The first pods by name, with the number of others.
pub(crate) fn names(pods: &BTreeSet<Key>) -> String {
    const MOST: usize = 4;
    let first: Vec<String> = pods.iter().take(MOST).map(Key::to_string).collect();
    match pods.len().saturating_sub(MOST) {
        0 => first.join(", "),
        more => format!("{} and {more} more pods", first.join(", ")),
    }
}

/// Merges units sharing a claim: it is free only after all of its pods are gone.
fn merged(units: impl Iterator<Item = Unit>) -> Vec<Unit> {
    let mut merged: Vec<Option<Unit>> = Vec::new();
    let mut of_claim: BTreeMap<Key, usize> = BTreeMap::new();
    for mut unit in units {
        let known: BTreeSet<usize> =
            unit.claims.iter().filter_map(|claim| of_claim.get(claim).copied()).collect();
        for other in known.into_iter().filter_map(|place| merged[place].take()) {
            unit.pods.extend(other.pods);
            unit.claims.extend(other.claims);
            unit.is_gang |= other.is_gang;
        }
        unit.pods.sort();
        unit.pods.dedup();
        of_claim.extend(unit.claims.iter().map(|claim| (claim.clone(), merged.len())));
        merged.push(Some(unit));
    }
    merged.into_iter().flatten().collect()
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
    let needs = if ask == Ask::FairShare { room::least_cards_of(state, open, needed) } else { 0 };
    let lower = evictable(&state.world, group, &units, (ask, needs));
    let world = &state.world;
    let limit = |allowance| world.teams.limit(group.id.namespace(), allowance);
    let limit = match ask {
        Ask::TakeBack => limit(Allowance::Guarantee),
        Ask::FairShare => {
            let division = state.round.division.get_or_insert_with(|| Division::of(world, &state.waits));
            world.teams.fair_limit(&world.driver, group.id.namespace(), division)
        }
        Ask::Priority => limit(teams::allowance(world, open)),
    };
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
    let open = open_seats::open_seats(&state.world, &state.gangs, &state.standing, now, wanted.open);
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
    let known = match ask {
        Ask::Priority => state.round.units.take(),
        Ask::TakeBack | Ask::FairShare => state.round.borrowed.take(),
    };
    known.unwrap_or_else(|| {
        let all = units(&state.world, &state.ledger, &state.gangs, now, ask);
        let (mut units, leaving): (Vec<Unit>, Vec<bool>) = all.into_iter().unzip();
        if ask != Ask::Priority {
            let found = teams::reclaimable(&state.world, &state.gangs, (&units, &leaving), now);
            state.round.next_take_back = found.next;
            units.iter_mut().zip(found.ranks).for_each(|(unit, rank)| unit.priority = rank.unwrap_or(STAYS));
        }
        Units::new(units, leaving)
    })
}

/// Keeps the units for the rest of the round.
pub(crate) fn put_back(state: &mut State, units: Units, ask: Ask) {
    match ask {
        Ask::Priority => state.round.units = Some(units),
        Ask::TakeBack | Ask::FairShare => state.round.borrowed = Some(units),
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

/// Whether all these pods are of units that may be taken back for a team.
pub(crate) fn may_take_back<'k>(
    world: &World,
    ledger: &Ledger,
    gangs: &Gangs,
    now: Time,
    taker: TeamId,
    mut pods: impl Iterator<Item = &'k Key>,
) -> bool {
    let all = units(world, ledger, gangs, now, Ask::TakeBack);
    let (units, leaving): (Vec<Unit>, Vec<bool>) = all.into_iter().unzip();
    let ranks = teams::reclaimable(world, gangs, (&units, &leaving), now).ranks;
    pods.all(|pod| {
        let of_pod: Vec<_> = units.iter().zip(&ranks).filter(|(unit, _)| unit.pods.contains(pod)).collect();
        // A pod that gives back by itself is among its gang's, too.
        let is_alone = of_pod.iter().any(|(unit, _)| !unit.is_gang);
        let may_go = |(unit, rank): &(&Unit, &Option<i32>)| rank.is_some() || (is_alone && unit.is_gang);
        world.teams.team_of(&pod.namespace) != taker && of_pod.iter().all(may_go)
    })
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
fn evictable(world: &World, group: &Group, units: &Units, (ask, needs): (Ask, u64)) -> Vec<bool> {
    let World { teams, cluster, .. } = world;
    let taker = teams.team_of(group.id.namespace());
    let mut has_more: BTreeMap<TeamId, bool> = BTreeMap::new();
    let own: BTreeSet<&Key> = group.members.iter().map(|member| &member.key).collect();
    let may = |(place, unit): (usize, &Unit)| {
        let team = unit.pods.first().and_then(|pod| teams.team_of(&pod.namespace));
        let may_ask = match ask {
            Ask::Priority => is_higher(teams, group, team, unit.priority),
            Ask::TakeBack => unit.priority < STAYS && team != taker,
            Ask::FairShare => {
                let has_more = has_more.entry(team);
                unit.priority < STAYS
                    && *has_more.or_insert_with(|| teams.would_have_less(cluster, taker, needs, team))
            }
        };
        // Budgets count pods that are ending already.
        may_ask && !units.is_leaving(place) && !unit.pods.iter().any(|pod| own.contains(pod))
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

/// Units of holders of managed cards, and of pods without claims on nodes with such cards; each with whether all of its pods are
/// already ending. Excludes pods ending slowly, as nobody can speed them up, pods recently found unevictable, and pods that every node runs.
/// Of a gang that gives devices back the surplus is by itself; the gang's unit has the other claims, and all pods.
fn units(world: &World, ledger: &Ledger, of_pods: &Gangs, now: Time, ask: Ask) -> Vec<(Unit, bool)> {
    let mut gangs: BTreeMap<&GangId, OfGang> = BTreeMap::new();
    let mut units: BTreeMap<Vec<Key>, Unit> = BTreeMap::new();
    for (holder, claims) in holders::holding_pods(world) {
        let pod = world.cluster.objects().pods.get(&holder);
        let takes_long = pod.is_some_and(|pod| pod.has_ended() && !ends_soon(pod, now));
        let may_be_of_a_gang = pod.is_some_and(|pod| order::may_be_of_a_gang(world, pod));
        if !takes_long && !may_be_of_a_gang {
            unit_of(world, of_pods, &holder, ask, &mut units, &mut gangs).claims.extend(claims);
        }
    }
    let known: BTreeSet<Key> = units.keys().flatten().cloned().collect();
    for (key, pod) in &world.cluster.objects().pods {
        let is_candidate = pod.node_name().is_some_and(|node| world.fleet.find(node).is_some())
            && !pod.has_ended()
            && has_no_claims(pod)
            && !is_daemon(pod)
            && !known.contains(key)
            && !order::may_be_of_a_gang(world, pod);
        if is_candidate {
            unit_of(world, of_pods, key, ask, &mut units, &mut gangs);
        }
    }
    let completed = |mut unit: Unit| {
        unit.claims.sort();
        unit.claims.dedup();
        let mut is_leaving = true;
        for key in &unit.pods {
            let pod = world.cluster.objects().pods.get(key)?;
            let of_gang = of_pods.of(key).and_then(|gang| gangs.get(gang));
            unit.priority = unit.priority.max(of_gang.map_or(pod.priority(), |gang| gang.priority));
            unit.created = unit.created.clone().max(pod.metadata.creation_timestamp.clone());
            is_leaving &= pod.has_ended();
            if !pod.has_ended() && ledger.evictions.is_refused(&reference(pod), now) {
                return None;
            }
        }
        Some((unit, is_leaving))
    };
    merged(units.into_values()).into_iter().filter_map(completed).collect()
}

/// The unit of the pod: with its gang, or alone.
fn unit_of<'d, 'u>(
    world: &'d World,
    of_pods: &'d Gangs,
    key: &Key,
    ask: Ask,
    units: &'u mut BTreeMap<Vec<Key>, Unit>,
    gangs: &mut BTreeMap<&'d GangId, OfGang>,
) -> &'u mut Unit {
    let (mut pods, is_gang) = match of_pods.of(key) {
        None => (Vec::new(), false),
        Some(gang) => {
            let pod = world.cluster.objects().pods.get(key);
            let is_bound = pod.is_some_and(|pod| pod.node_name().is_some() && !pod.has_ended());
            let of_gang = || OfGang {
                bound: order::with_its_gang(world, of_pods, key)
                    .into_iter()
                    .filter(|other| is_bound || other != key)
                    .collect(),
                surplus: match ask {
                    Ask::TakeBack | Ask::FairShare => order::surplus_of(world, of_pods, gang),
                    Ask::Priority => BTreeSet::new(),
                },
                priority: order::order_of(world, of_pods, gang).priority(),
            };
            let found = gangs.entry(gang).or_insert_with(of_gang);
            if found.surplus.contains(key) { (Vec::new(), false) } else { (found.bound.clone(), true) }
        }
    };
    if let Err(place) = pods.binary_search(key) {
        pods.insert(place, key.clone());
    }
    units.entry(pods.clone()).or_insert_with(|| Unit {
        is_gang,
        pods,
        claims: Vec::new(),
        priority: i32::MIN,
        created: None,
    })
}
