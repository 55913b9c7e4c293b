//! Choice of a fitting node, and of devices on the node.

use std::collections::HashMap;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::DeviceName;
use tessera_cluster::PlacementLimits;
use tessera_placement::packing::{Cards, MAX_CARDS};

use super::CardsOnly;
use crate::PolicyName;
use crate::fleet::Demands;
use crate::fleet::holdings::Holdings;
use crate::policy::kube_scheduler::{KubeScheduler, balanced_allocation, least_allocated};
use crate::policy::scored::Cost;

/// Most devices tried on one node in search of the best combination.
const STEPS: u64 = 10_000;

/// How a node is chosen among the fitting ones.
pub(super) enum Rule {
    /// By kube-scheduler's scorers, which ignore devices. The devices are chosen by its allocator.
    KubeScheduler(KubeScheduler),
    /// The node of lowest cost, and there the cards named by the cost function.
    Scored(Box<dyn Cost>),
    /// The first node, and there the first devices in published order.
    FirstFit,
    /// A random node, and random devices there.
    Random,
}

impl Rule {
    /// The rule of a policy for this number of nodes.
    pub(super) fn of(policy: PolicyName, nodes: usize, demands: &Demands) -> Self {
        match (policy, policy.cost(nodes, || demands.typical().clone())) {
            (_, Some(scores)) => Self::Scored(scores),
            (PolicyName::KubeScheduler, None) => Self::KubeScheduler(KubeScheduler::default()),
            (PolicyName::Random, None) => Self::Random,
            (_, None) => Self::FirstFit,
        }
    }
}

impl CardsOnly<'_> {
    /// The node for a pod.
    pub(super) fn choose(&mut self, shape: usize, holdings: &Holdings) -> Option<usize> {
        let count = self.nodes.len();
        match &self.rule {
            Rule::KubeScheduler(kube_scheduler) => {
                let mut kube_scheduler = kube_scheduler.clone();
                let best = self.by_room(shape, &mut kube_scheduler);
                self.rule = Rule::KubeScheduler(kube_scheduler);
                best
            }
            Rule::Scored(_) => {
                let mut best: Option<(f64, usize)> = None;
                for node in 0..count {
                    if self.fits(shape, node) {
                        let (cost, _) = self.cost(shape, node, holdings);
                        best = best.filter(|(least, _)| *least <= cost).or(Some((cost, node)));
                    }
                }
                best.map(|(_, node)| node)
            }
            Rule::Random => {
                let fitting: Vec<usize> = (0..count).filter(|node| self.fits(shape, *node)).collect();
                (!fitting.is_empty()).then(|| fitting[self.random.below(fitting.len())])
            }
            Rule::FirstFit => (0..count).find(|node| self.fits(shape, *node)),
        }
    }

    /// kube-scheduler's choice: by free CPU and memory, in a sample of the fitting nodes.
    fn by_room(&mut self, shape: usize, kube_scheduler: &mut KubeScheduler) -> Option<usize> {
        let mut random = self.random.clone();
        let best = kube_scheduler.best(self.nodes.len(), &mut random, |index| {
            let fits = self.fits(shape, index);
            let (node, asks) = (&self.nodes[index], &self.shapes[shape]);
            fits.then(|| {
                least_allocated(&node.counted, &asks.counted) + balanced_allocation(&node.room, &asks.demand)
            })
        });
        self.random = random;
        best
    }

    /// Cost of a pod on a fitting node, and the cards for the pod.
    fn cost(&mut self, shape: usize, node: usize, holdings: &Holdings) -> (f64, Cards) {
        let state = &self.nodes[node];
        if let Some((cost, cards, changes)) = self.costs.get(&(shape, node))
            && *changes == state.changes
        {
            return (*cost, *cards);
        }
        let numbers = self.demands.node(self.fleet, node, &state.object, &self.cluster, holdings);
        let asked = numbers.as_ref().and_then(|numbers| self.demands.on(shape, numbers));
        let (cost, cards) = match (&self.rule, numbers, asked) {
            (Rule::Scored(scores), Some(numbers), Some(asked)) if numbers.fits_without_memory(&asked) => {
                scores.cost(node, &numbers, &asked)
            }
            // Nodes or demands not expressible in numbers come last.
            _ => (f64::MAX, Cards::NONE),
        };
        self.costs.insert((shape, node), (cost, cards, state.changes));
        (cost, cards)
    }

    /// The devices for a pod on a fitting node.
    pub(super) fn devices(
        &mut self,
        shape: usize,
        node: usize,
        holdings: &Holdings,
    ) -> Option<Vec<AllocationResult>> {
        let free = holdings.free_of(node).map(|(card, free)| (card, (free * 1e6) as u64));
        let mut of_card: HashMap<_, u64> = match self.rule {
            Rule::Scored(_) => {
                let (_, cards) = self.cost(shape, node, holdings);
                let is_wanted = |place: usize| place < MAX_CARDS && cards.has(place);
                // If the wanted cards do not suffice, the fullest cards come next.
                let cost = |(place, (card, free))| (card, if is_wanted(place) { 0 } else { 1 + free });
                free.enumerate().map(cost).collect()
            }
            Rule::Random => free.map(|(card, _)| (card, self.random.below(1 << 20) as u64)).collect(),
            Rule::KubeScheduler(_) | Rule::FirstFit => {
                let (object, claims) = (&self.nodes[node].object, &self.shapes[shape].claims);
                return self.cluster.plan(object, claims, &mut self.asker).ok()?;
            }
        };
        let (object, claims) = (&self.nodes[node].object, &self.shapes[shape].claims);
        let limits = PlacementLimits { tolerated: &[], may_give: &|_| true, may_take: None, steps: STEPS };
        let mut cost = |picks: &[tessera_allocator::placement::Pick<'_>]| -> u64 {
            let card = |name: &str| name.parse::<DeviceName>().ok().map(|name| name.card());
            picks.iter().filter_map(|pick| Some(*of_card.entry(card(pick.device.name())?).or_default())).sum()
        };
        let placed =
            self.cluster.place(object, claims, &limits, &mut self.asker, |picks| cost(picks)).ok()??;
        Some(placed.allocations)
    }
}
