//! Tessera: the controller's decision loop on objects as in the API server. Pods are bound at once.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::{Cluster, Key, Kind, Object};
use tessera_decide::{Intent, PodReference, Time};

use super::{Placed, Placer};
use crate::control::{BEGIN, Control};
use crate::fleet::holdings::Holdings;
use crate::fleet::{Fleet, Workload};

/// Most rounds of decisions at one time. A gang takes three.
const ROUNDS: usize = 1_000;

/// The decision loop over a simulated cluster.
pub(super) struct Ours<'r> {
    fleet: &'r Fleet,
    workload: &'r Workload,
    control: Control,
    /// Index of each pod by namespace and name.
    by_name: HashMap<(&'r str, &'r str), usize>,
}

impl<'r> Ours<'r> {
    pub fn new(fleet: &'r Fleet, workload: &'r Workload) -> Self {
        let by_name = workload.pods.iter().enumerate().map(|(place, _)| (workload.key(place), place));
        let classes = workload.classes.iter().cloned().map(Object::from);
        let standing = workload.standing.iter().cloned();
        let objects = fleet.objects(Allocation::Managed).chain(classes).chain(standing);
        let control = Control::new(fleet.driver(), fleet.kubernetes, objects);
        Self { fleet, workload, control, by_name: by_name.collect() }
    }

    /// Binds a pod with allocated claims, as kube-scheduler would.
    fn bind(&mut self, now: Time, pod: &PodReference, node: &str) -> Option<Placed> {
        let place = *self.by_name.get(&(pod.key.namespace.as_str(), pod.key.name.as_str()))?;
        let object = self.cluster().objects().pods.get(&pod.key)?.as_ref().clone();
        self.control.bind(now, object, node.to_owned());
        let claims = self.claims_of(place);
        let allocations = claims.iter().filter_map(|claim| self.control.allocation(claim).cloned());
        Some(Placed { pod: place, node: self.fleet.index(node)?, allocations: allocations.collect() })
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
        let pod = &self.workload.pods[pod];
        let shape = &self.workload.shapes[pod.shape];
        for claim in shape.claims_of(pod) {
            self.control.apply(now, claim);
        }
        // Distinct timestamps keep the order of arrival for simultaneous pods.
        let created = Timestamp::from_nanosecond(now.as_nanos() as i128 + place);
        self.control.apply(now, shape.pod_of(pod, created.unwrap_or_default()));
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

    fn place(&mut self, now: Duration, holdings: &mut Holdings) -> Vec<Placed> {
        let now = BEGIN + now;
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let intents = self.control.decider.decide(now);
            let is_over = intents.iter().all(|intent| {
                matches!(intent, Intent::Tell { .. } | Intent::Note { .. } | Intent::Nominate { .. })
            });
            if is_over {
                break;
            }
            for intent in intents {
                let Some((pod, node)) = self.control.carry_out(now, intent) else { continue };
                let Some(placed) = self.bind(now, &pod, &node) else { continue };
                for allocation in &placed.allocations {
                    holdings.take(self.fleet, placed.pod, placed.node, allocation);
                }
                all.push(placed);
            }
        }
        all
    }

    fn wake(&self) -> Option<Duration> {
        self.control.decider.wake().map(|wake| wake.saturating_sub(BEGIN))
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

    fn cluster(&self) -> &Cluster {
        self.control.cluster()
    }
}
