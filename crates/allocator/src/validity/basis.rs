//! The input of validity checks.

use crate::claim::Classes;
use crate::features::{Features, UpstreamBugs};
use crate::held::Held;
use crate::inventory::Inventory;

/// A state of the cluster, and the rules of one Kubernetes version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Basis<'a> {
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
    /// Keys of taints that every request tolerates.
    pub tolerated: &'a [&'a str],
    /// See [`crate::upstream::Allocator::looks_at_all_counters`].
    pub looks_at_all_counters: bool,
}
