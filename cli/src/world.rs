//! The cluster as kube-scheduler sees it.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_allocator::claim::{Claim, Class};
use tessera_allocator::convert::ConvertError;
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::explain::{Reason, UnusablePool};
use tessera_allocator::upstream::{AllocateError, Allocator, Classes};

use crate::devices::DeviceId;
use crate::objects::Objects;
use crate::output::CommandError;

/// What an allocation depends on.
#[derive(Debug)]
pub struct World {
    /// The objects.
    pub objects: Objects,
    /// The slices, with the taints of rules.
    pub slices: Vec<ResourceSlice>,
    /// The nodes by name. Without any Node object, those that the slices name.
    pub nodes: Vec<Node>,
    /// What all allocated claims hold.
    pub held: Held,
    inventory: Inventory,
    classes: Classes,
    cache: SelectorCache,
    shares: u64,
}

/// What the allocator says of one node.
pub type Allocated = Result<Option<Vec<AllocationResult>>, AllocateError>;

/// What the allocator says of every device of a node.
#[derive(Debug)]
pub struct Report {
    /// By request and alternative.
    pub requests: Vec<RequestReport>,
    /// Pools that nothing can be taken from.
    pub unusable_pools: Vec<UnusablePool>,
}

/// What one request finds.
#[derive(Debug)]
pub struct RequestReport {
    /// Place among the claims.
    pub claim: usize,
    /// `request` or `request/alternative`.
    pub request: String,
    /// Devices that are wanted.
    pub count: i64,
    /// Every device in kube-scheduler's order, and what is in its way.
    pub devices: Vec<(DeviceId, Option<Reason>)>,
}

impl World {
    /// # Errors
    /// An object has something in it that the API server would not accept.
    pub fn new(objects: Objects) -> Result<Self, CommandError> {
        let slices = objects.tainted_slices();
        let mut inventory = Inventory::new();
        for slice in &slices {
            inventory.add(slice).map_err(|error| {
                let name = slice.metadata.name.as_deref().unwrap_or_default();
                CommandError::Asked(format!("ResourceSlice {name}: {error}"))
            })?;
        }
        let mut held = Held::new();
        for claim in objects.claims.values() {
            held.add(&inventory, claim).map_err(|error| of_claim(claim, &error))?;
        }
        let classes = objects.classes.values().map(Class::from).collect();
        let mut nodes: Vec<Node> = objects.nodes.values().cloned().collect();
        if nodes.is_empty() {
            nodes = nodes_of_slices(&slices);
        }
        Ok(World { objects, slices, nodes, held, inventory, classes, cache: SelectorCache::new(), shares: 0 })
    }

    /// What these claims would get on the node if the cluster's claims held `held`.
    pub fn allocate(&mut self, node: &Node, claims: &[Claim], held: &Held) -> Allocated {
        let allocator = Allocator::new(&self.inventory, held, &self.classes);
        let shares = &mut self.shares;
        let mut share_id = || {
            *shares += 1;
            format!("00000000-0000-4000-8000-{shares:012x}")
        };
        allocator.allocate(&node.into(), claims, &mut self.cache, &mut share_id)
    }

    /// What is in the way of each device for each request, each looked at alone.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn explain(&mut self, node: &Node, claims: &[Claim], held: &Held) -> Result<Report, AllocateError> {
        let allocator = Allocator::new(&self.inventory, held, &self.classes);
        let node = node.into();
        let explanation = allocator.explain(&node, claims, &mut self.cache)?;
        let requests = explanation.requests.into_iter().map(|request| RequestReport {
            claim: request.claim,
            request: request.request,
            count: request.count,
            devices: request
                .devices
                .into_iter()
                .map(|found| {
                    let id = DeviceId {
                        driver: found.device.driver_name().to_owned(),
                        pool: found.device.pool().to_owned(),
                        device: found.device.name().to_owned(),
                    };
                    (id, found.reason)
                })
                .collect(),
        });
        Ok(Report { requests: requests.collect(), unusable_pools: explanation.unusable_pools })
    }

    /// What is held when these claims give back what they have.
    ///
    /// # Errors
    /// A claim holds something that is not a quantity.
    pub fn held_without(&self, claims: &[&ResourceClaim]) -> Result<Held, CommandError> {
        let mut held = self.held.clone();
        for claim in claims {
            held.remove(&self.inventory, claim).map_err(|error| of_claim(claim, &error))?;
        }
        Ok(held)
    }
}

/// A claim as the allocator takes it.
///
/// # Errors
/// It has something in it that is not a quantity.
pub fn convert(claim: &ResourceClaim) -> Result<Claim, CommandError> {
    Claim::try_from(claim).map_err(|error| of_claim(claim, &error))
}

fn of_claim(claim: &ResourceClaim, error: &ConvertError) -> CommandError {
    CommandError::Asked(format!("ResourceClaim {}: {error}", reference(claim)))
}

/// `namespace/name`
pub fn reference(claim: &ResourceClaim) -> String {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Nodes that stand for those that the slices name, with the label that every node has.
fn nodes_of_slices(slices: &[ResourceSlice]) -> Vec<Node> {
    let names: std::collections::BTreeSet<&String> = slices
        .iter()
        .flat_map(|slice| {
            let of_devices =
                slice.spec.devices.iter().flatten().filter_map(|device| device.node_name.as_ref());
            slice.spec.node_name.iter().chain(of_devices)
        })
        .collect();
    names
        .into_iter()
        .map(|name| Node {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some([("kubernetes.io/hostname".to_owned(), name.clone())].into()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        })
        .collect()
}
