//! Nodes of the same known machine in a managed pool, in the decision loop, and the cards given to claims for whole cards.

use serde_json::{Value, json};
use tessera_api::gpu_pool::{Allocation, Placement, TopologyPolicy};
use tessera_api::node_report::{ANNOTATION, CardReport};
use tessera_api::{DeviceName, NodeReport, PciBusId};
use tessera_cluster::{AllocationExt, Kind};
use tessera_decide::{Intent, Observation, Time};
use tessera_inventory::Topology;
use tessera_inventory::topology::CardSet;

use crate::known_machines::KnownMachine;
use crate::objects::*;

const EPOCH: &str = "one";

/// The nodes under a leader, with all cards handed over.
pub struct KnownNodes {
    fed: Fed,
    topology: Topology,
    names: Vec<String>,
    version: u64,
}

impl KnownNodes {
    /// `count` unused nodes.
    pub fn new(machine: &KnownMachine, count: usize, policy: TopologyPolicy) -> Self {
        let topology = Topology::new(&machine.machine());
        let report = report(&topology, policy);
        let names: Vec<String> = (0..count).map(|number| format!("n{number:03}")).collect();
        let mut fed = Fed::with_nodes(&[]);
        for name in &names {
            fed.apply(read::<k8s_openapi::api::core::v1::Node>(node_object(name)).into());
            for slice in slices_of(name, &topology, &report) {
                fed.apply(read::<k8s_openapi::api::resource::v1::ResourceSlice>(slice).into());
            }
        }
        fed.now = Time::from_secs(1_000);
        fed.decider.lead(fed.now, EPOCH);
        assert_eq!(fed.decide(), [Intent::ListClaims]);
        fed.decider.observe(fed.now, Observation::ClaimsListed { asked_at: fed.now }).unwrap();
        KnownNodes { fed, topology, names, version: 1 }
    }

    /// Connections between the cards of each node.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The node and cards given to a new pod asking for `cards` cards. The pod is bound there and keeps them until [`Self::end`].
    /// If the loop gives it none, the pod is removed again.
    pub fn ask(&mut self, pod_name: &str, cards: usize) -> Option<(usize, CardSet)> {
        let claim = self.claim(pod_name, cards);
        self.fed.apply_claim(claim);
        self.fed.apply_pod(pod(pod_name));
        let intents = self.fed.decide();
        let allocate = intents.into_iter().find_map(|intent| match intent {
            Intent::Allocate { pod, node, claims, .. } if pod.key.name == pod_name => {
                Some((pod, node, claims))
            }
            _ => None,
        });
        let Some((reference, node, claims)) = allocate else {
            self.end(pod_name);
            return None;
        };
        let results = claims.iter().flat_map(|claim| claim.allocation.results());
        let devices: Vec<String> = results.map(|result| result.device.clone()).collect();
        self.hold(pod_name, &node, &devices);
        let versions = vec![(key(&format!("{pod_name}-gpus")), self.version.to_string())];
        let carried = Observation::Carried { pod: reference, is_done: true, versions };
        self.fed.decider.observe(self.fed.now, carried).unwrap();
        let addresses = devices.iter().map(|device| device.parse::<DeviceName>().unwrap().card());
        let number = self.names.iter().position(|name| *name == node).unwrap();
        Some((number, self.topology.set(addresses)))
    }

    /// A pod running with these cards of a node, whoever allocated them.
    pub fn take(&mut self, pod_name: &str, node: usize, cards: CardSet) {
        let devices: Vec<String> = cards.iter().map(|card| name(self.topology.cards()[card])).collect();
        let node = self.names[node].clone();
        self.hold(pod_name, &node, &devices);
    }

    /// Deletes the pod and its claim.
    pub fn end(&mut self, pod_name: &str) {
        self.fed.delete(Kind::Pod, pod_name);
        self.fed.delete(Kind::ResourceClaim, &format!("{pod_name}-gpus"));
    }

    fn hold(&mut self, pod_name: &str, node: &str, devices: &[String]) {
        let claim = self.claim(pod_name, devices.len());
        self.fed.apply_claim(allocated(claim, node, devices));
        let mut bound = pod(pod_name);
        bound["spec"]["schedulingGates"] = json!([]);
        bound["spec"]["nodeName"] = json!(node);
        self.fed.apply_pod(bound);
    }

    /// The next version of a pod's claim.
    fn claim(&mut self, pod_name: &str, cards: usize) -> Value {
        self.version += 1;
        let mut claim = claim(pod_name, "gpu", cards);
        claim["metadata"]["resourceVersion"] = json!(self.version.to_string());
        claim["metadata"]["annotations"] = json!({ tessera_api::managed::EPOCH_ANNOTATION: EPOCH });
        claim
    }
}

fn name(card: PciBusId) -> String {
    DeviceName::Card(card).to_string()
}

/// The plugin's report on such a machine.
fn report(topology: &Topology, policy: TopologyPolicy) -> NodeReport {
    let card = CardReport {
        pool: Some("main".to_owned()),
        allocation: Allocation::Managed,
        placement: Placement { topology: policy, ..Placement::default() },
        ..CardReport::default()
    };
    let cards = topology.cards().iter().map(|pci| (*pci, card.clone())).collect();
    let mut report = NodeReport { cards, ..NodeReport::default() };
    topology.write_to(&mut report);
    report
}

fn node_object(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "allocatable": { "cpu": "192", "pods": "110" } },
    })
}

/// Counters with the report, and whole cards in the plugin's order of publication.
fn slices_of(node: &str, topology: &Topology, report: &NodeReport) -> [Value; 2] {
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let set = |card: PciBusId| format!("{}-counter-set", name(card));
    let sets: Vec<Value> =
        topology.cards().iter().map(|card| json!({ "name": set(*card), "counters": counters })).collect();
    let order = topology.groups().order;
    let devices = order.iter().map(|position| topology.cards()[*position]).map(|card| {
        json!({
            "name": name(card),
            "attributes": { "type": { "string": "gpu" } },
            "taints": [{ "key": tessera_api::managed::TAINT_KEY, "effect": "NoSchedule" }],
            "consumesCounters": [{ "counterSet": set(card), "counters": counters }],
        })
    });
    let devices: Vec<Value> = devices.collect();
    let text = serde_json::to_string(report).unwrap();
    let slice = |suffix: &str, annotations: Value, contents: (&str, Vec<Value>)| {
        let mut spec = json!({
            "driver": DRIVER,
            "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 },
        });
        spec[contents.0] = contents.1.into();
        json!({ "metadata": { "name": format!("{node}-{suffix}"), "annotations": annotations }, "spec": spec })
    };
    [
        slice("0-counters", json!({ ANNOTATION: text }), ("sharedCounters", sets)),
        slice("1-cards", json!({}), ("devices", devices)),
    ]
}
