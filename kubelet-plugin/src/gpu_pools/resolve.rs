//! What the known pools say of the machine.

use std::sync::Arc;

use tessera_inventory::Machine;
use tessera_inventory::gpu_pools::{self, GpuPool, Resolution};

use super::{Known, KnownPool};

/// Decides on each card of `machine`; `None` until pools and labels are known. `has_layouts` says whether there is a file
/// of MIG layouts.
#[must_use]
pub fn resolve(
    driver_name: &str,
    known: &Known,
    machine: &Arc<Machine>,
    has_layouts: bool,
) -> Option<Resolution> {
    let (labels, pools) = (known.labels.as_ref()?, known.pools.as_ref()?);
    let pools = pools.iter().map(|(name, pool)| (name.as_str(), pool.view())).collect();
    Some(gpu_pools::resolve(driver_name, labels, &pools, machine, has_layouts))
}

impl KnownPool {
    fn view(&self) -> GpuPool<'_> {
        let Self { created, spec, error, .. } = self;
        GpuPool { created: created.as_ref(), spec: spec.as_ref(), error: error.as_deref() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn nothing_is_said_until_pools_and_labels_are_known() {
        let machine = Arc::new(Machine::default());
        let all = Known { labels: Some(BTreeMap::new()), pools: Some(BTreeMap::new()), ..Known::default() };
        for known in [Known { labels: None, ..all.clone() }, Known { pools: None, ..all.clone() }] {
            assert_eq!(resolve("d", &known, &machine, true), None);
        }
        assert!(resolve("d", &all, &machine, true).is_some());
    }
}
