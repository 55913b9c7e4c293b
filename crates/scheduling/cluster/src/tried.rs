//! Tried holds: the index as if a holder took something else, to judge nodes.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::cluster::Cluster;
use crate::error::ObjectError;
use crate::expected::of_claims;
use crate::holder::Holder;
use crate::key::Key;
use crate::taken::{Hold, Replaced};

impl Cluster {
    /// Replaces the hold of a holder in the index, whatever is observed or expected of it. Returns the earlier hold with the nodes
    /// affected; `None` if nothing changes.
    ///
    /// Undo trials by trying the earlier holds in reverse order, before any other change of the cluster.
    pub fn try_hold(&mut self, holder: &Holder, hold: Option<Hold>) -> Option<Replaced> {
        self.taken.set(&self.inventory, holder, hold)
    }

    /// Holds of the pod on the node with these claims, to be [tried](Self::try_hold).
    ///
    /// # Errors
    /// A claim holds a capacity without a valid quantity.
    pub fn holds_on(
        node: &str,
        key: &Key,
        pod: &Pod,
        claims: &[ResourceClaim],
    ) -> Result<Vec<(Holder, Hold)>, ObjectError> {
        let mut holds = of_claims(key, claims)?;
        holds.push((Holder::Pod(key.clone()), Hold::on(node, pod)));
        Ok(holds)
    }

    /// The holder's devices and room, if any.
    pub fn hold(&self, holder: &Holder) -> Option<&Hold> {
        self.taken.get(holder)
    }
}
