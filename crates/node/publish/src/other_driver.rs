//! Detects another driver with this driver's name on this node: NVIDIA's, if both are called `gpu.nvidia.com`.
//!
//! Both would offer the same cards, and a driver built on Kubernetes' own library deletes the slices of all pools
//! unknown to the driver, including ours. So nothing is written while the other driver's slices exist.

use std::{collections::BTreeSet, fmt};

use crate::{desired::PoolIdentity, held_slice::HeldSlice, server::FIELD_MANAGER};

/// The other driver, as far as its slices identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDriver {
    identity: PoolIdentity,
    pools: BTreeSet<String>,
    managers: BTreeSet<String>,
}

impl OtherDriver {
    /// The other driver, if there are slices of one among those of this driver's name and node: in another pool than
    /// ours, and never written by this driver (whose older versions may have had other pools).
    pub fn find<'a>(identity: &PoolIdentity, slices: impl Iterator<Item = &'a HeldSlice>) -> Option<Self> {
        let (mut pools, mut managers) = (BTreeSet::new(), BTreeSet::new());
        for slice in slices {
            let Some(pool) = slice.pool_name().filter(|pool| *pool != identity.pool_name) else { continue };
            let entries = slice.metadata.managed_fields.as_deref().unwrap_or_default();
            let names: Vec<&str> = entries.iter().filter_map(|entry| entry.manager.as_deref()).collect();
            if !names.contains(&FIELD_MANAGER) {
                pools.insert(pool.to_owned());
                managers.extend(names.into_iter().map(str::to_owned));
            }
        }
        (!pools.is_empty()).then(|| Self { identity: identity.clone(), pools, managers })
    }
}

impl fmt::Display for OtherDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolIdentity { driver_name, node_name, .. } = &self.identity;
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        write!(
            f,
            "another driver is called {driver_name} on this node: it publishes pool {}",
            list(&self.pools)
        )?;
        if !self.managers.is_empty() {
            write!(f, " (field manager {})", list(&self.managers))?;
        }
        write!(
            f,
            ". Both would give out the same cards, so this one publishes nothing while the other's ResourceSlices are there: \
             uninstall the other and run `kubectl delete resourceslices --field-selector \
             spec.driver={driver_name},spec.nodeName={node_name}`, or give this one a name of its own (chart value driverName)"
        )
    }
}
