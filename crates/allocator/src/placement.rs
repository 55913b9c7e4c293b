//! The assignment of least cost on one node: what the controller allocates itself, where [`crate::upstream`] says what
//! kube-scheduler would.
//!
//! `validity` decides what is allowed together, for both. The user's order of `firstAvailable` comes before cost: of the
//! combinations of alternatives, in the order in which upstream tries them, the first that has any assignment is
//! settled (`preference`); among its assignments the one of least cost is looked for (`sets`), sets of devices once
//! each, greedily first, until all were seen or the steps are used up. Equal costs go to devices published earlier.
//!
//! Rules are those of the API's words and of the newest release, without the bugs of [`crate::features::UpstreamBugs`]:
//! with them, the order in which devices are tried would decide what is allowed. What they allow and write is valid in
//! older releases, too.

mod alike;
mod preference;
mod sets;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::kubernetes::KubernetesVersion;

use crate::amount::Nanos;
use crate::claim::{Claim, Classes};
use crate::error::AllocateError;
use crate::features::{Features, UpstreamBugs, UpstreamRules};
use crate::held::Held;
use crate::inventory::{DeviceRef, Inventory};
use crate::node::Node;
use crate::selectors::SelectorCache;
use crate::validity::{self, Assignment, Basis};
pub use crate::validity::{MayTake, Pick};

use sets::Sets;

/// A planner for one state of the cluster. Cheap: make one for every pod.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// All devices.
    pub inventory: &'a Inventory,
    /// What is allocated already.
    pub held: &'a Held,
    /// All classes.
    pub classes: &'a Classes,
    /// Gates.
    pub features: Features,
    /// Keys of taints that all requests tolerate, besides those that they name.
    pub tolerated: &'a [&'a str],
    /// Whether a device may be given. A request for *all* devices that selects one which may not is not met.
    pub may_give: &'a dyn Fn(DeviceRef<'_>) -> bool,
    /// Whether these may be had together, whatever else is had besides; all may that are free unless told. Of picks for which it is false,
    /// no others may make it true. The picks are in the order of the claims and of their requests.
    pub may_take: Option<MayTake<'a>>,
    /// Number of devices looked at for a request after which the best assignment so far is the answer.
    pub step_limit: u64,
}

impl Pick<'_> {
    /// The amount that the request takes of a capacity of the device, in billionths; `None` where the device has no such capacity, or
    /// not that much may be taken of it.
    #[must_use]
    pub fn consumed(&self, capacity: &str) -> Option<Nanos> {
        let asked = self.ask.capacity.iter().flatten().find(|(name, _)| name == capacity);
        let capacity = self.device.capacity_named(capacity)?;
        let arithmetic = validity::Arithmetic::WITHOUT_BUGS;
        let amount = validity::consumed(asked.map(|(_, amount)| amount), capacity, arithmetic).ok()??;
        Some(amount.nanos())
    }
}

/// An assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed<C> {
    /// One result for each claim; devices of a request in published order.
    pub allocations: Vec<AllocationResult>,
    /// What it costs.
    pub cost: C,
    /// Whether nothing that the user prefers as much costs less; otherwise the steps were used up first.
    pub is_best: bool,
    /// Devices looked at.
    pub steps: u64,
}

/// Enough for all sets of eight of sixteen cards, and for a greedy choice of 32 of all partitions of 64 cards.
const STEP_LIMIT: u64 = 100_000;

impl<'a> Placement<'a> {
    /// All devices may be given, no taint is tolerated; a step limit that takes some tens of milliseconds.
    pub fn new(inventory: &'a Inventory, held: &'a Held, classes: &'a Classes) -> Self {
        Placement {
            inventory,
            held,
            classes,
            features: Features::default(),
            tolerated: &[],
            may_give: &|_| true,
            may_take: None,
            step_limit: STEP_LIMIT,
        }
    }

    /// The assignment of least cost for the claims of one pod on this node, or `None` where they do not fit.
    ///
    /// `cost` gives the cost of a part of an assignment, too: the parts decide in which order devices are tried, the
    /// whole ones which is best. It must not depend on the order of the picks, nor tell apart two requests of one claim
    /// that ask for the same.
    ///
    /// A device for which a selector fails is passed over; the error is returned only if nothing was found.
    ///
    /// `share_id` makes the id of each new share of a device: a UUID that was never used.
    ///
    /// # Errors
    /// [`AllocateError::TooLong`] if the steps were used up before any assignment was found; else as
    /// [`crate::upstream::Allocator::allocate`].
    pub fn place<C: Ord + Clone>(
        &self,
        node: &Node,
        claims: &[Claim],
        selectors: &mut SelectorCache,
        share_id: &mut dyn FnMut() -> String,
        cost: impl FnMut(&[Pick<'_>]) -> C,
    ) -> Result<Option<Placed<C>>, AllocateError> {
        let mut assignment = Assignment::new(self.basis(), node, claims, selectors)?;
        assignment.prepare()?;
        assignment.withhold(self.may_give);
        assignment.limit(self.may_take);
        assignment.be_lenient();
        let (assignment, settled) = preference::settle(assignment, self.step_limit)?;
        let Some(settled) = settled else { return assignment.why_none().map_or(Ok(None), Err) };
        let sets = Sets::new(assignment, settled.picked, cost);
        let found = sets.run(self.step_limit.saturating_sub(settled.steps))?;
        Ok(Some(Placed {
            allocations: found.assignment.allocation_results(share_id)?,
            cost: found.cost,
            is_best: settled.is_certain && found.is_best,
            steps: settled.steps + found.steps,
        }))
    }

    fn basis(&self) -> Basis<'a> {
        let Placement { inventory, held, classes, features, tolerated, .. } = *self;
        let bugs = UpstreamBugs::NONE;
        let rules = UpstreamRules::of(KubernetesVersion::default());
        Basis { inventory, held, classes, features, bugs, rules, tolerated }
    }
}
