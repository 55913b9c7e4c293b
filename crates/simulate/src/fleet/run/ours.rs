//! Tessera: the decision loop of the controller ([`tessera_decide::Decider`]) on objects as in the API server. Allocations are
//! written, bound and observed at once.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimStatus};
use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::{Cluster, Key, Kind, Object};
use tessera_decide::{ClaimAllocation, Decider, Intent, Observation, PodReference, Time};

use super::{Placed, Placer};
use crate::fleet::holdings::Holdings;
use crate::fleet::wish::share_ids;
use crate::fleet::workload::EPOCH;
use crate::fleet::{Fleet, Workload};

/// Start of the run, in seconds since the Unix epoch (1 January 2026): long after the tainting of all cards, so that
/// kube-scheduler's hand-over of the cards counts as complete.
const BEGIN: Time = Duration::from_secs(1_767_225_600);

/// Most rounds of decisions at one time. A gang takes three.
const ROUNDS: usize = 1_000;

/// The decision loop over a simulated cluster.
pub(super) struct Ours<'r> {
    fleet: &'r Fleet,
    workload: &'r Workload,
    decider: Decider,
    /// Index of each pod by namespace and name.
    by_name: HashMap<(&'r str, &'r str), usize>,
    /// Resource version of the last written claim.
    version: u64,
}

impl<'r> Ours<'r> {
    pub fn new(fleet: &'r Fleet, workload: &'r Workload) -> Self {
        let by_name = workload.pods.iter().enumerate().map(|(place, _)| (workload.key(place), place));
        let mut decider = Decider::new(fleet.driver(), share_ids());
        decider.predict(fleet.kubernetes);
        let mut ours = Self { fleet, workload, decider, by_name: by_name.collect(), version: 1 };
        // The objects are an hour old when the run starts.
        let before = BEGIN - Duration::from_secs(3_600);
        let classes = workload.classes.iter().cloned().map(Object::from);
        let standing = workload.standing.iter().cloned();
        for object in fleet.objects(Allocation::Managed).chain(classes).chain(standing) {
            ours.observe(before, Observation::Applied(Box::new(object)));
        }
        ours.decider.lead(BEGIN, EPOCH);
        // Requests a list of all claims, answered below.
        ours.decider.decide(BEGIN);
        ours.observe(BEGIN, Observation::ClaimsListed { asked_at: BEGIN });
        ours
    }

    fn observe(&mut self, now: Time, observation: Observation) {
        let observed = self.decider.observe(now, observation);
        debug_assert!(observed.is_ok(), "{observed:?}");
    }

    fn apply(&mut self, now: Time, object: impl Into<Object>) {
        self.observe(now, Observation::Applied(Box::new(object.into())));
    }

    /// Writes or, for `None`, clears a claim's allocation. Returns the claim's new version.
    fn write(&mut self, now: Time, key: &Key, allocated: Option<&ClaimAllocation>) -> Option<String> {
        let known = self.decider.cluster().objects().claims.get(key)?;
        self.version += 1;
        let version = self.version.to_string();
        let mut claim = ResourceClaim::clone(known);
        claim.metadata.resource_version = Some(version.clone());
        claim.status = allocated.map(|allocated| ResourceClaimStatus {
            allocation: Some(allocated.allocation.clone()),
            ..ResourceClaimStatus::default()
        });
        self.apply(now, claim);
        Some(version)
    }

    /// Carries out an intent. Returns the pod to bind with its node.
    fn carry_out(&mut self, now: Time, intent: Intent) -> Option<(PodReference, String)> {
        match intent {
            Intent::Allocate { pod, node, claims, lifts_gate, .. } => {
                let mut versions = Vec::new();
                for claim in &claims {
                    let version = self.write(now, &claim.claim.key, Some(claim));
                    versions.extend(version.map(|version| (claim.claim.key.clone(), version)));
                }
                self.observe(now, Observation::Carried { pod: pod.clone(), is_done: true, versions });
                let object = self.decider.cluster().objects().pods.get(&pod.key)?;
                let is_gated = object.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_some());
                (lifts_gate || !is_gated).then_some((pod, node))
            }
            Intent::Clear { claims, .. } => {
                let keys: Vec<Key> = claims.into_iter().map(|claim| claim.key).collect();
                for claim in &keys {
                    self.write(now, claim, None);
                }
                self.observe(now, Observation::ClaimsWritten { claims: keys, is_done: true });
                None
            }
            Intent::Fence { claims, .. } => {
                let claims = claims.into_iter().map(|claim| claim.key).collect();
                self.observe(now, Observation::ClaimsWritten { claims, is_done: true });
                None
            }
            Intent::ListClaims => {
                self.observe(now, Observation::ClaimsListed { asked_at: now });
                None
            }
            // No steering or evictions: all cards are managed, and pods never preempt. The other intents are information for users.
            Intent::Note { .. }
            | Intent::Nominate { .. }
            | Intent::Evict { .. }
            | Intent::Steer { .. }
            | Intent::Release { .. }
            | Intent::Tell { .. } => None,
        }
    }

    /// Binds a pod with allocated claims, as kube-scheduler would.
    fn bind(&mut self, now: Time, pod: &PodReference, node: &str) -> Option<Placed> {
        let place = *self.by_name.get(&(pod.key.namespace.as_str(), pod.key.name.as_str()))?;
        let mut object = self.decider.cluster().objects().pods.get(&pod.key)?.as_ref().clone();
        let spec = object.spec.get_or_insert_default();
        (spec.node_name, spec.scheduling_gates) = (Some(node.to_owned()), None);
        self.apply(now, object);
        let objects = self.decider.cluster().objects();
        let claims = self.claims_of(place);
        let allocations =
            claims.iter().filter_map(|claim| objects.claims.get(claim)?.status.as_ref()?.allocation.clone());
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
            self.apply(now, claim);
        }
        // Distinct timestamps keep the order of arrival for simultaneous pods.
        let created = Timestamp::from_nanosecond(now.as_nanos() as i128 + place);
        self.apply(now, shape.pod_of(pod, created.unwrap_or_default()));
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
            self.observe(BEGIN + now, Observation::Deleted(Kind::Pod, pod));
        }
        for claim in claims {
            self.observe(BEGIN + now, Observation::Deleted(Kind::ResourceClaim, claim));
        }
    }

    fn place(&mut self, now: Duration, holdings: &mut Holdings) -> Vec<Placed> {
        let now = BEGIN + now;
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let intents = self.decider.decide(now);
            let is_over = intents.iter().all(|intent| {
                matches!(intent, Intent::Tell { .. } | Intent::Note { .. } | Intent::Nominate { .. })
            });
            if is_over {
                break;
            }
            for intent in intents {
                let Some((pod, node)) = self.carry_out(now, intent) else { continue };
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
        self.decider.wake().map(|wake| wake.saturating_sub(BEGIN))
    }

    fn whys(&mut self, pods: &[usize]) -> Vec<String> {
        let waiting = self.decider.waiting();
        let waiting: HashMap<(&str, &str), &str> =
            waiting.map(|(key, why)| ((key.namespace.as_str(), key.name.as_str()), why)).collect();
        let why = |pod: &usize| waiting.get(&self.workload.key(*pod)).copied();
        // The controller ignores pods whose requests match no managed card.
        pods.iter()
            .map(|pod| why(pod).unwrap_or("no card is offered as what it asks for").to_owned())
            .collect()
    }

    fn cluster(&self) -> &Cluster {
        self.decider.cluster()
    }
}
