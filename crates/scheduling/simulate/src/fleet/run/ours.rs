//! Tessera: the controller's decision loop on objects as in the API server. Pods are bound at once.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tessera_api::fleet_view::TeamView;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::{Cluster, Key, Kind, Object, PodExt};
use tessera_decide::{Intent, PodReference, Time, ViewPass, WaitReason};

use super::{Change, Placed, Placer, unused};
use crate::control::{BEGIN, Control};
use crate::fleet::holdings::Holdings;
use crate::fleet::teams::Sample;
use crate::fleet::{Fleet, Workload};

/// Most rounds of decisions at one time. A gang takes three.
const ROUNDS: usize = 1_000;

const MINUTE: Time = Time::from_secs(60);

/// The decision loop over a simulated cluster.
pub(super) struct Ours<'r> {
    fleet: &'r Fleet,
    workload: &'r Workload,
    control: Control,
    /// Index of each pod by namespace and name.
    by_name: HashMap<(&'r str, &'r str), usize>,
    /// How often each pod was evicted.
    evictions: HashMap<usize, u32>,
    /// How long after a placement pools may still evict pods; `None` without such pools.
    evicts_within: Option<Duration>,
    /// When each placed pod will be idle, with the number of its evictions at its start.
    idle_from: BTreeSet<(Time, usize, u32)>,
    /// Time of the last round.
    last: Time,
}

impl<'r> Ours<'r> {
    pub fn new(fleet: &'r Fleet, workload: &'r Workload) -> Self {
        let by_name = workload.pods.iter().enumerate().map(|(place, _)| (workload.key(place), place));
        let classes = workload.classes.iter().cloned().map(Object::from);
        let standing = workload.standing.iter().cloned();
        let quotas = workload.quotas.objects(workload.namespaces());
        let objects = fleet.objects(Allocation::Managed).chain(classes).chain(standing).chain(quotas);
        let control = Control::new(fleet.driver(), fleet.kubernetes, objects);
        let evicts_within = unused::evicts_within(fleet);
        Self {
            fleet,
            workload,
            control,
            by_name: by_name.collect(),
            evictions: HashMap::new(),
            evicts_within,
            idle_from: BTreeSet::new(),
            last: BEGIN,
        }
    }

    /// Binds a pod with allocated claims, as kube-scheduler would.
    fn bind(&mut self, now: Time, pod: &PodReference, node: &str) -> Option<Placed> {
        let place = *self.by_name.get(&(pod.key.namespace.as_str(), pod.key.name.as_str()))?;
        let object = self.cluster().objects().pods.get(&pod.key)?.as_ref().clone();
        self.control.bind(now, object, node.to_owned());
        let claims = self.claims_of(place);
        let allocations = claims.iter().filter_map(|claim| self.control.allocation(claim).cloned());
        let (node, allocations) = (self.fleet.index(node)?, allocations.collect::<Vec<_>>());
        let busy = self.workload.pods[place].busy;
        let idle = unused::idle_after(self.fleet, node, busy, &allocations);
        let evictions = self.evictions_of(place);
        self.idle_from.extend(idle.map(|after| (now + after, place, evictions)));
        Some(Placed { pod: place, node, allocations })
    }

    fn evictions_of(&self, pod: usize) -> u32 {
        self.evictions.get(&pod).copied().unwrap_or_default()
    }

    /// Marks claims idle once their time without use is over.
    fn tell_idle(&mut self, now: Time) {
        while let Some((_, pod, evictions)) =
            self.idle_from.first().copied().filter(|(from, ..)| *from <= now)
        {
            self.idle_from.pop_first();
            if evictions == self.evictions_of(pod) {
                self.claims_of(pod).iter().for_each(|claim| self.control.tell_idle(now, claim));
            }
        }
    }

    /// Evicts a pod, which ends at once. Its owner makes it anew, but for one with devices from the beginning, whose claim goes with
    /// all of its pods.
    fn evict(&mut self, now: Time, pod: &PodReference, holdings: &mut Holdings) -> Option<Change> {
        let object = self.cluster().objects().pods.get(&pod.key)?;
        if object.metadata.uid.as_ref() != Some(&pod.uid) {
            return None;
        }
        let node = self.fleet.index(object.node_name()?)?;
        let of_workload = self.by_name.get(&(pod.key.namespace.as_str(), pod.key.name.as_str())).copied();
        let held = || self.workload.held.iter().position(|held| held.pods.contains(&pod.key));
        let place = of_workload.or_else(|| Some(held()? + self.workload.pods.len()))?;
        let before = holdings.taken();
        holdings.give_back(self.fleet, place, node);
        self.control.evicted(now, pod.clone());
        let at = now.saturating_sub(BEGIN);
        self.end(at, place, holdings);
        if of_workload.is_some() {
            *self.evictions.entry(place).or_default() += 1;
            self.arrive(at, place);
        }
        Some(Change::Evicted { pod: place, cards: before - holdings.taken() })
    }

    fn claims_of(&self, pod: usize) -> Vec<Key> {
        let pod = &self.workload.pods[pod];
        self.workload.shapes[pod.shape]
            .claims_of(pod)
            .iter()
            .map(|claim| Key::from(&claim.metadata))
            .collect()
    }
}

impl Placer for Ours<'_> {
    fn arrive(&mut self, now: Duration, pod: usize) {
        let (now, place) = (BEGIN + now, pod as i128);
        let again = self.evictions.get(&pod).map(|count| format!("again-{count}"));
        let pod = &self.workload.pods[pod];
        let shape = &self.workload.shapes[pod.shape];
        // Distinct timestamps keep the order of arrival for simultaneous pods.
        let created = Timestamp::from_nanosecond(now.as_nanos() as i128 + place);
        let mut object = shape.pod_of(pod, created.unwrap_or_default());
        let mut claims = shape.claims_of(pod);
        // A pod made anew is another one, and so are its claims.
        if let Some(again) = again {
            let uid = |name: Option<&String>| Some(format!("{}-{again}", name?));
            object.metadata.uid = uid(object.metadata.name.as_ref());
            for claim in &mut claims {
                claim.metadata.uid = uid(claim.metadata.name.as_ref());
                claim.metadata.resource_version = Some(self.control.next_version());
                for owner in claim.metadata.owner_references.iter_mut().flatten() {
                    owner.uid = object.metadata.uid.clone().unwrap_or_default();
                }
            }
        }
        for claim in claims {
            self.control.apply(now, claim);
        }
        self.control.apply(now, object);
    }

    fn end(&mut self, now: Duration, pod: usize, _holdings: &Holdings) {
        let (pods, claims) = match self.workload.held_by(pod) {
            Some(held) => (held.pods.clone(), vec![held.claim.clone()]),
            None => {
                let (namespace, name) = self.workload.key(pod);
                (vec![Key::new(namespace, name)], self.claims_of(pod))
            }
        };
        for pod in pods {
            self.control.delete(BEGIN + now, Kind::Pod, pod);
        }
        for claim in claims {
            self.control.delete(BEGIN + now, Kind::ResourceClaim, claim);
        }
    }

    fn place(&mut self, now: Duration, holdings: &mut Holdings) -> Vec<Change> {
        let now = BEGIN + now;
        self.last = now;
        self.tell_idle(now);
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let intents = self.control.decider.decide(now);
            let is_over =
                intents.iter().all(|intent| matches!(intent, Intent::Tell { .. } | Intent::Note { .. }));
            for intent in intents {
                if let Intent::Evict { pod, .. } = &intent {
                    all.extend(self.evict(now, pod, holdings));
                    continue;
                }
                let Some((pod, node)) = self.control.carry_out(now, intent) else { continue };
                let Some(placed) = self.bind(now, &pod, &node) else { continue };
                for allocation in &placed.allocations {
                    holdings.take(self.fleet, placed.pod, placed.node, allocation);
                }
                all.push(Change::Placed(placed));
            }
            if is_over {
                break;
            }
        }
        all
    }

    fn wake(&self) -> Option<Duration> {
        let wake = self.control.decider.wake();
        // The loop looks for evictions every ten seconds: each minute is enough.
        let wake =
            wake.map(|wake| if self.evicts_within.is_some() { wake.max(self.last + MINUTE) } else { wake });
        let idle = self.idle_from.first().map(|(from, ..)| *from);
        wake.into_iter().chain(idle).min().map(|wake| wake.saturating_sub(BEGIN))
    }

    fn evicts_within(&self) -> Option<Duration> {
        self.evicts_within
    }

    fn whys(&mut self, pods: &[usize]) -> Vec<String> {
        let waiting = self.control.decider.waiting();
        let waiting: HashMap<(&str, &str), &str> =
            waiting.map(|(key, why)| ((key.namespace.as_str(), key.name.as_str()), why)).collect();
        let why = |pod: &usize| waiting.get(&self.workload.key(*pod)).copied();
        // The controller ignores pods whose requests match no managed card.
        pods.iter()
            .map(|pod| why(pod).unwrap_or("no card is offered in the requested form").to_owned())
            .collect()
    }

    fn teams(&self) -> Option<Sample> {
        if self.workload.quotas.is_empty() {
            return None;
        }
        let decider = &self.control.decider;
        let is_held_up = |pod: &Key| {
            let reason = decider.reason_of(pod);
            matches!(reason, Some(WaitReason::TeamLimit(_) | WaitReason::TeamBudget(_)))
        };
        let waits_for_room = decider.waiting().any(|(pod, _)| !is_held_up(pod));
        Some(Sample { quotas: decider.quotas(), waits_for_room })
    }

    fn team_views(&self) -> Vec<TeamView> {
        self.control.decider.view(ViewPass::default(), BEGIN).into_view().teams
    }

    fn cluster(&self) -> &Cluster {
        self.control.cluster()
    }
}
