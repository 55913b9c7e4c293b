//! Pods that move for a group that has waited long: evicted where their successors have room elsewhere, which is kept for them.
//!
//! The plan, with the places of the successors, stands on the waiting pods like any nomination: the next leader reads it there, and
//! nobody is evicted once the group is gone. Whether a pod may move is asked again before its eviction.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::DeviceName;
use tessera_api::gpu_pool::{Allocation, Gather, GatherMode, MOVABLE, MOVABLE_LABEL, QueuePolicy};
use tessera_api::managed::{Nomination, PlannedMove};
use tessera_cluster::worth::{CARD, Worth};
use tessera_cluster::{AllocationExt, ClaimExt, Key, Kind, PodExt};
use tessera_placement::Time;
use tessera_placement::fit::Takes;
use tessera_placement::gather::{self, Mover, Plan, Stays};
use tessera_placement::seats::{Filter as _, Seat};
use tessera_placement::statement::Statement;
use tessera_placement::take_limit::worths;

use super::{Ending, PLAN_AGAIN, Preemption, being_written, is_anybody_ending_on, longest_grace, withdraw};
use crate::gathering::{DAY, Periods, UNCERTAIN};
use crate::group::{Group, Member, created};
use crate::intent::{Intent, PodReference};
use crate::nominations::KEPT;
use crate::open_seats::{self, FreeNodes};
use crate::pod::reference;
use crate::refusals::owner;
use crate::reserve::reserve_after;
use crate::room::largest;
use crate::state::State;
use crate::teams::Allowance;
use crate::victims::names;
use crate::world::World;
use crate::{holders, kueue, nodes, order, places, teams};

/// Plans moves for at least `needed` of these pods; `None` if nobody moves.
pub(super) fn nominate(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
) -> Option<Preemption> {
    let nominations = &state.ledger.nominations;
    if open.iter().any(|member| nominations.sent(&reference(&member.pod), now).is_some()) {
        return Some(being_written());
    }
    open.iter().for_each(|member| places::release(state, &member.key));
    let since = state.leadership.term.as_ref()?.since;
    let world = &mut state.world;
    let pools = world.fleet.strict(&world.cluster, &world.driver).moving.clone();
    if pools.is_empty() || world.cluster.objects().unlisted.contains(&Kind::DisruptionBudget) {
        return None;
    }
    let asked = nodes::pools_asked(&mut state.world, largest(open)?);
    let waits_since = order::order_of_group(&state.world, &state.gangs, &group.id)?.since();
    let quiet = state.gathering.periods.quiet;
    let from = (waits_since + reserve_after(&state.world, &asked)).max(since + quiet);
    if asked.is_disjoint(&pools) || now < from || !state.gathering.begin_search(&group.id, now) {
        if !asked.is_disjoint(&pools) {
            state.gangs.set_due(&group.id, from.max(state.gathering.search_again(&group.id)));
        }
        return kept(state, group);
    }
    state.gangs.set_due(&group.id, state.gathering.search_again(&group.id));
    let Some((plans, movers)) = search(state, now, group, open, needed) else { return kept(state, group) };
    let planned = planned_moves(&state.world, &plans, &movers);
    let moved: BTreeSet<Key> = plans
        .iter()
        .flat_map(|plan| &plan.moves)
        .map(|moved| movers[moved.mover].pods[moved.pod].key.clone())
        .collect();
    let until = i64::try_from((now + longest_grace(&state.world, now, &moved) + KEPT).as_secs()).ok();
    let until = until.and_then(|until| Timestamp::from_second(until).ok())?;
    state.ledger.nominations.pause(&group.id, now + PLAN_AGAIN, now);
    let mut intents = Vec::new();
    let with_demand = open.iter().filter(|member| member.demand.is_some());
    for (place, (member, plan)) in with_demand.zip(&plans).enumerate() {
        let nomination = Nomination {
            node: state.world.fleet.node(plan.node).name.clone(),
            devices: plan.takes.as_ref().map(|takes| devices(&state.world, takes)).unwrap_or_default(),
            victims: Vec::new(),
            moves: if place == 0 { planned.clone() } else { Vec::new() },
            idle: BTreeMap::new(),
            until,
        };
        places::keep(state, &member.key, &nomination);
        let pod = reference(&member.pod);
        state.ledger.nominations.send(pod.clone(), nomination.clone(), now + PLAN_AGAIN);
        intents.push(Intent::Nominate { pod, nomination: Some(nomination) });
    }
    let why = format!("it fits once {} moved elsewhere, where room is kept", names(&moved));
    Some(Preemption { intents, why, is_under_way: true })
}

/// Names the PodDisruptionBudget keeping pods from moving for the group, as of the last search.
fn kept(state: &State, group: &Group) -> Option<Preemption> {
    let budget = state.gathering.kept_by(&group.id)?;
    let why = format!("pods that may move stay: PodDisruptionBudget {budget} allows no eviction now");
    Some(Preemption { intents: Vec::new(), why, is_under_way: false })
}

/// The cheapest moves within all rules, with the movers that they are of.
fn search(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
) -> Option<(Vec<Plan>, Vec<Mover>)> {
    let time = Timestamp::from_second(i64::try_from(now.as_secs()).ok()?).ok()?;
    let world = &mut state.world;
    let mut movers = gather::movers(&world.cluster, &mut world.fleet, &world.driver, time);
    let own: BTreeSet<String> = group.members.iter().map(|member| owner(&member.pod)).collect();
    let left_alone = left_alone(state, now);
    let mut kept_by = None;
    let is_open = |mover: &&mut Mover| matches!(mover.stays, None | Some(Stays::Budget(_)));
    for mover in movers.iter_mut().filter(is_open) {
        let [runner] = mover.pods.as_slice() else {
            mover.stays = Some(Stays::Obstacle("it is one of a gang".to_owned()));
            continue;
        };
        let pod = state.world.cluster.objects().pods.get(&runner.key);
        let may = pod.is_some_and(|pod| {
            let owner = owner(pod);
            kueue::may_go_for(&state.world, kueue::cluster_queue_of(group), std::slice::from_ref(&runner.key))
                && !own.contains(&owner)
                && !left_alone.contains(&owner)
                && pools_to_leave(state, now, pod).is_some()
        });
        match &mover.stays {
            Some(Stays::Budget(budget)) if may => kept_by = kept_by.or(Some(budget.clone())),
            None if !may => {
                let why = "its pool or its owner does not let it move";
                mover.stays = Some(Stays::Obstacle(why.to_owned()));
            }
            _ => {}
        }
    }
    state.gathering.set_kept(&group.id, kept_by);
    let open =
        open_seats::open_seats(&state.world, &state.gangs, (&state.standing, &state.refusals), now, open);
    let seats = open.seats.get(..needed.max(1))?;
    let (base, ..) = state.world.base();
    let mut statement = Statement::new(base);
    let plans = gather::plan_all(&mut statement, seats, &movers);
    drop(statement);
    state.round.count_search(state.world.fleet.len(), movers.len());
    let plans = plans?;
    let filter = FreeNodes { now, open: &open, refusals: &state.refusals, standing: &state.standing };
    let seats_are_free = plans.iter().enumerate().all(|(seat, plan)| {
        let node = state.world.fleet.node(plan.node);
        !filter.is_kept(seat, node) && !filter.is_refused(seat, node)
    });
    let all_takes =
        plans.iter().flat_map(|plan| plan.takes.iter().chain(plan.moves.iter().map(|m| &m.takes)));
    let are_managed = all_takes.flat_map(|takes| &takes.is_managed).all(|is_managed| *is_managed);
    let is_within_limit = {
        let allowance = teams::allowance(&state.world, &group.members.iter().collect::<Vec<_>>());
        let limit = state.world.teams.limit(group.id.namespace(), allowance);
        let results: Vec<_> = plans
            .iter()
            .filter_map(|plan| plan.takes.as_ref())
            .flat_map(|takes| takes.allocations.iter().flat_map(AllocationExt::results).cloned())
            .collect();
        limit.is_none_or(|limit| limit.allows(&state.world.cluster, &state.world.driver, &results))
    };
    let is_worth = gather::is_worth(gather::lost(&plans, &movers), gained(&state.world, seats, &plans));
    let may = seats_are_free
        && are_managed
        && is_worth
        && is_within_limit
        && may_all_move(state, now, &plans, &movers);
    may.then_some((plans, movers))
}

/// What these pods are expected to run: thousandths of a card, times seconds. Of a pod without `activeDeadlineSeconds` nobody knows, and a
/// [`DAY`] counts: for so long an owner moves once. Times that are known to be short, as `minRuntimeSeconds` is, would let almost nobody
/// move: whoever moves has run for longer.
fn gained(world: &World, seats: &[Seat<'_>], plans: &[Plan]) -> u64 {
    let of_seat = |(seat, plan): (&Seat<'_>, &Plan)| {
        let allocations = plan.takes.iter().flat_map(|takes| &takes.allocations);
        let devices = allocations.flat_map(|allocation| worths(&world.cluster, &world.driver, allocation));
        let cards = devices.map(|(_, worth)| worth).sum::<Worth>().cards * 1_000 / CARD;
        cards.saturating_mul(teams::deadline(seat.pod).unwrap_or(DAY).as_secs())
    };
    seats.iter().zip(plans).map(of_seat).fold(0, u64::saturating_add)
}

/// Whether the moves are few enough, of different owners, and to nodes that take the successors.
fn may_all_move(state: &State, now: Time, plans: &[Plan], movers: &[Mover]) -> bool {
    let mut owners = BTreeSet::new();
    let mut moves_in: BTreeMap<String, u32> = BTreeMap::new();
    for moved in plans.iter().flat_map(|plan| &plan.moves) {
        let runner = &movers[moved.mover].pods[moved.pod];
        let Some(pod) = state.world.cluster.objects().pods.get(&runner.key) else { return false };
        let node = state.world.fleet.node(moved.node);
        let is_kept = !state.standing.is_empty() && {
            let asks = order::asks(&state.world, &state.gangs, now, pod);
            state.standing.is_kept_from(&asks, &node.name, node.pools())
        };
        let Some(pools) = pools_to_leave(state, now, pod) else { return false };
        pools.into_iter().for_each(|pool| *moves_in.entry(pool).or_default() += 1);
        if is_kept || state.refusals.contains(&owner(pod), &node.name, now) || !owners.insert(owner(pod)) {
            return false;
        }
    }
    !owners.is_empty() && are_few(state, now, &moves_in)
}

/// Whether so many moves in these pools are within what an hour may have.
fn are_few(state: &State, now: Time, moves_in: &BTreeMap<String, u32>) -> bool {
    let most = |pool: &str| {
        let cards = state.world.fleet.nodes().flat_map(|node| node.report.iter());
        let cards = cards.flat_map(|(_, report)| report.cards.values());
        let own = cards.filter(|card| card.pool.as_deref() == Some(pool));
        own.filter_map(|card| Some(card.placement.gather.as_ref()?.per_hour)).min().unwrap_or(0)
    };
    moves_in.iter().all(|(pool, moves)| state.gathering.moved_in(pool, now) + moves <= most(pool))
}

/// The places of the successors, as written on the waiting pod.
fn planned_moves(world: &World, plans: &[Plan], movers: &[Mover]) -> Vec<PlannedMove> {
    let moves = plans.iter().flat_map(|plan| &plan.moves);
    let planned = moves.filter_map(|moved| {
        let pod = world.cluster.objects().pods.get(&movers[moved.mover].pods[moved.pod].key)?;
        let pod_reference = reference(pod);
        Some(PlannedMove {
            pod: format!("{}/{}", pod_reference.key, pod_reference.uid),
            owner: owner(pod),
            node: world.fleet.node(moved.node).name.clone(),
            devices: devices(world, &moved.takes),
        })
    });
    planned.collect()
}

/// Names of our devices.
fn devices(world: &World, takes: &Takes) -> Vec<String> {
    let results = takes.allocations.iter().flat_map(AllocationExt::results);
    results.filter(|result| result.driver == world.driver).map(|result| result.device.clone()).collect()
}

/// Evicts the pods that move, while each of them still may and its successor has its place.
pub(super) fn evict(
    state: &mut State,
    now: Time,
    group: &Group,
    nominated: &[(&Member, Nomination)],
) -> Preemption {
    let mut staying: Vec<(PodReference, BTreeSet<String>, String)> = Vec::new();
    for (member, planned) in
        nominated.iter().flat_map(|(member, plan)| plan.moves.iter().map(move |planned| (member, planned)))
    {
        let Some(pod) = places::mover(&state.world, planned).filter(|pod| !pod.has_ended()).cloned() else {
            continue;
        };
        if state.gathering.is_uncertain(&reference(&pod), now) {
            state.gangs.set_due(&group.id, now + UNCERTAIN);
            let why = format!("waits to see whether {} was evicted for it", pod.key());
            return Preemption { intents: Vec::new(), why, is_under_way: true };
        }
        let is_kept = state.gathering.places.iter().any(|place| {
            place.waiting == member.key
                && place.planned == *planned
                && place.is_held
                && place.taken_by.is_none()
        });
        if !is_kept || !holders::holders_of(&mut state.world, &as_nomination(planned)).is_empty() {
            return withdraw(nominated, "the place of a pod that would move for it went to another");
        }
        let queue = kueue::cluster_queue_of(group);
        let pools =
            pools_to_leave(state, now, &pod).filter(|_| kueue::may_go_for(&state.world, queue, &[pod.key()]));
        let Some(pools) = pools else {
            return withdraw(nominated, "a pod that would move for it may not move now");
        };
        staying.push((reference(&pod), pools, planned.node.clone()));
    }
    let own: BTreeSet<&Key> = group.members.iter().map(|member| &member.key).collect();
    let movers: BTreeSet<String> =
        nominated.iter().flat_map(|(_, plan)| &plan.moves).map(|planned| planned.pod.clone()).collect();
    let is_mover = |user: &Key| movers.iter().any(|mover| mover.starts_with(&format!("{user}/")));
    let mut is_anybody_in_the_way = false;
    for (_, nomination) in nominated {
        for claim in holders::holders_of(&mut state.world, nomination) {
            let users = holders::users_of(&state.world, &claim);
            is_anybody_in_the_way = true;
            if users.is_empty() || !users.iter().all(|user| own.contains(user) || is_mover(user)) {
                return withdraw(nominated, "its devices went to another claim");
            }
        }
    }
    let ends =
        |(_, nomination): &(&Member, Nomination)| is_anybody_ending_on(&state.world, now, &nomination.node);
    if staying.is_empty() && !is_anybody_in_the_way && !nominated.iter().any(ends) {
        return withdraw(nominated, "its devices are free, and it does not fit all the same");
    }
    let unsent: Vec<&(PodReference, BTreeSet<String>, String)> =
        staying.iter().filter(|(pod, ..)| !state.ledger.evictions.is_sent(pod, now)).collect();
    let mut moves_in: BTreeMap<String, u32> = BTreeMap::new();
    for (pod, pools, _) in &unsent {
        let owner = owner_of(&state.world, pod);
        for pool in pools.iter().filter(|_| !state.gathering.is_sent_away(&owner, &pod.uid)) {
            *moves_in.entry(pool.clone()).or_default() += 1;
        }
    }
    if !are_few(state, now, &moves_in) {
        return withdraw(nominated, "no more pods move in this hour");
    }
    if !are_within_budgets(&state.world, unsent.iter().map(|(pod, ..)| &pod.key)) {
        return withdraw(nominated, "a PodDisruptionBudget keeps a pod that would move for it");
    }
    let moving: BTreeSet<Key> = staying.iter().map(|(pod, ..)| pod.key.clone()).collect();
    let open: Vec<&Member> = nominated.iter().map(|(member, _)| *member).collect();
    let allowance = teams::allowance(&state.world, &open);
    let limit = state.world.teams.limit(group.id.namespace(), allowance);
    let ending = state.round.ending.get_or_insert_with(|| Ending::of(&state.world, &state.gathering, now));
    if ending.would_exceed(&mut state.world, limit.as_ref(), nominated, &moving) {
        return withdraw(nominated, "its team's limit no longer allows it");
    }
    let mut intents = Vec::new();
    for (pod, pools, node) in &staying {
        if !state.ledger.pods.is_writing(pod) && state.ledger.evictions.send(pod.clone(), None, now) {
            let owner = owner_of(&state.world, pod);
            state.gathering.set_moved(owner, pod.clone(), pools.clone(), now);
            let why = format!("moved so that {} fits; its successor has room on {node}", group.id);
            intents.push(Intent::Evict { pod: pod.clone(), why });
        }
    }
    state.gangs.set_due(&group.id, now + PLAN_AGAIN);
    let why = match moving.is_empty() {
        true => "waits for the devices of pods moved for it".to_owned(),
        false => format!("waits for {} to end, moved for it", names(&moving)),
    };
    Preemption { intents, why, is_under_way: true }
}

fn owner_of(world: &World, pod: &PodReference) -> String {
    world.cluster.objects().pods.get(&pod.key).map(|pod| owner(pod)).unwrap_or_default()
}

fn as_nomination(PlannedMove { node, devices, .. }: &PlannedMove) -> Nomination {
    let (node, devices) = (node.clone(), devices.clone());
    Nomination {
        node,
        devices,
        victims: Vec::new(),
        moves: Vec::new(),
        idle: BTreeMap::new(),
        until: Timestamp::UNIX_EPOCH,
    }
}

pub(super) fn are_within_budgets<'k>(world: &World, pods: impl Iterator<Item = &'k Key>) -> bool {
    let objects = world.cluster.objects();
    let mut left: BTreeMap<&Key, i64> = BTreeMap::new();
    for pod in pods.filter_map(|key| objects.pods.get(key)) {
        for (key, budget) in objects.budgets_of(pod) {
            *left.entry(key).or_insert(budget.status.disruptions_allowed.into()) -= 1;
        }
    }
    left.values().all(|left| *left >= 0)
}

/// Owners left alone by a new leader because one of their pods is younger than a day: it may be the successor of a moved one.
fn left_alone(state: &State, now: Time) -> BTreeSet<String> {
    let since = state.leadership.term.as_ref().map_or(now, |term| term.since);
    let Periods { day, quiet_of_owners, .. } = state.gathering.periods;
    if since + quiet_of_owners <= now {
        return BTreeSet::new();
    }
    let pods = state.world.cluster.objects().pods.values();
    pods.filter(|pod| created(pod) + day > now).map(|pod| owner(pod)).collect()
}

/// The pools that the pod would leave; `None` if it may not move now.
fn pools_to_leave(state: &State, now: Time, pod: &Pod) -> Option<BTreeSet<String>> {
    let State { world, gangs, ledger, gathering, .. } = state;
    let objects = world.cluster.objects();
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(MOVABLE_LABEL));
    if label.is_none_or(|value| value != MOVABLE) || pod.has_ended() || pod.phase() != Some("Running") {
        return None;
    }
    let PodReference { key, uid } = reference(pod);
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true))?;
    // A Job that is not known may end with its pod.
    let is_unknown_job =
        controller.kind == "Job" && !objects.jobs.contains_key(&key.with_name(&controller.name));
    let is_of_a_gang = gangs.of(&key).is_some() || order::may_be_of_a_gang(world, pod);
    if is_unknown_job
        || is_of_a_gang
        || ledger.evictions.is_refused(&reference(pod), now)
        || gathering.is_moved(&owner(pod), &uid, now)
        || !may_come_back(world, pod)
    {
        return None;
    }
    let started = pod.status.as_ref()?.start_time.as_ref()?.0.as_second();
    let runs = now.as_secs().saturating_sub(u64::try_from(started).ok()?);
    let node = pod.node_name()?;
    let mut pools = BTreeSet::new();
    for wanted in tessera_cluster::subject::of_pod(objects, pod).claims {
        let claim = objects.claims.get(&Key::from(&wanted.claim.metadata))?;
        for result in claim.results().iter().filter(|result| result.driver == world.driver) {
            let (pool, gather) = rule(world, node, &result.device)?;
            // A share's place would be the whole device.
            if result.share_id.is_some() || runs < u64::from(gather.min_runtime_seconds) {
                return None;
            }
            pools.insert(pool.to_owned());
        }
    }
    (!pools.is_empty()).then_some(pools)
}

/// Whether quotas let a successor have what the pod has now.
fn may_come_back(world: &World, pod: &Pod) -> bool {
    let namespace = &pod.key().namespace;
    let allowance = match teams::may_borrow(&world.cluster, pod) || world.teams.is_exempt(pod) {
        true => Allowance::Limits,
        false => Allowance::Guarantee,
    };
    let limit = (!world.teams.is_empty()).then(|| world.teams.limit(namespace, allowance)).flatten();
    let is_within = |limit: &tessera_placement::take_limit::TakeLimit| {
        limit.rules.iter().all(|rule| rule.taken(&world.cluster) <= rule.most)
    };
    !world.teams.has_budget(namespace) && limit.is_none_or(|limit| is_within(&limit))
}

/// What the pool of a device's card says of moves, with the pool; `None` where nobody moves.
fn rule<'w>(world: &'w World, node: &str, device: &str) -> Option<(&'w str, &'w Gather)> {
    let device: DeviceName = device.parse().ok()?;
    let (_, report) = world.fleet.node(world.fleet.find(node)?).report.as_ref()?;
    let card = report.cards.get(&device.card())?;
    let gather = card.placement.gather.as_ref().filter(|gather| gather.mode == GatherMode::Move)?;
    // In a strict queue successors would wait behind others for places that nobody else may have.
    let may = card.allocation == Allocation::Managed && card.placement.queue == QueuePolicy::BestEffort;
    card.pool.as_deref().filter(|_| may).map(|pool| (pool, gather))
}
