//! Pods without devices for a while: nobody binds them, or nobody may change them. Their devices go to others, and they are tried
//! again after growing pauses.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{ClaimExt, PodExt};
use tessera_placement::Time;

use crate::group::{Group, Member};
use crate::intent::PodReference;
use crate::pod::reference;
use crate::refusals::Refusals;
use crate::state::State;
use crate::waits::Waits;
use crate::world::World;
use crate::{holders, on_the_way};

/// How long a pod without any verdict of its scheduler keeps its devices while others wait.
const UNJUDGED: Time = Time::from_secs(300);

/// The API server refused to change the pod.
pub(crate) fn pod_refused(
    world: &World,
    waits: &mut Waits,
    refusals: &mut Refusals,
    now: Time,
    pod: &PodReference,
    why: &str,
) {
    let found = world.cluster.objects().pods.get(&pod.key);
    if found.is_some_and(|found| reference(found) == *pod) && waits.contains(&pod.key) {
        let why = format!("the API server refuses to change the pod, which therefore gets no devices: {why}");
        refusals.pause(pod.clone(), why, now, Time::ZERO);
        waits.mark_due(&pod.key);
    }
}

/// Pauses a refused pod if its scheduler failed to bind the pod: another node would hardly help.
pub(crate) fn pause_unbound(refusals: &mut Refusals, now: Time, pod: &Pod) {
    if pod.is_unbindable() {
        let verdict = pod.verdict().unwrap_or_default();
        let why = format!("{} could not bind it, and tries again later: {verdict}", pod.scheduler_name());
        refusals.pause(reference(pod), why, now, Time::ZERO);
    }
}

/// Whether the pod has had devices for long without any verdict of its scheduler, while others wait for devices.
pub(crate) fn is_judged_by_nobody(world: &World, waits: &Waits, now: Time, pod: &Pod) -> bool {
    if pod.is_gated() || pod.node_name().is_some() {
        return false;
    }
    let subject = tessera_cluster::subject::of_pod(world.cluster.objects(), pod);
    let ours = subject.claims.iter().filter(|wanted| holders::is_unused(world, &wanted.claim));
    let allocated = ours.filter_map(|wanted| u64::try_from(wanted.claim.allocated_at()?.as_second()).ok());
    allocated.max().is_some_and(|at| Time::from_secs(at) + UNJUDGED <= now) && waits.is_any_without_node()
}

/// Pauses a pod judged by nobody.
pub(crate) fn pause_unjudged(state: &mut State, now: Time, pod: &Pod) {
    let (scheduler, minutes) = (pod.scheduler_name(), UNJUDGED.as_secs() / 60);
    let why = format!("{scheduler} said nothing about it for {minutes} min, and others wait for its devices");
    state.refusals.pause(reference(pod), why, now, UNJUDGED);
    let key = pod.key();
    on_the_way::end_proposal(&mut state.world, &mut state.ledger, &key);
    state.waits.mark_due(&key);
}

/// Why one of these pods gets no devices, and until when.
pub(crate) fn pause_of(
    refusals: &Refusals,
    now: Time,
    group: &Group,
    open: &[&Member],
) -> Option<(String, Time)> {
    open.iter().find_map(|member| {
        let (why, until) = refusals.paused(&reference(&member.pod), now)?;
        let why = match group.is_alone() {
            true => why.to_owned(),
            false => format!("pod {} of the gang: {why}; others pass it", member.key.name),
        };
        Some((why, until))
    })
}
