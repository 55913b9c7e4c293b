//! GpuPools that decide on the cards of a fleet, as they would on its nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tessera_api::GpuPoolSpec;
use tessera_api::offer::{Mps, OfferError};
use tessera_inventory::Machine;
use tessera_inventory::gpu_pools::{GpuPool, Resolution, resolve};

/// The pool of all cards where none is given.
const SIMULATED: &str = "simulated";

/// The GpuPools of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    by_name: BTreeMap<String, (Option<Time>, GpuPoolSpec)>,
}

impl Pools {
    /// One that offers all cards whole, in partitions on demand, and in shares by MPS.
    #[must_use]
    pub fn simulated() -> Self {
        let mut spec = GpuPoolSpec::default();
        spec.offer.sharing.mps = Some(Mps::default());
        Self { by_name: [(SIMULATED.to_owned(), (None, spec))].into() }
    }

    /// Adds a pool.
    ///
    /// # Errors
    /// Its `spec` is none.
    pub fn insert(&mut self, name: &str, created: Option<Time>, spec: &Value) -> Result<(), OfferError> {
        self.by_name.insert(name.to_owned(), (created, GpuPoolSpec::decode(spec)?));
        Ok(())
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Those that select a node with these labels: nodes of one machine that the same select get the same.
    pub(super) fn selecting(&self, labels: &BTreeMap<String, String>) -> Vec<bool> {
        self.by_name.values().map(|(_, spec)| spec.selects_node(labels)).collect()
    }

    /// What they say of a machine of a node with these labels. There is no file of MIG layouts.
    pub(super) fn resolve(
        &self,
        driver: &str,
        labels: &BTreeMap<String, String>,
        machine: &Arc<Machine>,
    ) -> Resolution {
        let pools = self.by_name.iter().map(|(name, (created, spec))| {
            (name.as_str(), GpuPool { created: created.as_ref(), spec: Some(spec), error: None })
        });
        resolve(driver, labels, &pools.collect(), machine, false)
    }
}
