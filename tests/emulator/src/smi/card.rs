//! Facts of each card.

use super::library::{Device, Library, SmiError};
use super::memory::Memory;
use super::mig_device::{self, MigDevice};

/// Values read from one card; a field missing on the card is its NVML error.
pub(super) struct Reading {
    pub index: u32,
    pub device: Device,
    pub name: Result<String, u32>,
    pub uuid: Result<String, u32>,
    pub serial: Result<String, u32>,
    pub minor: Result<u32, u32>,
    pub pci: Result<Pci, u32>,
    pub memory: Result<Memory, u32>,
    pub bar1: Result<[u64; 3], u32>,
    pub mig: Result<(u32, u32), u32>,
    pub mig_devices: Vec<MigDevice>,
    pub persistence: Result<u32, u32>,
    pub temperature: Result<u32, u32>,
    pub power: Result<u32, u32>,
    pub power_limit: Result<u32, u32>,
    pub utilization: Result<[u32; 2], u32>,
    pub compute_mode: Result<u32, u32>,
    pub processes: Result<Vec<Process>, u32>,
    pub ecc: Result<(u32, u32), u32>,
    pub capability: Result<(i32, i32), u32>,
}

/// `nvmlPciInfo_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Pci {
    legacy: [u8; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
    id: [u8; 32],
}

impl Pci {
    /// `00000000:3B:00.0`
    pub fn id(&self) -> String {
        self.id.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
    }
}

/// `nvmlProcessInfo_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Process {
    pub pid: u32,
    pub used: u64,
    /// Ids of GPU instance and compute instance; the largest number if there is none.
    pub instances: [u32; 2],
}

impl Reading {
    /// Reads all cards, or the one named by `id` (index, UUID or PCI bus id).
    pub fn all(library: &Library, id: Option<&str>) -> Result<Vec<Reading>, SmiError> {
        let count: u32 =
            library.named("Failed to get the number of GPUs", library.value0("nvmlDeviceGetCount_v2"))?;
        let mut readings = Vec::new();
        for index in 0..count {
            let what = format!("Unable to determine the device handle for gpu {index}");
            let device = library.named(&what, library.device(index))?;
            readings.push(Self::read(library, index, device));
        }
        if let Some(id) = id {
            // Its domain may have four digits, as in sysfs.
            let bus_id = format!("{id:0>16}");
            readings.retain(|reading| {
                reading.index.to_string() == id
                    || reading.uuid.as_deref() == Ok(id)
                    || reading.pci.is_ok_and(|pci| pci.id().eq_ignore_ascii_case(&bus_id))
            });
            if readings.is_empty() {
                let text = "No devices were found".to_owned();
                return Err(SmiError::Nvml { what: id.to_owned(), code: 6, text });
            }
        }
        Ok(readings)
    }

    fn read(library: &Library, index: u32, device: Device) -> Self {
        let mut memory = Memory::versioned();
        let memory = library.fill("nvmlDeviceGetMemoryInfo_v2", device, &mut memory).map(|()| memory);
        Reading {
            index,
            device,
            name: library.text("nvmlDeviceGetName", device),
            uuid: library.text("nvmlDeviceGetUUID", device),
            serial: library.text("nvmlDeviceGetSerial", device),
            minor: library.value("nvmlDeviceGetMinorNumber", device),
            pci: library.value("nvmlDeviceGetPciInfo_v3", device),
            memory,
            bar1: library.value("nvmlDeviceGetBAR1MemoryInfo", device),
            mig: library.pair("nvmlDeviceGetMigMode", device),
            mig_devices: mig_device::devices(library, device),
            persistence: library.value("nvmlDeviceGetPersistenceMode", device),
            temperature: library.value_of("nvmlDeviceGetTemperature", device, 0),
            power: library.value("nvmlDeviceGetPowerUsage", device),
            power_limit: library.value("nvmlDeviceGetEnforcedPowerLimit", device),
            utilization: library.value("nvmlDeviceGetUtilizationRates", device),
            compute_mode: library.value("nvmlDeviceGetComputeMode", device),
            processes: library.list("nvmlDeviceGetComputeRunningProcesses_v3", device),
            ecc: library.pair("nvmlDeviceGetEccMode", device),
            capability: library.pair("nvmlDeviceGetCudaComputeCapability", device),
        }
    }

    /// Compute mode in the words of the real tool.
    pub fn compute_mode_text(&self) -> &'static str {
        match self.compute_mode {
            Ok(0) => "Default",
            Ok(2) => "Prohibited",
            Ok(3) => "Exclusive_Process",
            _ => "N/A",
        }
    }
}

/// `Enabled`, `Disabled` or `N/A`.
pub(super) fn mode(value: Result<u32, u32>) -> &'static str {
    match value {
        Ok(0) => "Disabled",
        Ok(_) => "Enabled",
        Err(_) => "N/A",
    }
}

/// Bytes in MiB.
pub(super) fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
