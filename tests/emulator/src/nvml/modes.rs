//! Modes of a card and its driver, and the kind of board.

use nvml_wrapper_sys::bindings::{nvmlC2cModeInfo_v1_t, nvmlDeviceAddressingMode_v1_t};

use super::call::nvml_functions;
use super::ffi::{Out, OutText, check_version};
use crate::failure::Failure;
use crate::hardware::board::{AddressingMode, Architecture};

/// `NVML_COMPUTEMODE_EXCLUSIVE_THREAD`, refused by drivers since CUDA 8.
const COMPUTE_MODE_EXCLUSIVE_THREAD: u32 = 1;
/// `NVML_COMPUTEMODE_EXCLUSIVE_PROCESS`, the last one.
const COMPUTE_MODE_LAST: u32 = 3;
/// First driver branch with a deprecated display mode (captures of 570 and 580).
const DISPLAY_MODE_DEPRECATED: u32 = 580;

nvml_functions! {
    /// `nvmlDeviceGetComputeMode`: a MIG device has its card's.
    fn nvmlDeviceGetComputeMode(device: Device, mode: Out<u32>) {
        mode.set(device.card().state.compute_mode)
    }
}

nvml_functions! {
    /// `nvmlDeviceSetComputeMode`
    fn nvmlDeviceSetComputeMode(view: CardView, mode: u32) {
        if mode > COMPUTE_MODE_LAST {
            return Err(Failure::INVALID_ARGUMENT);
        }
        if mode == COMPUTE_MODE_EXCLUSIVE_THREAD {
            return Err(Failure::NOT_SUPPORTED);
        }
        view.update(|state| {
            state.compute_mode = mode;
            Ok(())
        })
    }

    /// `nvmlDeviceGetPersistenceMode`
    fn nvmlDeviceGetPersistenceMode(view: CardView, mode: Out<u32>) {
        mode.set(view.state.persistence_mode.into())
    }

    /// `nvmlDeviceSetPersistenceMode`
    fn nvmlDeviceSetPersistenceMode(view: CardView, mode: u32) {
        if mode > 1 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        view.update(|state| {
            state.persistence_mode = mode == 1;
            Ok(())
        })
    }

    /// `nvmlDeviceGetAddressingMode`
    fn nvmlDeviceGetAddressingMode(view: CardView, mode: Out<nvmlDeviceAddressingMode_v1_t>) {
        let version = mode.get()?.version;
        check_version::<nvmlDeviceAddressingMode_v1_t>(version, 1)?;
        let value = match view.card.board.addressing_mode.ok_or(Failure::NOT_SUPPORTED)? {
            AddressingMode::None => 0,
            AddressingMode::Hmm => 1,
            AddressingMode::Ats => 2,
        };
        mode.set(nvmlDeviceAddressingMode_v1_t { version, value })
    }

    /// `nvmlDeviceGetC2cModeInfoV`
    fn nvmlDeviceGetC2cModeInfoV(view: CardView, mode: Out<nvmlC2cModeInfo_v1_t>) {
        let enabled = view.card.board.c2c_enabled.ok_or(Failure::NOT_SUPPORTED)?;
        mode.set(nvmlC2cModeInfo_v1_t { isC2cEnabled: enabled.into() })
    }

    /// `nvmlDeviceGetDisplayMode`
    fn nvmlDeviceGetDisplayMode(view: CardView, mode: Out<u32>) {
        let version = &view.context.machine().driver.version;
        let branch: Option<u32> = version.split('.').next().and_then(|branch| branch.parse().ok());
        if branch.is_some_and(|branch| branch >= DISPLAY_MODE_DEPRECATED) {
            return Err(Failure::DEPRECATED);
        }
        mode.set(1)
    }

    /// `nvmlDeviceGetDisplayActive`: no display is connected.
    fn nvmlDeviceGetDisplayActive(_view: CardView, active: Out<u32>) {
        active.set(0)
    }

    /// `nvmlDeviceGetVirtualizationMode`: none, these are bare machines.
    fn nvmlDeviceGetVirtualizationMode(_view: CardView, mode: Out<u32>) {
        mode.set(0)
    }

    /// `nvmlDeviceGetAccountingMode`
    fn nvmlDeviceGetAccountingMode(view: CardView, mode: Out<u32>) {
        view.card.board.accounting_buffer_size.ok_or(Failure::NOT_SUPPORTED)?;
        mode.set(0)
    }

    /// `nvmlDeviceGetAccountingBufferSize`
    fn nvmlDeviceGetAccountingBufferSize(view: CardView, size: Out<u32>) {
        size.set(view.card.board.accounting_buffer_size.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetAccountingPids`: accounting is off.
    fn nvmlDeviceGetAccountingPids(view: CardView, count: Out<u32>, _pids: Out<u32>) {
        view.card.board.accounting_buffer_size.ok_or(Failure::NOT_SUPPORTED)?;
        count.set(0)
    }

    /// `nvmlDeviceGetGspFirmwareVersion`: of the driver's version, on Turing and newer.
    fn nvmlDeviceGetGspFirmwareVersion(view: CardView, version: OutText) {
        if view.card.board.architecture < Architecture::Turing {
            return Err(Failure::NOT_SUPPORTED);
        }
        // NVML_GSP_FIRMWARE_VERSION_BUF_SIZE
        version.set(64, &view.context.machine().driver.version)
    }

    /// `nvmlDeviceGetGspFirmwareMode`
    fn nvmlDeviceGetGspFirmwareMode(view: CardView, enabled: Out<u32>, default: Out<u32>) {
        if view.card.board.architecture < Architecture::Turing {
            return Err(Failure::NOT_SUPPORTED);
        }
        if default.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        enabled.set(1)?;
        default.set(1)
    }

    /// `nvmlDeviceGetNumGpuCores`
    fn nvmlDeviceGetNumGpuCores(view: CardView, cores: Out<u32>) {
        cores.set(view.card.board.cores.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetMemoryBusWidth`
    fn nvmlDeviceGetMemoryBusWidth(view: CardView, bits: Out<u32>) {
        bits.set(view.card.board.memory_bus_width.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetNumFans`
    fn nvmlDeviceGetNumFans(view: CardView, fans: Out<u32>) {
        fans.set(view.card.board.fans.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceValidateInforom`
    fn nvmlDeviceValidateInforom(view: CardView) {
        view.card.board.inforom_image_version.as_ref().map(|_| ()).ok_or(Failure::NOT_SUPPORTED)
    }
}
