//! Resolves the known pools for the machine.

use std::sync::Arc;

use tessera_inventory::Machine;
use tessera_inventory::gpu_pools::{self, GpuPool, Resolution};

use super::{Known, KnownPool};

/// Decides on each card of `machine`; `None` until pools, labels and the API server's version are known. `has_layouts` says
/// whether a file of MIG layouts is configured.
#[must_use]
pub fn resolve(
    driver_name: &str,
    known: &Known,
    machine: &Arc<Machine>,
    has_layouts: bool,
) -> Option<Resolution> {
    let (labels, pools, kubernetes) =
        (known.labels.as_ref()?, known.pools.as_ref()?, known.kubernetes.as_ref()?);
    let pools = pools.iter().map(|(name, pool)| (name.as_str(), pool.view())).collect();
    Some(gpu_pools::resolve(driver_name, labels, &pools, machine, has_layouts, kubernetes))
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
    fn nothing_is_said_until_pools_labels_and_version_are_known() {
        let machine = Arc::new(Machine::default());
        let all = Known {
            labels: Some(BTreeMap::new()),
            pools: Some(BTreeMap::new()),
            kubernetes: Some("v1.37.2".to_owned()),
            ..Known::default()
        };
        for known in [
            Known { labels: None, ..all.clone() },
            Known { pools: None, ..all.clone() },
            Known { kubernetes: None, ..all.clone() },
        ] {
            assert_eq!(resolve("d", &known, &machine, true), None);
        }
        assert!(resolve("d", &all, &machine, true).is_some());
    }
}
