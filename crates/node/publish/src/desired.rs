//! The desired ResourceSlices of this node.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::ResourceSliceSpec;

use tessera_slices::{Contents, Slice};

use crate::names;

/// Everything to be published for a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The slices by ascending [`Slice::name_suffix`].
    pub slices: Vec<Slice>,
    /// Annotations of the first slice. Annotations set by others stay.
    pub annotations: BTreeMap<String, String>,
}

/// One desired slice with its name, without the fields common to all slices of its pool.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredSlice {
    /// Its `metadata.name`. kube-scheduler goes through the slices of a pool in the order of their names.
    pub name: String,
    /// Desired annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its contents.
    pub contents: Contents,
}

/// The fields common to all slices of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolIdentity {
    /// The DRA driver's name.
    pub driver_name: String,
    /// The node's name.
    pub node_name: String,
    /// The pool's name, `<driver>/<node>`: the allocator of Kubernetes 1.36 identifies counters by the pool's name without
    /// the driver's, so no other driver may use the same pool name.
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

    /// The `slices` with the names of this pool, without annotations.
    #[must_use]
    pub fn named(&self, slices: &[Slice]) -> Vec<DesiredSlice> {
        let named = |slice: &Slice| DesiredSlice {
            name: names::slice_name(&self.node_name, &self.driver_name, &slice.name_suffix),
            annotations: BTreeMap::new(),
            contents: slice.contents.clone(),
        };
        slices.iter().map(named).collect()
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
