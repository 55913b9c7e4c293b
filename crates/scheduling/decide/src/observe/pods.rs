//! Observed pods: when they begin and cease to wait, and how kube-scheduler judges pods in flight.

use k8s_openapi::api::core::v1::Pod;
use tessera_api::managed::{REFUSED_NODES_ANNOTATION, RefusedNodes};
use tessera_cluster::gang::Membership;
use tessera_cluster::usage::take_the_same;
use tessera_cluster::{Key, PodExt, gang};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::leadership::Leadership;
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::on_the_way::{self, has_its_devices};
use crate::pod::{is_open, reference};
use crate::queue::Queue;
use crate::state::State;
use crate::upkeep::{unclaimed, unready};
use crate::waits::Waits;
use crate::world::World;
use crate::{learn, nominations, refusals, unplaced};

/// With the first managed cards, pods without gates become this controller's business too.
pub(crate) fn add_open_pods(world: &World, ledger: &Ledger, waits: &mut Waits) {
    for (key, pod) in &world.cluster.objects().pods {
        if is_open(pod) && ledger.pods.proposal(key).is_none() {
            waits.add(key);
        }
    }
}

pub(crate) fn apply_pod(state: &mut State, now: Time, key: &Key, pod: &Pod) {
    let before = state.world.cluster.objects().pods.get(key).map(AsRef::as_ref);
    state.workload_pods.replace(key, before, Some(pod));
    let same_uid = before.is_some_and(|before| before.metadata.uid == pod.metadata.uid);
    // A resized pod takes a different amount of its node.
    let takes_the_same = |before: &Pod| {
        let stays = before.node_name() == pod.node_name() && before.phase() == pod.phase();
        stays && (pod.node_name().is_none() || take_the_same(before, pod))
    };
    let is_as_before = same_uid && before.is_some_and(takes_the_same);
    if !is_as_before {
        let nodes: Vec<String> = before
            .and_then(PodExt::node_name)
            .into_iter()
            .chain(pod.node_name())
            .map(str::to_owned)
            .collect();
        nodes.iter().for_each(|node| state.world.fleet.mark(node));
    }
    if !same_uid {
        // The earlier pod of this name is gone.
        if let Some(before) = before.cloned() {
            state.refusals.forget(&reference(&before));
            unclaimed::mark_claims_of_ended(&state.leadership, &mut state.marks, &before);
        }
        nominations::forget_nominated(&mut state.world, &mut state.ledger, key);
        on_the_way::end_proposal(&mut state.world, &mut state.ledger, key);
        forget_waiting(&mut state.ledger, &mut state.waits, &state.standing, key);
    }
    state.ledger.pods.end_adoption(key);
    let gang = gang::of_pod(state.world.cluster.objects(), pod).ok().flatten();
    set_gang(&mut state.gangs, &mut state.marks, &state.leadership, (key, pod), gang);
    learn::add_arrival(&mut state.world, &mut state.learned, key, pod);
    unplaced::track_unplaced(&mut state.unplaced, key, pod);
    if let Some(noted) = pod.metadata.annotations.as_ref().and_then(|all| all.get(REFUSED_NODES_ANNOTATION)) {
        state.refusals.learn(&refusals::owner(pod), &RefusedNodes::decode(noted), now);
    }
    let is_leading = state.leadership.term.is_some();
    state.successors.observe(state.world.cluster.objects(), key, pod, now, is_leading);
    if pod.node_name().is_some() {
        state.refusals.forget(&reference(pod));
    }
    unready::mark_evictions(&state.leadership, &mut state.marks, &state.healing, key, pod);
    if pod.is_gated() && pod.metadata.deletion_timestamp.is_none() {
        state.waits.add(key);
        return;
    }
    if state.world.fleet.has_managed() && is_open(pod) {
        state.waits.add(key);
        state.ledger.pods.end_release(key);
    } else {
        forget_waiting(&mut state.ledger, &mut state.waits, &state.standing, key);
        nominations::forget_nominated(&mut state.world, &mut state.ledger, key);
    }
    if pod.has_ended() {
        unclaimed::mark_claims_of_ended(&state.leadership, &mut state.marks, pod);
    }
    let Some(proposal) = state.ledger.pods.proposal(key) else {
        if !pod.has_ended()
            && pod.node_name().is_none()
            && pod.nominated_node().is_some()
            && !pod.is_unschedulable()
        {
            state.ledger.pods.adopt(&reference(pod));
        }
        return;
    };
    let is_elsewhere = pod.node_name().is_some_and(|node| node != proposal.node);
    // For a managed pod, refusal is inferred from deallocated devices, or else from the deadline.
    let is_refused = pod.node_name().is_none() && pod.is_unschedulable() && proposal.managed.is_none();
    if is_elsewhere || is_refused {
        state.refusals.add(refusals::owner(pod), &proposal.node, now);
    }
    if pod.has_ended() || is_elsewhere || is_refused {
        on_the_way::end_proposal(&mut state.world, &mut state.ledger, key);
    } else if pod.node_name().is_some() {
        // Its claims come by another watch, perhaps later. Until then their devices are not free.
        let subject = tessera_cluster::subject::of_pod(state.world.cluster.objects(), pod);
        if proposal.is_allocated || has_its_devices(&subject) {
            on_the_way::end_proposal(&mut state.world, &mut state.ledger, key);
        } else {
            state.world.cluster.forget_room(key);
        }
    } else {
        on_the_way::apply_verdict(&mut state.ledger, now, key, pod);
    }
}

/// Sets the pod's gang. After a gang shrank, the next leader reads so on its pods.
pub(crate) fn set_gang(
    gangs: &mut Gangs,
    marks: &mut Marks,
    leadership: &Leadership,
    (key, pod): (&Key, &Pod),
    gang: Option<Membership>,
) {
    let id = gang.as_ref().map(|member| member.gang.clone());
    let has_shrunk = gangs.set(key, gang, formed(pod));
    if leadership.term.is_none() {
        return;
    }
    let others = id.iter().filter(|_| has_shrunk).flat_map(|gang| gangs.members(gang));
    let to_note = others.chain([key]).filter(|pod| gangs.shrunk_to(pod).is_some());
    marks.to_note.extend(to_note.cloned());
}

/// Number of pods at the start of the pod's gang; 0 for a pod that has ended or not started. A gated pod may be copied from another.
pub(crate) fn formed(pod: &Pod) -> usize {
    if pod.is_gated() || pod.has_ended() { 0 } else { gang::formed(pod) }
}

/// The pod no longer waits for this controller.
pub(crate) fn forget_waiting(ledger: &mut Ledger, waits: &mut Waits, standing: &Queue, key: &Key) {
    ledger.pods.end_release(key);
    if waits.remove(key) {
        free_its_place(waits, standing);
    }
}

/// A pod no longer waits: anything kept for it is available to others.
pub(crate) fn free_its_place(waits: &mut Waits, standing: &Queue) {
    if !standing.is_empty() {
        waits.begin_anew();
    }
}
