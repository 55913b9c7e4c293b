//! Tessera as in production: every pod goes through the controller's decision loop, with cards of a managed pool. Each allocation is
//! written, bound and observed before the next pod arrives.
//!
//! The controller leaves pods without cards to kube-scheduler. Their placement decides whose cards are left without CPU, and policies
//! replacing kube-scheduler place them, too. [`Others`] names their placer here.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};
use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_pool::Allocation;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{DeviceName, PciBusId};
use tessera_cluster::{AllocationExt, Key, Kind};
use tessera_decide::Time;
use tessera_placement::packing::{Cards, Demand, Node, NodeValuePacking, Place};

use super::Policy;
use super::kube_scheduler::KubeScheduler;
use crate::Random;
use crate::control::{BEGIN, Control};
use crate::fleet::{Fleet, Pods, Shape, node_name};

/// Time between two arrivals.
const STEP: Time = Duration::from_secs(10);

/// Placer of pods without cards.
pub enum Others {
    /// The bare policy, which learns from all pods.
    Bare(Box<NodeValuePacking>),
    /// kube-scheduler, called for pods without cards only.
    KubeScheduler(KubeScheduler),
}

/// The decision loop over a simulated cluster.
pub struct Tessera {
    fleet: Fleet,
    control: Control,
    now: Time,
    others: Others,
    /// Shapes of the pods by demand.
    shapes: HashMap<Demand, Shape>,
    /// Number of the next pod.
    next: u64,
    /// The last chosen pod, not placed yet.
    chosen: Option<Pods>,
    /// Running pods by their node, cards and demand.
    running: HashMap<(usize, Cards, Demand), Vec<Pods>>,
}

impl Tessera {
    /// On these nodes.
    pub fn new(nodes: &[Node], others: Others) -> Self {
        let fleet = Fleet::of_trace(nodes);
        Self {
            control: Control::new(
                fleet.driver(),
                KubernetesVersion::default(),
                fleet.objects(Allocation::Managed),
            ),
            fleet,
            now: BEGIN,
            others,
            shapes: HashMap::new(),
            next: 0,
            chosen: None,
            running: HashMap::new(),
        }
    }

    fn delete(&mut self, pod: &Pods, demand: &Demand) {
        let shape = &self.shapes[demand];
        self.control.delete(self.now, Kind::Pod, Key::new(&shape.namespace, &pod.name));
        for claim in shape.claims_of(pod) {
            self.control.delete(self.now, Kind::ResourceClaim, Key::from(&claim.metadata));
        }
    }

    /// The place (node and cards) of an allocation.
    fn place(&self, node: &str, allocation: &AllocationResult) -> Option<Place> {
        let card = |result: &DeviceRequestAllocationResult| {
            result.device.parse::<DeviceName>().ok().map(|name| name.card())
        };
        let addresses = allocation.results().iter().map(card).collect::<Option<Vec<PciBusId>>>()?;
        let (node, cards) = self.fleet.cards_of(node, &addresses)?;
        Some(Place { node, cards })
    }
}

impl Policy for Tessera {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place> {
        self.now += STEP;
        let pod = Pods { name: format!("p{:09}", self.next), ..Pods::default() };
        self.next += 1;
        let has_cards = demand.cards() > 0;
        let other = match &mut self.others {
            Others::Bare(bare) => bare.choose(nodes, demand),
            Others::KubeScheduler(others) if !has_cards => others.choose(nodes, demand, random),
            Others::KubeScheduler(_) => None,
        };
        let shape = self.shapes.entry(*demand).or_insert_with(|| self.fleet.shape_of(demand));
        if !has_cards {
            self.chosen = other.is_some().then_some(pod);
            return other;
        }
        let claims = shape.claims_of(&pod);
        let keys: Vec<Key> = claims.iter().map(|claim| Key::from(&claim.metadata)).collect();
        for claim in claims {
            self.control.apply(self.now, claim);
        }
        self.control.apply(self.now, shape.pod_of(&pod, Timestamp::default()));
        let intents = self.control.decider.decide(self.now);
        let carried =
            intents.into_iter().filter_map(|intent| self.control.carry_out(self.now, intent)).last();
        let Some((_, node)) = carried else {
            self.delete(&pod, demand);
            return None;
        };
        let allocation = self.control.allocation(keys.first()?)?;
        let place = self.place(&node, allocation);
        self.chosen = Some(pod);
        place
    }

    fn placed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        if let Others::Bare(bare) = &mut self.others {
            bare.placed(nodes, place, demand);
        }
        let Some(pod) = self.chosen.take() else { return };
        let object = self.shapes[demand].pod_of(&pod, Timestamp::default());
        self.control.bind(self.now, object, node_name(place.node));
        self.running.entry((place.node, place.cards, *demand)).or_default().push(pod);
    }

    fn departed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        if let Others::Bare(bare) = &mut self.others {
            Policy::departed(&mut **bare, nodes, place, demand);
        }
        let running = self.running.get_mut(&(place.node, place.cards, *demand));
        if let Some(pod) = running.and_then(Vec::pop) {
            self.delete(&pod, demand);
        }
    }
}
