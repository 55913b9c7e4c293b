//! Looks at one waiting pod and decides on its next step.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::subject::{PodObstacle, Wanted};
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::demand::Demand;
use tessera_placement::score::Way;
use tessera_placement::{Time, spread};

use crate::intent::Intent;
use crate::ledger::{ManagedProposal, Proposal};
use crate::nodes::{self, NodeFilter, Ranked};
use crate::on_the_way::{self, UNTIL_BOUND};
use crate::pod::reference;
use crate::selector_costs::{self, PAUSE};
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::world::World;
use crate::{commit, holders, leadership, refusals, tell};

/// Next step for a pod.
enum Choice {
    /// Allocate devices of managed cards on this node.
    Managed {
        node: String,
        suitable: usize,
    },
    /// Managed cards may fit, but this term may not allocate yet.
    TooEarly,
    Node {
        node: String,
        suitable: usize,
    },
    /// Only cards of pools allocated by kube-scheduler alone fit.
    Native,
    /// Explanation, and nodes with the devices but without other room.
    Nowhere {
        sentence: String,
        crowded: Vec<String>,
        /// Whether the pod asks for managed cards.
        is_managed: bool,
    },
    /// kube-scheduler would end its attempt with this error.
    Fatal(String),
}

/// The best node neither reserved for others nor with a recent refusal of this owner's pods.
fn best(mut ranked: Ranked<'_>, filter: &NodeFilter<'_>) -> Choice {
    let ranking = ranked.ranking;
    if let Some(error) = ranking.fatal() {
        return Choice::Fatal(error.to_owned());
    }
    let Some((score, first)) = ranked.free(filter).next() else {
        let names = ranking.without_room().map(|index| ranked.view.fleet.node(index).name.clone());
        let crowded = names.collect();
        let is_managed = !ranking.is_empty();
        return Choice::Nowhere { sentence: ranking.sentence(ranked.kept(filter)), crowded, is_managed };
    };
    let key = spread::topology_key(ranked.view.fleet, first).map(str::to_owned);
    let node = key.and_then(|key| {
        let candidates: Vec<_> = ranked.free(filter).collect();
        spread::least_used(&key, &candidates, &mut ranked.view)
    });
    let node = ranked.view.fleet.node(node.unwrap_or(first)).name.clone();
    let suitable = ranking.suitable();
    match score.way {
        Way::Managed => Choice::Managed { node, suitable },
        Way::Steered => Choice::Node { node, suitable },
        Way::Native => Choice::Native,
    }
}

pub(crate) fn look_at(state: &mut State, now: Time, key: &Key) -> Option<Intent> {
    let pod = state.world.cluster.objects().pods.get(key)?.clone();
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    if let Some(other) = gates.into_iter().find(|gate| gate.name != tessera_api::steering::GATE) {
        let why = WaitReason::Passing(format!("waits for its scheduling gate {}", other.name));
        return tell::wait(&mut state.waits, now, key, &pod, why);
    }
    let is_gated = pod.is_gated();
    state.waits.set_managed(key, false);
    let demand = match state.world.rankings.demand(state.world.cluster.objects(), &pod) {
        Ok(demand) => demand,
        Err(error) => {
            return is_gated.then(|| tell::release(state, key, &pod, error.to_string()));
        }
    };
    if let Some(obstacle) = demand.obstacle() {
        let text = obstacle.to_string();
        let is_of_others = matches!(obstacle, PodObstacle::NoExtendedResource(_));
        let is_told = is_gated || obstacle.is_unserved();
        state.waits.set_managed(key, is_told && !is_gated);
        return if !is_told {
            None
        } else if demand.subject.claims.is_empty() && is_of_others {
            Some(tell::release(state, key, &pod, text))
        } else {
            tell::wait(&mut state.waits, now, key, &pod, WaitReason::Unfit(text))
        };
    }
    if on_the_way::is_being_written(&state.ledger, &demand) {
        let why = WaitReason::Passing("its claims are being written".to_owned());
        return tell::wait(&mut state.waits, now, key, &pod, why);
    }
    if let Some(paused) = stays_paused(state, now, key, &pod, &demand) {
        return paused;
    }
    if !demand.is_open() {
        return if is_gated {
            Some(tell::release(state, key, &pod, "no claim of the pod needs devices".to_owned()))
        } else {
            go_on(state, now, key, &pod, &demand)
        };
    }
    state.waits.set_shape_text(key, Some(demand.text()));
    if let Some(why) = selector_costs::unanswered(&mut state.world, &mut state.round, &demand) {
        state.waits.set_managed(key, !is_gated);
        state.waits.set_pause(key, now + PAUSE);
        return tell::wait(&mut state.waits, now, key, &pod, WaitReason::Costly(why));
    }
    if let Some(why) = leadership::refused_claim_of(&state.leadership, &demand) {
        state.waits.set_managed(key, true);
        return tell::wait(&mut state.waits, now, key, &pod, WaitReason::Unfit(why));
    }
    let shared: Vec<Key> = demand.shared().collect();
    if let Some(node) = state.ledger.pods.node_of_claims(&shared).map(str::to_owned) {
        // The claim gets its devices with the first pod; this pod must follow to the same node.
        let text = format!("waits until another pod's claim has devices on {node}");
        return tell::wait(&mut state.waits, now, key, &pod, WaitReason::Passing(text));
    }
    if let Some(why) = tell::unknown_scheduler(&state.config, &pod) {
        return leave_to_its_scheduler(state, now, key, &pod, &demand, why);
    }
    let choice = choose(state, now, &demand, &pod);
    state.waits.set_managed(
        key,
        match &choice {
            Choice::Managed { .. } | Choice::TooEarly => true,
            Choice::Nowhere { is_managed, .. } => *is_managed,
            Choice::Node { .. } | Choice::Native | Choice::Fatal(_) => false,
        },
    );
    match choice {
        Choice::Managed { node, suitable } => {
            commit::allocate(state, now, key, &pod, &demand, (&node, suitable))
        }
        Choice::TooEarly => {
            let text = "waits until the controller knows all allocations".to_owned();
            tell::wait(&mut state.waits, now, key, &pod, WaitReason::Passing(text))
        }
        Choice::Nowhere { sentence, is_managed: true, .. } => {
            state.waits.set_stuck(key, true);
            // Some claims may have devices from this controller on a node without devices for the others.
            let taken = commit::take_back(state, key, &pod, &demand, &sentence);
            // The Event follows once preemption was considered.
            state.waits.set_reason(key, WaitReason::NoNode { text: sentence, keeps_place: false });
            taken
        }
        _ if !is_gated => None,
        Choice::Node { node, suitable } => {
            let fit = nodes::fit_by_scheduler(&mut state.world, &demand, &node)?;
            on_the_way::send(&mut state.world, &mut state.ledger, key, &pod, &demand, &node, fit);
            let why = format!("of {suitable} suitable nodes, {node} loses least by it");
            Some(Intent::Steer { pod: reference(&pod), node, why })
        }
        Choice::Native => {
            let why = "only cards of pools with native allocation suit now".to_owned();
            Some(tell::release(state, key, &pod, why))
        }
        Choice::Fatal(error) => Some(tell::release(state, key, &pod, error)),
        Choice::Nowhere { sentence, crowded, .. } => {
            let why = if let Some(node) = crowded.iter().find(|node| could_preempt(&state.world, &pod, node))
            {
                format!("pods of lower priority could make room on {node}; that is kube-scheduler's part")
            } else if !nodes::is_ours(&mut state.world, &demand) {
                "no card of a steered pool is what it asks for".to_owned()
            } else {
                let why = WaitReason::NoNode { text: sentence, keeps_place: false };
                return tell::wait(&mut state.waits, now, key, &pod, why);
            };
            Some(tell::release(state, key, &pod, why))
        }
    }
}

/// The best node without a recent refusal of this owner's pods: one with managed cards if the pod fits there now, else
/// another.
fn choose(state: &mut State, now: Time, demand: &Demand, pod: &Pod) -> Choice {
    let mut managed = None;
    if state.world.fleet.has_managed() {
        let filter = NodeFilter::new(&state.world, &state.gangs, &state.standing, &state.refusals, now, pod);
        match best(nodes::ranked(&mut state.world, demand), &filter) {
            Choice::Managed { .. } if !leadership::may_allocate(&state.leadership) => {
                return Choice::TooEarly;
            }
            choice @ Choice::Managed { .. } => return choice,
            Choice::Nowhere { is_managed: false, .. } => {}
            choice => managed = Some(choice),
        }
    }
    if !pod.is_gated() {
        return managed.unwrap_or(Choice::Native);
    }
    // kube-scheduler would find no device: skipping its ranking halves the number of rankings kept.
    if let Some(managed) = managed
        .take_if(|_| state.world.fleet.strict(&state.world.cluster, &state.world.driver).hides_everything)
    {
        return managed;
    }
    let filter = NodeFilter::without_queue(&state.standing, &state.refusals, now, pod);
    match (best(nodes::ranked_others(&mut state.world, demand), &filter), managed) {
        (Choice::Nowhere { .. }, Some(managed)) => managed,
        (Choice::Nowhere { sentence, crowded, .. }, None) => {
            Choice::Nowhere { sentence, crowded, is_managed: false }
        }
        (native, _) => native,
    }
}

/// Whether a pod of lower priority runs on the node and may be preempted by this pod.
fn could_preempt(world: &World, pod: &Pod, node: &str) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    policy != Some("Never")
        && world.cluster.objects().pods.values().any(|other| {
            other.node_name() == Some(node) && !other.is_finished() && other.priority() < pod.priority()
        })
}

/// Next step for a pod with all its devices, some allocated by us, without a proposal in this process.
pub(crate) fn go_on(state: &mut State, now: Time, key: &Key, pod: &Pod, demand: &Demand) -> Option<Intent> {
    let ours: Vec<&Wanted> = demand
        .subject
        .claims
        .iter()
        .filter(|wanted| holders::is_unused(&state.world, &wanted.claim))
        .collect();
    let node = ours.iter().find_map(|wanted| wanted.claim.allocated_node().map(str::to_owned))?;
    if let Some(why) = tell::unknown_scheduler(&state.config, pod) {
        return commit::take_back(state, key, pod, demand, &why);
    }
    if state.refusals.contains(&refusals::owner(pod), &node, now) {
        return commit::take_back(
            state,
            key,
            pod,
            demand,
            &format!("kube-scheduler finds no room on {node}"),
        );
    }
    let managed = ManagedProposal { verdict_before: None, due: now + UNTIL_BOUND, claims: Vec::new() };
    // Cannot fail: no claims are passed.
    let _ = state.world.cluster.assume(key, pod, &node, Vec::new());
    state.world.fleet.mark(&node);
    let proposal = Proposal { node, shared: Vec::new(), is_allocated: true, managed: Some(managed) };
    state.ledger.pods.propose(&reference(pod), proposal);
    None
}

/// Takes the devices of a paused pod back, or records why the pod waits. `None` without a pause.
pub(crate) fn stays_paused(
    state: &mut State,
    now: Time,
    key: &Key,
    pod: &Pod,
    demand: &Demand,
) -> Option<Option<Intent>> {
    let (why, until) = state.refusals.paused(&reference(pod), now)?;
    let why = why.to_owned();
    if let Some(taken) = commit::take_back(state, key, pod, demand, &why) {
        return Some(Some(taken));
    }
    state.waits.set_managed(key, true);
    state.waits.set_pause(key, until);
    Some(tell::wait(&mut state.waits, now, key, pod, WaitReason::Unfit(why)))
}

/// Leaves the pod to its scheduler: removes our gate, or reports the reason if the pod asks for managed cards.
pub(crate) fn leave_to_its_scheduler(
    state: &mut State,
    now: Time,
    key: &Key,
    pod: &Pod,
    demand: &Demand,
    why: String,
) -> Option<Intent> {
    if pod.is_gated() {
        return Some(tell::release(state, key, pod, why));
    }
    if !state.world.fleet.has_managed() || nodes::ranked(&mut state.world, demand).ranking.is_empty() {
        return None;
    }
    state.waits.set_managed(key, true);
    tell::wait(&mut state.waits, now, key, pod, WaitReason::Unfit(why))
}
