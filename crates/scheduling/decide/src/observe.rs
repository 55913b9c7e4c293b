//! Takes in observed objects: marks the pods, gangs and nodes they concern. Decides nothing.

pub(crate) mod answers;
pub(crate) mod claims;
pub(crate) mod pods;

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_cluster::usage::volume_claims;
use tessera_cluster::{ClaimExt, Key, Kind, Object, gang};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::observation::ObservationError;
use crate::pod::reference;
use crate::state::State;
use crate::upkeep::{idle, overuse, unclaimed, unready};
use crate::waits::Waits;
use crate::world::World;
use crate::{admission, fencing, learn, nodes, nominations, on_the_way, places, unplaced};

pub(crate) fn apply(state: &mut State, now: Time, object: Object) -> Result<(), ObservationError> {
    let key = Key::from(object.metadata());
    let kind = object.kind();
    let mut report = Ok(());
    let mut is_reallocated = false;
    let had_managed = state.world.fleet.has_managed();
    match &object {
        Object::ResourceSlice(slice) => {
            report = state.world.fleet.apply_slice(now, slice, &state.world.driver);
            nodes::mark_slice(&mut state.world, &key.name);
            if slice.spec.node_name.is_none() {
                state.world.fleet.mark_all();
            }
        }
        Object::ResourceClaim(claim) => {
            is_reallocated =
                state.world.cluster.objects().claims.get(&key).and_then(|claim| claim.allocation())
                    != claim.allocation();
            if is_reallocated {
                claims::mark_claim(&mut state.world, &mut state.marks, &mut state.guesses, &key);
                claims::count_departures(&mut state.world, &key);
            }
        }
        Object::Pod(pod) => pods::apply_pod(state, now, &key, pod),
        Object::GpuQuota(quota) => state.world.teams.hours.observe(&key.name, quota.status.as_ref()),
        _ => {}
    }
    let never_evicted = never_evicted(state, kind, &key);
    let job_set = if kind == Kind::Job { gang::job_set_of(object.metadata()) } else { None };
    let is_changed = match state.world.cluster.apply(object) {
        Ok(is_changed) => is_changed,
        Err(error) => {
            state.world.cluster.delete(kind, &key);
            state.world.cluster.mark_unreadable(kind, key, error.to_string());
            state.world.fleet.mark_all();
            return Err(error.into());
        }
    };
    match kind {
        _ if !is_changed => {}
        Kind::ResourceClaim => {
            if is_reallocated {
                claims::mark_claim(&mut state.world, &mut state.marks, &mut state.guesses, &key);
                mark_use(state);
            }
            // A follower would only accumulate them; a new leader checks all claims.
            if state.leadership.term.is_some() {
                state.marks.unclaimed.insert(key.clone());
            }
            on_the_way::settle_allocation(&mut state.world, &mut state.ledger, &key);
            fencing::end_fence_seen(&state.world, &mut state.ledger, &state.leadership, &key);
            unready::track_failure(&state.world, &mut state.healing, now, &key);
            idle::track(&state.world, &mut state.idle, &mut state.waits, now, &key);
            overuse::track(&state.world, &mut state.overuse, now, &key);
            claims::advance_users(state, now, &key);
            unplaced::mark_claim_of_unplaced(&state.world, &mut state.unplaced, &key);
        }
        Kind::ResourceSlice => {
            nodes::mark_slice(&mut state.world, &key.name);
            if !had_managed && state.world.fleet.has_managed() {
                pods::add_open_pods(&state.world, &state.ledger, &mut state.waits);
            }
        }
        Kind::Node => state.world.fleet.mark(&key.name),
        Kind::Pod => {
            let pod = state.world.cluster.objects().pods.get(&key).cloned();
            places::track(state, now, &key, pod.as_deref());
        }
        Kind::ResourceClaimTemplate => {
            state.waits.mark_all_due();
            unplaced::mark_template_of_unplaced(&mut state.unplaced, &key.namespace);
        }
        Kind::Job | Kind::JobSet | Kind::LeaderWorkerSet | Kind::PodGroup => {
            regroup_pods(state, kind, &key);
            if let Some(job_set) = job_set {
                regroup_pods(state, Kind::JobSet, &job_set);
            }
        }
        Kind::GpuQuota | Kind::Namespace => mark_teams(state),
        Kind::Workload => state.checks.mark(&key),
        Kind::AdmissionCheck | Kind::ResourceFlavor => admission::mark_all(state),
        // The search for victims is repeated periodically anyway.
        Kind::DisruptionBudget if self::never_evicted(state, kind, &key) != never_evicted => {
            state.waits.begin_anew();
        }
        Kind::DisruptionBudget => {}
        Kind::DeviceClass | Kind::DeviceTaintRule => {
            state.world.rankings.clear();
            state.world.fleet.mark_all();
            unplaced::mark_class_of_unplaced(&mut state.unplaced);
        }
        Kind::PersistentVolume | Kind::PersistentVolumeClaim => {
            if is_volume_of_waiting(&state.world, &state.waits, kind, &key) {
                state.world.fleet.mark_all();
            }
        }
    }
    report.map_err(|error| ObservationError::Report { slice: key.name, error: error.to_string() })
}

/// An unreadable object counts as deleted, except for the devices held by a claim.
pub(crate) fn apply_unreadable(
    state: &mut State,
    now: Time,
    kind: Kind,
    key: &Key,
    why: String,
    holds: Option<Box<ResourceClaim>>,
) -> Result<(), ObservationError> {
    let seen = match holds {
        Some(claim) => apply(state, now, Object::from(*claim)),
        None => {
            delete(state, now, kind, key);
            Ok(())
        }
    };
    state.world.cluster.mark_unreadable(kind, key.clone(), why);
    state.waits.mark_namespace_due(&key.namespace);
    seen
}

pub(crate) fn delete(state: &mut State, now: Time, kind: Kind, key: &Key) {
    match kind {
        Kind::ResourceSlice => {
            let node = nodes::node_of_slice(&state.world, &key.name);
            state.world.cluster.delete(kind, key);
            match node {
                None => state.world.fleet.mark_all(),
                Some(node) => {
                    state.world.fleet.delete_slice(&key.name, &node);
                    state.world.fleet.mark_devices(&node);
                }
            }
            return;
        }
        Kind::ResourceClaim => {
            claims::mark_claim(&mut state.world, &mut state.marks, &mut state.guesses, key);
            claims::count_departures(&mut state.world, key);
            state.ledger.claims.end_clear(key);
            unplaced::mark_claim_of_unplaced(&state.world, &mut state.unplaced, key);
            mark_use(state);
            state.world.cluster.delete(kind, key);
            on_the_way::settle_allocation(&mut state.world, &mut state.ledger, key);
            unready::track_failure(&state.world, &mut state.healing, now, key);
            idle::track(&state.world, &mut state.idle, &mut state.waits, now, key);
            overuse::track(&state.world, &mut state.overuse, now, key);
            let on_their_way: Vec<Key> = state.ledger.pods.proposed_in(&key.namespace).cloned().collect();
            on_their_way.iter().for_each(|pod| claims::advance_user(state, now, pod));
            return;
        }
        Kind::Pod => {
            if let Some(node) = nodes::node_of_pod(&state.world, key) {
                state.world.fleet.mark(&node);
            }
            learn::add_departure(&mut state.world, &mut state.learned, key);
            nominations::forget_nominated(&mut state.world, &mut state.ledger, key);
            on_the_way::end_proposal(&mut state.world, &mut state.ledger, key);
            pods::forget_waiting(&mut state.ledger, &mut state.waits, &state.standing, key);
            state.ledger.pods.end_adoption(key);
            let gang = state.gangs.of(key).cloned();
            state.gangs.set(key, None, 0);
            // The pod may have been the last of a larger size.
            if let Some(gang) = gang.filter(|_| state.leadership.term.is_some()) {
                let shrunk = state.gangs.members(&gang).filter(|pod| state.gangs.shrunk_to(pod).is_some());
                state.marks.to_note.extend(shrunk.cloned());
            }
            unplaced::forget_unplaced(&mut state.unplaced, key);
            places::track(state, now, key, None);
            if let Some(pod) = state.world.cluster.objects().pods.get(key).cloned() {
                state.refusals.forget(&reference(&pod));
                state.workload_pods.replace(key, Some(&pod), None);
                unclaimed::mark_claims_of_ended(&state.leadership, &mut state.marks, &pod);
            }
        }
        Kind::Node => state.world.fleet.mark(&key.name),
        Kind::DeviceClass | Kind::DeviceTaintRule => {
            state.world.rankings.clear();
            state.world.fleet.mark_all();
            unplaced::mark_class_of_unplaced(&mut state.unplaced);
        }
        Kind::GpuQuota => {
            state.world.teams.hours.observe(&key.name, None);
            mark_teams(state);
        }
        Kind::Namespace => {
            state.world.teams.hours.forget_namespace(&key.name);
            mark_teams(state);
        }
        Kind::Workload => state.checks.mark_deleted(key),
        Kind::AdmissionCheck | Kind::ResourceFlavor => admission::mark_all(state),
        Kind::ResourceClaimTemplate
        | Kind::PersistentVolume
        | Kind::PersistentVolumeClaim
        | Kind::Job
        | Kind::JobSet
        | Kind::LeaderWorkerSet
        | Kind::PodGroup => {}
        Kind::DisruptionBudget if never_evicted(state, kind, key) => state.waits.begin_anew(),
        Kind::DisruptionBudget => {}
    }
    state.world.cluster.delete(kind, key);
}

/// Whether the key is of a PodDisruptionBudget whose pods borrow nothing.
fn never_evicted(state: &State, kind: Kind, key: &Key) -> bool {
    let is_known = kind == Kind::DisruptionBudget && !state.world.teams.is_empty();
    let budget = state.world.cluster.objects().budgets.get(key).filter(|_| is_known);
    budget.is_some_and(|budget| budget.never_allows_any())
}

/// A team may have got another limit, or other namespaces.
fn mark_teams(state: &mut State) {
    state.world.teams.mark_outdated();
    state.ledger.nominations.look_again();
    if !state.world.cluster.objects().quotas.is_empty() || !state.world.teams.is_empty() {
        state.waits.begin_anew();
    }
}

/// A team may use less, also where no node changes: the slice of the device may be gone.
fn mark_use(state: &mut State) {
    if !state.world.teams.is_empty() {
        state.waits.begin_anew();
    }
}

/// A workload object changed: its pods may now belong to other gangs, or to none.
fn regroup_pods(state: &mut State, kind: Kind, key: &Key) {
    for pod in state.workload_pods.of(kind, key) {
        let Some(found) = state.world.cluster.objects().pods.get(pod) else { continue };
        let gang = gang::of_pod(state.world.cluster.objects(), found).ok().flatten();
        pods::set_gang(&mut state.gangs, &mut state.marks, &state.leadership, (pod, found), gang);
        state.waits.mark_due_if_waiting(pod);
    }
}

/// Marks all objects except those of these kinds as observed. Only Jobs, JobSets, LeaderWorkerSets, PodGroups and
/// PodDisruptionBudgets may be unlisted; without PodDisruptionBudgets nobody is preempted.
pub(crate) fn set_unlisted(world: &mut World, waits: &mut Waits, gangs: &mut Gangs, kinds: &BTreeSet<Kind>) {
    if world.cluster.objects().unlisted == *kinds {
        return;
    }
    world.cluster.set_unlisted(kinds.clone());
    for (key, pod) in &world.cluster.objects().pods {
        let gang = gang::of_pod(world.cluster.objects(), pod).ok().flatten();
        gangs.set(key, gang, pods::formed(pod));
    }
    waits.mark_all_due();
}

/// Whether a waiting pod uses this PersistentVolumeClaim, or this PersistentVolume through one.
pub(crate) fn is_volume_of_waiting(world: &World, waits: &Waits, kind: Kind, key: &Key) -> bool {
    let objects = world.cluster.objects();
    waits.pods().filter_map(|waiting| Some((waiting, objects.pods.get(waiting)?))).any(|(waiting, pod)| {
        volume_claims(pod).any(|name| {
            let claim = waiting.with_name(name);
            if kind == Kind::PersistentVolumeClaim {
                return claim == *key;
            }
            let claim = objects.volume_claims.get(&claim);
            claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_ref()) == Some(&key.name)
        })
    })
}
