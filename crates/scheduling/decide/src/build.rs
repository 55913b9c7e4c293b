//! From pods to a group: the state of each member, and every reason for which a pod cannot be examined or get devices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{self, GangError, Rank, WhenPartial};
use tessera_cluster::subject::{PodObstacle, Wanted};
use tessera_cluster::{ClaimExt, Key, ObjectError, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use crate::group::{Group, GroupId, Member, SeatState, created};
use crate::order::MemberPod;
use crate::pod::{limits_as_written, reference};
use crate::state::State;
use crate::{holders, leadership, on_the_way, refusals, tell};

/// Age at which a pod is awaited by those of its gang that run.
pub(crate) const AWAITED: Time = Time::from_secs(60);

/// Why a pod is not examined further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Obstacle {
    #[error("is being written")]
    Writing,
    /// A write for the pod failed, and is tried again then.
    #[error("a write for it failed; it is tried again")]
    Failed(Time),
    /// Nobody binds the pod, or it may not be changed: it is tried again then.
    #[error("{why}")]
    Paused { why: String, until: Time },
    #[error("waits for its scheduling gate {0}")]
    OtherGate(String),
    #[error("its claims are being written")]
    ClaimsWriting,
    #[error("its ResourceClaims do not exist yet")]
    NoClaimsYet,
    /// The controller makes this template for the pod's limits, and tells the pod where it cannot.
    #[error("the ResourceClaimTemplate {0} for its limits does not exist yet")]
    NoTemplateYet(Key),
    #[error(transparent)]
    Membership(GangError),
    #[error(transparent)]
    Unreadable(ObjectError),
    /// `is_of_others`: nothing of this driver is asked for.
    #[error("{obstacle}")]
    Pod { obstacle: PodObstacle, is_of_others: bool },
    /// The API server refuses to change one of its claims.
    #[error("{0}")]
    ClaimRefused(String),
    /// Its scheduler is not a configured one. `holds`: all its claims have devices.
    #[error("{why}")]
    Scheduler { why: String, holds: bool },
    #[error(
        "names the ResourceClaim {0}, which others may use, too: pods of a gang need claims of their own, by a \
         resourceClaimTemplateName"
    )]
    Shared(String),
}

impl Obstacle {
    /// Whether others end it, soon or never. Gates of others may stay as long as they want where nothing runs in vain. A claim made from
    /// a template may be observed after its pod: they come by separate watches.
    pub fn is_others_part(&self) -> bool {
        matches!(
            self,
            Obstacle::OtherGate(_)
                | Obstacle::NoTemplateYet(_)
                | Obstacle::Pod { obstacle: PodObstacle::NoClaim { .. }, .. }
        )
    }

    /// Whether somebody has to act before the pod can get devices. `is_awaited`: other pods of its gang run, and have waited for long.
    fn is_lasting(&self, is_awaited: bool) -> bool {
        match self {
            Obstacle::Writing
            | Obstacle::Failed(_)
            | Obstacle::Paused { .. }
            | Obstacle::ClaimsWriting
            | Obstacle::NoClaimsYet => false,
            Obstacle::OtherGate(_)
            | Obstacle::NoTemplateYet(_)
            | Obstacle::Pod { obstacle: PodObstacle::NoClaim { .. }, .. } => is_awaited,
            Obstacle::Pod { .. } => true,
            Obstacle::Membership(_)
            | Obstacle::Unreadable(_)
            | Obstacle::ClaimRefused(_)
            | Obstacle::Scheduler { .. }
            | Obstacle::Shared(_) => true,
        }
    }
}

/// Determines the state of each pod.
///
/// # Errors
/// Why the states cannot be determined yet: the first pod with an obstacle. A gang is built in spite of lasting obstacles, so that it holds
/// nothing for them and does not run in part for long.
pub(crate) fn group_of(
    state: &mut State,
    now: Time,
    id: &GroupId,
    found: &[MemberPod],
) -> Result<Group, Box<(Key, Obstacle)>> {
    let first = found.first().and_then(|found| found.membership.as_ref());
    let pods = || found.iter().map(|found| found.pod.as_ref());
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let objects = state.world.cluster.objects();
    let size = first.map_or(1, |first| count(first.size));
    let mut group = Group {
        id: id.clone(),
        size,
        min: first.map_or(1, |first| count(first.min)),
        when_partial: first.map_or(WhenPartial::Keep, |first| first.when_partial),
        done: id.gang().map_or(0, |_| gang::done_and_gone(objects, &pods().collect::<Vec<_>>())),
        formed: id.gang().map_or(0, |gang| state.gangs.formed(objects, gang, size, pods())),
        members: Vec::new(),
        unfit: None,
    };
    for MemberPod { key, pod, membership } in found {
        let (state, demand) = match state_of(state, now, id, key, pod) {
            Ok(found) => found,
            Err(obstacle) if group.is_alone() || !obstacle.is_lasting(is_awaited(now, found, pod)) => {
                return Err(Box::new((key.clone(), obstacle)));
            }
            Err(obstacle) => {
                group
                    .unfit
                    .get_or_insert_with(|| (key.clone(), format!("pod {key} of the gang: {obstacle}")));
                // Some of its claims may have devices.
                let demand = state.world.rankings.demand(state.world.cluster.objects(), pod).ok();
                (SeatState::Unfit, demand)
            }
        };
        let alone = || Rank { job: 0, pod: 0, name: String::new() };
        let rank = membership.as_ref().map_or_else(alone, |membership| membership.rank.clone());
        group.members.push(Member { key: key.clone(), pod: pod.clone(), rank, state, demand });
    }
    group.members.sort_by(|one, other| one.rank.cmp(&other.rank));
    Ok(group)
}

/// Whether some pods run, and this one was created a minute ago or earlier.
fn is_awaited(now: Time, found: &[MemberPod], pod: &Pod) -> bool {
    created(pod) + AWAITED <= now && found.iter().any(|found| found.pod.node_name().is_some())
}

fn state_of(
    state: &mut State,
    now: Time,
    id: &GroupId,
    key: &Key,
    pod: &Arc<Pod>,
) -> Result<(SeatState, Option<Demand>), Obstacle> {
    if pod.phase() == Some("Succeeded") {
        return Ok((SeatState::Done, None));
    }
    if pod.node_name().is_some() {
        return Ok((SeatState::Bound, None));
    }
    let is_alone = id.gang().is_none();
    let reference = reference(pod);
    if state.ledger.pods.is_writing(&reference) {
        return Err(Obstacle::Writing);
    }
    if let Some(until) = state.waits.pause(key, now) {
        return Err(Obstacle::Failed(until));
    }
    let proposal = state.ledger.pods.proposal(key);
    if state.ledger.pods.is_released(key) || (is_alone && proposal.is_some()) {
        return Ok((SeatState::Lifted, None));
    }
    let is_sent = !pod.is_gated() && proposal.is_some();
    let objects = state.world.cluster.objects();
    if is_alone && let Err(error) = gang::of_pod(objects, pod) {
        return Err(Obstacle::Membership(error));
    }
    if let Some(other) = pod.gates().find(|gate| *gate != tessera_api::steering::GATE) {
        return Err(Obstacle::OtherGate(other.to_owned()));
    }
    let demand = state.world.rankings.demand(objects, pod).map_err(Obstacle::Unreadable)?;
    if let Some(obstacle) = demand.obstacle() {
        if let (PodObstacle::NoTemplate(template), Some(_)) = (obstacle, limits_as_written(pod)) {
            return Err(Obstacle::NoTemplateYet(template.clone()));
        }
        let is_extended = matches!(obstacle, PodObstacle::NoExtendedResource(_));
        let is_of_others = is_extended && demand.subject.claims.is_empty();
        return Err(Obstacle::Pod { obstacle: obstacle.clone(), is_of_others });
    }
    if on_the_way::is_being_written(&state.ledger, &demand) {
        return Err(Obstacle::ClaimsWriting);
    }
    state.waits.set_shape_text(key, demand.is_open().then(|| demand.text()));
    if is_alone
        && let Some((why, until)) = state.refusals.paused(&reference, now)
        && !demand.subject.claims.iter().any(|wanted| holders::is_unused(&state.world, &wanted.claim))
    {
        return Err(Obstacle::Paused { why: why.to_owned(), until });
    }
    if let Some(why) = tell::unknown_scheduler(&state.config, pod) {
        return Err(Obstacle::Scheduler { why, holds: !demand.is_open() });
    }
    if let Some(why) = leadership::refused_claim_of(&state.leadership, &demand) {
        return Err(Obstacle::ClaimRefused(why));
    }
    if !is_alone {
        if demand.subject.claims.iter().any(|wanted| wanted.made_from.is_some()) {
            return Err(Obstacle::NoClaimsYet);
        }
        if let Some(shared) = demand.shared().next() {
            return Err(Obstacle::Shared(shared.name));
        }
    }
    let seat =
        if is_sent && !demand.is_open() { SeatState::Lifted } else { seat_of(state, now, pod, &demand) };
    Ok((seat, Some(demand)))
}

/// The state of a pod that is neither bound nor on its way.
fn seat_of(state: &State, now: Time, pod: &Pod, demand: &Demand) -> SeatState {
    let is_unused = |wanted: &&Wanted| holders::is_unused(&state.world, &wanted.claim);
    let mut ours = demand.subject.claims.iter().filter(is_unused);
    let node = ours.find_map(|wanted| wanted.claim.allocated_node().map(str::to_owned));
    let is_paused = node.is_some() && state.refusals.paused(&reference(pod), now).is_some();
    if demand.is_open() {
        return if is_paused { SeatState::Astray } else { SeatState::Open };
    }
    if let Some(node) = &node {
        let is_gone = !state.world.cluster.objects().nodes.contains_key(&Key::cluster(node));
        if is_gone || is_paused || state.refusals.contains(&refusals::owner(pod), node, now) {
            return SeatState::Astray;
        }
    }
    if pod.is_gated() { SeatState::Allocated(node) } else { SeatState::Lifted }
}
