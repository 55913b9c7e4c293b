//! Tessera as in production: every pod goes through the controller's decision loop, with cards of a managed pool. Each allocation is
//! written, bound and observed before the next pod arrives.
//!
//! The controller leaves pods without cards to kube-scheduler. Their placement decides whose cards are left without CPU, and policies
//! replacing kube-scheduler place them, too. [`Others`] names their placer here.

mod objects;

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::DeviceName;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::{AllocationExt, Kind};
use tessera_decide::Time;
use tessera_placement::packing::{Cards, Demand, Node, Place};

use super::Policy;
use super::kube_scheduler::KubeScheduler;
use super::tessera_bare::TesseraBare;
use crate::Random;
use crate::control::{BEGIN, Control};
use objects::{DRIVER, Pods};

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
    control: Control,
    now: Time,
    nodes: HashMap<String, usize>,
    others: Others,
    pods: Pods,
    /// Number of the next pod.
    next: u64,
    /// Name of the last chosen pod, not placed yet.
    chosen: Option<String>,
    /// Names of running pods by their node, cards and demand.
    running: HashMap<(usize, Cards, Demand), Vec<String>>,
}

impl Tessera {
    /// On these nodes.
    pub fn new(nodes: &[Node], others: Others) -> Self {
        let of_nodes = nodes.iter().enumerate().flat_map(|(index, node)| objects::of_node(index, node));
        let all = objects::classes().into_iter().chain(of_nodes);
        Self {
            control: Control::new(DRIVER, KubernetesVersion::default(), all),
            now: BEGIN,
            nodes: (0..nodes.len()).map(|index| (objects::node_name(index), index)).collect(),
            others,
            pods: Pods::default(),
            next: 0,
            chosen: None,
            running: HashMap::new(),
        }
    }

    fn delete(&mut self, pod: &str) {
        self.control.delete(self.now, Kind::Pod, objects::key(pod));
        self.control.delete(self.now, Kind::ResourceClaim, objects::key(&objects::claim_name(pod)));
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
            self.chosen = other.is_some().then_some(name);
            return other;
        }
        let (claim, pod) = (self.pods.claim(&name, demand), self.pods.pod(&name, demand));
        self.control.apply(self.now, claim);
        self.control.apply(self.now, pod);
        let intents = self.control.decider.decide(self.now);
        let carried =
            intents.into_iter().filter_map(|intent| self.control.carry_out(self.now, intent)).last();
        let Some((_, node)) = carried else {
            self.delete(&name);
            return None;
        };
        let allocation = self.control.allocation(&objects::key(&objects::claim_name(&name)))?;
        let place = self.place(&node, allocation);
        self.chosen = Some(name);
        place
    }

    fn placed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        if let Others::Bare(bare) = &mut self.others {
            bare.placed(nodes, place, demand);
        }
        let Some(name) = self.chosen.take() else { return };
        self.control.bind(self.now, self.pods.pod(&name, demand), objects::node_name(place.node));
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
