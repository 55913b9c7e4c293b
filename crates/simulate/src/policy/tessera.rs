//! Tessera as in production: every pod goes through the decision loop of the controller ([`tessera_decide::Decider`]), with cards of a
//! managed pool. Each allocation is written, bound and observed before the next pod arrives.
//!
//! The controller leaves pods without cards to kube-scheduler. Their placement decides whose cards are left without CPU, and policies
//! replacing kube-scheduler place them, too. [`Others`] names their placer here.

mod objects;

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaimStatus};
use tessera_api::DeviceName;
use tessera_cluster::{AllocationExt, Kind, Object};
use tessera_decide::{Decider, Intent, Observation, Time};
use tessera_placement::packing::{Cards, Demand, Node, Place};

use super::Policy;
use super::kube_scheduler::KubeScheduler;
use super::tessera_bare::TesseraBare;
use crate::Random;
use objects::{DRIVER, Pods};

/// Start of the run, long after the tainting of all cards, so that kube-scheduler's hand-over of the cards counts as complete.
const BEGIN: Time = Duration::from_secs(3600);

/// Time between two arrivals.
const STEP: Time = Duration::from_secs(10);

/// Placer of pods without cards.
pub enum Others {
    /// The bare policy, which learns from all pods.
    Bare(Box<TesseraBare>),
    /// kube-scheduler, called for pods without cards only.
    KubeScheduler(KubeScheduler),
}

/// The decision loop over a simulated cluster.
pub struct Tessera {
    decider: Decider,
    now: Time,
    nodes: HashMap<String, usize>,
    others: Others,
    pods: Pods,
    /// Number of the next pod.
    next: u64,
    /// Name and allocation of the last chosen pod, not placed yet.
    chosen: Option<(String, AllocationResult)>,
    /// Names of running pods by their node, cards and demand.
    running: HashMap<(usize, Cards, Demand), Vec<String>>,
}

impl Tessera {
    /// On these nodes.
    pub fn new(nodes: &[Node], others: Others) -> Self {
        let mut shares: u64 = 0;
        let share_id = move || {
            shares += 1;
            format!("00000000-0000-4000-8000-{shares:012x}")
        };
        let mut tessera = Self {
            decider: Decider::new(DRIVER, share_id),
            now: Time::ZERO,
            nodes: (0..nodes.len()).map(|index| (objects::node_name(index), index)).collect(),
            others,
            pods: Pods::default(),
            next: 0,
            chosen: None,
            running: HashMap::new(),
        };
        objects::classes().into_iter().for_each(|class| tessera.apply(class));
        for (index, node) in nodes.iter().enumerate() {
            objects::of_node(index, node).into_iter().for_each(|object| tessera.apply(object));
        }
        tessera.now = BEGIN;
        tessera.decider.lead(BEGIN, objects::EPOCH);
        // Requests a list of all claims; the list is empty.
        tessera.decider.decide(BEGIN);
        tessera.observe(Observation::ClaimsListed { asked_at: BEGIN });
        tessera
    }

    fn observe(&mut self, observation: Observation) {
        let observed = self.decider.observe(self.now, observation);
        debug_assert!(observed.is_ok(), "{observed:?}");
    }

    fn apply(&mut self, object: impl Into<Object>) {
        self.observe(Observation::Applied(Box::new(object.into())));
    }

    fn delete(&mut self, pod: &str) {
        self.observe(Observation::Deleted(Kind::Pod, objects::key(pod)));
        self.observe(Observation::Deleted(Kind::ResourceClaim, objects::key(&objects::claim_name(pod))));
    }

    /// The place (node and cards) of an allocation.
    fn place(&self, node: &str, allocation: &AllocationResult) -> Option<Place> {
        let names = allocation.results().iter().map(|result| result.device.parse::<DeviceName>());
        let cards = names.map(|name| objects::card(name.ok()?.card())).collect::<Option<Cards>>()?;
        Some(Place { node: *self.nodes.get(node)?, cards })
    }
}

impl Policy for Tessera {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place> {
        self.now += STEP;
        let name = format!("p{:09}", self.next);
        self.next += 1;
        let has_cards = demand.cards() > 0;
        let other = match &mut self.others {
            Others::Bare(bare) => bare.choose(nodes, demand, random),
            Others::KubeScheduler(others) if !has_cards => others.choose(nodes, demand, random),
            Others::KubeScheduler(_) => None,
        };
        if !has_cards {
            let place = other?;
            self.chosen = Some((name, AllocationResult::default()));
            return Some(place);
        }
        let (claim, pod) = (self.pods.claim(&name, demand), self.pods.pod(&name, demand));
        self.apply(claim);
        self.apply(pod);
        let intents = self.decider.decide(self.now);
        let allocated = intents.into_iter().find_map(|intent| match intent {
            Intent::Allocate { pod, node, claims, .. } if pod.key.name == name => {
                Some((pod, node, claims.into_iter().next()?.allocation))
            }
            _ => None,
        });
        let Some((pod, node, allocation)) = allocated else {
            self.delete(&name);
            return None;
        };
        let versions = vec![(objects::key(&objects::claim_name(&name)), objects::WRITTEN.to_owned())];
        self.observe(Observation::Carried { pod, is_done: true, versions });
        let place = self.place(&node, &allocation);
        self.chosen = Some((name, allocation));
        place
    }

    fn placed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        if let Others::Bare(bare) = &mut self.others {
            bare.placed(nodes, place, demand);
        }
        let Some((name, allocation)) = self.chosen.take() else { return };
        if demand.cards() > 0 {
            let mut claim = self.pods.claim(&name, demand);
            claim.metadata.resource_version = Some(objects::WRITTEN.to_owned());
            claim.status = Some(ResourceClaimStatus { allocation: Some(allocation), ..Default::default() });
            self.apply(claim);
        }
        let mut pod = self.pods.pod(&name, demand);
        pod.spec.get_or_insert_default().node_name = Some(objects::node_name(place.node));
        self.apply(pod);
        self.running.entry((place.node, place.cards, *demand)).or_default().push(name);
    }

    fn departed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        if let Others::Bare(bare) = &mut self.others {
            bare.departed(nodes, place, demand);
        }
        let running = self.running.get_mut(&(place.node, place.cards, *demand));
        if let Some(name) = running.and_then(Vec::pop) {
            self.delete(&name);
        }
    }
}
