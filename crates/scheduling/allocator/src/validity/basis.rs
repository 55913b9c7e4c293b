//! The input of validity checks.

use super::capacity::Arithmetic;
use crate::claim::Classes;
use crate::features::{Features, UpstreamBugs, UpstreamRules};
use crate::held::Held;
use crate::inventory::Inventory;

/// A state of the cluster, and the rules of one Kubernetes version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Basis<'a> {
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
    /// Rules that differ between releases.
    pub rules: UpstreamRules,
    /// Keys of taints tolerated by every request.
    pub tolerated: &'a [&'a str],
}

impl Basis<'_> {
    /// Rules for computing amounts of capacities.
    pub fn arithmetic(&self) -> Arithmetic {
        Arithmetic {
            wraps: self.bugs.amounts_wrap,
            has_thousandths: self.features.fractional_capacity_range && !self.bugs.amounts_wrap,
            default_compared_as_written: self.bugs.default_compared_as_written,
        }
    }
}
