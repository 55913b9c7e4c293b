//! `DIR/proc`: files of the driver and the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use super::dev::{MAJOR_CAPABILITIES, MAJOR_NVIDIA, MAJOR_UVM};
use super::error::{CreateError, at};
use crate::machine::{Card, Machine};

/// Makes the files.
///
/// # Errors
/// When one cannot be made.
pub fn create(root: &Path, machine: &Machine) -> Result<(), CreateError> {
    driver(root, machine)?;
    let proc = root.join("proc");
    write(&proc.join("driver/nvidia/params"), PARAMETERS)?;
    write(
        &proc.join("devices"),
        &format!(
            "Character devices:\n  1 mem\n{MAJOR_NVIDIA} nvidia\n{MAJOR_NVIDIA} nvidia-modeset\n{MAJOR_NVIDIA} nvidiactl\n\
             {MAJOR_UVM} nvidia-uvm\n{MAJOR_CAPABILITIES} nvidia-caps\n\nBlock devices:\n259 blkext\n"
        ),
    )?;
    new_boot(root)
}

/// Makes or replaces the driver's files about itself and its cards.
///
/// # Errors
/// When a file cannot be made.
pub fn driver(root: &Path, machine: &Machine) -> Result<(), CreateError> {
    let version = &machine.driver.version;
    write(
        &root.join("proc/driver/nvidia/version"),
        &format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for {}  {version}  Release Build  (emulated)\n",
            std::env::consts::ARCH
        ),
    )?;
    machine.cards.iter().try_for_each(|card| plugged(root, card, version))
}

/// Makes or replaces the driver's files about a card.
///
/// # Errors
/// When a file cannot be made.
pub fn plugged(root: &Path, card: &Card, version: &str) -> Result<(), CreateError> {
    let vbios = card.board.vbios_version.as_deref().unwrap_or("??.??.??.??.??");
    write(
        &directory(root, card).join("information"),
        &format!(
            "Model: \t\t {}\nIRQ:   \t\t 0\nGPU UUID: \t {}\nVideo BIOS: \t {vbios}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n\
             DMA Mask: \t 0xfffffffffffff\nBus Location: \t {}\nDevice Minor: \t {}\nGPU Firmware: \t {version}\nGPU Excluded:\t No\n",
            card.board.name, card.uuid, card.pci, card.minor
        ),
    )
}

/// Removes the driver's files about a card.
///
/// # Errors
/// When they cannot be removed.
pub fn unplugged(root: &Path, card: &Card) -> Result<(), CreateError> {
    let directory = directory(root, card);
    fs::remove_dir_all(&directory).map_err(at(&directory))
}

fn directory(root: &Path, card: &Card) -> PathBuf {
    root.join("proc/driver/nvidia/gpus").join(card.pci.to_string())
}

/// Replaces a file as a whole.
fn write(path: &Path, text: &str) -> Result<(), CreateError> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).map_err(at(directory))?;
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(at(&new))?;
    fs::rename(&new, path).map_err(at(path))
}

/// Gives the machine another boot id, as a reboot does.
///
/// # Errors
/// When the file cannot be written.
pub fn new_boot(root: &Path) -> Result<(), CreateError> {
    let path = root.join("proc/sys/kernel/random/boot_id");
    let directory = path.parent().unwrap_or(root);
    fs::create_dir_all(directory).map_err(at(directory))?;
    let source = Path::new("/proc/sys/kernel/random/uuid");
    let uuid = fs::read_to_string(source).map_err(at(source))?;
    let new = path.with_extension("new");
    fs::write(&new, uuid).map_err(at(&new))?;
    fs::rename(&new, &path).map_err(at(&path))
}

/// `/proc/driver/nvidia/params` as the driver writes it with no options set.
const PARAMETERS: &str = "ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
EnablePCIeGen3: 0
MemoryPoolSize: 0
KMallocHeapMaxSize: 0
VMallocHeapMaxSize: 0
IgnoreMMIOCheck: 0
EnableStreamMemOPs: 0
EnableUserNUMAManagement: 1
NvLinkDisable: 0
";
