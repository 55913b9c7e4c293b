use super::functions::{Functions, Handle};
use super::{links, named};
use crate::CardReadings;
use crate::addressing_mode::AddressingMode;
use crate::compute_mode::ComputeMode;
use crate::error::NvmlError;
use tessera_api::PciBusId;

/// Reads one card, each fact on its own.
pub(super) fn read(functions: &Functions, handle: Handle, address: PciBusId) -> CardReadings {
    let compute_mode = functions
        .compute_mode(handle)
        .and_then(|number| named("nvmlDeviceGetComputeMode", number, ComputeMode::from_number));
    let addressing_mode = functions
        .addressing_mode(handle)
        .and_then(|number| named("nvmlDeviceGetAddressingMode", number, AddressingMode::from_number));
    CardReadings {
        address,
        index: functions.index(handle),
        minor: functions.minor(handle),
        uuid: functions.uuid(handle),
        pci_device_id: functions.pci_device_id(handle),
        name: functions.name(handle),
        brand: NvmlError::reading(functions.brand(handle)),
        architecture: NvmlError::reading(functions.architecture(handle)),
        compute_capability: NvmlError::reading(functions.compute_capability(handle)),
        cores: NvmlError::reading(functions.cores(handle)),
        memory: NvmlError::reading(functions.memory(handle)),
        mig: NvmlError::reading(functions.mig_mode(handle)),
        compute_mode: NvmlError::reading(compute_mode),
        addressing_mode: NvmlError::reading(addressing_mode),
        memory_numa_node: NvmlError::reading(functions.memory_numa_node(handle)),
        cpu_affinity: NvmlError::reading(functions.cpu_affinity(handle)),
        links: links::read(functions, handle),
        fabric: NvmlError::reading(functions.fabric(handle)).map(Option::flatten),
    }
}
