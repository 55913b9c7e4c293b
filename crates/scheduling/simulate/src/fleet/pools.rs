//! GpuPools deciding on the cards of a fleet, as in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tessera_api::GpuPoolSpec;
use tessera_api::offer::{Mps, OfferError};
use tessera_inventory::Machine;
use tessera_inventory::gpu_pools::{GpuPool, Resolution, resolve};
use tessera_inventory::layout::{Desired, LayoutFile, PlannedInstance};
use tessera_inventory::machine::{Card, ComputeInstance, GpuInstance, Placement};

/// Name of the default pool, with all cards.
const SIMULATED: &str = "simulated";

/// GpuPools and MIG layouts of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    by_name: BTreeMap<String, (Option<Time>, GpuPoolSpec)>,
    /// MIG layouts for the pools.
    layouts: Option<Arc<LayoutFile>>,
}

impl Pools {
    /// A single pool offering all cards whole, in partitions on demand, and in shares by MPS.
    #[must_use]
    pub fn simulated() -> Self {
        let mut spec = GpuPoolSpec::default();
        spec.offer.sharing.mps = Some(Mps::default());
        Self { by_name: [(SIMULATED.to_owned(), (None, spec))].into(), layouts: None }
    }

    /// Adds a pool.
    ///
    /// # Errors
    /// `spec` is not a valid GpuPool spec.
    pub fn insert(&mut self, name: &str, created: Option<Time>, spec: &Value) -> Result<(), OfferError> {
        self.by_name.insert(name.to_owned(), (created, GpuPoolSpec::decode(spec)?));
        Ok(())
    }

    /// Adds a file of MIG layouts.
    #[must_use]
    pub fn with_layouts(self, layouts: Option<Arc<LayoutFile>>) -> Self {
        Self { layouts, ..self }
    }

    /// Names of the pools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Whether each pool selects a node with these labels. Nodes of one machine with the same answer are resolved the same.
    pub(super) fn selecting(&self, labels: &BTreeMap<String, String>) -> Vec<bool> {
        self.by_name.values().map(|(_, spec)| spec.selects_node(labels)).collect()
    }

    /// Resolves the pools for a machine on a node with these labels, with MIG layouts applied to its cards as after a reset. An impossible
    /// layout adds a warning and leaves the card as it is. `kubernetes` is the API server's version, which decides
    /// on the offer of cards without a pool.
    pub(super) fn resolve(
        &self,
        driver: &str,
        labels: &BTreeMap<String, String>,
        machine: &Arc<Machine>,
        kubernetes: &str,
        warnings: &mut BTreeSet<String>,
    ) -> Resolution {
        let pools = self.by_name.iter().map(|(name, (created, spec))| {
            (name.as_str(), GpuPool { created: created.as_ref(), spec: Some(spec), error: None })
        });
        let mut resolution =
            resolve(driver, labels, &pools.collect(), machine, self.layouts.is_some(), kubernetes);
        let Some(layouts) = self.layouts.as_deref().filter(|_| !resolution.layouts.is_empty()) else {
            return resolution;
        };
        for card in &mut Arc::make_mut(&mut resolution.machine).cards {
            let Some(name) = resolution.layouts.get(&card.pci) else { continue };
            let laid_out = match layouts.config(name) {
                Ok(config) => lay_out(card, &Desired::of(Some(config), card)),
                Err(error) => Err(error.to_string()),
            };
            warnings.extend(laid_out.err().map(|reason| format!("MIG layout {name}: {reason}")));
        }
        resolution
    }
}

/// Changes a card's facts to the driver's report after the layout is applied.
fn lay_out(card: &mut Card, desired: &Desired) -> Result<(), String> {
    let address = card.pci;
    let Some(mig) = &mut card.mig else {
        return match desired {
            Desired::Impossible(reason) => Err(reason.clone()),
            _ => Ok(()),
        };
    };
    match desired {
        Desired::Untouched => return Ok(()),
        Desired::Impossible(reason) => return Err(reason.clone()),
        Desired::Off => mig.mode = false,
        Desired::OnDemand => mig.mode |= mig.mode_switch_needs_reset,
        Desired::Fixed(_) => mig.mode = true,
    }
    let instance = |(number, planned): (usize, &PlannedInstance)| {
        let profile = mig.profiles.iter().find(|profile| profile.id == planned.profile_id);
        let size = profile.map_or(0, |profile| profile.compute_slices);
        let compute = ComputeInstance {
            id: 0,
            profile_id: 0,
            placement: Placement { start: 0, size },
            multiprocessors: None,
            uuid: Some(format!("MIG-{address}-{number}")),
        };
        GpuInstance {
            id: u32::try_from(number).unwrap_or(u32::MAX),
            profile_id: planned.profile_id,
            placement: planned.placement,
            compute_instances: vec![compute],
        }
    };
    mig.instances = desired.instances().iter().enumerate().map(instance).collect();
    if *desired == Desired::Off {
        card.offer_whole();
    }
    Ok(())
}
