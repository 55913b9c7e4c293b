//! `DIR/sys`: the PCI tree and the NUMA nodes.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{CreateError, at};
use super::files::link;
use super::pci_files::PciDevice;
use crate::hardware::board::PciId;
use crate::machine::{Machine, PciAddress, Remote};

/// PCI class of a 3D controller, as of compute cards.
const CLASS_3D_CONTROLLER: &str = "0x030200";
/// PCI class of a PCI bridge.
const CLASS_PCI_BRIDGE: &str = "0x060400";
/// PCI class of a bridge of no other kind, as of NVSwitches.
const CLASS_OTHER_BRIDGE: &str = "0x068000";
/// Ids of bridges, missing in all captures: QEMU's PCIe root port.
const BRIDGE: (u16, u16) = (0x1b36, 0x000c);
/// The control registers of a card, and of an NVSwitch (BAR 0).
const REGISTERS: (usize, u64, bool) = (0, 16 << 20, false);
/// The BAR beside a card's registers and its memory.
const RAMIN: (usize, u64, bool) = (3, 32 << 20, true);

/// Makes the tree.
///
/// # Errors
/// When a file cannot be made.
pub fn create(root: &Path, machine: &Machine) -> Result<(), CreateError> {
    let sys = root.join("sys");
    let by_address = sys.join("bus/pci/devices");
    let driver = sys.join("bus/pci/drivers/nvidia");
    for directory in [&by_address, &driver] {
        fs::create_dir_all(directory).map_err(at(directory))?;
    }
    for card in &machine.cards {
        let mut path = PathBuf::from(&card.pcie_root);
        for bridge in &card.bridges {
            path.push(bridge.to_string());
            let directory = sys.join("devices").join(&path);
            if !directory.exists() {
                let like = PciDevice {
                    ids: BRIDGE,
                    subsystem: None,
                    class: CLASS_PCI_BRIDGE,
                    is_bridge: true,
                    bars: &[],
                };
                device(&sys, &path, *bridge, like)?;
                numa(&directory, card.numa_node, card.cpus.as_deref())?;
            }
        }
        path.push(card.pci.to_string());
        // BAR 1 shows the card's memory; NVML reports the shown size. The BAR's own size is a power of two.
        let window = card.board.bar1_total_mib.map(|mib| (1, (mib << 20).next_power_of_two(), true));
        let bars: Vec<_> = [Some(REGISTERS), window, Some(RAMIN)].into_iter().flatten().collect();
        let like = PciDevice {
            ids: ids(card.board.pci_device_id),
            subsystem: card.board.pci_subsystem_id.map(ids),
            class: CLASS_3D_CONTROLLER,
            is_bridge: false,
            bars: &bars,
        };
        device(&sys, &path, card.pci, like)?;
        write(&sys.join("devices").join(&path).join("enable"), "1")?;
        let directory = sys.join("devices").join(&path);
        numa(&directory, card.numa_node, card.cpus.as_deref())?;
        link(
            &directory.join("driver"),
            &format!("{}bus/pci/drivers/nvidia", up(path.components().count() + 1)),
        )?;
        link(&driver.join(card.pci.to_string()), &format!("../../../../devices/{}", path.display()))?;
    }
    switches(&sys, machine)?;
    nodes(&sys, machine)
}

/// NVSwitches, where visible to the host. Root ports for them would need buses missing in captures, so each is on a
/// root complex of its own bus.
fn switches(sys: &Path, machine: &Machine) -> Result<(), CreateError> {
    let Some(id) = machine.nvlink.as_ref().and_then(|nvlink| nvlink.switch_pci_id) else { return Ok(()) };
    let mut addresses: Vec<PciAddress> = machine
        .cards
        .iter()
        .flat_map(|card| &card.links)
        .filter_map(|link| match link.remote {
            Some(Remote::Switch { pci }) => pci,
            _ => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in addresses {
        let path =
            PathBuf::from(format!("pci{:04x}:{:02x}", address.domain, address.bus)).join(address.to_string());
        let like = PciDevice {
            ids: ids(id),
            subsystem: None,
            class: CLASS_OTHER_BRIDGE,
            is_bridge: false,
            bars: &[REGISTERS],
        };
        device(sys, &path, address, like)?;
        numa(&sys.join("devices").join(&path), None, None)?;
    }
    Ok(())
}

fn ids(id: PciId) -> (u16, u16) {
    (id.vendor(), id.device())
}

fn device(sys: &Path, path: &Path, address: PciAddress, like: PciDevice<'_>) -> Result<(), CreateError> {
    let directory = sys.join("devices").join(path);
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    write(&directory.join("class"), like.class)?;
    for (names, ids) in
        [(["vendor", "device"], Some(like.ids)), (["subsystem_vendor", "subsystem_device"], like.subsystem)]
    {
        let Some((vendor, device)) = ids else { continue };
        write(&directory.join(names[0]), &format!("0x{vendor:04x}"))?;
        write(&directory.join(names[1]), &format!("0x{device:04x}"))?;
    }
    like.create(sys, &directory, &address.to_string(), &up(path.components().count() + 1))?;
    let bus = format!("{}bus/pci", up(path.components().count() + 1));
    link(&directory.join("subsystem"), &bus)?;
    link(
        &sys.join("bus/pci/devices").join(address.to_string()),
        &format!("../../../devices/{}", path.display()),
    )
}

/// The kernel writes -1 if the firmware does not report the node.
fn numa(directory: &Path, node: Option<u32>, cpus: Option<&str>) -> Result<(), CreateError> {
    write(&directory.join("numa_node"), &node.map_or("-1".to_owned(), |node| node.to_string()))?;
    match cpus {
        Some(cpus) => write(&directory.join("local_cpulist"), cpus),
        None => Ok(()),
    }
}

/// NUMA nodes with CPUs, and nodes without CPUs for the memory of cards.
fn nodes(sys: &Path, machine: &Machine) -> Result<(), CreateError> {
    let directory = sys.join("devices/system/node");
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    let with_cpus: Vec<u32> = machine.numa_nodes.iter().map(|node| node.id).collect();
    let of_cards = machine.cards.iter().filter_map(|card| card.memory_numa_node);
    let mut all: Vec<(u32, &str)> =
        machine.numa_nodes.iter().map(|node| (node.id, node.cpus.as_str())).collect();
    all.extend(of_cards.map(|node| (node, "")));
    all.sort_unstable();
    let list =
        |ids: &mut dyn Iterator<Item = u32>| ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    write(&directory.join("online"), &list(&mut all.iter().map(|(id, _)| *id)))?;
    write(&directory.join("possible"), &list(&mut all.iter().map(|(id, _)| *id)))?;
    write(&directory.join("has_cpu"), &list(&mut with_cpus.into_iter()))?;
    for (id, cpus) in all {
        let directory = directory.join(format!("node{id}"));
        fs::create_dir_all(&directory).map_err(at(&directory))?;
        write(&directory.join("cpulist"), cpus)?;
    }
    Ok(())
}

/// So many directories up.
fn up(levels: usize) -> String {
    "../".repeat(levels)
}

fn write(path: &Path, value: &str) -> Result<(), CreateError> {
    fs::write(path, format!("{value}\n")).map_err(at(path))
}
