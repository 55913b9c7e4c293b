//! Pods made in place of idle ones that were evicted for others: they take nothing back, and get devices while nobody else waits for them,
//! or once their owner says so ([`RESUME`]).
//!
//! **After a restart** the evicted pods are known from the nominations for which they were evicted, until those end, and their successors
//! from the annotation [`IDLE_EVICTED_ANNOTATION`] for good.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_pool::{IDLE_ANNOTATION, IDLE_EVICTED_ANNOTATION, RESUME};
use tessera_cluster::{Key, Objects, PodExt};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::gathering::UNCERTAIN;
use crate::group::{Group, GroupId, Member};
use crate::intent::PodReference;
use crate::nominations::{at, is_in_force, nomination};
use crate::pod::reference;
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::waits::Waits;
use crate::world::World;
use crate::{nodes, plan, refusals, room};

/// How long an owner may take to make a pod in place of an evicted one.
const SUCCEEDS_WITHIN: Time = Time::from_secs(3600);

/// Pause before an annotation that was not observed is written again, and between two looks at a group that is held back.
const AGAIN: Time = Time::from_secs(10);

/// Difference of clocks, within which a pod may be made in place of another that was evicted just now.
const CLOCKS: Time = Time::from_secs(10);

/// An idle pod, named for eviction.
#[derive(Debug)]
struct Victim {
    owner: String,
    /// The pod nominated for its devices.
    asker: Key,
    /// When its eviction was seen first: pods made before are not in its place. Zero if it was over by then.
    since: Time,
    until: Time,
    /// Whether this process evicted the pod; else the nomination alone says so, if the pod is gone.
    is_evicted: bool,
    /// When the eviction was said to have failed: the answer may have been lost.
    failed: Option<Time>,
}

/// Evicted pods, and their successors.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    victims: BTreeMap<PodReference, Victim>,
    /// Successors whose annotation was not observed yet: the evicted pod's uid, and when to write it again.
    marked: BTreeMap<PodReference, (String, Time)>,
}

impl Successors {
    /// Reads the pod's nomination and annotation.
    pub fn observe(&mut self, objects: &Objects, key: &Key, pod: &Pod, now: Time, is_leading: bool) {
        if mark_of(pod).is_some() {
            self.marked.remove(&reference(pod));
        }
        let found = nomination(pod).filter(|nomination| is_in_force(nomination, now));
        let named: BTreeMap<PodReference, String> = found
            .iter()
            .flat_map(|nomination| &nomination.idle)
            .filter_map(|(text, owner)| Some((pod_named(text)?, owner.clone())))
            .collect();
        // A nomination that was withdrawn evicted nobody, unless this process knows better.
        self.victims.retain(|pod, victim| {
            victim.asker != *key || victim.is_evicted || named.contains_key(pod) || victim.until <= now
        });
        // Whoever was not evicted by the time it is bound is not evicted for it.
        let found = found.filter(|_| !is_leading || pod.node_name().is_none());
        let Some(until) = found.map(|nomination| at(nomination.until)) else { return };
        for (pod, owner) in named {
            let since = if is_running(objects, &pod) { now } else { Time::ZERO };
            let victim = Victim { owner, asker: key.clone(), since, until, is_evicted: false, failed: None };
            self.victims
                .entry(pod)
                .and_modify(|known| known.until = known.until.max(until))
                .or_insert(victim);
        }
    }

    /// An idle pod is evicted for another.
    pub fn evict(&mut self, pod: PodReference, owner: String, asker: &Key, now: Time) {
        let known = self.victims.get(&pod).map_or(Time::ZERO, |known| known.until);
        let until = known.max(now + SUCCEEDS_WITHIN);
        let asker = asker.clone();
        self.victims.insert(pod, Victim { owner, asker, since: now, until, is_evicted: true, failed: None });
    }

    /// The eviction failed, as far as known.
    pub fn refused(&mut self, pod: &PodReference, now: Time) {
        if let Some(victim) = self.victims.get_mut(pod) {
            victim.failed = Some(now);
        }
    }

    /// The uid to be written on the pod as that of the evicted one.
    pub fn to_note(&self, pod: &PodReference) -> Option<String> {
        self.marked.get(pod).map(|(uid, _)| uid.clone())
    }

    fn is_marked(&self, pod: &Pod) -> bool {
        mark_of(pod).is_some() || self.marked.contains_key(&reference(pod))
    }
}

/// The pod as the nomination of another names it: namespace/name/uid.
pub(crate) fn text_of(pod: &PodReference) -> String {
    format!("{}/{}", pod.key, pod.uid)
}

/// The pod of [`text_of`].
pub(crate) fn pod_named(text: &str) -> Option<PodReference> {
    let (key, uid) = text.rsplit_once('/')?;
    let (namespace, name) = key.split_once('/')?;
    Some(PodReference { key: Key::new(namespace, name), uid: uid.to_owned() })
}

/// Who makes a pod in place of this one: its gang, whatever the restart, or its controller. Nobody makes a pod alone anew.
pub(crate) fn owner_of(gangs: &Gangs, pod: &Pod) -> String {
    match gangs.of(&pod.key()) {
        Some(gang) => format!("{gang}/{}", gang.owner),
        None => refusals::owner(pod),
    }
}

fn annotation<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn is_running(objects: &Objects, pod: &PodReference) -> bool {
    objects.pods.get(&pod.key).is_some_and(|found| reference(found) == *pod && !found.has_ended())
}

/// When the pod was created, with an allowance for the API server's clock.
fn created(pod: &Pod) -> Time {
    let created = pod.metadata.creation_timestamp.as_ref();
    let second = created.and_then(|created| u64::try_from(created.0.as_second()).ok());
    Time::from_secs(second.unwrap_or_default()) + CLOCKS
}

fn mark_of(pod: &Pod) -> Option<&str> {
    annotation(pod, IDLE_EVICTED_ANNOTATION)
}

/// Finds the successors of evicted pods.
pub(crate) fn find(state: &mut State, now: Time) {
    let State { world, gangs, waits, marks, ledger, successors, leadership, .. } = state;
    if leadership.term.is_none() || (successors.victims.is_empty() && successors.marked.is_empty()) {
        return;
    }
    let objects = world.cluster.objects();
    // Nobody is evicted any more for an asker that has its devices or is gone.
    successors.victims.retain(|pod, victim| {
        let is_running = is_running(objects, pod);
        if !is_running {
            victim.failed = None;
        }
        let stays = victim.failed.is_some_and(|at| at + UNCERTAIN <= now);
        let may_go = victim.is_evicted || waits.contains(&victim.asker) || !is_running;
        victim.until > now && may_go && !stays
    });
    let is_there =
        |pod: &PodReference| objects.pods.get(&pod.key).is_some_and(|found| reference(found) == *pod);
    successors.marked.retain(|pod, _| is_there(pod));
    let mut found = Vec::new();
    let mut taken: BTreeSet<PodReference> = BTreeSet::new();
    let gone = successors.victims.iter().filter(|(victim, _)| !is_running(objects, victim));
    for (victim, Victim { owner, asker, since, .. }) in gone {
        let pods = objects.pods.range(victim.key.with_name("")..);
        let pods = pods.take_while(|(key, _)| key.namespace == victim.key.namespace);
        let own = pods.map(|(_, pod)| pod.as_ref()).filter(|pod| owner_of(gangs, pod) == *owner);
        let own: Vec<&Pod> = own.collect();
        let is_of_victim = |pod: &&Pod| {
            mark_of(pod) == Some(victim.uid.as_str())
                || successors.marked.get(&reference(pod)).is_some_and(|(uid, _)| *uid == victim.uid)
        };
        if own.iter().any(is_of_victim) {
            continue;
        }
        let open = own.into_iter().filter(|pod| {
            let key = pod.key();
            waits.contains(&key)
                && key != *asker
                && created(pod) >= *since
                && ledger.pods.proposal(&key).is_none()
                && !successors.is_marked(pod)
                && !taken.contains(&reference(pod))
        });
        if let Some(pod) = open.max_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.key())) {
            taken.insert(reference(pod));
            found.push((reference(pod), victim.uid.clone()));
        }
    }
    successors.marked.extend(found.into_iter().map(|(pod, uid)| (pod, (uid, Time::ZERO))));
    for (pod, (_, again)) in successors.marked.iter_mut().filter(|(_, (_, again))| *again <= now) {
        *again = now + AGAIN;
        marks.to_note.insert(pod.key.clone());
        waits.mark_due_if_waiting(&pod.key);
    }
}

/// Whether a pod of the group succeeds an evicted one, and its owner lets none go on.
fn is_held_back(world: &World, gangs: &Gangs, successors: &Successors, id: &GroupId) -> bool {
    let keys: Vec<&Key> = match id {
        GroupId::Pod(pod) => vec![pod],
        GroupId::Gang(gang) => gangs.members(gang).collect(),
    };
    let pods = || keys.iter().filter_map(|key| world.cluster.objects().pods.get(*key));
    pods().any(|pod| successors.is_marked(pod))
        && !pods().any(|pod| annotation(pod, IDLE_ANNOTATION) == Some(RESUME))
}

/// What holds the group back, which runs in no part: it asks nobody to go.
pub(crate) fn held_back(state: &State, group: &Group) -> Option<&'static str> {
    let State { world, gangs, successors, .. } = state;
    let is_new = group.there() == 0;
    (is_new && is_held_back(world, gangs, successors, &group.id)).then_some(
        "made in place of a pod that did not use its devices and made room for others: it gets devices when nobody else waits for \
         them, or after `kubectl gpu resume`",
    )
}

/// Whether others wait that could use what the group asks for. The group is looked at again in a while.
pub(crate) fn do_others_wait(state: &mut State, now: Time, group: &Group, open: &[&Member]) -> bool {
    state.gangs.set_due(&group.id, now + AGAIN);
    let demand = room::largest(open);
    let pools = demand.map(|demand| nodes::pools_asked(&mut state.world, demand)).unwrap_or_default();
    let State { world, gangs, waits, unplaced, successors, .. } = state;
    let could_use = |key: &&Key| {
        let asked = waits.shape_text(key).and_then(|text| unplaced.pools_by_shape.get(text));
        asked.is_none_or(|asked| !asked.is_disjoint(&pools))
    };
    let mut others = waits.pods().filter(|key| is_in_want(waits, key)).filter(could_use);
    others.any(|key| {
        let id = gangs.group_of(key);
        id != group.id && !is_held_back(world, gangs, successors, &id)
    })
}

/// Whether the pod may take managed devices that are free. A pod that nothing helps holds up nobody.
fn is_in_want(waits: &Waits, pod: &Key) -> bool {
    match waits.reason(pod) {
        None | Some(WaitReason::Behind | WaitReason::Costly(_)) => true,
        // All that wait, at the beginning of a term.
        Some(why) => *why == plan::too_early() || why.keeps_place(),
    }
}
