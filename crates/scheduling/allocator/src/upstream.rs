//! Kubernetes' structured allocator (variant *incubating*, selected by default gates): the same results as a release's, in
//! the same order, with the same errors. The search differs, but the answer is the first solution in Kubernetes' order.
//!
//! This is the enumeration: the order of trying devices. `validity` decides which devices are allowed together.

mod bounds;
mod prune;
mod search;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::kubernetes::KubernetesVersion;

use crate::claim::{Claim, Classes};
use crate::error::AllocateError;
use crate::explain::{self, Explanation};
use crate::features::{Features, UpstreamBugs, UpstreamRules};
use crate::held::Held;
use crate::inventory::{DeviceRef, Inventory};
use crate::node::Node;
use crate::selectors::SelectorCache;
use crate::validity::{Assignment, Basis};

pub(crate) use search::{Limits, Search};

/// An allocator for one state of the cluster. Cheap: make one for every pod.
#[derive(Debug, Clone, Copy)]
pub struct Allocator<'a> {
    /// All devices.
    pub inventory: &'a Inventory,
    /// Existing allocations.
    pub held: &'a Held,
    /// All classes.
    pub classes: &'a Classes,
    /// Gates.
    pub features: Features,
    /// Bugs to reproduce.
    pub bugs: UpstreamBugs,
    /// Rules to follow.
    pub rules: UpstreamRules,
    /// Number of device trials after which the search is given up.
    pub effort_limit: u64,
    /// Number of device trials after which the search starts again with pruning. Changes no answer.
    pub patience: u64,
}

/// Roughly ten seconds of trials; kube-scheduler gives up after ten seconds, too.
const EFFORT_LIMIT: u64 = 50_000_000;

/// Most allocations need less.
pub(crate) const PATIENCE: u64 = 128;

impl<'a> Allocator<'a> {
    /// An allocator like kube-scheduler of the newest known release with default gates.
    pub fn new(inventory: &'a Inventory, held: &'a Held, classes: &'a Classes) -> Self {
        Allocator {
            inventory,
            held,
            classes,
            features: Features::default(),
            bugs: UpstreamBugs::of(KubernetesVersion::default()),
            rules: UpstreamRules::of(KubernetesVersion::default()),
            effort_limit: EFFORT_LIMIT,
            patience: PATIENCE,
        }
    }

    /// With the bugs and rules of this release.
    #[must_use]
    pub fn answering_as(self, version: KubernetesVersion) -> Self {
        Allocator { bugs: UpstreamBugs::of(version), rules: UpstreamRules::of(version), ..self }
    }

    /// The devices for the claims of one pod on this node: one result per claim, or `None` where they do not fit.
    ///
    /// `share_id` makes the id of each new share of a device: a UUID never used before.
    ///
    /// # Errors
    /// See [`AllocateError`].
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[Claim],
        selectors: &mut SelectorCache,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
        let mut assignment = Assignment::new(self.basis(), node, claims, selectors)?;
        assignment.prepare()?;
        let limits = Limits { effort: self.effort_limit, patience: self.patience };
        let mut search = Search::new(assignment, limits);
        if search.run()? {
            return search.assignment.allocation_results(share_id).map(Some);
        }
        search.assignment.why_none().map_or(Ok(None), Err)
    }

    /// Why each device is or is not available to each request on this node. Each device is looked at alone: demands of other
    /// requests of the same claims are not counted.
    ///
    /// # Errors
    /// The node's pools cannot be determined; see [`AllocateError`].
    pub fn explain(
        &self,
        node: &Node,
        claims: &[Claim],
        selectors: &mut SelectorCache,
    ) -> Result<Explanation<'a>, AllocateError> {
        explain::explain(self.basis(), node, claims, selectors)
    }

    /// Whether any device of the driver on the node, free or not, satisfies a request of these claims.
    ///
    /// # Errors
    /// A request cannot be evaluated; see [`AllocateError`].
    pub fn has_what_is_asked(
        &self,
        node: &Node,
        claims: &[Claim],
        driver: &str,
        selectors: &mut SelectorCache,
    ) -> Result<bool, AllocateError> {
        let mut assignment = Assignment::new(self.basis(), node, claims, selectors)?;
        assignment.prepare()?;
        assignment.has_what_is_asked(driver)
    }

    /// A lower bound for each claim's consumption of the driver's devices on the node: the least sums of the numbers of `worth` over
    /// possible devices of its requests, free or not, each number by itself. Requests for other devices, all devices, or
    /// administrative access count for nothing.
    ///
    /// # Errors
    /// A request cannot be evaluated; see [`AllocateError`].
    pub fn least_worth(
        &self,
        node: &Node,
        claims: &[Claim],
        driver: &str,
        selectors: &mut SelectorCache,
        worth: impl Fn(DeviceRef<'_>) -> [u64; 2],
    ) -> Result<Vec<[u64; 2]>, AllocateError> {
        let mut assignment = Assignment::new(self.basis(), node, claims, selectors)?;
        assignment.prepare()?;
        assignment.least_worth(driver, worth)
    }

    fn basis(&self) -> Basis<'a> {
        let Allocator { inventory, held, classes, features, bugs, rules, .. } = *self;
        Basis { inventory, held, classes, features, bugs, rules, tolerated: &[] }
    }
}
