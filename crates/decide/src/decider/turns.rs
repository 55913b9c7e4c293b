//! Choice and order of the pods and gangs to examine.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::Key;
use tessera_cluster::gang::{self, GangId};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use super::Decider;
use super::gang::Gang;
use super::pod::reference;
use crate::intent::Intent;
use crate::queue::{Asks, Order, Who};
use crate::wait_reason::WaitReason;

/// A pod or gang to be examined.
pub(super) struct Turn {
    who: Who,
    order: Order,
    /// Whether the pod itself changed or is due.
    is_due: bool,
}

impl Decider {
    /// The pods and gangs to examine, in queue order: all waiting ones if the fleet changed, else only changed or due ones.
    pub(super) fn turns(&mut self, now: Time) -> Vec<Turn> {
        let all = self.fleet.now() != self.planned;
        let mut due_pods = std::mem::take(&mut self.queue);
        let due = self.gangs.take_due(now);
        let mut turns: BTreeSet<(Order, Who)> = BTreeSet::new();
        let mut gangs = BTreeSet::new();
        for gang in due {
            if self.gangs.members(&gang).next().is_some() {
                gangs.insert(gang);
            } else {
                // A pod with a preemption under way is listed as a gang of its own.
                due_pods.extend(
                    Some(Key::new(gang.namespace, gang.name)).filter(|pod| self.waiting.contains_key(pod)),
                );
            }
        }
        let mut pods = due_pods.clone();
        if all {
            pods.extend(self.waiting.keys().cloned());
        }
        for key in pods {
            let Some(pod) = self.cluster.objects().pods.get(&key) else { continue };
            match self.gangs.of(&key) {
                Some(gang) => drop(gangs.insert(gang.clone())),
                None => drop(turns.insert((Order::of(std::iter::once(pod.as_ref())), Who::Pod(key)))),
            }
        }
        turns.extend(gangs.into_iter().map(|gang| (self.order_of(&gang), Who::Gang(gang))));
        if all {
            let all: Vec<Who> = turns.iter().map(|(_, who)| who.clone()).collect();
            self.standing.begin_anew(&all);
        }
        let is_due = |who: &Who| matches!(who, Who::Pod(key) if due_pods.contains(key));
        turns.into_iter().map(|(order, who)| Turn { is_due: is_due(&who), who, order }).collect()
    }

    /// Whether nothing can have changed for a pod without a suitable card at the last look: someone ahead waits for cards in every pool.
    /// In a long strict queue, nearly all pods are in this state.
    fn is_behind(&mut self, turn: &Turn) -> bool {
        let Who::Pod(key) = &turn.who else { return false };
        let is_stuck = self.waiting.get(key).is_some_and(|waiting| waiting.is_stuck);
        let strict = self.fleet.strict(&self.cluster, &self.driver);
        !turn.is_due
            && is_stuck
            && strict.is_everything
            && self.standing.is_behind(&turn.order, &strict.pools)
    }

    fn stays_behind(&mut self, now: Time, who: &Who) -> Option<Intent> {
        let Who::Pod(key) = who else { return None };
        if self.waiting.get(key)?.why == Some(WaitReason::Behind) {
            return None;
        }
        let pod = self.cluster.objects().pods.get(key)?.clone();
        self.waits(now, key, &pod, WaitReason::Behind)
    }

    /// Examines these in order. Also returns whether something is no longer kept for one of them, so others may use it.
    pub(super) fn take_turns(&mut self, now: Time, turns: Vec<Turn>) -> (Vec<Intent>, bool) {
        let mut intents = Vec::new();
        let mut has_freed = false;
        for turn in turns {
            if self.is_behind(&turn) {
                intents.extend(self.stays_behind(now, &turn.who));
                continue;
            }
            let who = turn.who;
            self.standing.begin_turn(&who);
            let looked = match &who {
                Who::Pod(key) => self.look_at_pod(now, key),
                Who::Gang(gang) => self.look_at_gang(now, gang),
            };
            for intent in &looked {
                if let Intent::Steer { pod, .. }
                | Intent::Release { pod, .. }
                | Intent::Allocate { pod, .. } = intent
                {
                    self.ledger.pods.write(pod);
                }
            }
            intents.extend(looked);
            has_freed |= self.standing.end_turn(&who);
            has_freed |= self.has_freed_nominated();
        }
        (intents, has_freed)
    }

    /// The queue position of a gang.
    pub(super) fn order_of(&self, gang: &GangId) -> Order {
        let pods = self.gangs.members(gang).filter_map(|key| self.cluster.objects().pods.get(key));
        Order::of(pods.map(AsRef::as_ref))
    }

    /// Next step for a pod outside any gang.
    pub(super) fn look_at_pod(&mut self, now: Time, key: &Key) -> Vec<Intent> {
        let Some(waiting) = self.waiting.get_mut(key) else { return Vec::new() };
        let Some(pod) = self.cluster.objects().pods.get(key).cloned() else { return Vec::new() };
        if waiting.not_before > now {
            self.queue.insert(key.clone());
            return Vec::new();
        }
        let pods = &self.ledger.pods;
        let is_under_way = pods.is_released(key) || pods.proposal(key).is_some();
        if is_under_way || pods.is_writing(&reference(&pod)) {
            return Vec::new();
        }
        waiting.is_stuck = false;
        if let Err(error) = gang::of_pod(self.cluster.objects(), &pod) {
            // Gangs exist only for managed cards.
            waiting.is_managed = true;
            let why = WaitReason::Unfit(error.to_string());
            return self.waits(now, key, &pod, why).into_iter().collect();
        }
        self.with_nominated(now, &[(key, &pod)], |decider| {
            let mut intents: Vec<Intent> = decider.look_at(now, key).into_iter().collect();
            if decider.waiting.get(key).is_some_and(|waiting| waiting.is_stuck) {
                intents.extend(decider.stand_and_preempt(now, key, &pod));
            }
            intents
        })
    }

    /// Keeps the queue position of a pod without a suitable node, and preempts others for it if possible.
    fn stand_and_preempt(&mut self, now: Time, key: &Key, pod: &Pod) -> Vec<Intent> {
        let Ok(demand) = Demand::of(self.cluster.objects(), pod) else { return Vec::new() };
        let mut text = self.reason_of(key).map(WaitReason::to_string).unwrap_or_default();
        // Checked before any plan: no eviction would help.
        if self.fits_no_empty_node(&demand) {
            if let Some(waiting) = self.waiting.get_mut(key) {
                // Remains true regardless of the queue, so the reason must not be replaced by another.
                waiting.is_stuck = false;
            }
            let text = format!("{text}; no node could take it if it were empty: others pass it");
            let why = WaitReason::NoNode { text, keeps_place: false };
            return self.waits(now, key, pod, why).into_iter().collect();
        }
        let order = Order::of(std::iter::once(pod));
        let keeps_place = !self.is_refused_wherever_it_fits(now, &demand, pod);
        if keeps_place {
            self.stand(&order, &Who::Pod(key.clone()), &demand);
        } else {
            text.push_str("; others pass it");
        }
        let may_preempt =
            self.may_allocate() && !self.is_being_written(&demand) && demand.shared().next().is_none();
        let gang = may_preempt.then(|| Gang::of_one(key, pod, demand));
        let preemption = gang.and_then(|gang| self.preempt(now, &gang, &gang.open(), 1));
        let (mut intents, why) = match preemption {
            Some(preemption) if preemption.is_under_way => {
                (preemption.intents, WaitReason::Preempting(preemption.why))
            }
            other => {
                let more = other.map(|preemption| format!("; {}", preemption.why));
                text.extend(more);
                (Vec::new(), WaitReason::NoNode { text, keeps_place })
            }
        };
        intents.extend(self.waits(now, key, pod, why));
        intents
    }

    /// In pools with a strict queue, blocks cards for everyone behind this waiting pod or gang.
    pub(super) fn stand(&mut self, order: &Order, who: &Who, demand: &Demand) {
        let strict = self.fleet.strict(&self.cluster, &self.driver).pools.clone();
        if strict.is_empty() {
            return;
        }
        for pool in self.pools_asked(demand).intersection(&strict) {
            self.standing.stand(pool, order, who);
        }
    }

    /// The queue position and expected end of a pod or its gang.
    pub(super) fn asks(&self, now: Time, pod: &Pod) -> Asks {
        let key = Key::from(&pod.metadata);
        let ends = |pod: &Pod| {
            let seconds = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
            seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(|seconds| now + Time::from_secs(seconds))
        };
        match self.gangs.of(&key) {
            None => Asks { who: Who::Pod(key), order: Order::of(std::iter::once(pod)), ends: ends(pod) },
            Some(gang) => {
                let pods = self.gangs.members(gang).filter_map(|key| self.cluster.objects().pods.get(key));
                let all: Option<Vec<Time>> = pods.map(|pod| ends(pod)).collect();
                Asks {
                    who: Who::Gang(gang.clone()),
                    order: self.order_of(gang),
                    ends: all.and_then(|all| all.into_iter().max()),
                }
            }
        }
    }

    /// A pod no longer waits: anything kept for it is available to others.
    pub(super) fn see_place_left(&mut self) {
        if !self.standing.is_empty() {
            // Matches no fleet generation, so all waiting pods are examined.
            self.planned = usize::MAX;
        }
    }
}
