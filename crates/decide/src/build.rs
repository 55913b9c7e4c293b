//! From pods to a gang: the state of each member, and every reason for which the gang cannot be placed yet.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{self, GangId};
use tessera_cluster::subject::PodObstacle;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use crate::group::{Gang, Member, SeatState};
use crate::order::MemberPod;
use crate::pod::reference;
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::{holders, leadership, on_the_way, refusals, tell};

/// Determines the state of each pod.
///
/// # Errors
/// Why the states cannot be determined yet, or why the gang cannot start regardless of free devices.
pub(crate) fn sort_out(
    state: &mut State,
    now: Time,
    id: &GangId,
    found: &[MemberPod],
) -> Result<Gang, WaitReason> {
    let Some((_, _, first)) = found.first() else { return Err(WaitReason::Passing(String::new())) };
    let pods: Vec<&Pod> = found.iter().map(|(_, pod, _)| pod.as_ref()).collect();
    let mut gang = Gang {
        id: id.clone(),
        size: usize::try_from(first.size).unwrap_or(usize::MAX),
        min: usize::try_from(first.min).unwrap_or(usize::MAX),
        when_partial: first.when_partial,
        done: gang::done_and_gone(state.world.cluster.objects(), &pods),
        formed: state.gangs.formed(id, pods.iter().copied()),
        members: Vec::new(),
    };
    for (key, pod, membership) in found {
        let (state, demand) = state_of(state, now, key, pod)?;
        let (key, pod, rank) = (key.clone(), pod.clone(), membership.rank.clone());
        gang.members.push(Member { key, pod, rank, state, demand });
    }
    gang.members.sort_by(|one, other| one.rank.cmp(&other.rank));
    Ok(gang)
}

fn state_of(
    state: &mut State,
    now: Time,
    key: &Key,
    pod: &Arc<Pod>,
) -> Result<(SeatState, Option<Demand>), WaitReason> {
    if pod.phase() == Some("Succeeded") {
        return Ok((SeatState::Done, None));
    }
    if pod.node_name().is_some() {
        return Ok((SeatState::Bound, None));
    }
    let name = key.to_string();
    if state.ledger.pods.is_writing(&reference(pod)) {
        return Err(WaitReason::Passing(format!("pod {name} of the gang is being written")));
    }
    if let Some(pause) = state.waits.pause(key, now) {
        if let Some(gang) = state.gangs.of(key).cloned() {
            state.gangs.set_due(&gang, pause);
        }
        let why = format!("a write for pod {name} of the gang failed; it is tried again");
        return Err(WaitReason::Passing(why));
    }
    if state.ledger.pods.is_released(key) {
        return Ok((SeatState::Lifted, None));
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    if let Some(other) = gates.into_iter().find(|gate| gate.name != tessera_api::steering::GATE) {
        let why = format!("pod {name} of the gang waits for its scheduling gate {}", other.name);
        return Err(WaitReason::Passing(why));
    }
    let demand = state.world.rankings.demand(state.world.cluster.objects(), pod);
    let demand = demand.map_err(|error| WaitReason::Unfit(error.to_string()))?;
    if let Some(obstacle) = demand.obstacle() {
        // A claim made from a template may be observed after its pod: they come by separate watches.
        let is_passing = matches!(obstacle, PodObstacle::NoClaim { .. });
        let text = format!("pod {name} of the gang: {obstacle}");
        return Err(if is_passing { WaitReason::Passing(text) } else { WaitReason::Unfit(text) });
    }
    if let Some(why) = tell::unknown_scheduler(&state.config, pod) {
        return Err(WaitReason::Unfit(format!("pod {name} of the gang: {why}")));
    }
    if on_the_way::is_being_written(&state.ledger, &demand) {
        return Err(WaitReason::Passing(format!("the claims of pod {name} of the gang are being written")));
    }
    if let Some(why) = leadership::refused_claim_of(&state.leadership, &demand) {
        return Err(WaitReason::Unfit(format!("pod {name} of the gang: {why}")));
    }
    if demand.subject.claims.iter().any(|wanted| wanted.made_from.is_some()) {
        let why = format!("the ResourceClaims of pod {name} of the gang do not exist yet");
        return Err(WaitReason::Passing(why));
    }
    if let Some(shared) = demand.shared().next() {
        return Err(WaitReason::Unfit(format!(
            "pod {name} of the gang names the ResourceClaim {}, which others may use, too: pods of a gang need \
             claims of their own, by a resourceClaimTemplateName",
            shared.name
        )));
    }
    state.waits.set_shape_text(key, demand.is_open().then(|| demand.text()));
    if demand.is_open() {
        return Ok((SeatState::Open, Some(demand)));
    }
    if !pod.is_gated() {
        return Ok((SeatState::Lifted, Some(demand)));
    }
    let mut ours =
        demand.subject.claims.iter().filter(|wanted| holders::is_unused(&state.world, &wanted.claim));
    let node = ours.find_map(|wanted| wanted.claim.allocated_node().map(str::to_owned));
    if let Some(node) = &node {
        let is_gone = !state.world.cluster.objects().nodes.contains_key(&Key::cluster(node));
        let is_paused = state.refusals.paused(&reference(pod), now).is_some();
        if is_gone || is_paused || state.refusals.contains(&refusals::owner(pod), node, now) {
            return Ok((SeatState::Astray, Some(demand)));
        }
    }
    Ok((SeatState::Allocated(node), Some(demand)))
}
