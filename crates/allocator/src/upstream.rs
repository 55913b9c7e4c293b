//! Kubernetes' structured allocator of 1.36 (variant *incubating*, which default gates select): the same results, in
//! the same order, with the same errors. The search differs, the first solution in Kubernetes' order is the answer.

mod bounds;
mod capacity;
mod constraints;
mod counters;
mod eligible;
mod error;
pub mod explain;
mod features;
mod mix;
mod plan;
mod pools;
mod prune;
mod result;
mod search;
mod take;

use hashbrown::HashMap;
use k8s_openapi::api::resource::v1::AllocationResult;

use crate::claim::{Claim, Class};
use crate::held::Held;
use crate::inventory::Inventory;
use crate::node::Node;
use crate::selectors::SelectorCache;

pub use error::AllocateError;
pub use features::{Features, UpstreamBugs};

/// The DeviceClasses by name.
#[derive(Debug, Clone, Default)]
pub struct Classes(HashMap<String, Class>);

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        let mut all = HashMap::new();
        for class in classes {
            // Of two with one name the first counts.
            all.entry(class.name.clone()).or_insert(class);
        }
        Classes(all)
    }
}

impl Classes {
    /// The class with this name.
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.0.get(name)
    }
}

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
        selectors.begin(self.inventory);
        let pools = pools::gather(self.inventory, node, self.features)?;
        let mut search = search::Search::new(*self, node, claims, selectors, pools);
        search.prepare()?;
        if search.run()? {
            return search.allocation_results(share_id).map(Some);
        }
        if search.pools.iter().any(|pool| pool.fault.is_some()) {
            return Err(AllocateError::InvalidPools);
        }
        Ok(None)
    }
}
