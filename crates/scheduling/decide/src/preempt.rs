//! Preemption of lower-priority pods for a pod without a suitable node, or for a group.
//!
//! ```text
//! planned without the victims ──> nominated (node and devices on the pods, observed) ──> victims evicted ──> devices free
//! ```
//!
//! Nominations are written to the pods, so the next leader resumes with them. From then on their devices count as taken: no other pod
//! gets them once free.

mod ending;
mod gather;
mod idle;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use tessera_api::managed::Nomination;
use tessera_cluster::{AllocationExt, ClaimExt, Holder, Key, Kind, PodExt};
use tessera_placement::Time;

use crate::group::{Group, Member, Placement};
use crate::idle::successors::{owner_of, pod_named, text_of};
use crate::intent::{Intent, PodReference};
use crate::nominations::{KEPT, LONGEST_GRACE, at, is_in_force, nomination};
use crate::pod::{ends_soon, reference};
use crate::round::{Alike, NoVictims};
use crate::state::State;
use crate::teams::{Allowance, ReclaimTo, Team};
use crate::victims::{Ask, Shortage, names};
use crate::world::World;
use crate::{holders, order, teams, victims};
pub(crate) use ending::Ending;

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const USUAL_GRACE: i64 = 30;

/// Pause between two plans for the same pods if the first found no victims or was not observed yet.
const PLAN_AGAIN: Time = Time::from_secs(10);

/// Outcome of a preemption attempt.
pub(crate) struct Preemption {
    pub intents: Vec<Intent>,
    /// Wait reason of the pods; without victims, an addition to it.
    pub why: String,
    /// Whether preemption is under way.
    pub is_under_way: bool,
}

/// How long the pod may take to end; its deletionTimestamp is the end of its grace.
fn grace(pod: &Pod, now: Time) -> Time {
    if let Some(end) = &pod.metadata.deletion_timestamp {
        return at(end.0).saturating_sub(now);
    }
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    Time::from_secs(u64::try_from(grace.unwrap_or(USUAL_GRACE)).unwrap_or_default())
}

/// The plan has not been observed on the pods yet.
fn being_written() -> Preemption {
    let why = "what is planned for it is being written".to_owned();
    Preemption { intents: Vec::new(), why, is_under_way: true }
}

/// Removes nominations.
fn withdraw(nominated: &[(&Member, Nomination)], why: &str) -> Preemption {
    let intent = |(member, _): &(&Member, Nomination)| Intent::Nominate {
        pod: reference(&member.pod),
        nomination: None,
    };
    Preemption { intents: nominated.iter().map(intent).collect(), why: why.to_owned(), is_under_way: true }
}

/// Preempts others for at least `needed` of these pods; `None` if nobody can be preempted.
pub(crate) fn preempt(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
    shortage: Shortage,
) -> Option<Preemption> {
    if open.is_empty() {
        return None;
    }
    let nominated: Vec<(&Member, Nomination)> =
        open.iter().filter_map(|member| Some((*member, nomination(&member.pod)?))).collect();
    if nominated.is_empty() {
        return nominate(state, now, group, open, needed, shortage);
    }
    let is_over = nominated.iter().any(|(_, nomination)| !is_in_force(nomination, now));
    if nominated.len() < needed && !is_over {
        // Nominations are written and observed one after the other.
        let nominations = &mut state.ledger.nominations;
        if nominations.plan_again(&group.id) == Time::ZERO {
            nominations.pause(&group.id, now + PLAN_AGAIN, now);
        }
        let again = nominations.plan_again(&group.id);
        if now < again {
            state.gangs.set_due(&group.id, again);
            return Some(being_written());
        }
    }
    if nominated.len() < needed || is_over {
        return Some(withdraw(&nominated, "what was planned for it is out of date"));
    }
    if nominated.iter().any(|(_, nomination)| !nomination.moves.is_empty()) {
        return Some(gather::evict(state, now, group, &nominated));
    }
    Some(evict_for(state, now, group, &nominated, shortage))
}

/// Chooses victims, and nominates nodes and devices for the pods.
fn nominate(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
    shortage: Shortage,
) -> Option<Preemption> {
    let asks = may_ask(state, now, group, open, shortage).into_iter().map(|ask| (ask, shortage));
    let mut asks: Vec<(Ask, Shortage)> = asks.collect();
    if shortage == Shortage::Limit {
        // Free devices may be of no use to the group, where its team's limits allow others only: those are taken back.
        let others = may_ask(state, now, group, open, Shortage::Room).into_iter();
        asks.extend(others.filter(|ask| *ask != Ask::Priority).map(|ask| (ask, Shortage::Room)));
        // What was lent comes back before the team's own pods go.
        asks.sort_by_key(|(ask, _)| *ask == Ask::Priority);
    }
    let is_of_room = shortage == Shortage::Room;
    if asks.is_empty() {
        return is_of_room.then(|| gather::nominate(state, now, group, open, needed)).flatten();
    }
    if state.world.cluster.objects().unlisted.contains(&Kind::DisruptionBudget) {
        let why = "nobody is evicted for it, for PodDisruptionBudgets cannot be listed".to_owned();
        return Some(Preemption { intents: Vec::new(), why, is_under_way: false });
    }
    let again = state.ledger.nominations.plan_again(&group.id);
    if now < again {
        state.gangs.set_due(&group.id, again);
        let nominations = &state.ledger.nominations;
        let is_planned = open.iter().any(|member| nominations.sent(&reference(&member.pod), now).is_some());
        return is_planned.then(being_written);
    }
    state.ledger.nominations.pause(&group.id, now + PLAN_AGAIN, now);
    let mut found = Err(NoVictims::Nobody);
    for ask in asks {
        match (find_victims_once(state, now, group, open, needed, ask), &found) {
            (Ok(plan), _) => {
                found = Ok((plan, ask.1));
                break;
            }
            (Err(why), Err(NoVictims::Nobody)) => found = Err(why),
            (Err(_), _) => {}
        }
    }
    let ((placements, victims), shortage) = match found {
        Ok(found) => found,
        Err(NoVictims::Nobody) if is_of_room => return gather::nominate(state, now, group, open, needed),
        Err(NoVictims::Nobody) => return None,
        Err(NoVictims::Room { node, pods }) => {
            state.gangs.set_due(&group.id, now + PLAN_AGAIN);
            let why = format!(
                "pods of lower priority without devices take room that it needs on {node}, and only pods with managed \
                 cards are evicted for it: {pods}. A taint on nodes with managed cards keeps such pods away"
            );
            return Some(Preemption { intents: Vec::new(), why, is_under_way: false });
        }
        Err(NoVictims::Kept) => {
            // A change of the budget triggers no retry.
            state.gangs.set_due(&group.id, now + PLAN_AGAIN);
            let why = "others would make room, and a PodDisruptionBudget keeps them".to_owned();
            return Some(Preemption { intents: Vec::new(), why, is_under_way: false });
        }
    };
    state.gangs.set_due(&group.id, now + PLAN_AGAIN);
    let wanted = idle::Wanted::new(&state.world, &state.gangs, &state.idle);
    let (mut idle, announced) = wanted.among(&state.world, &state.gangs, &victims);
    let grace = (announced + longest_grace(&state.world, now, &victims)).min(LONGEST_GRACE);
    let until = i64::try_from((now + grace + KEPT).as_secs()).ok();
    let until = until.and_then(|until| Timestamp::from_second(until).ok())?;
    let mut intents = Vec::new();
    for (place, placed) in placements.iter().enumerate() {
        let Placement { member, node, fit, .. } = placed;
        let results = fit.allocations.iter().flat_map(AllocationExt::results);
        let own = results.filter(|result| result.driver == state.world.driver);
        let devices = own.map(|result| result.device.clone()).collect();
        let on_node = victims.iter().filter_map(|key| state.world.cluster.objects().pods.get(key));
        // Devices in the way of a limit are anywhere.
        let is_in_the_way = |pod: &Pod| match shortage {
            Shortage::Room => node_of(&state.world, pod) == Some(node),
            Shortage::Limit => place == 0,
        };
        let on_node: Vec<String> =
            on_node.filter(|pod| is_in_the_way(pod)).map(|pod| text_of(&reference(pod))).collect();
        let is_last = place + 1 == placements.len();
        // Spread, as a pod has room for 256 KiB of annotations.
        let idle = idle.extract_if(.., |text, _| is_last || on_node.contains(text)).collect();
        let nomination =
            Nomination { node: node.clone(), devices, victims: on_node, moves: Vec::new(), idle, until };
        let pod = reference(&member.pod);
        state.ledger.nominations.send(pod.clone(), nomination.clone(), now + PLAN_AGAIN);
        intents.push(Intent::Nominate { pod, nomination: Some(nomination) });
    }
    let why = format!("{} would be evicted for it", names(&victims));
    Some(Preemption { intents, why, is_under_way: true })
}

/// The longest remaining termination time of these pods.
fn longest_grace(world: &World, now: Time, pods: &BTreeSet<Key>) -> Time {
    let pods = pods.iter().filter_map(|key| world.cluster.objects().pods.get(key));
    pods.map(|pod| grace(pod, now)).max().unwrap_or_default().min(LONGEST_GRACE)
}

/// As [`victims::find_victims`], but a failure is cached for the round and shared by pods with the same demand.
fn find_victims_once<'m>(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&'m Member],
    needed: usize,
    ask: (Ask, Shortage),
) -> Result<(Vec<Placement<'m>>, BTreeSet<Key>), NoVictims> {
    let team = state.world.teams.team_of(group.id.namespace());
    let alike = Alike::of(group, &state.refusals, team, ask, teams::allowance(&state.world, open));
    if let Some(known) = alike.as_ref().and_then(|alike| state.round.no_victims(alike)) {
        return Err(known);
    }
    let fits = |state: &State| {
        let units = [&state.round.units, &state.round.borrowed];
        units.into_iter().flatten().map(|units| units.effort().fits).sum::<usize>()
    };
    let before = fits(state);
    let found = victims::find_victims(state, now, group, open, needed, ask);
    let fits = fits(state).saturating_sub(before);
    state.round.count_search(state.world.fleet.len(), fits);
    if let (Err(why), Some(alike)) = (&found, alike) {
        state.round.set_no_victims(alike, why.clone());
    }
    found
}

/// The node of a pod that is bound, or released to the node and counted there.
fn node_of<'w>(world: &'w World, pod: &'w Pod) -> Option<&'w str> {
    pod.node_name()
        .or_else(|| world.cluster.hold(&Holder::Pod(pod.key())).and_then(tessera_cluster::Hold::node))
}

/// A pod of the plan, still running on the nominated node or, where a limit is in the way, on any; or gone, with its devices still allocated.
fn planned_victim(world: &World, nomination: &Nomination, text: &str, shortage: Shortage) -> Option<Key> {
    let PodReference { key, uid } = pod_named(text)?;
    let is_limit = shortage == Shortage::Limit;
    let Some(pod) = world.cluster.objects().pods.get(&key) else {
        let claims = world.cluster.objects().claims.range(key.with_name("")..);
        let mut claims = claims.take_while(|(claim, _)| claim.namespace == key.namespace);
        let holds = |(claim, found): (&Key, &Arc<ResourceClaim>)| {
            found.has_devices() && holders::pods_holding(claim, found).contains(&key)
        };
        return (is_limit && claims.any(holds)).then_some(key);
    };
    let is_there = is_limit || node_of(world, pod) == Some(&nomination.node);
    (pod.metadata.uid.as_deref() == Some(uid.as_str()) && is_there && !pod.is_finished()).then_some(key)
}

/// Evicts the holders of nominated devices, and the pods of the plan that hold other room.
fn evict_for(
    state: &mut State,
    now: Time,
    group: &Group,
    nominated: &[(&Member, Nomination)],
    shortage: Shortage,
) -> Preemption {
    let State { world, ledger, gangs, idle: idle_claims, .. } = &mut *state;
    let own: BTreeSet<&Key> = group.members.iter().map(|member| &member.key).collect();
    let taker = world.teams.team_of(group.id.namespace());
    let wanted = idle::Wanted::new(world, gangs, idle_claims);
    let mut victims: BTreeSet<Key> = BTreeSet::new();
    for (_, nomination) in nominated {
        for claim in holders::holders_of(world, nomination) {
            let users = holders::users_of(world, &claim);
            if users.iter().any(|user| own.contains(user))
                || own.iter().any(|own| holders::is_claim_of(world, &claim, own))
            {
                continue;
            }
            if users.is_empty() {
                return withdraw(nominated, "its devices went to another claim");
            }
            victims.extend(users.into_iter().flat_map(|user| wanted.going_with(world, gangs, taker, &user)));
        }
        let planned = nomination.victims.iter();
        let planned = planned.filter_map(|text| planned_victim(world, nomination, text, shortage));
        let planned = planned.filter(|pod| !own.contains(pod));
        victims.extend(planned.flat_map(|pod| wanted.going_with(world, gangs, taker, &pod)));
    }
    let pods: Vec<Pod> = victims
        .iter()
        .filter_map(|victim| Some(world.cluster.objects().pods.get(victim)?.as_ref().clone()))
        .collect();
    let staying: Vec<&Pod> = pods.iter().filter(|pod| !pod.has_ended()).collect();
    if staying.iter().any(|pod| ledger.evictions.is_refused(&reference(pod), now)) {
        return withdraw(nominated, "a pod in its way may not be evicted");
    }
    let is_higher = |victim: &Key| {
        let team = world.teams.team_of(&victim.namespace);
        victims::is_higher(&world.teams, group, team, order::priority_of(world, gangs, victim))
    };
    let is_lent = |victim: &Key| wanted.of(gangs, victim).is_none() && !is_higher(victim);
    let others: Vec<Key> = staying.iter().map(|pod| pod.key()).filter(is_lent).collect();
    let takes_back = !others.is_empty();
    if takes_back && !victims::may_take_back(state, now, taker, &others) {
        return withdraw(nominated, "its devices went to a pod that it may not preempt");
    }
    let State { world, ledger, gangs, waits, round, idle: idle_claims, successors, gathering, .. } = state;
    let ending = round.ending.get_or_insert_with(|| Ending::of(world, gathering, now));
    let open: Vec<&Member> = nominated.iter().map(|(member, _)| *member).collect();
    let allowance = if takes_back { Allowance::Guarantee } else { teams::allowance(world, &open) };
    let limit = world.teams.limit(group.id.namespace(), allowance);
    let (mut team, mut share) = (taker, "guarantee");
    if ending.would_exceed(world, limit.as_ref(), nominated, &victims) {
        let may_borrow = takes_back && teams::allowance(world, &open) == Allowance::Limits;
        let is_unsent = |pod: &&&Pod| !ledger.evictions.is_sent(&reference(pod), now);
        let unsent = staying.iter().filter(is_unsent).map(|pod| pod.key());
        let unsent: Vec<Key> = unsent.filter(|victim| others.contains(victim)).collect();
        let of = (others.as_slice(), unsent.as_slice(), &victims);
        let beyond = || ending.beyond_guarantee(world, waits, taker, nominated, of);
        let Some(found) = may_borrow.then(beyond).flatten() else {
            return withdraw(nominated, "its team's limit or guarantee no longer allows it");
        };
        (team, share) = found;
    }
    if victims.is_empty()
        && !nominated.iter().any(|(_, nomination)| is_anybody_ending_on(world, now, &nomination.node))
    {
        return withdraw(nominated, "its devices are free, and it does not fit all the same");
    }
    if let Some(announced) = wanted.announce((gangs, idle_claims), now, &group.id, &staying) {
        gangs.set_due(&group.id, announced.end.min(now + PLAN_AGAIN));
        return Preemption { intents: announced.intents, why: announced.why, is_under_way: true };
    }
    let is_sent = |pod: &&&Pod| ledger.evictions.is_sent(&reference(pod), now);
    let keys: Vec<Key> = staying.iter().map(|pod| pod.key()).collect();
    // The plan may be older than the grace of idle pods.
    if !staying.iter().any(|pod| is_sent(&pod)) && !gather::are_within_budgets(world, keys.iter()) {
        return withdraw(nominated, "a PodDisruptionBudget keeps a pod in its way");
    }
    let mut intents = Vec::new();
    for found in &staying {
        let pod = reference(found);
        if !ledger.pods.is_writing(&pod) && ledger.evictions.send(pod.clone(), None, now) {
            let idle = wanted.of(gangs, &pod.key);
            if let (Some(_), Some(asker)) = (idle, group.members.first()) {
                successors.evict(pod.clone(), owner_of(gangs, found), &asker.key, now);
            }
            let why = match (idle, world.teams.get(team).filter(|_| takes_back)) {
                (Some(idle), _) => idle.why_evicted(&group.id),
                (None, Some(team)) => {
                    format!("taken back for {}: team {} is below its {share}", group.id, team.name)
                }
                (None, None) => format!("preempted by {} of higher priority", group.id),
            };
            intents.push(Intent::Evict { pod, why });
        }
    }
    let is_sent = |pod: &&Pod| ledger.evictions.is_sent(&reference(pod), now);
    // Hours are used up, and pods begin to use their devices, without any change of the node.
    let is_settled = group.is_alone()
        && shortage == Shortage::Room
        && !victims.is_empty()
        && staying.iter().all(is_sent)
        && !world.teams.has_budget(group.id.namespace())
        && victims.iter().all(|pod| wanted.of(gangs, pod).is_none());
    let mut again = now + PLAN_AGAIN;
    if is_settled {
        group.members.iter().for_each(|member| ledger.nominations.set_evicting(&member.key));
        again += round.apart();
    }
    gangs.set_due(&group.id, again);
    let why = if victims.is_empty() {
        "waits for room on the nodes where pods are ending for it".to_owned()
    } else {
        format!("waits for {} to end, evicted for it", names(&victims))
    };
    Preemption { intents, why, is_under_way: true }
}

/// By what rights the group may ask any unit: a cheap test for the usual case without possible victims.
fn may_ask(state: &mut State, now: Time, group: &Group, open: &[&Member], shortage: Shortage) -> Vec<Ask> {
    // Idle devices go first, and what was lent comes back before the team's own pods go.
    let mut asks = Vec::new();
    let is_limit = shortage == Shortage::Limit;
    // A limit written by mistake evicts nobody at once.
    let reclaim_from = state.world.teams.reclaim_from();
    if is_limit && now < reclaim_from {
        state.gangs.set_due(&group.id, reclaim_from);
        return asks;
    }
    if !state.idle.claims().is_empty() {
        let units = victims::take_units(state, now, Ask::Idle);
        victims::put_back(state, units, Ask::Idle);
        asks.extend(state.round.is_idle.contains(&true).then_some(Ask::Idle));
    }
    let teams = &state.world.teams;
    let may_take_back = |team: &Team| team.has_guarantee() && (!is_limit || team.has_parent());
    let team = teams.get(teams.team_of(group.id.namespace()));
    let may_borrow = team.is_some() && !is_limit && teams::allowance(&state.world, open) == Allowance::Limits;
    let rights = [
        (Ask::TakeBack, team.is_some_and(may_take_back)),
        (
            Ask::TakeBackForParent,
            may_borrow && teams.get(team.and_then(Team::parent)).is_some_and(Team::has_guarantee),
        ),
        (Ask::FairShare, may_borrow && teams.reclaim_to == ReclaimTo::FairShare),
    ];
    for (ask, _) in rights.into_iter().filter(|(_, may)| *may) {
        if lowest(state, now, ask) < victims::STAYS {
            asks.push(ask);
        }
        if let Some(next) = state.round.next_take_back {
            state.gangs.set_due(&group.id, next);
        }
    }
    if group.may_preempt() && lowest(state, now, Ask::Priority) < group.priority() {
        asks.push(Ask::Priority);
    }
    asks
}

/// The lowest priority or rank among units.
fn lowest(state: &mut State, now: Time, ask: Ask) -> i32 {
    let units = victims::take_units(state, now, ask);
    let lowest = units.lowest().unwrap_or(i32::MAX);
    victims::put_back(state, units, ask);
    lowest
}

/// Whether a pod on the node will end soon and still takes room.
fn is_anybody_ending_on(world: &World, now: Time, node: &str) -> bool {
    let mut pods = world.cluster.objects().pods.values();
    pods.any(|pod| pod.node_name() == Some(node) && ends_soon(pod, now))
}
