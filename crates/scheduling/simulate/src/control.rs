//! The controller's decision loop ([`tessera_decide::Decider`]) on simulated objects. Allocations are written and observed at once.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, AllocationResult, ResourceClaim, ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as MetaTime};
use k8s_openapi::jiff::Timestamp;
use tessera_api::device_status::{BELOW, IDLE};
use tessera_api::gpu_pool::IDLE_EVICTED_ANNOTATION;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::managed::NOMINATION_ANNOTATION;
use tessera_cluster::{ClaimExt as _, Cluster, Key, Kind, Object};
use tessera_decide::{ClaimAllocation, Decider, Intent, Observation, PodReference, Time};

/// Start of a run, in seconds since the Unix epoch (1 January 2026).
pub(crate) const BEGIN: Time = Duration::from_secs(1_767_225_600);

/// Age of the first objects at the start of the term: long after the tainting of all cards, so that kube-scheduler's hand-over of the
/// cards counts as complete.
const AGE: Duration = Duration::from_secs(3_600);

/// Age of the term at the start of a run: in its first day a leader moves few pods, as earlier moves are unknown.
const TERM: Duration = Duration::from_secs(25 * 3_600);

/// The term of leadership, as written on claims.
pub(crate) const EPOCH: &str = "simulated";

/// Ids of shares, counted up.
pub(crate) fn share_ids() -> impl FnMut() -> String + Send + 'static {
    let mut shares: u64 = 0;
    move || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    }
}

/// A leading controller, with the objects known to it.
pub(crate) struct Control {
    /// The decision loop.
    pub decider: Decider,
    /// Resource version of the last written claim.
    version: u64,
}

impl Control {
    /// Leads since before [`BEGIN`], with these objects and no others. `kubernetes`: release of kube-scheduler.
    pub fn new(driver: &str, kubernetes: KubernetesVersion, objects: impl Iterator<Item = Object>) -> Self {
        let mut decider = Decider::new(driver, share_ids());
        decider.predict(kubernetes);
        let mut control = Self { decider, version: 1 };
        let led = BEGIN - TERM;
        objects.for_each(|object| control.apply(led - AGE, object));
        control.decider.lead(led, EPOCH);
        // Requests a list of all claims, answered below.
        control.decider.decide(led);
        control.observe(led, Observation::ClaimsListed { asked_at: led });
        control
    }

    /// The objects.
    pub fn cluster(&self) -> &Cluster {
        self.decider.cluster()
    }

    fn observe(&mut self, now: Time, observation: Observation) {
        let observed = self.decider.observe(now, observation);
        debug_assert!(observed.is_ok(), "{observed:?}");
    }

    /// An object was created or changed.
    pub fn apply(&mut self, now: Time, object: impl Into<Object>) {
        self.observe(now, Observation::Applied(Box::new(object.into())));
    }

    /// An object was deleted.
    pub fn delete(&mut self, now: Time, kind: Kind, key: Key) {
        self.observe(now, Observation::Deleted(kind, key));
    }

    /// The allocation of a claim.
    pub fn allocation(&self, claim: &Key) -> Option<&AllocationResult> {
        self.cluster().objects().claims.get(claim)?.status.as_ref()?.allocation.as_ref()
    }

    /// Writes or, for `None`, clears a claim's allocation. Returns the claim's new version.
    fn write(&mut self, now: Time, key: &Key, allocated: Option<&ClaimAllocation>) -> Option<String> {
        let mut claim = ResourceClaim::clone(self.decider.cluster().objects().claims.get(key)?);
        let version = self.next_version();
        claim.metadata.resource_version = Some(version.clone());
        claim.status = allocated.map(|allocated| ResourceClaimStatus {
            allocation: Some(allocated.allocation.clone()),
            ..ResourceClaimStatus::default()
        });
        self.apply(now, claim);
        Some(version)
    }

    /// Carries out an intent. Returns the pod to bind with its node.
    pub fn carry_out(&mut self, now: Time, intent: Intent) -> Option<(PodReference, String)> {
        match intent {
            Intent::Allocate { pod, node, claims, lifts_gate, .. } => {
                let mut versions = Vec::new();
                for claim in &claims {
                    let version = self.write(now, &claim.claim.key, Some(claim));
                    versions.extend(version.map(|version| (claim.claim.key.clone(), version)));
                }
                self.observe(now, Observation::Carried { pod: pod.clone(), is_done: true, versions });
                let object = self.cluster().objects().pods.get(&pod.key)?;
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
            Intent::Nominate { pod, nomination } => {
                let mut object = Pod::clone(self.cluster().objects().pods.get(&pod.key)?);
                let annotations = object.metadata.annotations.get_or_insert_default();
                match nomination {
                    Some(found) => annotations.insert(NOMINATION_ANNOTATION.to_owned(), found.encode()),
                    None => annotations.remove(NOMINATION_ANNOTATION),
                };
                self.apply(now, object);
                None
            }
            Intent::Note { pod, idle_evicted: Some(evicted), .. } => {
                let mut object = Pod::clone(self.cluster().objects().pods.get(&pod.key)?);
                let annotations = object.metadata.annotations.get_or_insert_default();
                annotations.insert(IDLE_EVICTED_ANNOTATION.to_owned(), evicted);
                self.apply(now, object);
                None
            }
            // No steering: all cards are managed. Evictions are the caller's. The other intents are information for users.
            Intent::Note { .. }
            | Intent::Answer { .. }
            | Intent::Evict { .. }
            | Intent::Steer { .. }
            | Intent::Release { .. }
            | Intent::Tell { .. } => None,
        }
    }

    /// The claim's devices are told as unused, as by the plugin.
    pub fn tell_idle(&mut self, now: Time, key: &Key) {
        let Some(claim) = self.cluster().objects().claims.get(key) else { return };
        let mut claim = ResourceClaim::clone(claim);
        let condition = Condition {
            type_: IDLE.to_owned(),
            status: "True".to_owned(),
            reason: BELOW.to_owned(),
            message: "below its pool's limit".to_owned(),
            last_transition_time: MetaTime(timestamp(now)),
            observed_generation: None,
        };
        let told = claim.results().iter().map(|result| AllocatedDeviceStatus {
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            conditions: Some(vec![condition.clone()]),
            ..AllocatedDeviceStatus::default()
        });
        let told = told.collect();
        claim.status.get_or_insert_default().devices = Some(told);
        claim.metadata.resource_version = Some(self.next_version());
        self.apply(now, claim);
    }

    /// The next resource version.
    pub fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// A pod was evicted, and is gone.
    pub fn evicted(&mut self, now: Time, pod: PodReference) {
        self.observe(now, Observation::Evicted { pod, is_done: true });
    }

    /// Binds a pod, as kube-scheduler would; the kubelet takes it in at once.
    pub fn bind(&mut self, now: Time, mut pod: Pod, node: String) {
        let spec = pod.spec.get_or_insert_default();
        (spec.node_name, spec.scheduling_gates) = (Some(node), None);
        let status = pod.status.get_or_insert_default();
        status.phase = Some("Running".to_owned());
        status.start_time = Some(MetaTime(timestamp(now)));
        self.apply(now, pod);
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_nanosecond(time.as_nanos() as i128).unwrap_or_default()
}
