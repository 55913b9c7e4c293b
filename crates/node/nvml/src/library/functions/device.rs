use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::{Functions, Handle, function};
use crate::architecture::Architecture;
use crate::brand::Brand;
use crate::card::{Memory, Utilization};
use crate::cpu_set::CpuSet;
use crate::error::NvmlError;
use crate::process::{Process, ProcessKind};
use crate::{ClusterUuid, ComputeCapability, Fabric, FabricState};
use tessera_api::PciBusId;

/// The version field of NVML's versioned structures: size and version in one number.
pub(super) const fn version_of<T>(version: u32) -> c_uint {
    size_of::<T>() as c_uint | version << 24
}

pub(super) fn empty_pci_info() -> sys::nvmlPciInfo_t {
    sys::nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    }
}

/// `None` for numbers other than a PCI address, some drivers' way of saying "no such thing". NVML has no
/// function number: every card is function 0.
pub(super) fn pci_bus_id(info: &sys::nvmlPciInfo_t) -> Option<PciBusId> {
    let (bus, device) = (u8::try_from(info.bus).ok()?, u8::try_from(info.device).ok()?);
    PciBusId::new(info.domain, bus, device, 0).ok().filter(|address| address.domain() != u32::MAX)
}

impl Functions {
    pub(in crate::library) fn index(&self, card: Handle) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetIndex).read(card, 0)
    }

    pub(in crate::library) fn minor(&self, card: Handle) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetMinorNumber).read(card, 0)
    }

    pub(in crate::library) fn uuid(&self, card: Handle) -> Result<String, NvmlError> {
        function!(self, nvmlDeviceGetUUID).read_text(card)
    }

    pub(in crate::library) fn name(&self, card: Handle) -> Result<String, NvmlError> {
        function!(self, nvmlDeviceGetName).read_text(card)
    }

    pub(in crate::library) fn brand(&self, card: Handle) -> Result<Brand, NvmlError> {
        function!(self, nvmlDeviceGetBrand).read(card, 0).map(Brand)
    }

    pub(in crate::library) fn architecture(&self, card: Handle) -> Result<Architecture, NvmlError> {
        function!(self, nvmlDeviceGetArchitecture).read(card, 0).map(Architecture)
    }

    pub(in crate::library) fn address(&self, card: Handle) -> Result<PciBusId, NvmlError> {
        let function = function!(self, nvmlDeviceGetPciInfo_v3);
        let info = function.read(card, empty_pci_info())?;
        pci_bus_id(&info)
            .ok_or_else(|| function.nonsense(format!("{:x}:{:x}:{:x}", info.domain, info.bus, info.device)))
    }

    pub(in crate::library) fn pci_device_id(&self, card: Handle) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetPciInfo_v3).read(card, empty_pci_info()).map(|info| info.pciDeviceId)
    }

    pub(in crate::library) fn compute_capability(
        &self,
        card: Handle,
    ) -> Result<ComputeCapability, NvmlError> {
        let function = function!(self, nvmlDeviceGetCudaComputeCapability);
        let get = function.get()?;
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: writes two ints.
        function.check(unsafe { get(card.0, &raw mut major, &raw mut minor) })?;
        match (u32::try_from(major), u32::try_from(minor)) {
            (Ok(major), Ok(minor)) => Ok(ComputeCapability { major, minor }),
            _ => Err(function.nonsense(format!("{major}.{minor}"))),
        }
    }

    pub(in crate::library) fn cores(&self, card: Handle) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetNumGpuCores).read(card, 0)
    }

    pub(in crate::library) fn memory(&self, card: Handle) -> Result<Memory, NvmlError> {
        let version = version_of::<sys::nvmlMemory_v2_t>(2);
        let empty = sys::nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
        let memory = function!(self, nvmlDeviceGetMemoryInfo_v2).read(card, empty)?;
        Ok(Memory { total: memory.total, reserved: memory.reserved, used: memory.used, free: memory.free })
    }

    pub(in crate::library) fn utilization(&self, card: Handle) -> Result<Utilization, NvmlError> {
        let empty = sys::nvmlUtilization_t { gpu: 0, memory: 0 };
        let rates = function!(self, nvmlDeviceGetUtilizationRates).read(card, empty)?;
        Ok(Utilization { gpu: rates.gpu, memory: rates.memory })
    }

    pub(in crate::library) fn compute_mode(&self, card: Handle) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetComputeMode).read(card, 0)
    }

    pub(in crate::library) fn set_compute_mode(&self, card: Handle, mode: u32) -> Result<(), NvmlError> {
        let function = function!(self, nvmlDeviceSetComputeMode);
        let set = function.get()?;
        // SAFETY: takes an enumeration value, an unsigned int.
        function.check(unsafe { set(card.0, mode) })
    }

    pub(in crate::library) fn addressing_mode(&self, card: Handle) -> Result<u32, NvmlError> {
        let version = version_of::<sys::nvmlDeviceAddressingMode_t>(1);
        let empty = sys::nvmlDeviceAddressingMode_t { version, value: 0 };
        function!(self, nvmlDeviceGetAddressingMode).read(card, empty).map(|mode| mode.value)
    }

    pub(in crate::library) fn memory_numa_node(&self, card: Handle) -> Result<u32, NvmlError> {
        let function = function!(self, nvmlDeviceGetNumaNodeId);
        let node = function.read(card, 0)?;
        // -1 in an unsigned number: no node.
        if node > i32::MAX as u32 { Err(function.nonsense(node)) } else { Ok(node) }
    }

    pub(in crate::library) fn cpu_affinity(&self, card: Handle) -> Result<CpuSet, NvmlError> {
        /// Linux has at most 8192 CPUs (`CONFIG_NR_CPUS`).
        const WORDS: usize = 8192 / 64;
        let function = function!(self, nvmlDeviceGetCpuAffinity);
        let get = function.get()?;
        let mut words = [0; WORDS];
        // SAFETY: writes at most the given number of words, and the array has as many.
        function.check(unsafe { get(card.0, WORDS as c_uint, words.as_mut_ptr()) })?;
        Ok(CpuSet::from_words(&words))
    }

    /// `None` if the driver reports no fabric for the card. Uses the newest form known to the driver.
    pub(in crate::library) fn fabric(&self, card: Handle) -> Result<Option<Fabric>, NvmlError> {
        if let Some(info) = self.fabric_info(card)? {
            return fabric_of(info.clusterUuid, info.status, info.cliqueId, info.state)
                .map_err(|state| function!(self, nvmlDeviceGetGpuFabricInfoV).nonsense(state));
        }
        let old = function!(self, nvmlDeviceGetGpuFabricInfo);
        let empty = sys::nvmlGpuFabricInfo_t { clusterUuid: [0; 16], status: 0, cliqueId: 0, state: 0 };
        let info = old.read(card, empty)?;
        fabric_of(info.clusterUuid, info.status, info.cliqueId, info.state)
            .map_err(|state| old.nonsense(state))
    }

    /// The newer forms, which have the fabric's health too; `None` if the driver knows neither.
    pub(super) fn fabric_info(&self, card: Handle) -> Result<Option<sys::nvmlGpuFabricInfo_v3_t>, NvmlError> {
        let versioned = function!(self, nvmlDeviceGetGpuFabricInfoV);
        // SAFETY: the structure is made of integers and arrays of them, for which all bits zero is a value.
        let mut empty: sys::nvmlGpuFabricInfo_v3_t = unsafe { std::mem::zeroed() };
        // The second form is a prefix of the third; the driver distinguishes them only by the version.
        for version in
            [version_of::<sys::nvmlGpuFabricInfo_v3_t>(3), version_of::<sys::nvmlGpuFabricInfo_v2_t>(2)]
        {
            empty.version = version;
            match versioned.read(card, empty) {
                Ok(info) => return Ok(Some(info)),
                Err(NvmlError::MissingFunction { .. }) => break,
                Err(NvmlError::Call { code, .. })
                    if code == sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                        || code == sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(in crate::library) fn common_ancestor(&self, one: Handle, other: Handle) -> Result<u32, NvmlError> {
        let function = function!(self, nvmlDeviceGetTopologyCommonAncestor);
        let get = function.get()?;
        let mut level = 0;
        // SAFETY: writes one enumeration value, an unsigned int.
        function.check(unsafe { get(one.0, other.0, &raw mut level) })?;
        Ok(level)
    }

    pub(in crate::library) fn nvlink_peer_to_peer(
        &self,
        one: Handle,
        other: Handle,
    ) -> Result<u32, NvmlError> {
        let function = function!(self, nvmlDeviceGetP2PStatus);
        let get = function.get()?;
        let kind = sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK;
        let mut status = 0;
        // SAFETY: writes one enumeration value, an unsigned int.
        function.check(unsafe { get(one.0, other.0, kind, &raw mut status) })?;
        Ok(status)
    }

    pub(in crate::library) fn processes(
        &self,
        card: Handle,
        kind: ProcessKind,
    ) -> Result<Vec<Process>, NvmlError> {
        /// The list may grow between two calls, so the call is retried, but not forever.
        const TRIES: usize = 8;
        const MOST: usize = 65_536;
        let function = match kind {
            ProcessKind::Compute => function!(self, nvmlDeviceGetComputeRunningProcesses_v3),
            ProcessKind::Graphics => function!(self, nvmlDeviceGetGraphicsRunningProcesses_v3),
            ProcessKind::Mps => function!(self, nvmlDeviceGetMPSComputeRunningProcesses_v3),
        };
        let get = function.get()?;
        let empty =
            sys::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut room = 64;
        for _ in 0..TRIES {
            let mut processes = vec![empty; room];
            let mut count = room as c_uint;
            // SAFETY: writes at most `count` records, and there is room for as many; then sets `count`.
            let code = unsafe { get(card.0, &raw mut count, processes.as_mut_ptr()) };
            let count = count as usize;
            if code == sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE && count < MOST {
                room = count.max(room) + 64;
                continue;
            }
            function.check(code)?;
            processes.truncate(count);
            return Ok(processes.iter().map(|process| process_of(process, kind)).collect());
        }
        Err(function.nonsense("a list that grows with every call"))
    }
}

fn process_of(process: &sys::nvmlProcessInfo_t, kind: ProcessKind) -> Process {
    let known = |id: c_uint| (id != c_uint::MAX).then_some(id);
    Process {
        pid: process.pid,
        kind,
        used_memory: (process.usedGpuMemory != u64::MAX).then_some(process.usedGpuMemory),
        gpu_instance: known(process.gpuInstanceId),
        compute_instance: known(process.computeInstanceId),
    }
}

/// `Err` for a state that is not in the header (`nvmlGpuFabricState_t`).
fn fabric_of(cluster: [u8; 16], status: u32, clique: u32, state: u8) -> Result<Option<Fabric>, u8> {
    let state = match u32::from(state) {
        sys::NVML_GPU_FABRIC_STATE_NOT_SUPPORTED => return Ok(None),
        sys::NVML_GPU_FABRIC_STATE_NOT_STARTED => FabricState::NotStarted,
        sys::NVML_GPU_FABRIC_STATE_IN_PROGRESS => FabricState::InProgress,
        sys::NVML_GPU_FABRIC_STATE_COMPLETED if status == sys::nvmlReturn_enum_NVML_SUCCESS => {
            FabricState::Completed
        }
        sys::NVML_GPU_FABRIC_STATE_COMPLETED => FabricState::Failed,
        _ => return Err(state),
    };
    Ok(Some(Fabric { state, cluster: ClusterUuid(cluster), clique }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_pci_are_no_address() {
        let address =
            |domain, bus, device| pci_bus_id(&sys::nvmlPciInfo_t { domain, bus, device, ..empty_pci_info() });
        assert_eq!(address(0, 256, 0), None);
        assert_eq!(address(0, 0, 32), None);
        assert_eq!(address(u32::MAX, 0, 0), None);
        assert_eq!(address(8, 1, 2), PciBusId::new(8, 1, 2, 0).ok());
    }

    #[test]
    fn a_failed_registration_is_not_a_completed_one() {
        let state =
            |state, status| fabric_of([1; 16], status, 1, state).map(|fabric| fabric.map(|it| it.state));
        assert_eq!(state(3, 0), Ok(Some(FabricState::Completed)));
        assert_eq!(state(3, 999), Ok(Some(FabricState::Failed)));
        assert_eq!(state(2, 0), Ok(Some(FabricState::InProgress)));
        assert_eq!(state(0, 0), Ok(None));
        assert_eq!(state(4, 0), Err(4));
    }
}
