//! Choice and order of the groups to examine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tessera_cluster::PodExt;
use tessera_placement::Time;

use crate::group::GroupId;
use crate::intent::Intent;
use crate::queue::{Order, Queue};
use crate::state::State;
use crate::teams::{Place, TeamId};
use crate::waits::Waits;
use crate::world::World;
use crate::{leadership, nodes, order, selector_costs, step, tell};

/// A group to be examined.
pub(crate) struct Turn {
    id: GroupId,
    order: Order,
    /// Whether the pod itself changed or is due.
    is_due: bool,
}

/// The groups to examine, in queue order: all waiting ones if the fleet changed, else only changed or due ones.
pub(crate) fn turns(state: &mut State, now: Time) -> Vec<Turn> {
    let all = !state.waits.is_passed(state.world.fleet.now());
    let mut due_pods = state.waits.take_due();
    let mut due = BTreeSet::new();
    for group in state.gangs.take_due(now) {
        match group {
            GroupId::Gang(_) => drop(due.insert(group)),
            GroupId::Pod(pod) => due_pods.extend(Some(pod).filter(|pod| state.waits.contains(pod))),
        }
    }
    due.extend(due_pods.iter().map(|pod| state.gangs.group_of(pod)));
    let mut groups = due.clone();
    if all {
        groups.extend(state.waits.pods().map(|pod| state.gangs.group_of(pod)));
    }
    let mut places: BTreeMap<TeamId, Place> = BTreeMap::new();
    let world = &state.world;
    let order_of = |id: GroupId| {
        let team = world.teams.team_of(id.namespace());
        let place = || *places.entry(team).or_insert_with(|| world.teams.place(&world.cluster, team));
        let place = (!order::is_exempt(world, &state.gangs, &id)).then(place);
        Some((order::order_in_team(world, &state.gangs, &id)?.of_team(place), id))
    };
    let turns: BTreeSet<(Order, GroupId)> = groups.into_iter().filter_map(order_of).collect();
    if all {
        let all: Vec<GroupId> = turns.iter().map(|(_, id)| id.clone()).collect();
        state.standing.begin_anew(&all);
    }
    turns.into_iter().map(|(order, id)| Turn { is_due: due.contains(&id), id, order }).collect()
}

/// Turns by team. The next one is of the team whose place is first at the time: each allocation changes the order of teams.
struct TeamTurns {
    /// Before all teams.
    exempt: VecDeque<Turn>,
    turns: BTreeMap<TeamId, VecDeque<Turn>>,
    places: BTreeMap<TeamId, Place>,
}

impl TeamTurns {
    /// These turns, in queue order.
    fn new(world: &World, all: Vec<Turn>) -> Self {
        let mut turns: BTreeMap<TeamId, VecDeque<Turn>> = BTreeMap::new();
        let (exempt, others): (VecDeque<Turn>, VecDeque<Turn>) =
            all.into_iter().partition(|turn| turn.order.is_exempt());
        for turn in others {
            turns.entry(world.teams.team_of(turn.id.namespace())).or_default().push_back(turn);
        }
        let place = |team: &TeamId| (*team, world.teams.place(&world.cluster, *team));
        let places = turns.keys().map(place).collect();
        TeamTurns { exempt, turns, places }
    }

    /// Devices were taken or given back by a group of this namespace.
    fn follow(&mut self, world: &World, namespace: &str) {
        let changed = world.teams.team_of(namespace);
        for (team, place) in &mut self.places {
            if world.teams.is_counted_with(*team, changed) {
                *place = world.teams.place(&world.cluster, *team);
            }
        }
    }

    fn next(&mut self) -> Option<Turn> {
        if let Some(turn) = self.exempt.pop_front() {
            return Some(turn);
        }
        let mut first: Option<(Place, &Order, TeamId)> = None;
        for (team, turns) in &self.turns {
            let (Some(place), Some(turn)) = (self.places.get(team), turns.front()) else { continue };
            let is_before = |(other, order, _): &(Place, &Order, TeamId)| {
                place.cmp(other).then_with(|| turn.order.cmp_in_team(order)).is_lt()
            };
            if first.as_ref().is_none_or(is_before) {
                first = Some((*place, &turn.order, *team));
            }
        }
        let (place, _, team) = first?;
        let turn = self.turns.get_mut(&team)?.pop_front()?;
        Some(Turn { order: turn.order.of_team(Some(place)), ..turn })
    }
}

/// Whether nothing can have changed for a pod without a suitable card at the last look: someone ahead waits for cards in every pool.
/// In a long strict queue, nearly all pods are in this state.
fn is_behind(world: &mut World, waits: &Waits, standing: &Queue, turn: &Turn) -> bool {
    let GroupId::Pod(key) = &turn.id else { return false };
    let is_stuck = waits.is_stuck(key);
    let strict = world.fleet.strict(&world.cluster, &world.driver);
    !turn.is_due && is_stuck && strict.is_everything && standing.is_behind(&turn.order, &strict.pools)
}

/// Whether this pod only awaits the end of its victims: nothing around it has changed, and no node has room for it now.
fn waits_for_victims(state: &mut State, turn: &Turn) -> bool {
    let State { world, ledger, leadership, round, .. } = state;
    let GroupId::Pod(key) = &turn.id else { return false };
    if turn.is_due || !ledger.nominations.is_evicting(key) || !leadership::may_allocate(leadership) {
        return false;
    }
    // The pod is due in seconds anyway.
    if round.is_over(world.rankings.judged()) {
        return true;
    }
    let strict = world.fleet.strict(&world.cluster, &world.driver);
    // In a strict queue a pod keeps its place by being examined.
    if !strict.pools.is_empty() {
        return false;
    }
    let is_hidden = strict.hides_everything;
    let Some(pod) = world.cluster.objects().pods.get(key).cloned() else { return false };
    let Ok(demand) = world.rankings.demand(world.cluster.objects(), &pod) else { return false };
    !selector_costs::is_unanswered(world, &demand)
        && nodes::ranked(world, &demand).ranking.best().next().is_none()
        && (!pod.is_gated()
            || is_hidden
            || nodes::ranked_others(world, &demand).ranking.best().next().is_none())
}

/// Examines all due groups, and once more if anything kept for one of them is available to others now.
pub(crate) fn take_all(state: &mut State, now: Time) -> Vec<Intent> {
    state.ledger.nominations.follow(&state.world.fleet);
    let due = turns(state, now);
    let (mut intents, has_freed) = take_turns(state, now, due);
    // Pods sent in this pass only took room: demand without a fit before still has none.
    state.waits.set_passed(state.world.fleet.now());
    if has_freed {
        state.waits.begin_anew();
    }
    if has_freed && !state.round.is_over(state.world.rankings.judged()) {
        state.round.forget_victims();
        let due = turns(state, now);
        let (mut looked, has_freed) = take_turns(state, now, due);
        looked.retain(|intent| !intents.contains(intent));
        intents.extend(looked);
        state.waits.set_passed(state.world.fleet.now());
        if has_freed {
            state.waits.begin_anew();
        }
    }
    state.ledger.nominations.end_round(&state.world.fleet);
    intents
}

/// The group is examined in the next round.
fn examine_next(state: &mut State, now: Time, id: &GroupId) {
    match id {
        GroupId::Pod(pod) => state.waits.mark_due_if_waiting(pod),
        GroupId::Gang(_) => state.gangs.set_due(id, now),
    }
}

/// Examines these in order, until the round has used up its steps. Also returns whether something is no longer kept for one of them, so others may use it.
pub(crate) fn take_turns(state: &mut State, now: Time, turns: Vec<Turn>) -> (Vec<Intent>, bool) {
    let mut intents = Vec::new();
    let mut has_freed = false;
    let mut teams = TeamTurns::new(&state.world, turns);
    while let Some(turn) = teams.next() {
        if is_behind(&mut state.world, &state.waits, &state.standing, &turn) {
            intents.extend(tell::stays_behind(state, now, &turn.id));
            continue;
        }
        if waits_for_victims(state, &turn) {
            continue;
        }
        if state.round.is_over(state.world.rankings.judged()) {
            examine_next(state, now, &turn.id);
            continue;
        }
        let id = turn.id;
        state.standing.reservations.begin_turn(&id);
        let looked = step::examine(state, now, &id);
        for intent in &looked {
            if let Intent::Steer { pod, .. } | Intent::Release { pod, .. } | Intent::Allocate { pod, .. } =
                intent
            {
                state.ledger.pods.write(pod);
            }
        }
        if looked.iter().any(|intent| !matches!(intent, Intent::Tell { .. })) {
            teams.follow(&state.world, id.namespace());
        }
        intents.extend(looked);
        has_freed |= state.standing.reservations.end_turn(&id);
        has_freed |= state.ledger.nominations.take_freed();
    }
    (intents, has_freed)
}
