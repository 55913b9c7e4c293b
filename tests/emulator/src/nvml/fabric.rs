//! A card's NVLink fabric.

use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t};

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::{Out, struct_version};
use super::identity::uuid_bytes;
use crate::failure::Failure;
use crate::hardware::board::Architecture;
use crate::state::FabricState;

/// `nvmlGpuFabricState_t`
mod fabric_state {
    pub const NOT_SUPPORTED: u8 = 0;
    pub const NOT_STARTED: u8 = 1;
    pub const IN_PROGRESS: u8 = 2;
    pub const COMPLETED: u8 = 3;
}

/// State, cluster UUID and clique of a card. `nvml.h` offers the function for Hopper and newer. On such a card
/// without a fabric it succeeds, with the state "not supported".
fn registration(view: &CardView<'_>) -> Result<FabricInfo, Failure> {
    if view.card.board.architecture < Architecture::Hopper {
        return Err(Failure::NOT_SUPPORTED);
    }
    let Some(fabric) = &view.card.fabric else {
        let state = fabric_state::NOT_SUPPORTED;
        return Ok(FabricInfo { cluster: [0; 16], status: 0, clique: 0, state, padding: [0; 3] });
    };
    let (state, status) = match view.state.health.fabric_state.unwrap_or(FabricState::Completed) {
        FabricState::NotStarted => (fabric_state::NOT_STARTED, 0),
        FabricState::InProgress => (fabric_state::IN_PROGRESS, 0),
        FabricState::Completed => (fabric_state::COMPLETED, 0),
        FabricState::Failed => (fabric_state::COMPLETED, Failure::UNKNOWN.0),
    };
    // Both mean something only once the registration is completed.
    let (cluster, clique) = match state {
        fabric_state::COMPLETED => (uuid_bytes(&fabric.cluster_uuid), fabric.clique),
        _ => ([0; 16], 0),
    };
    Ok(FabricInfo { cluster, status, clique, state, padding: [0; 3] })
}

/// `nvmlGpuFabricInfo_t`. This struct and the next have explicit padding fields, so callers find zeros there:
/// some read the state as a longer integer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricInfo {
    cluster: [u8; 16],
    status: u32,
    clique: u32,
    state: u8,
    padding: [u8; 3],
}

/// `nvmlGpuFabricInfo_v2_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricInfoV2 {
    version: u32,
    info: FabricInfo,
    health_mask: u32,
}

/// `nvmlGpuFabricInfo_v3_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricInfoV3 {
    version: u32,
    info: FabricInfo,
    health_mask: u32,
    health_summary: u8,
    padding: [u8; 3],
}

const _: () = assert!(size_of::<FabricInfo>() == size_of::<nvmlGpuFabricInfo_t>());
const _: () = assert!(size_of::<FabricInfoV2>() == size_of::<nvmlGpuFabricInfo_v2_t>());
const _: () = assert!(size_of::<FabricInfoV3>() == size_of::<nvmlGpuFabricInfo_v3_t>());

nvml_functions! {
    /// `nvmlDeviceGetGpuFabricInfo`
    fn nvmlDeviceGetGpuFabricInfo(view: CardView, info: Out<FabricInfo>) {
        info.set(registration(&view)?)
    }

    /// `nvmlDeviceGetGpuFabricInfoV`: the version in the struct selects its layout.
    fn nvmlDeviceGetGpuFabricInfoV(view: CardView, version: Out<u32>) {
        const V2: u32 = struct_version::<FabricInfoV2>(2);
        const V3: u32 = struct_version::<FabricInfoV3>(3);
        let info = registration(&view)?;
        let fabric = view.card.fabric.as_ref();
        let of_machine = fabric.and_then(|fabric| fabric.health_mask).unwrap_or(0);
        let health_mask = view.state.health.fabric_mask.filter(|_| fabric.is_some()).unwrap_or(of_machine);
        let health_summary = fabric.and_then(|fabric| fabric.health_summary).unwrap_or(0);
        match version.get()? {
            V2 => version.cast().set(FabricInfoV2 { version: V2, info, health_mask }),
            V3 => version.cast().set(FabricInfoV3 { version: V3, info, health_mask, health_summary, padding: [0; 3] }),
            _ => Err(Failure::ARGUMENT_VERSION_MISMATCH),
        }
    }
}
