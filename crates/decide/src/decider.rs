//! The decision loop.

mod arrivals;
mod claim;
mod clear;
mod fleet_view;
mod gang;
mod heal;
mod lead;
mod look;
mod managed_pods;
mod observe;
mod on_the_way;
mod overlaps;
mod passed_by;
mod pod;
mod pools;
mod preempt;
mod ranked;
mod refused_claims;
mod round;
mod schedulers;
mod selector_costs;
#[cfg(test)]
mod tests;
mod turns;
mod unlisted;
mod unplaced;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::{Asker, Cluster, Key, Kind, Object, ObjectError, PodExt};
use tessera_placement::Time;
use tessera_placement::fleet::Fleet;
use tessera_placement::ranking::Rankings;
use tessera_placement::value::RequestMix;

use arrivals::Arrivals;
use preempt::Preempting;
use round::Round;
use unplaced::Unplaced;

use crate::gangs::Gangs;
use crate::healing::Healing;
use crate::intent::{ClaimReference, Intent, PodReference};
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::refusals::Refusals;
use crate::term::{Lists, Term};
use crate::wait_reason::WaitReason;
use crate::workload_pods::WorkloadPods;

/// An event for the decision loop.
#[derive(Debug, Clone)]
pub enum Observation {
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object was deleted.
    Deleted(Kind, Key),
    /// An object was added or changed but cannot be read. The object counts as absent, and pods using it report the error.
    Unreadable {
        /// Kind of the object.
        kind: Kind,
        /// Namespace and name.
        key: Key,
        /// Why the object cannot be read.
        why: String,
        /// The readable part of a claim holding devices: these devices count as taken.
        holds: Option<Box<ResourceClaim>>,
    },
    /// Outcome of the writes of an intent for a pod. After a failure, the pod is decided again after a pause.
    Carried {
        /// The pod.
        pod: PodReference,
        /// Whether all writes succeeded.
        is_done: bool,
        /// Claims whose allocation was written, each with its resource version after the write.
        versions: Vec<(Key, String)>,
    },
    /// Outcome of [`Intent::Fence`] or [`Intent::Clear`] for these claims.
    ClaimsWritten {
        /// The claims.
        claims: Vec<Key>,
        /// Whether all writes succeeded.
        is_done: bool,
    },
    /// The API server refused to change a claim for a lasting reason: too many annotations, or a policy. The request was sent
    /// once and answered, so it had no effect and will have none.
    ClaimRefused {
        /// The claim, in the refused version.
        claim: ClaimReference,
        /// The pod whose devices were to be written; `None` for [`Intent::Fence`] and [`Intent::Clear`].
        pod: Option<PodReference>,
        /// Error from the API server.
        why: String,
    },
    /// Outcome of [`Intent::Evict`].
    Evicted {
        /// The pod.
        pod: PodReference,
        /// Whether the eviction was accepted.
        is_done: bool,
    },
    /// All claims were listed again: each was observed as of `asked_at` or later, or as deleted.
    ClaimsListed {
        /// When the list was requested from the API server.
        asked_at: Time,
    },
}

/// See [`Decider::with_handover`].
const HANDOVER: Time = Time::from_secs(60);

/// See [`Decider::with_heal_after`].
const HEAL_AFTER: Time = Time::from_secs(300);

/// See [`Decider::with_topology_keys`].
const TOPOLOGY_KEYS: [&str; 2] = ["topology.kubernetes.io/rack", "topology.kubernetes.io/zone"];

/// The decision loop.
pub struct Decider {
    driver: String,
    cluster: Cluster,
    asker: Asker,
    fleet: Fleet,
    rankings: Rankings,
    /// Decisions whose writes have not been observed yet.
    ledger: Ledger,
    refusals: Refusals,
    gangs: Gangs,
    workload_pods: WorkloadPods,
    /// Order in which pods waiting for managed cards are served.
    standing: Queue,
    preempting: Preempting,
    round: Round,
    /// Node labels of topology domains, narrowest first.
    topology_keys: Vec<String>,
    /// Schedulers whose pods get devices of managed cards.
    schedulers: Vec<String>,
    /// Pods this controller may have to place.
    waiting: BTreeMap<Key, Waiting>,
    /// Waiting pods to look at next even if nothing else changed.
    queue: BTreeSet<Key>,
    /// Pods for which kube-scheduler found no node.
    unplaced: Unplaced,
    /// By shape of unmet demand: pools with nodes having the requested devices, as of the last [`Self::pools`].
    pools_by_shape: BTreeMap<String, BTreeSet<String>>,
    /// Pods released to a node by another replica, or by this process before a restart.
    adopted: BTreeSet<Key>,
    /// Current term of leadership; `None` while another replica leads.
    term: Option<Term>,
    lists: Lists,
    /// How long a card must have been tainted as managed before allocation.
    handover: Time,
    /// How long device preparation must have failed before the controller acts.
    heal_after: Time,
    healing: Healing,
    mix: RequestMix,
    arrivals: Arrivals,
    /// Claims to check for devices no pod will use.
    unclaimed: BTreeSet<Key>,
    /// Pods with a note to write.
    to_note: BTreeSet<Key>,
    /// Nodes whose claims may hold overlapping devices.
    to_check: BTreeSet<String>,
    /// Uids of claims whose pods got an Event in this term about a device with another owner.
    told_overlaps: BTreeSet<String>,
    /// Nodes where a claim gained or lost devices: pods in flight there may get other devices than assumed.
    reallocated: BTreeSet<String>,
    /// Nodes with too few devices for all pods in flight there, as of the last look.
    crowded: BTreeSet<String>,
    /// Fleet generation at the last full pass over the waiting pods.
    planned: usize,
}

/// A pod with our gate. With managed cards in the fleet, also a pod without any gate and without devices.
#[derive(Debug, Default)]
struct Waiting {
    /// Reason for waiting; `None` before the first look.
    why: Option<WaitReason>,
    told: Option<(WaitReason, Time)>,
    /// Earliest time of the next look, after a failure or a pause.
    not_before: Time,
    failures: u32,
    /// Whether the pod fit on no node with managed cards at the last look.
    is_stuck: bool,
    /// Whether the pod asks for managed cards: without a gate, only such pods belong to this controller.
    is_managed: bool,
    shape_text: Option<String>,
}

impl Decider {
    /// A decision loop for the devices of this DRA driver, with an empty cluster. Observe all existing objects before the first
    /// [`Self::decide`].
    ///
    /// `share_id` returns the id of each new share of a device: a UUID never used before by anybody. kube-scheduler distinguishes
    /// the shares of a device by this id.
    #[must_use]
    pub fn new(driver_name: &str, share_id: impl FnMut() -> String + Send + 'static) -> Self {
        Decider {
            driver: driver_name.to_owned(),
            cluster: Cluster::default(),
            asker: Asker::new(share_id),
            fleet: Fleet::default(),
            rankings: Rankings::default(),
            ledger: Ledger::default(),
            refusals: Refusals::default(),
            gangs: Gangs::default(),
            workload_pods: WorkloadPods::default(),
            standing: Queue::default(),
            preempting: Preempting::default(),
            round: Round::default(),
            topology_keys: TOPOLOGY_KEYS.map(str::to_owned).into(),
            schedulers: vec![tessera_cluster::DEFAULT_SCHEDULER.to_owned()],
            waiting: BTreeMap::new(),
            unplaced: Unplaced::default(),
            pools_by_shape: BTreeMap::new(),
            queue: BTreeSet::new(),
            adopted: BTreeSet::new(),
            term: None,
            lists: Lists::default(),
            handover: HANDOVER,
            heal_after: HEAL_AFTER,
            healing: Healing::default(),
            mix: RequestMix::default(),
            arrivals: Arrivals::default(),
            unclaimed: BTreeSet::new(),
            to_note: BTreeSet::new(),
            to_check: BTreeSet::new(),
            told_overlaps: BTreeSet::new(),
            reallocated: BTreeSet::new(),
            crowded: BTreeSet::new(),
            planned: 0,
        }
    }

    /// How long a card must have been tainted as managed before allocation: for so long, kube-scheduler may still write an
    /// allocation decided before the taint. One minute by default.
    #[must_use]
    pub fn with_handover(self, handover: Time) -> Self {
        Decider { handover, ..self }
    }

    /// How long preparation of a claim's devices must have failed, for a lasting reason, before their cards are avoided
    /// and pods evicted. Five minutes by default.
    #[must_use]
    pub fn with_heal_after(self, heal_after: Time) -> Self {
        Decider { heal_after, ..self }
    }

    /// Predicts kube-scheduler of the API server's release from now on. The newest known release by default.
    pub fn predict(&mut self, kubernetes: KubernetesVersion) {
        self.asker.set_kubernetes(kubernetes);
    }

    /// Node labels of topology domains, narrowest first: pods of a gang are kept within one domain of the first label with enough
    /// room. Racks, then zones, by default.
    #[must_use]
    pub fn with_topology_keys(self, topology_keys: Vec<String>) -> Self {
        Decider { topology_keys, ..self }
    }

    /// Schedulers, by `schedulerName`, whose pods get devices of managed cards. They must report scheduling results as
    /// kube-scheduler does, or devices would stay with pods nobody places. `default-scheduler` by default.
    #[must_use]
    pub fn with_schedulers(self, schedulers: Vec<String>) -> Self {
        Decider { schedulers, ..self }
    }

    /// Processes an observation.
    ///
    /// # Errors
    /// The object contains a value the API server would not accept. The object then counts as deleted.
    pub fn observe(&mut self, now: Time, observation: Observation) -> Result<(), ObservationError> {
        match observation {
            Observation::Applied(object) => self.apply(now, *object),
            Observation::Deleted(kind, key) => {
                self.delete(now, kind, &key);
                Ok(())
            }
            Observation::Unreadable { kind, key, why, holds } => {
                self.see_unreadable(now, kind, &key, why, holds)
            }
            Observation::ClaimsWritten { claims, is_done } => {
                self.claims_written(now, &claims, is_done);
                Ok(())
            }
            Observation::ClaimRefused { claim, pod, why } => {
                self.claim_refused(now, &claim, pod.as_ref(), why);
                Ok(())
            }
            Observation::ClaimsListed { asked_at } => {
                self.claims_listed(asked_at);
                Ok(())
            }
            Observation::Evicted { pod, is_done } => {
                self.evicted(now, &pod, is_done);
                Ok(())
            }
            Observation::Carried { pod, is_done, versions } => {
                self.ledger.pods.answer(&pod);
                self.ledger.claims.acknowledge(&pod, &versions);
                if self.waiting.contains_key(&pod.key) {
                    self.queue.insert(pod.key.clone());
                }
                self.carried(now, &pod, is_done);
                Ok(())
            }
        }
    }

    /// Returns the intents to carry out now.
    pub fn decide(&mut self, now: Time) -> Vec<Intent> {
        self.round = Round::default();
        self.count_arrivals();
        self.adopt();
        self.assume_anew();
        let mut intents = self.try_refused_again(now);
        intents.extend(self.prepare_term(now));
        self.give_up_overdue(now);
        intents.extend(self.resolve_overlaps());
        intents.extend(self.clear_unclaimed());
        intents.extend(self.heal(now));
        intents.extend(self.note());
        if self.refusals.next_end().is_some_and(|end| end <= now) {
            self.refusals.remove_ended(now);
            self.queue.extend(self.waiting.keys().cloned());
        }
        let turns = self.turns(now);
        let (looked, has_freed) = self.take_turns(now, turns);
        intents.extend(looked);
        // Pods sent in this pass only took room: demand without a fit before still has none.
        self.planned = self.fleet.now();
        if has_freed {
            // Matches no fleet generation: forces a full pass.
            self.planned = usize::MAX;
            self.round.forget_victims();
            let turns = self.turns(now);
            let (mut looked, has_freed) = self.take_turns(now, turns);
            looked.retain(|intent| !intents.contains(intent));
            intents.extend(looked);
            self.planned = if has_freed { usize::MAX } else { self.fleet.now() };
        }
        intents
    }

    /// When to call [`Self::decide`] again even if nothing is observed.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        let pauses = self.queue.iter().filter_map(|key| Some(self.waiting.get(key)?.not_before));
        let ends = self.refusals.next_end().filter(|_| !self.waiting.is_empty());
        let heals = self.healing.next_due().filter(|_| self.term.is_some());
        let gangs = self.gangs.next_due();
        pauses
            .chain(ends)
            .chain(self.ledger.pods.next_due())
            .chain(self.next_of_term())
            .chain(heals)
            .chain(gangs)
            .min()
    }

    /// Waiting pods, each with its reason: pods with our gate, and pods asking for managed cards but without any.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, &str)> {
        let ours = self.waiting.iter().filter(|(key, _)| self.is_waiting(key));
        ours.map(|(key, waiting)| (key, waiting.why.as_ref().map_or("", WaitReason::text)))
    }

    /// Why the pod waits; `None` for pods not looked at, or not yet.
    #[must_use]
    pub fn reason_of(&self, pod: &Key) -> Option<&WaitReason> {
        self.waiting.get(pod)?.why.as_ref()
    }

    /// Whether the pod has our gate, or asks for managed cards but has none.
    fn is_waiting(&self, key: &Key) -> bool {
        let is_gated = || self.cluster.objects().pods.get(key).is_some_and(|pod| pod.is_gated());
        self.waiting.get(key).is_some_and(|waiting| waiting.is_managed || is_gated())
    }

    /// Number of pods in flight to the node proposed for them.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.ledger.pods.proposed()
    }

    /// The known state of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

/// Why an observation cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObservationError {
    /// The object contains a value the API server would not accept.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A slice's annotation is not a valid node report; the node counts as having no pools.
    #[error(
        "ResourceSlice {slice}: the annotation {} is no node report: {error}",
        tessera_api::node_report::ANNOTATION
    )]
    Report {
        /// Name of the slice.
        slice: String,
        /// Parse error.
        error: String,
    },
}
