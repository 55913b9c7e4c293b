//! The loop itself.

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

/// Something that was seen.
#[derive(Debug, Clone)]
pub enum Observation {
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object is gone.
    Deleted(Kind, Key),
    /// An object was added or changed, and cannot be read: it counts as absent, and pods that use it say so.
    Unreadable {
        /// What it is.
        kind: Kind,
        /// Its namespace and name.
        key: Key,
        /// What is wrong with it.
        why: String,
        /// What could be read of a claim that holds devices: they count as taken.
        holds: Option<Box<ResourceClaim>>,
    },
    /// An intent for the pod was carried out, or was not: then it is decided anew after a pause.
    Carried {
        /// The pod.
        pod: PodReference,
        /// Whether all of it was done.
        is_done: bool,
        /// The claims whose allocation was written, each with its version after that.
        versions: Vec<(Key, String)>,
    },
    /// [`Intent::Fence`] or [`Intent::Clear`] was carried out for these claims, or was not.
    ClaimsWritten {
        /// The claims.
        claims: Vec<Key>,
        /// Whether all of it was done.
        is_done: bool,
    },
    /// The API server refused to change a claim, for a reason that does not pass by itself: too many annotations, or a policy. The request
    /// was sent once and answered, so that it did nothing and will do nothing.
    ClaimRefused {
        /// The claim, in the version that was to be changed.
        claim: ClaimReference,
        /// The pod for which it was to get devices; `None` for [`Intent::Fence`] and [`Intent::Clear`].
        pod: Option<PodReference>,
        /// What the API server said.
        why: String,
    },
    /// [`Intent::Evict`] was carried out, or was refused.
    Evicted {
        /// The pod.
        pod: PodReference,
        /// Whether it was done.
        is_done: bool,
    },
    /// All claims were read anew: each was observed as it was then or later, or as gone.
    ClaimsListed {
        /// When the API server was asked.
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
    /// What was decided and is not yet observed.
    ledger: Ledger,
    refusals: Refusals,
    gangs: Gangs,
    workload_pods: WorkloadPods,
    /// Who goes first of those that wait for managed cards.
    standing: Queue,
    preempting: Preempting,
    round: Round,
    /// Labels of nodes that say how far apart they are, the narrowest first.
    topology_keys: Vec<String>,
    /// Schedulers whose pods get devices of managed cards.
    schedulers: Vec<String>,
    /// Pods that may be ours to send.
    waiting: BTreeMap<Key, Waiting>,
    /// Of those, the ones to look at next whatever else happens.
    queue: BTreeSet<Key>,
    /// Pods that kube-scheduler found no node for.
    unplaced: Unplaced,
    /// The pools on whose nodes there is what waiting pods ask for, by what that is in short, as of the last [`Self::pools`].
    pools_by_shape: BTreeMap<String, BTreeSet<String>>,
    /// Pods without our gate that another controller, or this one before it was restarted, sent to a node.
    adopted: BTreeSet<Key>,
    /// This term of leadership; `None` while another replica leads.
    term: Option<Term>,
    lists: Lists,
    /// How long a card must have been tainted as managed before it is given out.
    handover: Time,
    /// How long devices must have failed to be prepared before something is done about it.
    heal_after: Time,
    healing: Healing,
    mix: RequestMix,
    arrivals: Arrivals,
    /// Claims to look at, for devices that nobody will use.
    unclaimed: BTreeSet<Key>,
    /// Pods on which something is to be noted.
    to_note: BTreeSet<Key>,
    /// Nodes where claims may hold the same devices.
    to_check: BTreeSet<String>,
    /// Uids of claims whose pods were told in this term that a device has another owner.
    told_overlaps: BTreeSet<String>,
    /// Nodes where a claim got or gave back devices: pods on their way there may get others than was thought.
    reallocated: BTreeSet<String>,
    /// Nodes where there were too few devices for all pods on their way there when it was looked at last.
    crowded: BTreeSet<String>,
    /// The fleet as it was when all waiting pods were looked at last.
    planned: usize,
}

/// A pod with our gate, or, where there are managed cards, without any and without devices.
#[derive(Debug, Default)]
struct Waiting {
    /// Why it does not go on; `None` until it was looked at.
    why: Option<WaitReason>,
    told: Option<(WaitReason, Time)>,
    /// After failures: not before then.
    not_before: Time,
    failures: u32,
    /// It fits on no node with managed cards, as of the last look.
    is_stuck: bool,
    /// Without a gate: asks for managed cards, so that it is this controller's.
    is_managed: bool,
    shape_text: Option<String>,
}

impl Decider {
    /// A loop for the devices of this DRA driver that knows nothing yet. Feed it everything that exists before the first
    /// [`Self::decide`].
    ///
    /// `share_id` makes the id of each new share of a device: a UUID that was never used, by anybody. kube-scheduler tells
    /// the shares of a device apart by it.
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

    /// How long a card must have been tainted as managed before it is given out: so late, kube-scheduler may still write an
    /// allocation that it decided on before. A minute unless told.
    #[must_use]
    pub fn with_handover(self, handover: Time) -> Self {
        Decider { handover, ..self }
    }

    /// How long a claim's devices must have failed to be prepared, for a reason that does not pass by itself, before their
    /// cards are left alone and pods evicted. Five minutes unless told.
    #[must_use]
    pub fn with_heal_after(self, heal_after: Time) -> Self {
        Decider { heal_after, ..self }
    }

    /// Predicts kube-scheduler of this release from now on: that of the API server. The newest known unless told.
    pub fn predict(&mut self, kubernetes: KubernetesVersion) {
        self.asker.set_kubernetes(kubernetes);
    }

    /// Labels of nodes that say how far apart they are, the narrowest first: pods of a gang are kept together by the first
    /// of them within which they fit. Racks, then zones, unless told.
    #[must_use]
    pub fn with_topology_keys(self, topology_keys: Vec<String>) -> Self {
        Decider { topology_keys, ..self }
    }

    /// The schedulers whose pods get devices of managed cards, by `schedulerName`: they must say what becomes of their pods as
    /// kube-scheduler does, or devices would stay with pods that nobody places. `default-scheduler` unless told.
    #[must_use]
    pub fn with_schedulers(self, schedulers: Vec<String>) -> Self {
        Decider { schedulers, ..self }
    }

    /// Takes in what was seen.
    ///
    /// # Errors
    /// The object contains something that the API server would not accept. It then counts as gone.
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

    /// What is to be done now.
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
        // What was sent on its way since then takes room, so that nothing else fits now that did not fit before.
        self.planned = self.fleet.now();
        if has_freed {
            // The fleet was never in that state: all are looked at.
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

    /// Pods with our gate, or that ask for managed cards and have none, each with why it does not go on.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, &str)> {
        let ours = self.waiting.iter().filter(|(key, _)| self.is_waiting(key));
        ours.map(|(key, waiting)| (key, waiting.why.as_ref().map_or("", WaitReason::text)))
    }

    /// Why the pod does not go on; `None` for one that is not looked at, or was not yet.
    #[must_use]
    pub fn reason_of(&self, pod: &Key) -> Option<&WaitReason> {
        self.waiting.get(pod)?.why.as_ref()
    }

    /// Whether the pod has our gate, or asks for managed cards and has none.
    fn is_waiting(&self, key: &Key) -> bool {
        let is_gated = || self.cluster.objects().pods.get(key).is_some_and(|pod| pod.is_gated());
        self.waiting.get(key).is_some_and(|waiting| waiting.is_managed || is_gated())
    }

    /// Number of pods on their way to the node that was proposed for them.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.ledger.pods.proposed()
    }

    /// What it knows of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

/// Why something that was seen cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObservationError {
    /// The object contains something that the API server would not accept.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A slice's annotation is no node report; the node counts as one without pools.
    #[error(
        "ResourceSlice {slice}: the annotation {} is no node report: {error}",
        tessera_api::node_report::ANNOTATION
    )]
    Report {
        /// The slice.
        slice: String,
        /// What is wrong.
        error: String,
    },
}
