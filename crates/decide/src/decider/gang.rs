//! Gangs: pods scheduled all or nothing.
//!
//! A gang's progress is derived only from its pods and claims, so the next leader continues after a crash:
//!
//! ```text
//! open ──(all planned, then written)──> allocated ──(all seen allocated)──> lifted ──> bound
//!   ^                                       │                                 │
//!   └────────(not enough of them fit)───────┴───(not bound in time: partial.rs)┘
//! ```

mod incomplete;
mod members;
mod partial;
mod place;
mod reserve;

use tessera_cluster::gang::{self, GangId};
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use super::Decider;
use super::pod::reference;
use super::preempt::Preemption;
use super::selector_costs::PAUSE;
use crate::intent::Intent;
use crate::ledger::{ManagedProposal, Proposal};
use crate::wait_reason::WaitReason;
use members::Found;
pub(super) use members::{Gang, Member, State};
pub(super) use place::Placement;

/// Time after its newest pod during which a gang of variable size waits for more pods.
const MORE_MAY_COME: Time = Time::from_secs(10);

impl Decider {
    /// Next step for a gang with at least one waiting pod.
    pub(super) fn look_at_gang(&mut self, now: Time, id: &GangId) -> Vec<Intent> {
        let found = self.members_of(id);
        let pods: Vec<_> = found.iter().map(|(key, pod, _)| (key, pod.as_ref())).collect();
        self.with_nominated(now, &pods, |decider| decider.look_at_members(now, id, &found))
    }

    fn look_at_members(&mut self, now: Time, id: &GangId, found: &[Found]) -> Vec<Intent> {
        if found.iter().all(|(key, ..)| !self.waiting.contains_key(key)) {
            self.gangs.set_whole(id);
            return Vec::new();
        }
        for (key, ..) in found {
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.is_managed = true;
            }
        }
        if let Err(error) = gang::agree(found.iter().map(|(key, _, member)| (key, member))) {
            self.note_what_is_asked(found);
            return self.tell_all(now, id, &WaitReason::Unfit(error.to_string()));
        }
        let gang = match self.sort_out(now, id, found) {
            Ok(gang) => gang,
            Err(why) => {
                self.note_what_is_asked(found);
                return self.gang_waits(now, id, &why);
            }
        };
        let mut intents = match self.is_complete(now, &gang) {
            Ok(()) => self.go_on_with(now, &gang),
            Err(why) => {
                // A pod may have disappeared while devices were being allocated to the others.
                let mut intents = self.hold_nothing(&gang, &why);
                let why = self.stays_incomplete(now, &gang, why);
                intents.extend(self.gang_waits(now, id, &why));
                intents
            }
        };
        let is_stuck = intents.iter().all(|intent| matches!(intent, Intent::Tell { .. }));
        intents.extend(self.see_partial(now, &gang, is_stuck));
        intents
    }

    /// Whether enough pods of the gang exist to start it.
    fn is_complete(&mut self, now: Time, gang: &Gang) -> Result<(), String> {
        let count = gang.members.len() + gang.done;
        if count < gang.min {
            return Err(format!("gang {}: {count} of {} pods exist", gang.id, gang.min));
        }
        let more = gang.newest() + MORE_MAY_COME;
        if count < gang.size && gang.there() == 0 && more > now {
            self.gangs.set_due(&gang.id, more);
            return Err(format!("gang {}: {count} of {} pods exist; more may come", gang.id, gang.size));
        }
        Ok(())
    }

    /// The next step of the commit: allocate devices to pods without them, or lift the gates once all have theirs.
    fn go_on_with(&mut self, now: Time, gang: &Gang) -> Vec<Intent> {
        let mut intents = Vec::new();
        // Pods without a gate are either on their way like any other pod, or were refused and need a new decision.
        for member in gang.in_state(&State::Lifted).filter(|member| member.demand.is_some()) {
            if self.ledger.pods.proposal(&member.key).is_none() {
                intents.extend(self.look_at(now, &member.key));
            }
        }
        for member in gang.in_state(&State::Astray) {
            intents.extend(self.take_back_of(member, "its node is gone, or does not suit kube-scheduler"));
        }
        if !intents.is_empty() {
            return intents;
        }
        let open = gang.open();
        let reached = gang.there() + gang.allocated().count();
        let needed = gang.min.saturating_sub(reached);
        if open.is_empty() {
            return self.lift(now, gang);
        }
        if !self.may_allocate() {
            let why = WaitReason::Passing("waits until the controller knows all allocations".to_owned());
            return self.gang_waits(now, &gang.id, &why);
        }
        let demands = open.iter().filter_map(|member| member.demand.as_ref());
        if let Some(why) = demands.into_iter().find_map(|demand| self.unanswered(demand)) {
            self.gangs.set_due(&gang.id, now + PAUSE);
            return self.gang_waits(now, &gang.id, &WaitReason::Costly(why));
        }
        match self.place(now, gang, &open, needed) {
            Ok(placements) if !placements.is_empty() => self.write(now, placements),
            // As many pods as fit already have their devices.
            Ok(_) => self.lift(now, gang),
            Err(why) => {
                if let Some(too_large) = self.too_large(gang, &open, needed) {
                    return self.gives_way(now, gang, format!("{why}; {too_large}"));
                }
                if self.is_refused_everywhere(now, &open) {
                    return self.gives_way(now, gang, format!("{why}; others pass it"));
                }
                self.stand_as_gang(gang, &open);
                let preemption = self.preempt(now, gang, &open, needed);
                let (under_way, kept): (Option<Preemption>, Option<Preemption>) = match preemption {
                    Some(preemption) if preemption.is_under_way => (Some(preemption), None),
                    other => (None, other),
                };
                if let Some(preemption) = under_way {
                    intents.extend(preemption.intents);
                    let why = WaitReason::Preempting(preemption.why);
                    intents.extend(self.gang_waits(now, &gang.id, &why));
                    return intents;
                }
                let more = self.reserve_for(now, gang, &open);
                let place = self.standing.place(&gang.id);
                let more = kept.map(|kept| kept.why).into_iter().chain(more).chain(place);
                let text = std::iter::once(why).chain(more).collect::<Vec<_>>().join("; ");
                intents.extend(self.hold_nothing(gang, &text));
                let why = WaitReason::NoNode { text, keeps_place: true };
                intents.extend(self.gang_waits(now, &gang.id, &why));
                intents
            }
        }
    }

    /// A gang without any remedy left: it gives up its devices, and other pods and gangs pass it.
    fn gives_way(&mut self, now: Time, gang: &Gang, text: String) -> Vec<Intent> {
        let mut intents = self.hold_nothing(gang, &text);
        let why = WaitReason::NoNode { text, keeps_place: false };
        intents.extend(self.gang_waits(now, &gang.id, &why));
        intents
    }

    /// Writes allocations without lifting any gate yet. Pods without a gate come last, because kube-scheduler binds them as soon as they
    /// have devices.
    fn write(&mut self, now: Time, placements: Vec<Placement>) -> Vec<Intent> {
        let any_gated = placements.iter().any(|placed| placed.pod.is_gated());
        let mut intents = Vec::new();
        for placed in placements {
            if any_gated && !placed.pod.is_gated() {
                continue;
            }
            let Placement { key, pod, demand, node, fit } = placed;
            let why = format!("with its gang, {node} is where it loses least");
            intents.extend(self.allocate_fit(now, (&key, &pod), &demand, (&node, fit), why, false));
        }
        intents
    }

    /// Lifts the gate of every pod with all its devices.
    fn lift(&mut self, now: Time, gang: &Gang) -> Vec<Intent> {
        let Some(epoch) = self.term.as_ref().map(|term| term.epoch.clone()) else { return Vec::new() };
        let mut intents = Vec::new();
        for member in gang.allocated() {
            let why = format!("all of its gang {} have their devices", gang.id.name);
            let State::Allocated(node) = &member.state else { continue };
            let Some(node) = node else {
                intents.push(self.release(&member.key, &member.pod, why));
                continue;
            };
            self.count_as_sent(now, &member.key, member, node);
            // Released until the pod is observed without its gate.
            self.ledger.pods.release(&reference(&member.pod));
            intents.push(Intent::Allocate {
                pod: reference(&member.pod),
                node: node.clone(),
                claims: Vec::new(),
                epoch: epoch.clone(),
                lifts_gate: true,
                why,
            });
        }
        intents
    }

    /// Records a proposal for a pod whose devices were allocated by another process, as for one of our own.
    fn count_as_sent(&mut self, now: Time, key: &Key, member: &Member, node: &str) {
        if self.ledger.pods.proposal(key).is_some() {
            return;
        }
        // Cannot fail: no claims are passed.
        let _ = self.cluster.assume(key, &member.pod, node, Vec::new());
        self.fleet.mark(node);
        let due = now + super::managed_pods::UNTIL_BOUND;
        let managed = ManagedProposal { verdict_before: None, due, claims: Vec::new() };
        let (node, shared) = (node.to_owned(), Vec::new());
        let proposal = Proposal { node, shared, is_allocated: true, managed: Some(managed) };
        self.ledger.pods.propose(&reference(&member.pod), proposal);
    }

    /// Takes back all devices of the gang, unless one of its pods already runs or is on its way.
    fn hold_nothing(&mut self, gang: &Gang, why: &str) -> Vec<Intent> {
        if gang.members.iter().any(Member::holds) {
            return Vec::new();
        }
        gang.allocated().filter_map(|member| self.take_back_of(member, why)).collect()
    }

    /// Takes back the devices of one member.
    fn take_back_of(&mut self, member: &Member, why: &str) -> Option<Intent> {
        self.end_proposal(&member.key);
        let demand = member.demand.as_ref()?;
        self.take_back(&member.key, &member.pod, demand, why)
    }

    /// Records the wait reason on all waiting pods of the gang, and reports it on the first one only.
    fn gang_waits(&mut self, now: Time, id: &GangId, why: &WaitReason) -> Vec<Intent> {
        let mut members = self.members_of(id);
        members.retain(|(key, ..)| self.waiting.contains_key(key));
        members.sort_by(|(_, _, one), (_, _, other)| one.rank.cmp(&other.rank));
        let mut intents = Vec::new();
        for (place, (key, pod, _)) in members.iter().enumerate() {
            if place == 0 {
                intents.extend(self.waits(now, key, pod, why.clone()));
            } else {
                self.note_why(key, why.clone());
            }
        }
        intents
    }

    /// Reports the reason on all pods of the gang.
    fn tell_all(&mut self, now: Time, id: &GangId, why: &WaitReason) -> Vec<Intent> {
        let members = self.members_of(id);
        let told = members.iter().filter_map(|(key, pod, _)| self.waits(now, key, pod, why.clone()));
        told.collect()
    }
}
