//! Other schedulers' policies: node and devices by a rule or a score, among the combinations permitted by Kubernetes' allocator.

mod choice;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaimStatus;
use tessera_allocator::claim::Claim;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::usage::Room;
use tessera_cluster::{Asker, Cluster, Key, Kind, Object, node_fit};
use tessera_placement::packing::{Cards, Demand, ModelSet};

use self::choice::Rule;
use super::{Change, Placed, Placer, Run};
use crate::fleet::demands::Demands;
use crate::fleet::holdings::Holdings;
use crate::fleet::workload::Held;
use crate::fleet::{Fleet, Workload};
use crate::policy::kube_scheduler::UNASKED;
use crate::policy::scored::Cost;
use crate::{PolicyName, Random};

/// A policy with a rule for nodes and a rule for devices.
pub(super) struct CardsOnly<'r> {
    fleet: &'r Fleet,
    workload: &'r Workload,
    demands: &'r Demands,
    rule: Rule,
    random: Random,
    cluster: Cluster,
    asker: Asker,
    nodes: Vec<NodeState>,
    shapes: Vec<ShapeState>,
    /// Waiting pods by priority, then in order of arrival.
    waiting: BTreeSet<(Reverse<i32>, usize)>,
    /// Node of each placed pod, and whether its room is counted as asked and as counted by kube-scheduler.
    placed: HashMap<usize, (usize, [bool; 2])>,
    /// The same for pods present from the beginning.
    standing: HashMap<Key, (usize, [bool; 2])>,
    /// Whether a shape fits on a node, as of the node's `changes`.
    fits: HashMap<(usize, usize), (bool, u64)>,
    /// Cost and cards of a shape on a fitting node, as of the node's `changes`.
    costs: HashMap<(usize, usize), (f64, Cards, u64)>,
    /// Number of releases of devices or room.
    frees: u64,
}

struct NodeState {
    object: Node,
    /// Free CPU and memory by the pods' requests.
    room: tessera_placement::packing::Node,
    /// Free CPU and memory with kube-scheduler's defaults for pods without requests.
    counted: tessera_placement::packing::Node,
    /// Number of placements and releases.
    changes: u64,
    /// `changes` at the last release.
    freed: u64,
}

struct ShapeState {
    pod: Pod,
    claims: Vec<Claim>,
    demand: Demand,
    counted: Demand,
    /// `frees` when the shape last fitted on no node.
    failed: Option<u64>,
}

/// A demand for CPU and memory alone. An impossible demand counts as zero.
fn demand(cpu_milli: u64, memory_mib: u64) -> Demand {
    let none = || Demand::new(0, 0, 0, 0, ModelSet::ANY);
    let demand = Demand::new(cpu_milli, memory_mib, 0, 0, ModelSet::ANY).or_else(|_| none());
    #[allow(clippy::expect_used, reason = "asks for nothing")]
    demand.expect("a demand")
}

/// The pod's requests, and the requests as counted by kube-scheduler.
fn room_of(pod: &Pod) -> [Demand; 2] {
    let asked = Room::asked(pod);
    let counted = |asked: u64, unasked: u64| if asked == 0 { unasked } else { asked };
    let counted = demand(counted(asked.cpu_milli, UNASKED[0]), counted(asked.memory_mib, UNASKED[1]));
    [demand(asked.cpu_milli, asked.memory_mib), counted]
}

impl<'r> CardsOnly<'r> {
    pub fn new(run: &Run<'r>, policy: PolicyName, seed: u64) -> Self {
        let Run { fleet, workload, demands, .. } = *run;
        let mut cluster = Cluster::default();
        let classes = workload.classes.iter().cloned().map(Object::from);
        let standing = workload.standing.iter().cloned();
        for object in fleet.objects(Allocation::Native).chain(classes).chain(standing) {
            // The objects come from the plugin or passed the API server, so their quantities are valid.
            let _ = cluster.apply(object);
        }
        let node = |node: &crate::fleet::FleetNode| {
            #[allow(clippy::expect_used, reason = "one card of the first model")]
            let room = tessera_placement::packing::Node::new(0, 1, node.kind.cpu_milli, node.kind.memory_mib)
                .expect("a node");
            NodeState { object: node.object(), counted: room.clone(), room, changes: 0, freed: 0 }
        };
        let mut nodes: Vec<NodeState> = fleet.nodes().iter().map(node).collect();
        let mut standing = HashMap::new();
        for (name, pod) in &cluster.objects().pods {
            let on = pod.spec.as_ref().and_then(|spec| fleet.index(spec.node_name.as_deref()?));
            let Some(state) = on.map(|node| &mut nodes[node]) else { continue };
            let [demand, counted] = room_of(pod);
            // The counted defaults may exceed the node's room.
            let is_taken = [state.room.take(&demand, Cards::NONE), state.counted.take(&counted, Cards::NONE)];
            standing.extend(on.map(|node| (name.clone(), (node, is_taken))));
        }
        let shape = |shape: &crate::fleet::Shape| {
            let pod = crate::fleet::Pods { name: "shape".to_owned(), ..Default::default() };
            let claims = shape.claims_of(&pod);
            let [demand, counted] = room_of(&shape.pod);
            ShapeState {
                pod: shape.pod_of(&pod, Default::default()),
                claims: claims.iter().filter_map(|claim| Claim::try_from(claim).ok()).collect(),
                demand,
                counted,
                failed: None,
            }
        };
        Self {
            fleet,
            workload,
            demands,
            rule: Rule::of(policy, fleet.nodes().len(), demands),
            random: Random::new(seed),
            cluster,
            asker: fleet.asker(),
            nodes,
            shapes: workload.shapes.iter().map(shape).collect(),
            waiting: BTreeSet::new(),
            placed: HashMap::new(),
            standing,
            fits: HashMap::new(),
            costs: HashMap::new(),
            frees: 0,
        }
    }

    fn fits(&mut self, shape: usize, node: usize) -> bool {
        let state = &self.nodes[node];
        if let Some((fits, seen)) = self.fits.get(&(shape, node)) {
            // A misfit can become a fit only by a release.
            let since = if *fits { state.changes } else { state.freed };
            if since <= *seen {
                return *fits;
            }
        }
        let ShapeState { pod, claims, .. } = &self.shapes[shape];
        let fits = node_fit::refusal(pod, &state.object).is_none()
            && self.cluster.shortage(pod, &state.object).is_none()
            && matches!(self.cluster.plan(&state.object, claims, &mut self.asker), Ok(Some(_)));
        self.fits.insert((shape, node), (fits, state.changes));
        fits
    }

    /// Updates a scoring policy about a pod with cards.
    fn tell(&mut self, pod: usize, what: impl FnOnce(&mut dyn Cost, &Demand) -> bool) {
        let demand = self.demands.of_pods(self.workload.pods[pod].shape);
        if let (Rule::Scored(scores), Some(demand)) = (&mut self.rule, demand)
            && what(&mut **scores, demand)
        {
            self.costs.clear();
        }
    }

    /// Ends the pods of a holding from the beginning and frees its devices.
    fn end_held(&mut self, held: &Held) {
        self.cluster.delete(Kind::ResourceClaim, &held.claim);
        for name in &held.pods {
            let asked = self.cluster.objects().pods.get(name).map(|pod| room_of(pod));
            self.cluster.delete(Kind::Pod, name);
            if let (Some(placed), Some(asked)) = (self.standing.remove(name), asked) {
                self.give_back(placed, &asked);
            }
        }
        self.give_back((held.node, [false; 2]), &[demand(0, 0), demand(0, 0)]);
    }

    /// Returns an ended pod's CPU and memory to its node.
    fn give_back(&mut self, (node, is_taken): (usize, [bool; 2]), [asked, counted]: &[Demand; 2]) {
        let state = &mut self.nodes[node];
        state.changes += 1;
        state.freed = state.changes;
        if is_taken[0] {
            state.room.give_back(asked, Cards::NONE);
        }
        if is_taken[1] {
            state.counted.give_back(counted, Cards::NONE);
        }
        self.frees += 1;
    }

    fn put(&mut self, pod: usize, holdings: &mut Holdings) -> Option<Placed> {
        let shape = self.workload.pods[pod].shape;
        if self.shapes[shape].failed == Some(self.frees) {
            return None;
        }
        let Some(node) = self.choose(shape, holdings) else {
            self.shapes[shape].failed = Some(self.frees);
            return None;
        };
        let allocations = self.devices(shape, node, holdings)?;
        let described = &self.workload.pods[pod];
        for (mut claim, allocation) in
            self.workload.shapes[shape].claims_of(described).into_iter().zip(&allocations)
        {
            holdings.take(self.fleet, pod, node, allocation);
            claim.status =
                Some(ResourceClaimStatus { allocation: Some(allocation.clone()), ..Default::default() });
            let _ = self.cluster.apply(claim);
        }
        let mut object = self.workload.shapes[shape].pod_of(described, Default::default());
        object.spec.get_or_insert_default().node_name = Some(self.fleet.nodes()[node].name.clone());
        let _ = self.cluster.apply(object);
        let (state, asks) = (&mut self.nodes[node], &self.shapes[shape]);
        state.changes += 1;
        // The counted defaults may exceed the node's room. In that case they are not returned either.
        let is_taken =
            [state.room.take(&asks.demand, Cards::NONE), state.counted.take(&asks.counted, Cards::NONE)];
        self.placed.insert(pod, (node, is_taken));
        self.tell(pod, |scores, demand| {
            scores.placed(node, demand);
            false
        });
        Some(Placed { pod, node, allocations })
    }
}

impl Placer for CardsOnly<'_> {
    fn arrive(&mut self, _now: Duration, pod: usize) {
        self.waiting.insert((Reverse(self.workload.pods[pod].priority), pod));
        self.tell(pod, |scores, demand| scores.arrived(demand));
    }

    fn end(&mut self, _now: Duration, pod: usize, _holdings: &Holdings) {
        if let Some(held) = self.workload.held_by(pod) {
            self.end_held(held);
            return;
        }
        let Some((node, is_taken)) = self.placed.remove(&pod) else { return };
        self.tell(pod, |scores, demand| {
            scores.departed(node, demand);
            false
        });
        let described = &self.workload.pods[pod];
        let shape = &self.workload.shapes[described.shape];
        for claim in shape.claims_of(described) {
            self.cluster.delete(Kind::ResourceClaim, &Key::from(&claim.metadata));
        }
        self.cluster.delete(Kind::Pod, &Key::new(&shape.namespace, &described.name));
        let asks = &self.shapes[described.shape];
        let asked = [asks.demand, asks.counted];
        self.give_back((node, is_taken), &asked);
    }

    fn place(&mut self, _now: Duration, holdings: &mut Holdings) -> Vec<Change> {
        let waiting: Vec<(Reverse<i32>, usize)> = self.waiting.iter().copied().collect();
        let mut all = Vec::new();
        for entry in waiting {
            if let Some(placed) = self.put(entry.1, holdings) {
                self.waiting.remove(&entry);
                all.push(Change::Placed(placed));
            }
        }
        all
    }

    fn whys(&mut self, pods: &[usize]) -> Vec<String> {
        let mut known: HashMap<usize, String> = HashMap::new();
        let mut whys = Vec::new();
        for pod in pods {
            let shape = self.workload.pods[*pod].shape;
            let why = known.entry(shape).or_insert_with(|| {
                let asks = &self.shapes[shape];
                let (mut without, mut no_room, mut taken) = (0, 0, 0);
                for NodeState { object, .. } in &self.nodes {
                    let has = self.cluster.has_what_is_asked(
                        object,
                        &asks.claims,
                        self.fleet.driver(),
                        &mut self.asker,
                    );
                    if node_fit::refusal(&asks.pod, object).is_some() || !has.unwrap_or(false) {
                        without += 1;
                    } else if self.cluster.shortage(&asks.pod, object).is_some() {
                        no_room += 1;
                    } else {
                        taken += 1;
                    }
                }
                let some = |count: usize, what: &str| (count > 0).then(|| format!("{what} on {count}"));
                let parts = [
                    some(without, "no requested device"),
                    some(no_room, "no room for CPU or memory"),
                    some(taken, "not enough free devices"),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                match self.nodes.len() {
                    1 => format!("of 1 node: {}", parts.join(", ")),
                    nodes => format!("of {nodes} nodes: {}", parts.join(", ")),
                }
            });
            whys.push(why.clone());
        }
        whys
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}
