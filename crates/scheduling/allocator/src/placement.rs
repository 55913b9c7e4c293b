//! The assignment of least cost on one node: the controller's own allocation, whereas [`crate::upstream`] predicts
//! kube-scheduler's.
//!
//! `validity` decides for both which devices are allowed together. The user's order of `firstAvailable` comes before cost.
//! First `preference` settles on the first combination of alternatives with any assignment, in upstream's order of trying.
//! Then `sets` looks for the assignment of least cost with this combination: sets of devices once
//! each, greedily first, until all were tried or the steps are used up. Equal costs go to devices published earlier.
//!
//! Rules are those of the API's words and of the newest release, without the bugs of [`crate::features::UpstreamBugs`]:
//! with them, the order of trying devices would decide which are allowed. Assignments by these rules are valid in
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
    /// Existing allocations.
    pub held: &'a Held,
    /// All classes.
    pub classes: &'a Classes,
    /// Gates.
    pub features: Features,
    /// Keys of taints tolerated by all requests, besides their own tolerations.
    pub tolerated: &'a [&'a str],
    /// Whether a device may be given. A request for *all* devices cannot be met if it selects a device not to be given.
    pub may_give: &'a dyn Fn(DeviceRef<'_>) -> bool,
    /// Whether these picks may be had together, whatever else is picked; `None` allows all free devices. For picks with the answer `false`,
    /// no further picks may turn the answer to true. The picks are in the order of the claims and of their requests.
    pub may_take: Option<MayTake<'a>>,
    /// Number of devices to try for a request before answering with the best assignment so far.
    pub step_limit: u64,
}

impl Pick<'_> {
    /// The amount of the device's capacity taken by the request, in billionths; `None` if the device lacks the capacity or
    /// does not allow the amount.
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
    /// The assignment's cost.
    pub cost: C,
    /// Whether no equally preferred assignment costs less; otherwise the steps were used up first.
    pub is_best: bool,
    /// Devices tried.
    pub steps: u64,
}

/// Enough for all sets of eight of sixteen cards, and for a greedy choice of 32 of all partitions of 64 cards.
const STEP_LIMIT: u64 = 100_000;

impl<'a> Placement<'a> {
    /// All devices may be given, no taint is tolerated; a step limit of some tens of milliseconds.
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
    /// `cost` is also called for parts of an assignment: costs of parts decide the order of trying devices, costs of
    /// whole assignments decide the best. The cost must not depend on the order of the picks, nor differ between two equal
    /// requests of one claim.
    ///
    /// A device whose selector fails is passed over; the error is returned only if nothing was found.
    ///
    /// `share_id` makes the id of each new share of a device: a UUID never used before.
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
