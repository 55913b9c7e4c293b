//! Objects marked by observations for the upkeep of the next round.

use std::collections::BTreeSet;

use tessera_cluster::Key;

/// Objects to examine in the next round.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Claims whose devices may have no user left.
    pub unclaimed: BTreeSet<Key>,
    /// Pods with annotations to be written.
    pub to_note: BTreeSet<Key>,
    /// Nodes where claims may hold the same devices.
    pub to_check: BTreeSet<String>,
    /// Uids of claims whose pods were told in this term about another owner of a device.
    pub told_overlaps: BTreeSet<String>,
}
