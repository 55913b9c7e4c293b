//! Progress of each pod of a gang.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{self, GangId, Membership, Rank, WhenPartial};
use tessera_cluster::subject::PodObstacle;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::super::Decider;
use super::super::pod::reference;
use crate::refusals;
use crate::wait_reason::WaitReason;

/// Progress of a pod of a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum State {
    /// Needs devices and has none, gated or not.
    Open,
    /// Gated, with devices on this node; `None` if it needs none of managed cards.
    Allocated(Option<String>),
    /// Gated, with devices on a node since deleted or refused by kube-scheduler.
    Astray,
    /// Without a gate, not bound yet.
    Lifted,
    /// Bound to a node.
    Bound,
    /// Succeeded.
    Done,
}

/// A pod of a gang, with its membership.
pub(super) type Found = (Key, Box<Pod>, Membership);

/// A pod of a gang.
pub(in super::super) struct Member {
    pub key: Key,
    pub pod: Box<Pod>,
    pub rank: Rank,
    pub state: State,
    /// Its demand, unless it is bound.
    pub demand: Option<Demand>,
}

impl Member {
    /// Whether the pod is bound or released with claims, so nobody else can get its devices.
    pub fn holds(&self) -> bool {
        let claims = self.pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        matches!(self.state, State::Lifted | State::Bound) && claims.into_iter().next().is_some()
    }
}

/// A gang whose pods agree on its parameters.
pub(in super::super) struct Gang {
    pub id: GangId,
    pub size: usize,
    pub min: usize,
    pub when_partial: WhenPartial,
    /// Number of its succeeded pods already deleted.
    pub done: usize,
    /// Sorted by rank.
    pub members: Vec<Member>,
}

impl Gang {
    /// A pod outside any gang, as a gang of one.
    pub fn of_one(key: &Key, pod: &Pod, demand: Demand) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let id = GangId {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            owner: uid,
            attempt: String::new(),
        };
        let rank = Rank { job: 0, pod: 0, name: key.name.clone() };
        let member = Member {
            key: key.clone(),
            pod: Box::new(pod.clone()),
            rank,
            state: State::Open,
            demand: Some(demand),
        };
        Gang { id, size: 1, min: 1, when_partial: WhenPartial::Keep, done: 0, members: vec![member] }
    }

    pub fn in_state(&self, state: &State) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.state == *state)
    }

    pub fn open(&self) -> Vec<&Member> {
        self.in_state(&State::Open).collect()
    }

    pub fn allocated(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| matches!(member.state, State::Allocated(_)))
    }

    /// Number of pods succeeded, bound, or released to their node.
    pub fn there(&self) -> usize {
        let is_there = |member: &&Member| matches!(member.state, State::Lifted | State::Bound | State::Done);
        self.members.iter().filter(is_there).count() + self.done
    }

    /// The lowest priority of its pods.
    pub fn priority(&self) -> i32 {
        self.members.iter().map(|member| member.pod.priority()).min().unwrap_or(i32::MIN)
    }

    /// When the newest of its pods was created.
    pub fn newest(&self) -> Time {
        self.members.iter().map(|member| created(&member.pod)).max().unwrap_or_default()
    }

    /// The nodes its pods are bound to or hold devices on.
    pub fn nodes(&self) -> BTreeSet<String> {
        let node = |member: &Member| match &member.state {
            State::Allocated(node) => node.clone(),
            _ => member.pod.node_name().map(str::to_owned),
        };
        self.members.iter().filter_map(node).collect()
    }
}

/// Creation time of the pod, in whole seconds.
pub(super) fn created(pod: &Pod) -> Time {
    let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0.as_second());
    created.and_then(|created| u64::try_from(created).ok()).map(Time::from_secs).unwrap_or_default()
}

impl Decider {
    /// The pods of a gang, except terminating and failed ones: replacements are expected for them.
    pub(super) fn members_of(&self, id: &GangId) -> Vec<Found> {
        let objects = self.cluster.objects();
        let found = self.gangs.members(id).filter_map(|key| {
            let pod = objects.pods.get(key)?;
            let is_lost = pod.metadata.deletion_timestamp.is_some() || pod.phase() == Some("Failed");
            let membership = gang::of_pod(objects, pod).ok().flatten().filter(|_| !is_lost)?;
            Some((key.clone(), pod.clone(), membership))
        });
        found.collect()
    }

    /// Determines the state of each pod.
    ///
    /// # Errors
    /// Why the states cannot be determined yet, or why the gang cannot start regardless of free devices.
    pub(super) fn sort_out(&mut self, now: Time, id: &GangId, found: &[Found]) -> Result<Gang, WaitReason> {
        let Some((_, _, first)) = found.first() else { return Err(WaitReason::Passing(String::new())) };
        let pods: Vec<&Pod> = found.iter().map(|(_, pod, _)| pod.as_ref()).collect();
        let mut gang = Gang {
            id: id.clone(),
            size: usize::try_from(first.size).unwrap_or(usize::MAX),
            min: usize::try_from(first.min).unwrap_or(usize::MAX),
            when_partial: first.when_partial,
            done: gang::done_and_gone(self.cluster.objects(), &pods),
            members: Vec::new(),
        };
        for (key, pod, membership) in found {
            let (state, demand) = self.state_of(now, key, pod)?;
            let (key, pod, rank) = (key.clone(), pod.clone(), membership.rank.clone());
            gang.members.push(Member { key, pod, rank, state, demand });
        }
        gang.members.sort_by(|one, other| one.rank.cmp(&other.rank));
        Ok(gang)
    }

    fn state_of(&mut self, now: Time, key: &Key, pod: &Pod) -> Result<(State, Option<Demand>), WaitReason> {
        if pod.phase() == Some("Succeeded") {
            return Ok((State::Done, None));
        }
        if pod.node_name().is_some() {
            return Ok((State::Bound, None));
        }
        let name = key.to_string();
        if self.ledger.pods.is_writing(&reference(pod)) {
            return Err(WaitReason::Passing(format!("pod {name} of the gang is being written")));
        }
        if let Some(pause) = self.waiting.get(key).map(|waiting| waiting.not_before).filter(|end| *end > now)
        {
            if let Some(gang) = self.gangs.of(key).cloned() {
                self.gangs.set_due(&gang, pause);
            }
            let why = format!("a write for pod {name} of the gang failed; it is tried again");
            return Err(WaitReason::Passing(why));
        }
        if self.ledger.pods.is_released(key) {
            return Ok((State::Lifted, None));
        }
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        if let Some(other) = gates.into_iter().find(|gate| gate.name != tessera_api::steering::GATE) {
            let why = format!("pod {name} of the gang waits for its scheduling gate {}", other.name);
            return Err(WaitReason::Passing(why));
        }
        let demand = Demand::of(self.cluster.objects(), pod);
        let demand = demand.map_err(|error| WaitReason::Unfit(error.to_string()))?;
        if let Some(obstacle) = demand.obstacle() {
            // A claim made from a template may be observed after its pod: they come by separate watches.
            let is_passing = matches!(obstacle, PodObstacle::NoClaim { .. });
            let text = format!("pod {name} of the gang: {obstacle}");
            return Err(if is_passing { WaitReason::Passing(text) } else { WaitReason::Unfit(text) });
        }
        if let Some(why) = self.unknown_scheduler(pod) {
            return Err(WaitReason::Unfit(format!("pod {name} of the gang: {why}")));
        }
        if self.is_being_written(&demand) {
            return Err(WaitReason::Passing(format!(
                "the claims of pod {name} of the gang are being written"
            )));
        }
        if let Some(why) = self.refused_claim_of(&demand) {
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
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.shape_text = demand.is_open().then(|| demand.text());
        }
        if demand.is_open() {
            return Ok((State::Open, Some(demand)));
        }
        if !pod.is_gated() {
            return Ok((State::Lifted, Some(demand)));
        }
        let mut ours = demand.subject.claims.iter().filter(|wanted| self.is_unused(&wanted.claim));
        let node = ours.find_map(|wanted| wanted.claim.allocated_node().map(str::to_owned));
        if let Some(node) = &node {
            let is_gone = !self.cluster.objects().nodes.contains_key(&Key::cluster(node));
            if is_gone || self.refusals.contains(&refusals::owner(pod), node, now) {
                return Ok((State::Astray, Some(demand)));
            }
        }
        Ok((State::Allocated(node), Some(demand)))
    }
}
