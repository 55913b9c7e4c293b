//! A known machine as the facts reported by its driver.

use tessera_api::PciBusId;
use tessera_hardware::topology::{Connection, Level, PciAddress};
use tessera_hardware::{Board, FactsError, Hardware, MigModel, Topology};
use tessera_inventory::Machine;
use tessera_inventory::machine::{
    Card, CommonAncestor, ComputeCapability, GpuInstanceProfile, Mig, NvLink, NvLinkRemote, NvLinkVersion,
    Pair, Placement,
};

/// The first `count` cards of a machine of this kind, with MIG mode on or off; all cards for `None` or if there are fewer.
///
/// # Errors
/// The machine's facts are incomplete.
pub fn machine(hardware: &Hardware, count: Option<usize>, mig_mode: bool) -> Result<Machine, FactsError> {
    let (board, _) = tessera_hardware::board(&hardware.board)?;
    let (topology, _) = tessera_hardware::topology(&hardware.topology)?;
    let mig = match &board.mig_model {
        Some(name) => Some(tessera_hardware::mig_model(name)?.0.complete(board.memory_total_mib)),
        None => None,
    };
    let count = count.unwrap_or(usize::MAX).min(topology.cards());
    let addresses: Vec<PciBusId> = topology.pci_addresses[..count]
        .iter()
        .map(|address| address_of(*address))
        .collect::<Option<_>>()
        .ok_or_else(|| FactsError::Inconsistent {
            file: hardware.topology.clone(),
            problem: "a PCI address is out of range".to_owned(),
        })?;
    let mut machine = Machine {
        driver_version: Some(hardware.driver_version.clone()),
        cuda_driver_version: cuda_version(&hardware.cuda_version),
        ..Machine::default()
    };
    for (position, address) in addresses.iter().enumerate() {
        let links = links(&board, &topology, position, &addresses);
        let card = Card {
            index: u32::try_from(position).ok(),
            numa_node: topology.numa_nodes.as_ref().map(|nodes| nodes[position]),
            pcie_root: topology.pcie_roots.as_ref().map(|roots| roots[position].clone()),
            nvlinks: Some(links),
            mig: mig.as_ref().map(|model| of_model(model, mig_mode)),
            ..card(&board, *address)
        };
        machine.cards.push(card);
        for (other, peer) in addresses[..position].iter().enumerate() {
            let pair = Pair {
                nvlink_peer_access: Some(matches!(topology.matrix[position][other], Connection::NvLinks(_))),
                common_ancestor: Some(common_ancestor(topology.level(position, other))),
            };
            machine.pairs.insert(*address, *peer, pair);
        }
    }
    Ok(machine)
}

/// A card with the facts common to all cards of this board.
pub fn card(board: &Board, address: PciBusId) -> Card {
    let capability = board.compute_capability;
    let number = |number: i32| u32::try_from(number).unwrap_or_default();
    Card {
        pci_device_id: Some(board.pci_device_id.0),
        product_name: Some(board.name.clone()),
        brand: Some(board.brand.text().to_owned()),
        architecture: Some(board.architecture.text().to_owned()),
        compute_capability: Some(ComputeCapability {
            major: number(capability.major),
            minor: number(capability.minor),
        }),
        cores: board.cores,
        memory_bytes: Some(board.memory_total_mib << 20),
        reserved_memory_bytes: board.memory_reserved_mib.unwrap_or(0) << 20,
        mig_capable: Some(board.mig_capable),
        ..Card::new(address)
    }
}

fn address_of(address: PciAddress) -> Option<PciBusId> {
    PciBusId::new(address.domain, address.bus, address.device, 0).ok()
}

/// `13.0` or `13.0.0` in the driver's encoding: 13000.
pub fn cuda_version(text: &str) -> Option<u32> {
    let mut parts = text.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    Some(major.parse::<u32>().ok()?.checked_mul(1000)? + minor.parse::<u32>().ok()?.checked_mul(10)?)
}

fn links(board: &Board, topology: &Topology, card: usize, addresses: &[PciBusId]) -> Vec<NvLink> {
    let generation = topology.nvlink_version.or_else(|| board.architecture.nvlink_generation());
    let version = generation.and_then(|generation| match generation {
        1 => Some(NvLinkVersion::V1_0),
        2 if board.architecture.text() == "Turing" => Some(NvLinkVersion::V2_2),
        2 => Some(NvLinkVersion::V2_0),
        3 => Some(NvLinkVersion::V3_0),
        4 => Some(NvLinkVersion::V4_0),
        5 => Some(NvLinkVersion::V5_0),
        _ => None,
    });
    if board.architecture.nvlink_generation().is_none() {
        return Vec::new();
    }
    if topology.switched() {
        let link = NvLink { remote: NvLinkRemote::Switch, version };
        return vec![link; topology.links_of_a_card() as usize];
    }
    let to = |other: usize| match topology.matrix[card][other] {
        Connection::NvLinks(count) => count,
        _ => 0,
    };
    let link = |other: usize| NvLink { remote: NvLinkRemote::Gpu(addresses[other]), version };
    (0..addresses.len()).flat_map(|other| (0..to(other)).map(move |_| link(other))).collect()
}

fn common_ancestor(level: Level) -> CommonAncestor {
    match level {
        Level::Internal => CommonAncestor::Internal,
        Level::Single => CommonAncestor::SingleSwitch,
        Level::Multiple => CommonAncestor::MultipleSwitches,
        Level::HostBridge => CommonAncestor::HostBridge,
        Level::Node => CommonAncestor::Node,
        Level::System => CommonAncestor::System,
    }
}

/// The MIG profiles of a model, without partitions.
pub fn of_model(model: &MigModel, mode: bool) -> Mig {
    let profile = |profile: &tessera_hardware::mig::GpuInstanceProfile| {
        let placement = |start: &u32| Placement { start: *start, size: profile.memory_slices };
        let known = |value: Option<u32>| value.unwrap_or(0);
        GpuInstanceProfile {
            name: profile.name.clone(),
            id: profile.id,
            compute_slices: profile.compute_slices,
            max_instances: profile.max_instances,
            memory_bytes: profile.memory_mib.unwrap_or(0) << 20,
            multiprocessors: known(profile.multiprocessors),
            copy_engines: known(profile.copy_engines),
            decoders: known(profile.decoders),
            encoders: known(profile.encoders),
            jpeg_engines: known(profile.jpeg_engines),
            ofa_engines: known(profile.ofa_engines),
            placements: profile.starts.iter().map(placement).collect(),
        }
    };
    Mig {
        mode,
        mode_switch_needs_reset: model.mode_needs_reset,
        profiles: model.profiles.iter().map(profile).collect(),
        instances: Vec::new(),
    }
}
