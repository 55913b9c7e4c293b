//! What the ResourceSlices of this node shall hold.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceSliceSpec;
pub use tessera_inventory::pool::Contents;
use tessera_inventory::{PackedPool, pool::PackedContents};

use super::{digest::SpecDigest, names};

/// One slice as it shall be, without what it has in common with the other slices of its pool.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredSlice {
    /// Its `metadata.name`. Names order the slices of a pool: kube-scheduler tries them by name.
    pub name: String,
    /// What it holds.
    pub contents: Arc<PackedContents>,
    /// What its `spec` is.
    pub digest: SpecDigest,
}

/// What all slices of one pool have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolIdentity {
    /// The DRA driver's name.
    pub driver_name: String,
    /// The node's name.
    pub node_name: String,
    /// The pool's name, `<driver>/<node>`: the allocator of Kubernetes 1.36 keys counters by the pool's name without the
    /// driver, so that a name must not be shared with another driver.
    pub pool_name: String,
}

impl PoolIdentity {
    /// The pool of `driver_name` on `node_name`.
    #[must_use]
    pub fn new(driver_name: &str, node_name: &str) -> Self {
        Self {
            driver_name: driver_name.to_owned(),
            node_name: node_name.to_owned(),
            pool_name: format!("{driver_name}/{node_name}"),
        }
    }

    /// The slices that `pool` asks for. Those that are among `before` already are taken from there.
    #[must_use]
    pub fn slices(&self, pool: &PackedPool, before: &[DesiredSlice]) -> Vec<DesiredSlice> {
        let slice = |slice: &tessera_inventory::pool::PackedSlice| {
            let name = names::slice_name(&self.node_name, &self.driver_name, &slice.name_suffix);
            let known = before.iter().find(|known| known.name == name && known.contents == slice.contents);
            known.cloned().unwrap_or_else(|| self.slice(name, Arc::clone(&slice.contents)))
        };
        pool.slices.iter().map(slice).collect()
    }

    /// The slice called `name` with these contents.
    #[must_use]
    pub fn slice(&self, name: String, contents: Arc<PackedContents>) -> DesiredSlice {
        let mut spec = self.spec(0, 0);
        match contents.unpack() {
            Contents::Devices(devices) => spec.devices = Some(devices),
            Contents::SharedCounters(sets) => spec.shared_counters = Some(sets),
        }
        DesiredSlice { name, contents, digest: SpecDigest::of(&spec) }
    }

    /// The `spec` of a slice at `generation` of a pool of `count` slices, without its contents.
    #[must_use]
    pub fn spec(&self, generation: i64, count: i64) -> ResourceSliceSpec {
        let mut spec = ResourceSliceSpec {
            driver: self.driver_name.clone(),
            node_name: Some(self.node_name.clone()),
            ..ResourceSliceSpec::default()
        };
        spec.pool.name.clone_from(&self.pool_name);
        spec.pool.generation = generation;
        spec.pool.resource_slice_count = count;
        spec
    }
}
