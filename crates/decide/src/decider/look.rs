//! Looks at one waiting pod and decides on its next step.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::subject::PodObstacle;
use tessera_cluster::{Key, PodExt};
use tessera_placement::demand::Demand;
use tessera_placement::fleet::NodeIndex;
use tessera_placement::score::Way;
use tessera_placement::{Time, spread};

use super::Decider;
use super::pod::reference;
use super::ranked::Ranked;
use super::selector_costs::PAUSE;
use crate::intent::{Intent, Topic};
use crate::queue::Asks;
use crate::refusals;
use crate::wait_reason::WaitReason;

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

/// Minimum interval between Events about a pod's reason for waiting.
const TELL_EVERY: Time = Time::from_secs(30);

impl Decider {
    pub(super) fn look_at(&mut self, now: Time, key: &Key) -> Option<Intent> {
        let pod = self.cluster.objects().pods.get(key)?.clone();
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        if let Some(other) = gates.into_iter().find(|gate| gate.name != tessera_api::steering::GATE) {
            let why = WaitReason::Passing(format!("waits for its scheduling gate {}", other.name));
            return self.waits(now, key, &pod, why);
        }
        let is_gated = pod.is_gated();
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.is_managed = false;
        }
        let demand = match Demand::of(self.cluster.objects(), &pod) {
            Ok(demand) => demand,
            Err(error) => return is_gated.then(|| self.release(key, &pod, error.to_string())),
        };
        if let Some(obstacle) = demand.obstacle() {
            let text = obstacle.to_string();
            let is_of_others = matches!(obstacle, PodObstacle::NoExtendedResource(_));
            let is_told = is_gated || obstacle.is_unserved();
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.is_managed = is_told && !is_gated;
            }
            return if !is_told {
                None
            } else if demand.subject.claims.is_empty() && is_of_others {
                Some(self.release(key, &pod, text))
            } else {
                self.waits(now, key, &pod, WaitReason::Unfit(text))
            };
        }
        if self.is_being_written(&demand) {
            let why = WaitReason::Passing("its claims are being written".to_owned());
            return self.waits(now, key, &pod, why);
        }
        if !demand.is_open() {
            return if is_gated {
                Some(self.release(key, &pod, "no claim of the pod needs devices".to_owned()))
            } else {
                self.go_on(now, key, &pod, &demand)
            };
        }
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.shape_text = Some(demand.text());
        }
        if let Some(why) = self.unanswered(&demand) {
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.is_managed = !is_gated;
                waiting.not_before = now + PAUSE;
            }
            self.queue.insert(key.clone());
            return self.waits(now, key, &pod, WaitReason::Costly(why));
        }
        if let Some(why) = self.refused_claim_of(&demand) {
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.is_managed = true;
            }
            return self.waits(now, key, &pod, WaitReason::Unfit(why));
        }
        let shared: Vec<Key> = demand.shared().collect();
        if let Some(node) = self.ledger.pods.node_of_claims(&shared).map(str::to_owned) {
            // The claim gets its devices with the first pod; this pod must follow to the same node.
            let text = format!("waits until another pod's claim has devices on {node}");
            return self.waits(now, key, &pod, WaitReason::Passing(text));
        }
        if let Some(why) = self.unknown_scheduler(&pod) {
            return self.leave_to_its_scheduler(now, key, &pod, &demand, why);
        }
        let choice = self.choose(now, &demand, &refusals::owner(&pod), is_gated);
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.is_managed = match &choice {
                Choice::Managed { .. } | Choice::TooEarly => true,
                Choice::Nowhere { is_managed, .. } => *is_managed,
                Choice::Node { .. } | Choice::Native | Choice::Fatal(_) => false,
            };
        }
        match choice {
            Choice::Managed { node, suitable } => self.allocate(now, key, &pod, &demand, (&node, suitable)),
            Choice::TooEarly => {
                let text = "waits until the controller knows all allocations".to_owned();
                self.waits(now, key, &pod, WaitReason::Passing(text))
            }
            Choice::Nowhere { sentence, is_managed: true, .. } => {
                if let Some(waiting) = self.waiting.get_mut(key) {
                    waiting.is_stuck = true;
                }
                // Some claims may have devices from this controller on a node without devices for the others.
                let taken = self.take_back(key, &pod, &demand, &sentence);
                // The Event follows once preemption was considered.
                self.note_why(key, WaitReason::NoNode { text: sentence, keeps_place: false });
                taken
            }
            _ if !is_gated => None,
            Choice::Node { node, suitable } => {
                let fit = self.fit_by_scheduler(&demand, &node)?;
                self.send(key, &pod, &demand, &node, fit);
                let why = format!("of {suitable} suitable nodes, {node} loses least by it");
                Some(Intent::Steer { pod: reference(&pod), node, why })
            }
            Choice::Native => {
                let why = "only cards of pools with native allocation suit now".to_owned();
                Some(self.release(key, &pod, why))
            }
            Choice::Fatal(error) => Some(self.release(key, &pod, error)),
            Choice::Nowhere { sentence, crowded, .. } => {
                let why = if let Some(node) = crowded.iter().find(|node| self.could_preempt(&pod, node)) {
                    format!("pods of lower priority could make room on {node}; that is kube-scheduler's part")
                } else if !self.is_ours(&demand) {
                    "no card of a steered pool is what it asks for".to_owned()
                } else {
                    let why = WaitReason::NoNode { text: sentence, keeps_place: false };
                    return self.waits(now, key, &pod, why);
                };
                Some(self.release(key, &pod, why))
            }
        }
    }

    /// The best node without a recent refusal of this owner's pods: one with managed cards if the pod fits there now, else
    /// another.
    fn choose(&mut self, now: Time, demand: &Demand, owner: &str, is_gated: bool) -> Choice {
        let mut managed = None;
        if self.fleet.has_managed() {
            let pod = demand.subject.pod.as_ref().filter(|_| !self.standing.is_empty());
            let asks = pod.map(|pod| self.asks(now, pod));
            match best(self.ranked(demand), now, asks.as_ref(), owner) {
                Choice::Managed { .. } if !self.may_allocate() => return Choice::TooEarly,
                choice @ Choice::Managed { .. } => return choice,
                Choice::Nowhere { is_managed: false, .. } => {}
                choice => managed = Some(choice),
            }
        }
        if !is_gated {
            return managed.unwrap_or(Choice::Native);
        }
        // kube-scheduler would find no device: skipping its ranking halves the number of rankings kept.
        if let Some(managed) =
            managed.take_if(|_| self.fleet.strict(&self.cluster, &self.driver).hides_everything)
        {
            return managed;
        }
        match (best(self.ranked_others(demand), now, None, owner), managed) {
            (Choice::Nowhere { .. }, Some(managed)) => managed,
            (Choice::Nowhere { sentence, crowded, .. }, None) => {
                Choice::Nowhere { sentence, crowded, is_managed: false }
            }
            (native, _) => native,
        }
    }

    /// Whether any device of a steered node, free or not, matches the pod's requests.
    fn is_ours(&mut self, demand: &Demand) -> bool {
        (0..self.fleet.len() as NodeIndex).any(|index| {
            let node = self.fleet.node(index);
            let name = node.is_steered().then(|| node.name.clone());
            name.is_some_and(|name| self.is_ours_on(demand, &name))
        })
    }

    pub(super) fn is_ours_on(&mut self, demand: &Demand, node: &str) -> bool {
        let Some(node) = self.cluster.objects().node(node) else {
            return false;
        };
        let (_, claims) = demand.on(node);
        self.cluster.has_what_is_asked(node, &claims, &self.driver, &mut self.asker).unwrap_or(false)
    }

    /// Whether a pod of lower priority runs on the node and may be preempted by this pod.
    fn could_preempt(&self, pod: &Pod, node: &str) -> bool {
        let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
        policy != Some("Never")
            && self.cluster.objects().pods.values().any(|other| {
                other.node_name() == Some(node) && !other.is_finished() && other.priority() < pod.priority()
            })
    }

    pub(super) fn release(&mut self, key: &Key, pod: &Pod, why: String) -> Intent {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.why = Some(WaitReason::Passing(why.clone()));
        }
        self.ledger.pods.release(&reference(pod));
        Intent::Release { pod: reference(pod), why }
    }

    /// Records why the pod waits.
    pub(super) fn note_why(&mut self, key: &Key, why: WaitReason) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.why = Some(why);
        }
    }

    /// Records why the pod waits, and returns an Event for its owner if the reason is new and worth reporting.
    pub(super) fn waits(&mut self, now: Time, key: &Key, pod: &Pod, why: WaitReason) -> Option<Intent> {
        let waiting = self.waiting.get_mut(key)?;
        let is_told = match &waiting.told {
            Some((told, at)) => *told == why || now < *at + TELL_EVERY,
            None => false,
        };
        waiting.why = Some(why.clone());
        if !why.is_told() || is_told {
            return None;
        }
        let message = why.to_string();
        waiting.told = Some((why, now));
        let topic = if waiting.is_managed { Topic::NotAllocated } else { Topic::NotSteered };
        Some(Intent::Tell { pod: reference(pod), topic, message })
    }
}

/// The best node neither reserved for others nor with a recent refusal of this owner's pods.
fn best(mut ranked: Ranked<'_>, now: Time, asks: Option<&Asks>, owner: &str) -> Choice {
    let ranking = ranked.ranking;
    if let Some(error) = ranking.fatal() {
        return Choice::Fatal(error.to_owned());
    }
    let Some((score, first)) = ranking.best().find(|(_, index)| ranked.is_free(now, asks, owner, *index))
    else {
        let names = ranking.without_room().map(|index| ranked.view.fleet.node(index).name.clone());
        let crowded = names.collect();
        let is_managed = !ranking.is_empty();
        return Choice::Nowhere { sentence: ranking.sentence(ranked.kept(asks)), crowded, is_managed };
    };
    let key = spread::topology_key(ranked.view.fleet, first).map(str::to_owned);
    let node = key.and_then(|key| {
        let free = ranking.best().filter(|(_, index)| ranked.is_free(now, asks, owner, *index));
        let candidates: Vec<_> = free.collect();
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
