//! Kubernetes' structured allocator of 1.36 (variant *incubating*, which default gates select): the same results, in
//! the same order, with the same errors. The search differs, the first solution in Kubernetes' order is the answer.
//!
//! This is the enumeration: in which order devices are tried. What may be tried together, `validity` says.

mod bounds;
mod mix;
mod prune;
mod search;

use k8s_openapi::api::resource::v1::AllocationResult;

use crate::claim::{Claim, Classes};
use crate::error::AllocateError;
use crate::explain::{self, Explanation};
use crate::features::{Features, UpstreamBugs};
use crate::held::Held;
use crate::inventory::Inventory;
use crate::node::Node;
use crate::selectors::SelectorCache;
use crate::validity::{Assignment, Basis};

use search::{Limits, Search};

/// An allocator for one state of the cluster: cheap to make, one for every pod.
#[derive(Debug, Clone, Copy)]
pub struct Allocator<'a> {
    /// All devices.
    pub inventory: &'a Inventory,
    /// What is allocated already.
    pub held: &'a Held,
    /// All classes.
    pub classes: &'a Classes,
    /// Gates.
    pub features: Features,
    /// Bugs to reproduce.
    pub bugs: UpstreamBugs,
    /// How many devices may be tried, again and again, before the search is given up.
    pub effort_limit: u64,
    /// After how many devices tried the search begins again and leaves out what cannot succeed. Changes no answer.
    pub patience: u64,
}

/// Ten seconds of trying devices, roughly; kube-scheduler gives up after ten seconds, too.
const EFFORT_LIMIT: u64 = 50_000_000;

/// Most allocations need less.
const PATIENCE: u64 = 128;

impl<'a> Allocator<'a> {
    /// An allocator as kube-scheduler 1.36.3 with default gates has it.
    pub fn new(inventory: &'a Inventory, held: &'a Held, classes: &'a Classes) -> Self {
        Allocator {
            inventory,
            held,
            classes,
            features: Features::default(),
            bugs: UpstreamBugs::default(),
            effort_limit: EFFORT_LIMIT,
            patience: PATIENCE,
        }
    }

    /// What the claims of one pod would get on this node: one result for each claim, or None where they do not fit.
    ///
    /// `share_id` makes the id of each new share of a device: a UUID that was never used.
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
        if search.assignment.pools.iter().any(|pool| pool.fault.is_some()) {
            return Err(AllocateError::InvalidPools);
        }
        Ok(None)
    }

    /// Why each device can or cannot be had for each request on this node. A device is looked at alone: what other
    /// requests of the same claims would take is not counted.
    ///
    /// # Errors
    /// The node's pools cannot be told; see [`AllocateError`].
    pub fn explain(
        &self,
        node: &Node,
        claims: &[Claim],
        selectors: &mut SelectorCache,
    ) -> Result<Explanation<'a>, AllocateError> {
        explain::explain(self.basis(), node, claims, selectors)
    }

    fn basis(&self) -> Basis<'a> {
        let Allocator { inventory, held, classes, features, bugs, .. } = *self;
        Basis { inventory, held, classes, features, bugs }
    }
}
