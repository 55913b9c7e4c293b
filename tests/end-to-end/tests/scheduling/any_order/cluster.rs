//! Nodes with the emulator's machines, under kube-scheduler's rules.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::resource::v1::{Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice};
use serde_json::json;
use tessera_allocator::claim::{Claim, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_api::{Offer, Quantity};
use tessera_inventory::{Machine, Pool, PoolOptions};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_nvml::{Library, Nvml};

use super::scenario::{Arrival, MigState, NodeSpec};
use crate::DRIVER;
use crate::machine::{EmulatedMachine, hardware};
use crate::scheduler::classes;

/// A node: the facts of its machine, and what it publishes.
pub struct Published {
    pub name: String,
    pub machine: Machine,
    pub config: Offer,
    pub pool: Pool,
    pub devices: BTreeMap<String, Device>,
}

pub struct Cluster {
    pub nodes: Vec<Published>,
    inventory: Inventory,
    classes: Classes,
    selectors: SelectorCache,
    held: Held,
    pods: usize,
}

/// A pod whose claims are allocated.
pub struct Pod {
    pub node: usize,
    pub grants: Vec<Grant>,
    claims: Vec<ResourceClaim>,
}

/// A device allocated to a request.
#[derive(Clone, Debug)]
pub struct Grant {
    pub claim: usize,
    /// Indexes of the request and of the alternative.
    pub request: (usize, usize),
    pub device: String,
    pub share: Option<String>,
    pub consumed: BTreeMap<String, i128>,
}

impl Pod {
    pub fn devices(&self) -> Vec<(usize, String)> {
        self.grants.iter().map(|grant| (self.node, grant.device.clone())).collect()
    }
}

impl Cluster {
    pub fn new(specs: &[NodeSpec]) -> Self {
        let nodes: Vec<Published> = specs.iter().enumerate().map(published).collect();
        let mut inventory = Inventory::new();
        for node in &nodes {
            for slice in &node.pool.slices {
                let count = node.pool.slices.len();
                let spec = json!({"driver": DRIVER, "nodeName": node.name, "pool":
                    {"name": format!("{DRIVER}/{}", node.name), "generation": 1, "resourceSliceCount": count}});
                let name = format!("{}-{DRIVER}-{}", node.name, slice.name_suffix);
                let mut object: ResourceSlice =
                    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
                slice.contents.put_into(&mut object.spec);
                inventory.add(&object).unwrap();
            }
        }
        Self {
            nodes,
            inventory,
            classes: classes(),
            selectors: SelectorCache::new(),
            held: Held::new(),
            pods: 0,
        }
    }

    /// Binds a pod to the first node on which all of its claims can be allocated, starting at its own first node.
    pub fn allocate(&mut self, arrival: &Arrival) -> Option<Pod> {
        self.pods += 1;
        let mut claims = claims(arrival, self.pods);
        let asked: Vec<Claim> = claims.iter().map(|claim| Claim::try_from(claim).unwrap()).collect();
        let first = arrival.first_node.index(self.nodes.len());
        for number in 0..self.nodes.len() {
            let place = (first + number) % self.nodes.len();
            let object = json!({"metadata": {"name": self.nodes[place].name}});
            let node = Node::from(&serde_json::from_value(object).unwrap());
            let mut shares = 0;
            let pod = self.pods;
            let mut share_id = || {
                shares += 1;
                format!("{pod:08x}-0000-4000-8000-{shares:012x}")
            };
            let allocator = Allocator::new(&self.inventory, &self.held, &self.classes);
            // An error ends the pod's attempt on this node, as it does in kube-scheduler.
            let answer = allocator.allocate(&node, &asked, &mut self.selectors, &mut share_id);
            let Ok(Some(results)) = answer else { continue };
            let mut grants = Vec::new();
            for (number, (claim, result)) in claims.iter_mut().zip(results).enumerate() {
                let devices = result.devices.clone().unwrap().results.unwrap_or_default();
                grants.extend(devices.iter().map(|device| grant(number, device)));
                claim.status.get_or_insert_default().allocation = Some(result);
                self.held.add(&self.inventory, claim).unwrap();
            }
            return Some(Pod { node: place, grants, claims });
        }
        None
    }

    /// Removes a pod and its claims.
    pub fn release(&mut self, pod: &Pod) {
        for claim in &pod.claims {
            self.held.remove(&self.inventory, claim).unwrap();
        }
    }
}

fn grant(claim: usize, device: &DeviceRequestAllocationResult) -> Grant {
    let number = |name: &str| name[1..].parse::<usize>().unwrap();
    let (request, alternative) = device.request.split_once('/').unwrap_or((&device.request, "s0"));
    let consumed = device.consumed_capacity.iter().flatten();
    Grant {
        claim,
        request: (number(request), number(alternative)),
        device: device.device.clone(),
        share: device.share_id.clone(),
        consumed: consumed.map(|(name, quantity)| (name.clone(), nanos(&quantity.0))).collect(),
    }
}

/// A requested amount, in billionths; one that is larger than every device's becomes a number larger than these.
pub fn asked(text: &str) -> i128 {
    let more_than_any = 10_i128.pow(36);
    text.parse::<Quantity>().map_or(more_than_any, |quantity| quantity.nanos().min(more_than_any))
}

/// A quantity in billionths, for amounts of the size that devices have.
pub fn nanos(text: &str) -> i128 {
    text.parse::<Quantity>().unwrap_or_else(|error| panic!("{text}: {error}")).nanos()
}

fn claims(arrival: &Arrival, pod: usize) -> Vec<ResourceClaim> {
    let claim = |(number, requests): (usize, &Vec<super::scenario::RequestSpec>)| {
        let requests = requests.iter().enumerate().map(|(number, request)| {
            if let [only] = request.alternatives.as_slice() {
                return json!({"name": format!("r{number}"), "exactly": only.to_json()});
            }
            let alternatives = request.alternatives.iter().enumerate().map(|(number, ask)| {
                let mut alternative = ask.to_json();
                alternative["name"] = json!(format!("s{number}"));
                alternative
            });
            let alternatives: Vec<_> = alternatives.collect();
            json!({"name": format!("r{number}"), "firstAvailable": alternatives})
        });
        let requests: Vec<_> = requests.collect();
        let name = format!("pod-{pod}-{number}");
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"devices": {"requests": requests}},
        }))
        .unwrap()
    };
    arrival.claims.iter().enumerate().map(claim).collect()
}

fn published((number, spec): (usize, &NodeSpec)) -> Published {
    let mut machine = (*facts(spec)).clone();
    if spec.one_card {
        machine.cards.truncate(1);
    }
    let mig = machine.cards[0].mig.as_ref();
    let profiles: Vec<String> =
        mig.iter().flat_map(|mig| &mig.profiles).map(|profile| profile.name.clone()).collect();
    let config = spec.config.on(&profiles);
    let pool =
        Pool::new(&machine, &PoolOptions { offers: config.clone().into(), ..PoolOptions::new(DRIVER) });
    let devices = pool.devices().map(|device| (device.name.clone(), device)).collect();
    Published { name: format!("node-{number}"), machine, config, pool, devices }
}

/// The facts of a machine with two cards, read from its driver once.
fn facts(spec: &NodeSpec) -> Arc<Machine> {
    type Known = HashMap<(String, MigState), Arc<Machine>>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let names = hardware();
    let name = &names[spec.machine.index(names.len())];
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let key = (name.clone(), spec.state);
    Arc::clone(known.entry(key).or_insert_with(|| Arc::new(read(name, spec.state))))
}

fn read(name: &str, state: MigState) -> Machine {
    let emulated = EmulatedMachine::with(name, &["--cards", "2"]);
    let library = Library::open_below(&emulated.root()).unwrap();
    for (position, address) in library.addresses().unwrap().into_iter().enumerate() {
        let address = address.unwrap();
        if state == MigState::Off || library.card(address).unwrap().mig.unwrap().is_none() {
            continue;
        }
        if !library.set_mig_mode(address, true).unwrap().mode.current {
            emulated.let_happen(&format!("reset --card {position}"));
        }
        if state == MigState::ByHand {
            let mut profiles = library.gpu_instance_profiles(address).unwrap().unwrap();
            profiles.sort_by_key(|profile| profile.memory_bytes);
            let smi = |profile: &str| {
                let mut smi = Command::new(emulated.root().join("bin/nvidia-smi"));
                let done = smi.args(["mig", "-i", &position.to_string(), "-cgi", profile, "-C"]).output();
                done.unwrap().status.success()
            };
            assert!(smi(&profiles[0].name), "{name}: {}", profiles[0].name);
            assert!(profiles.iter().rev().any(|profile| smi(&profile.name)), "{name}: room for one more");
        }
    }
    let mut discovery = Discovery::new(emulated.root().join("sys"));
    discovery.read_once(&library);
    discovery.machine().unwrap()
}
