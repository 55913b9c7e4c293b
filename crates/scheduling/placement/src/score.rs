//! Cost of a pod on a node.

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_allocator::claim::{Ask, Claim};
use tessera_api::gpu_pool::{Allocation, Placement, Strategy, TopologyPolicy};
use tessera_api::node_report::CardReport;
use tessera_api::{DeviceName, DeviceType, NodeReport, PciBusId};
use tessera_cluster::AllocationExt;
use tessera_inventory::Topology;

use crate::fleet::FleetNode;
use crate::node_cards::NodeCards;
use crate::value::{Cost, ring_class};

/// Allocator of the devices and chooser of the node. The first is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// This controller does both, with managed cards. Claims for devices of other drivers are left to kube-scheduler.
    Managed,
    /// kube-scheduler allocates, on the node chosen by us.
    Steered,
    /// kube-scheduler does both: the devices belong to no pool of ours, so filling them is not our task.
    Native,
}

/// Cost of a pod on a node; the least is best. Fields in the order of their weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Allocator of the devices.
    pub way: Way,
    /// Positions of the chosen alternatives in the lists of `firstAvailable`. The user's preference outranks ours.
    preference: u64,
    /// Class of the bandwidth between the cards, see [`ring_class`]; 0 if bandwidth does not matter.
    quality: u16,
    /// With Pack: room for others lost to managed partitions.
    room: u64,
    /// With Pack: loss of room for the demand, see [`crate::value::Packing`]. With Spread: used share of the node.
    loss: Cost,
    /// Free thousandths of partly used cards afterwards.
    left: u32,
    /// Number of free cards afterwards.
    free: u32,
}

/// A node to be scored, with the pod's devices there.
pub(crate) struct Candidate<'c> {
    pub report: Option<&'c NodeReport>,
    pub node: &'c FleetNode,
    /// Whether this controller allocates any of the devices.
    pub is_managed: bool,
    /// Its cards after the allocation.
    pub after: &'c NodeCards,
    pub claims: &'c [Claim],
    pub allocations: &'c [AllocationResult],
    /// Room for others lost to managed partitions.
    pub room: u64,
    /// Loss of room for the demand.
    pub cost: Cost,
}

impl Score {
    /// Number of free cards on the node afterwards.
    pub fn free_after(&self) -> u32 {
        self.free
    }

    /// Score of a node with these devices.
    pub(crate) fn of(candidate: &Candidate<'_>) -> Self {
        let after = candidate.after;
        let whole = candidate.whole_cards();
        let card = candidate.first_report();
        let default = Placement::default();
        let placement = card.map_or(&default, |card| &card.placement);
        let loss = match placement.strategy {
            Strategy::Pack => candidate.cost,
            Strategy::Spread => {
                let all = i64::try_from(after.cards.len()).unwrap_or(i64::MAX).max(1);
                i64::from(after.used()) / all
            }
        };
        let partly = |card: &&crate::node_cards::CardUse| card.used > 0;
        let left = after.cards.values().filter(partly).map(|card| crate::node_cards::WHOLE - card.used).sum();
        Score {
            way: match card.map(|card| card.allocation) {
                _ if candidate.is_managed => Way::Managed,
                None | Some(Allocation::Native) => Way::Native,
                Some(Allocation::Steered | Allocation::Managed) => Way::Steered,
            },
            preference: preference(candidate.claims, candidate.allocations),
            quality: match placement.topology {
                TopologyPolicy::Preferred | TopologyPolicy::Required if whole.len() > 1 => {
                    let class = |topology: &Topology| ring_class(topology.ring(topology.set(whole)));
                    candidate.node.topology().map_or(0, class)
                }
                _ => 0,
            },
            // Packing partitions across nodes is the opposite of spreading; within the node, room already decided the choice.
            room: if placement.strategy == Strategy::Pack { candidate.room } else { 0 },
            loss,
            left,
            free: after.free(),
        }
    }
}

impl Score {
    /// The same score with a recomputed loss of room for the demand. Only for a pool with Pack.
    pub fn with_cost(self, cost: Cost) -> Self {
        Self { loss: cost, ..self }
    }

    /// Loss of room for the demand.
    pub fn cost(&self) -> Cost {
        self.loss
    }

    /// Whether two nodes suit equally, regardless of their use.
    pub fn is_equal_but_for_use(&self, other: &Self) -> bool {
        let suits = |score: &Self| (score.way, score.preference, score.quality);
        suits(self) == suits(other)
    }
}

impl Candidate<'_> {
    /// Whether the pool of the devices uses Pack.
    pub fn is_packed(&self) -> bool {
        self.first_report().is_none_or(|card| card.placement.strategy == Strategy::Pack)
    }

    /// Report of the first device's card.
    fn first_report(&self) -> Option<&CardReport> {
        let first = self.names().next()?.card();
        self.report?.cards.get(&first)
    }

    fn names(&self) -> impl Iterator<Item = DeviceName> {
        self.allocations
            .iter()
            .flat_map(AllocationExt::results)
            .filter_map(|result| result.device.parse().ok())
    }

    /// The whole cards among the devices.
    fn whole_cards(&self) -> Vec<PciBusId> {
        let whole = self.names().filter(|name| name.device_type() == DeviceType::Gpu);
        whole.map(|name| name.card()).collect()
    }
}

/// Positions of the chosen alternatives in their lists, four bits for each request.
fn preference(claims: &[Claim], allocations: &[AllocationResult]) -> u64 {
    let mut preference: u64 = 0;
    for (claim, allocation) in claims.iter().zip(allocations) {
        for request in &claim.requests {
            let Ask::FirstAvailable(alternatives) = &request.ask else { continue };
            let chosen = allocation.results().iter().find_map(|result| {
                let name = result.request.strip_prefix(&request.name)?.strip_prefix('/')?;
                alternatives.iter().position(|alternative| alternative.name == name)
            });
            let place = u64::try_from(chosen.unwrap_or(0)).unwrap_or(0).min(15);
            preference = preference.saturating_mul(16).saturating_add(place);
        }
    }
    preference
}
