//! The NVLink fabric that a card is registered with.

use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t};

use super::call::{CardView, Failure, nvml_functions};
use super::ffi::{Out, struct_version};
use super::identity::uuid_bytes;
use crate::hardware::board::Architecture;

/// `nvmlGpuFabricState_t`
mod fabric_state {
    pub const NOT_SUPPORTED: u8 = 0;
    pub const COMPLETED: u8 = 3;
}

/// State, cluster UUID and clique of a card. `nvml.h` offers the function for Hopper and newer; on such a card without a
/// fabric it answers well, and says in the state that there is none.
fn registration(view: &CardView<'_>) -> Result<(u8, [u8; 16], u32), Failure> {
    if view.card.board.architecture < Architecture::Hopper {
        return Err(Failure::NOT_SUPPORTED);
    }
    Ok(match &view.card.fabric {
        Some(fabric) => (fabric_state::COMPLETED, uuid_bytes(&fabric.cluster_uuid), fabric.clique),
        None => (fabric_state::NOT_SUPPORTED, [0; 16], 0),
    })
}

nvml_functions! {
    /// `nvmlDeviceGetGpuFabricInfo`
    fn nvmlDeviceGetGpuFabricInfo(view: CardView, info: Out<nvmlGpuFabricInfo_t>) {
        let (state, cluster, clique) = registration(&view)?;
        info.set(nvmlGpuFabricInfo_t { clusterUuid: cluster, status: 0, cliqueId: clique, state })
    }

    /// `nvmlDeviceGetGpuFabricInfoV`: which struct it fills is told by the version in it.
    fn nvmlDeviceGetGpuFabricInfoV(view: CardView, version: Out<u32>) {
        const V2: u32 = struct_version::<nvmlGpuFabricInfo_v2_t>(2);
        const V3: u32 = struct_version::<nvmlGpuFabricInfo_v3_t>(3);
        let fabric = view.card.fabric.as_ref();
        let (state, cluster, clique) = registration(&view)?;
        let health = fabric.and_then(|fabric| fabric.health_mask).unwrap_or(0);
        let summary = fabric.and_then(|fabric| fabric.health_summary).unwrap_or(0);
        match version.get()? {
            V2 => version.cast().set(nvmlGpuFabricInfo_v2_t {
                version: V2,
                clusterUuid: cluster,
                status: 0,
                cliqueId: clique,
                state,
                healthMask: health,
            }),
            V3 => version.cast().set(nvmlGpuFabricInfo_v3_t {
                version: V3,
                clusterUuid: cluster,
                status: 0,
                cliqueId: clique,
                state,
                healthMask: health,
                healthSummary: summary,
            }),
            _ => Err(Failure::ARGUMENT_VERSION_MISMATCH),
        }
    }
}
