//! The cluster as kube-scheduler sees it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_allocator::claim::{Claim, Classes};
use tessera_allocator::error::AllocateError;
use tessera_allocator::explain::Explanation;
use tessera_allocator::held::Held;
use tessera_allocator::inventory::{DeviceRef, Inventory};
use tessera_allocator::placement::{MayTake, Pick, Placed, Placement};
use tessera_allocator::selectors::{SelectorCache, Unanswered};
use tessera_allocator::upstream::Allocator;
use tessera_api::kubernetes::KubernetesVersion;

use crate::charge::Charges;
use crate::claim::AllocationExt;
use crate::error::ObjectError;
use crate::expected::Expected;
use crate::holder::Holder;
use crate::objects::Objects;
use crate::taken::Taken;

/// Input of allocations: the objects, and the allocator's view of them.
#[derive(Debug, Default)]
pub struct Cluster {
    pub(crate) objects: Objects,
    pub(crate) inventory: Inventory,
    pub(crate) taken: Taken,
    pub(crate) expected: Expected,
    pub(crate) classes: Classes,
    /// Whether slices are kept as objects, too, with their node reports.
    pub(crate) keeps_slices: bool,
}

/// Limits on the devices and effort of [`Cluster::place`]. See [`Placement`].
#[derive(Clone, Copy)]
pub struct PlacementLimits<'l> {
    /// Keys of taints to ignore.
    pub tolerated: &'l [&'l str],
    /// Whether a device may be allocated.
    pub may_give: &'l dyn Fn(DeviceRef<'_>) -> bool,
    /// Whether devices may be allocated together; `None` where all may.
    pub may_take: Option<MayTake<'l>>,
    /// Maximum number of devices to examine.
    pub steps: u64,
}

/// A reader's own state. Keep one between calls: it caches compiled selectors and their results.
pub struct Asker {
    selectors: SelectorCache,
    share_id: Box<dyn FnMut() -> String + Send>,
    kubernetes: KubernetesVersion,
}

impl fmt::Debug for Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Asker").finish_non_exhaustive()
    }
}

impl Asker {
    /// `share_id` generates the id of each new share of a device: an unused UUID.
    pub fn new(share_id: impl FnMut() -> String + Send + 'static) -> Self {
        let kubernetes = KubernetesVersion::default();
        Asker { selectors: SelectorCache::new(), share_id: Box::new(share_id), kubernetes }
    }

    /// Answers as kube-scheduler of this release would, instead of the newest known release.
    #[must_use]
    pub fn answered_as(mut self, kubernetes: KubernetesVersion) -> Self {
        self.set_kubernetes(kubernetes);
        self
    }

    /// As [`Self::answered_as`], from now on.
    pub fn set_kubernetes(&mut self, kubernetes: KubernetesVersion) {
        if self.kubernetes != kubernetes {
            self.selectors = SelectorCache::of(kubernetes);
        }
        self.kubernetes = kubernetes;
    }

    /// The kube-scheduler release whose behaviour is followed.
    #[must_use]
    pub fn kubernetes(&self) -> KubernetesVersion {
        self.kubernetes
    }
}

impl Cluster {
    /// The objects.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The objects alone, to build another cluster from.
    pub fn into_objects(self) -> Objects {
        self.objects
    }

    /// All devices.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Devices and shares of devices in use.
    pub fn held(&self) -> &Held {
        self.taken.held()
    }

    /// Holders of the device or of a share of it, each once.
    pub fn holders(&self, device: DeviceRef<'_>) -> impl Iterator<Item = &Holder> {
        self.held().holders(device).iter().filter_map(|id| self.taken.holder(id))
    }

    /// What the holders of each namespace are charged for; nothing before [`Self::charge_for`].
    pub fn charges(&self) -> &Charges {
        self.taken.charges()
    }

    /// Charges for this driver's devices from now on, or for none.
    pub fn charge_for(&mut self, driver: Option<&str>) {
        self.taken.charge_for(&self.inventory, driver);
    }

    /// Charges anew for devices whose slices were missing.
    pub fn charge_guessed_anew(&mut self) {
        self.taken.charge_guessed_anew(&self.inventory);
    }

    /// All classes.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The nodes by name. Without any Node object: the nodes named by slices, with the hostname label of every node.
    pub fn nodes(&self) -> Vec<Cow<'_, Node>> {
        if !self.objects.nodes.is_empty() {
            return self.objects.nodes.values().map(Cow::Borrowed).collect();
        }
        let of_devices = self.inventory.devices().filter_map(|device| device.own_node_name());
        let names: BTreeSet<&str> = self.inventory.node_names().chain(of_devices).collect();
        let node = |name: &str| Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([("kubernetes.io/hostname".to_owned(), name.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        names.into_iter().map(|name| Cow::Owned(node(name))).collect()
    }

    /// Allocations for these claims on the node with `held` in use: one per claim, or `None` where the claims do not fit.
    ///
    /// # Errors
    /// See [`AllocateError`].
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[Claim],
        held: &Held,
        asker: &mut Asker,
    ) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
        let allocator = Allocator::new(&self.inventory, held, &self.classes).answering_as(asker.kubernetes);
        allocator.allocate(&node.into(), claims, &mut asker.selectors, &mut *asker.share_id)
    }

    /// As [`Self::allocate`] with the devices now in use, in time independent of the number of nodes. Where kube-scheduler would
    /// report an error about a pool of another node, the claims simply do not fit.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn plan(
        &self,
        node: &Node,
        claims: &[Claim],
        asker: &mut Asker,
    ) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
        let mut allocator =
            Allocator::new(&self.inventory, self.held(), &self.classes).answering_as(asker.kubernetes);
        allocator.rules.counters_concern_every_node = false;
        allocator.allocate(&node.into(), claims, &mut asker.selectors, &mut *asker.share_id)
    }

    /// Placement of the claims by this controller on the node, with the devices now in use: the devices of least `cost` among those
    /// allowed by `limits`.
    ///
    /// # Errors
    /// As [`Placement::place`].
    pub fn place<C: Ord + Clone>(
        &self,
        node: &Node,
        claims: &[Claim],
        limits: &PlacementLimits<'_>,
        asker: &mut Asker,
        cost: impl FnMut(&[Pick<'_>]) -> C,
    ) -> Result<Option<Placed<C>>, AllocateError> {
        let mut placement = Placement::new(&self.inventory, self.held(), &self.classes);
        placement.tolerated = limits.tolerated;
        placement.may_give = limits.may_give;
        placement.may_take = limits.may_take;
        placement.step_limit = limits.steps;
        placement.place(&node.into(), claims, &mut asker.selectors, &mut *asker.share_id, cost)
    }

    /// Names of the driver's devices, managed or not, for the claims on the node if nothing were held. `None` where the claims
    /// would not fit even then.
    pub fn would_place(
        &self,
        node: &Node,
        claims: &[Claim],
        driver: &str,
        asker: &mut Asker,
    ) -> Option<Vec<String>> {
        let allocations = self.would_allocate(node, claims, asker)?;
        let results = allocations.iter().flat_map(AllocationExt::results);
        let own = results.filter(|result| result.driver == driver);
        Some(own.map(|result| result.device.clone()).collect())
    }

    /// Allocations for the claims on the node if nothing were held, managed cards included. `None` if they still do not fit.
    pub fn would_allocate(
        &self,
        node: &Node,
        claims: &[Claim],
        asker: &mut Asker,
    ) -> Option<Vec<AllocationResult>> {
        let held = Held::new();
        let mut placement = Placement::new(&self.inventory, &held, &self.classes);
        placement.tolerated = &[tessera_api::managed::TAINT_KEY];
        let placed = placement.place(&node.into(), claims, &mut asker.selectors, &mut *asker.share_id, |_| 0);
        Some(placed.ok()??.allocations)
    }

    /// Whether any device of the driver on the node, free or not, matches a request of these claims.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn has_what_is_asked(
        &self,
        node: &Node,
        claims: &[Claim],
        driver: &str,
        asker: &mut Asker,
    ) -> Result<bool, AllocateError> {
        let mut allocator =
            Allocator::new(&self.inventory, self.held(), &self.classes).answering_as(asker.kubernetes);
        allocator.rules.counters_concern_every_node = false;
        allocator.has_what_is_asked(&node.into(), claims, driver, &mut asker.selectors)
    }

    /// A bound for what each claim takes of the driver's devices on the node: the least sums of the numbers of `worth` over devices
    /// that its requests can be given, free or not, each number by itself.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn least_worth(
        &self,
        node: &Node,
        claims: &[Claim],
        driver: &str,
        asker: &mut Asker,
        worth: impl Fn(DeviceRef<'_>) -> [u64; 2],
    ) -> Result<Vec<[u64; 2]>, AllocateError> {
        let mut allocator =
            Allocator::new(&self.inventory, self.held(), &self.classes).answering_as(asker.kubernetes);
        allocator.rules.counters_concern_every_node = false;
        allocator.least_worth(&node.into(), claims, driver, &mut asker.selectors, worth)
    }

    /// Evaluates the costly selectors of these claims for all devices, deducting the cost from `budget`. After success, calls about
    /// these claims evaluate no costly selector.
    ///
    /// # Errors
    /// The budget is used up: the progress so far.
    pub fn answer_ahead(
        &self,
        claims: &[Claim],
        budget: &mut u64,
        asker: &mut Asker,
    ) -> Result<(), Unanswered> {
        asker.selectors.answer_ahead(&self.inventory, &self.classes, claims, budget)
    }

    /// The obstacle for each device and request, considering each device alone.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn explain<'c>(
        &'c self,
        node: &Node,
        claims: &[Claim],
        held: &'c Held,
        asker: &mut Asker,
    ) -> Result<Explanation<'c>, AllocateError> {
        let allocator = Allocator::new(&self.inventory, held, &self.classes).answering_as(asker.kubernetes);
        allocator.explain(&node.into(), claims, &mut asker.selectors)
    }

    /// Devices in use if these claims did not exist.
    ///
    /// # Errors
    /// A claim holds a capacity without a valid quantity.
    pub fn held_without(&self, claims: &[&ResourceClaim]) -> Result<Held, ObjectError> {
        let mut held = Held::over(Arc::clone(self.taken.held()));
        for claim in claims {
            held.remove(&self.inventory, claim).map_err(|error| ObjectError::of_claim(claim, error))?;
        }
        Ok(held)
    }
}
