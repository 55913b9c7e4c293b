//! The fleet and its workload as plain numbers (thousandths of cards), for policies and measures without a notion of devices.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_allocator::claim::Claim;
use tessera_api::PciBusId;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::usage::Room;
use tessera_cluster::{AllocationExt, Asker, Cluster, Object, node_fit};
use tessera_placement::packing::{Demand, MAX_CARDS, MAX_MODELS, ModelSet, Node, WHOLE};

use super::holdings::Holdings;
use super::{Fleet, FleetNode, Pods, Workload};
use crate::TypicalPods;

/// Demands of a workload's pods on a fleet.
#[derive(Clone, Debug)]
pub struct Demands {
    /// By shape; `None` if no node could take the pod even when empty.
    of_shapes: Vec<Option<Demand>>,
    /// Product names of cards. The index of a name is the model's number in [`ModelSet`]s.
    models: Vec<String>,
    typical: TypicalPods,
}

impl Demands {
    /// Tries each shape on an empty node of each model of cards.
    #[must_use]
    pub fn of(fleet: &Fleet, workload: &Workload) -> Self {
        let mut models: Vec<String> = fleet.models().into_keys().map(str::to_owned).collect();
        // Further models count as the last one.
        models.truncate(usize::from(MAX_MODELS));
        let mut cluster = Cluster::default();
        let classes = workload.classes.iter().cloned().map(Object::from);
        for object in fleet.objects(Allocation::Native).chain(classes) {
            // The objects come from the plugin or passed the API server, so their quantities are valid.
            let _ = cluster.apply(object);
        }
        let mut demands = Self { of_shapes: Vec::new(), models, typical: TypicalPods::default() };
        let mut asker = fleet.asker();
        for shape in &workload.shapes {
            let demand = demands.of_shape(fleet, &cluster, shape, &mut asker);
            demands.of_shapes.push(demand);
        }
        let mut counts = vec![0.0; workload.shapes.len()];
        workload.pods.iter().for_each(|pod| counts[pod.shape] += 1.0);
        // For a pod without any fitting node, all free cards are useless.
        let nowhere = Demand::new(0, 0, 1, u64::from(WHOLE), ModelSet::NONE).ok();
        let seen = demands.of_shapes.iter().map(|demand| demand.as_ref().or(nowhere.as_ref())).zip(counts);
        demands.typical = TypicalPods::new(seen.filter_map(|(demand, count)| Some((demand?, count))));
        demands
    }

    fn of_shape(
        &self,
        fleet: &Fleet,
        cluster: &Cluster,
        shape: &super::Shape,
        asker: &mut Asker,
    ) -> Option<Demand> {
        let named = Pods { name: "shape".to_owned(), ..Pods::default() };
        let pod = shape.pod_of(&named, Default::default());
        let claims: Vec<Claim> =
            shape.claims_of(&named).iter().filter_map(|claim| Claim::try_from(claim).ok()).collect();
        let (mut fitting, mut asked) = (ModelSet::NONE, None);
        let mut tried = HashSet::new();
        for node in fleet.nodes() {
            let model = self.model(node);
            if fitting.has(model) || !tried.insert(Arc::as_ptr(&node.kind)) {
                continue;
            }
            let object = node.object();
            if node_fit::refusal(&pod, &object).is_some() {
                continue;
            }
            if let Ok(Some(allocations)) = cluster.plan(&object, &claims, asker) {
                fitting = fitting.with(model);
                asked = asked.or_else(|| Some(parts(fleet, node, &allocations)));
            }
        }
        let parts = asked?;
        let room = Room::asked(&pod);
        // Parts of several cards count as whole cards.
        let whole = parts.values().sum::<f64>().ceil() as u64;
        let (cards, thousandths) = match parts.values().copied().next() {
            Some(part) if parts.len() == 1 && part < 1.0 => (1, (thousandths(part) as u64).max(1)),
            _ => (whole.min(MAX_CARDS as u64), u64::from(WHOLE)),
        };
        Demand::new(room.cpu_milli, room.memory_mib, cards, thousandths, fitting).ok()
    }

    /// The number of the model of the node's first card.
    fn model(&self, node: &FleetNode) -> u8 {
        let name = node.cards().values().next();
        let place = name.and_then(|name| self.models.iter().position(|model| model == name));
        place.unwrap_or(self.models.len().saturating_sub(1)) as u8
    }

    /// The demand of pods of a shape; `None` if no node could take the pod even when empty.
    pub(super) fn of_pods(&self, shape: usize) -> Option<&Demand> {
        self.of_shapes[shape].as_ref()
    }

    /// The demand on a fitting node. If every card has less free than the demanded share, the demand shrinks to the most that is free:
    /// partitions may take different fractions of a card's compute and memory.
    pub(super) fn on(&self, shape: usize, node: &Node) -> Option<Demand> {
        let demand = self.of_shapes[shape]?;
        if !demand.is_share() {
            return Some(demand);
        }
        let most = node.cards().iter().copied().max().unwrap_or(0).clamp(1, demand.thousandths());
        let (cpu_milli, memory_mib) = (demand.cpu_milli(), demand.memory_mib());
        Demand::new(cpu_milli, memory_mib, 1, u64::from(most), demand.models()).ok()
    }

    /// The mix of the whole workload.
    pub(super) fn typical(&self) -> &TypicalPods {
        &self.typical
    }

    /// The node at this index with its free room. `None` without cards; cards beyond [`MAX_CARDS`] are ignored.
    pub(super) fn node(
        &self,
        fleet: &Fleet,
        place: usize,
        object: &k8s_openapi::api::core::v1::Node,
        cluster: &Cluster,
        holdings: &Holdings,
    ) -> Option<Node> {
        let free = holdings.free_of(place).map(|(_, free)| thousandths(free) as u16);
        let cards: Vec<u16> = free.take(MAX_CARDS).collect();
        let (all, left) = cluster.room(object);
        let (cpu, memory) = ((left.cpu_milli, all.cpu_milli), (left.memory_mib, all.memory_mib));
        Node::in_use(self.model(&fleet.nodes()[place]), &cards, cpu, memory).ok()
    }

    /// Percent of the free cards that a typical pod of the workload could not use, as FGD defines it
    /// ([`TypicalPods::fragmentation`]).
    pub(super) fn fragmentation(&self, fleet: &Fleet, cluster: &Cluster, holdings: &Holdings) -> f64 {
        let nodes = fleet.nodes().iter().enumerate();
        let node =
            |(place, node): (usize, &FleetNode)| self.node(fleet, place, &node.object(), cluster, holdings);
        self.typical.fragmentation(&nodes.filter_map(node).collect::<Vec<Node>>())
    }
}

/// A fraction of a card, rounded: six sevenths and one seventh make a whole card.
fn thousandths(part: f64) -> f64 {
    (part * f64::from(WHOLE)).round()
}

/// Fractions of each card of a node taken by these allocations, from 0 to 1.
fn parts(fleet: &Fleet, node: &FleetNode, allocations: &[AllocationResult]) -> BTreeMap<PciBusId, f64> {
    let mut parts: BTreeMap<PciBusId, f64> = BTreeMap::new();
    let results = allocations.iter().flat_map(AllocationExt::results);
    for result in results.filter(|result| result.driver == fleet.driver()) {
        if let Some(taken) = node.kind.parts.taken(result) {
            *parts.entry(taken.card).or_default() += taken.of_card;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyName;
    use crate::fleet::Run;

    #[test]
    fn pods_in_numbers() {
        let groups = ["1xt4", "1xdgx-h100", "1xdgx-h100,cards=4"].map(|group| group.parse().unwrap());
        let fleet = Fleet::new(&groups).unwrap();
        let list = "name,gpu,gpu_memory,cpu\na,4,,2\nb,15%,,\nc,1g.10gb,,\nd,1,40Gi,\ne,1,,\nf,9,,\n";
        let demands = Demands::of(&fleet, &Workload::of_text(list, &fleet));
        assert_eq!(demands.models, ["NVIDIA H100 80GB HBM3", "Tesla T4"]);
        let (h100, both) = (ModelSet::NONE.with(0), ModelSet::NONE.with(0).with(1));
        let demand = |cpu, cards, part, models| Demand::new(cpu, 0, cards, part, models).ok();
        let wanted = [
            demand(2000, 4, 1000, h100),
            demand(0, 1, 150, both),
            // A seventh of the compute.
            demand(0, 1, 143, h100),
            demand(0, 1, 1000, h100),
            demand(0, 1, 1000, both),
            None,
        ];
        assert_eq!(demands.of_shapes, wanted);
    }

    /// A 4g takes four sevenths by compute, a 3g half a card by memory: together more than a card, although both fit.
    #[test]
    fn partitions_that_fit_together_do_so_in_numbers() {
        let fleet = Fleet::new(&["2xdgx-h100,cards=1".parse().unwrap()]).unwrap();
        let workload = Workload::of_text("name,gpu,at\na,4g.40gb,0\nb,3g.40gb,1s\n", &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        for policy in [PolicyName::HamiBinpack, PolicyName::KaiBinpack, PolicyName::Fgd, PolicyName::BestFit]
        {
            let report = run.run(policy, 1, |_| ());
            assert_eq!(report.nodes_used, 1, "{policy}: {:?}", report.pods);
        }
    }

    /// Half of a card is free, which is useless to pods asking for a whole card.
    #[test]
    fn what_is_left_may_be_fragmented() {
        let fleet = Fleet::new(&["1xdgx-h100,cards=2".parse().unwrap()]).unwrap();
        let fragmentation = |list: &str, policy| {
            let workload = Workload::of_text(list, &fleet);
            let demands = Demands::of(&fleet, &workload);
            let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
            run.run(policy, 1, |_| ()).fragmentation
        };
        for policy in PolicyName::of_fleets() {
            assert_eq!(fragmentation("name,gpu,at\na,1,0\nb,50%,1s\n", policy), Some(50.0), "{policy}");
            assert_eq!(
                fragmentation("name,gpu\na,9\n", policy),
                Some(100.0),
                "{policy}: no use for anything"
            );
        }
    }
}
