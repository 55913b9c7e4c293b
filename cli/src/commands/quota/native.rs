//! The ResourceQuota nearest to a GpuQuota, for namespaces whose claims kube-scheduler allocates.

use tessera_api::gpu_quota::{GpuQuota, MILLIONTHS, Unit};

use crate::labels::labels;
use crate::output::printable;

/// A manifest for each namespace of the team; `None` for a quota without namespaces of its own, or without an amount in all cards.
pub fn manifest(quota: &GpuQuota) -> Option<String> {
    let selector = quota.spec.namespace_selector.as_ref()?;
    let mut amounts = quota.spec.amounts.iter();
    let amount = amounts.find(|amount| amount.unit == Unit::Cards && amount.cards.is_none())?;
    // Nothing beyond the guarantee could be taken back from such claims.
    let (cards, which) = match amount.guaranteed() {
        0 => (amount.limit()?, "limit"),
        guaranteed => (guaranteed, "guarantee"),
    };
    let whole = cards.div_ceil(MILLIONTHS);
    let name = printable(quota.metadata.name.as_deref().unwrap_or_default());
    let namespaces = printable(&labels(selector));
    Some(format!(
        "# The {which} of GpuQuota {name}, in whole devices, rounded up, for each of its namespaces ({namespaces}): divide it among them.\n\
         # It counts all claims when they are made, those of managed cards too. Each way of asking has this limit for itself;\n\
         # partitions and shares of other DeviceClasses are not counted.\n\
         apiVersion: v1\n\
         kind: ResourceQuota\n\
         metadata:\n  name: {name}\n\
         spec:\n  hard:\n    gpu.tessera.dev.deviceclass.resource.k8s.io/devices: \"{whole}\"\n    \
         requests.nvidia.com/gpu: \"{whole}\"\n"
    ))
}
