//! A machine of a cluster as its driver's facts, as far as they can be derived from published slices. The facts show how else its cards
//! could be offered. Unpublished facts of a card are taken from its board.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use tessera_api::{DeviceName, NodeReport, PciBusId, ProfileSpelling, attribute, taint};
use tessera_hardware::Board;
use tessera_inventory::Machine;
use tessera_inventory::machine::{
    Card, ClusterUuid, CommonAncestor, ComputeInstance, Fabric, FabricState, GpuInstance, Health, Mig,
    NvLink, NvLinkRemote, NvLinkVersion, Pair, Placement,
};

use super::super::machine;

/// All generations of NVLink; among generations of equal speed the oldest comes first.
const NVLINKS: [NvLinkVersion; 7] = [
    NvLinkVersion::V1_0,
    NvLinkVersion::V2_0,
    NvLinkVersion::V2_2,
    NvLinkVersion::V3_0,
    NvLinkVersion::V3_1,
    NvLinkVersion::V4_0,
    NvLinkVersion::V5_0,
];

/// More than any card has. The report may have been written by others.
const MOST_LINKS: u32 = 1_000;

/// Published devices of a card, with their names.
type OfCard<'d> = Vec<(DeviceName, &'d Device)>;

/// The machine whose plugin of this driver published these devices with this report.
///
/// # Errors
/// A message if the machine cannot be derived.
pub fn machine_of(driver: &str, devices: &[Device], report: &NodeReport) -> Result<Machine, String> {
    let mut of_cards: BTreeMap<PciBusId, OfCard<'_>> = BTreeMap::new();
    for device in devices {
        if let Ok(name) = device.name.parse::<DeviceName>() {
            of_cards.entry(name.card()).or_default().push((name, device));
        }
    }
    if let Some(card) = report.cards.keys().find(|card| !of_cards.contains_key(card)) {
        return Err(format!("nothing is published of its card {card}"));
    }
    let first = devices.first();
    let mut machine = Machine {
        driver_version: first
            .and_then(|device| version(device, attribute::DRIVER_VERSION))
            .map(str::to_owned),
        cuda_driver_version: first
            .and_then(|device| version(device, attribute::CUDA_DRIVER_VERSION))
            .and_then(machine::cuda_version),
        ..Machine::default()
    };
    for (position, (address, devices)) in of_cards.iter().enumerate() {
        let index = u32::try_from(position).ok();
        machine.cards.push(Card { index, ..card(driver, *address, devices)? });
    }
    connect(&mut machine, report);
    Ok(machine)
}

fn card(driver: &str, address: PciBusId, devices: &OfCard<'_>) -> Result<Card, String> {
    let any = |name: &str| devices.iter().find_map(|(_, device)| attribute(device, name));
    let text = |name: &str| any(name).and_then(|value| value.string.clone());
    let model = text(attribute::PRODUCT_NAME);
    let board = match &model {
        Some(model) => board_called(model)?,
        None => return Err(format!("the model of its card {address} is not published")),
    };
    let whole = |name: &DeviceName| !matches!(name, DeviceName::Partition(_) | DeviceName::PartitionMps(_));
    let whole = devices.iter().find(|(name, _)| whole(name)).map(|(_, device)| *device);
    let of_whole = |name: &str| attribute(whole?, name);
    let number = |name: &str| of_whole(name).and_then(|value| value.int);
    let mut card = Card {
        uuid: of_whole(attribute::UUID).and_then(|value| value.string.clone()),
        addressing_mode: text(attribute::ADDRESSING_MODE),
        numa_node: any(attribute::NUMA_NODE).and_then(|value| u32::try_from(value.int?).ok()),
        pcie_root: text(attribute::PCIE_ROOT),
        fabric: of_whole(attribute::NVLINK_DOMAIN).and_then(|value| fabric(value.string.as_deref()?)),
        health: health(driver, devices),
        mig: None,
        ..machine::card(&board, address)
    };
    if let Some(memory) = number(attribute::MEMORY_MIB).and_then(|mib| u64::try_from(mib).ok()) {
        card.memory_bytes = memory.checked_mul(1 << 20);
    }
    // Links to remote ends other than the node's cards, as on a machine with a single card. Links between cards come from the report.
    let links = number(attribute::NVLINK_COUNT).and_then(|links| u32::try_from(links).ok()).unwrap_or(0);
    let link = NvLink { remote: NvLinkRemote::Switch, version: None };
    card.nvlinks = Some(vec![link; links.min(MOST_LINKS) as usize]);
    if let Some(name) = &board.mig_model {
        let (model, _) = tessera_hardware::mig_model(name).map_err(|error| error.to_string())?;
        let mut mig = machine::of_model(&model.complete(board.memory_total_mib), false);
        mig.instances = instances(&mig, devices)?;
        // On Ampere the mode decides between partitions and the whole card.
        mig.mode = !mig.instances.is_empty() || (mig.mode_switch_needs_reset && whole.is_none());
        card.mig = Some(mig);
    }
    Ok(card)
}

/// The board with this product name.
fn board_called(model: &str) -> Result<Board, String> {
    let mut known = BTreeSet::new();
    for name in tessera_hardware::board_names() {
        let (board, _) = tessera_hardware::board(name).map_err(|error| error.to_string())?;
        if board.name == model {
            return Ok(board);
        }
        known.insert(board.name);
    }
    let known: Vec<String> = known.into_iter().collect();
    Err(format!("it has cards {model:?}; only these are known: {}", known.join(", ")))
}

/// Partitions that existed before any claim: those of a layout, and an administrator's.
fn instances(mig: &Mig, devices: &OfCard<'_>) -> Result<Vec<GpuInstance>, String> {
    let mut instances: BTreeMap<u32, GpuInstance> = BTreeMap::new();
    for (name, device) in devices {
        let DeviceName::Partition(partition) = name else { continue };
        let Some(existing) = &partition.existing else { continue };
        let profile = mig.profiles.iter().find(|profile| {
            ProfileSpelling::of_profile(&profile.name).is_ok_and(|spelling| spelling == partition.profile)
        });
        let placement = profile.and_then(|profile| {
            profile.placements.iter().find(|placement| placement.start == partition.start)
        });
        let (Some(profile), Some(placement)) = (profile, placement) else {
            return Err(format!("the parent of its partition {name} is not published"));
        };
        let compute = ComputeInstance {
            id: existing.compute_instance,
            profile_id: 0,
            placement: Placement { start: 0, size: profile.compute_slices },
            multiprocessors: None,
            uuid: attribute(device, attribute::UUID).and_then(|value| value.string.clone()),
        };
        instances.insert(
            existing.gpu_instance,
            GpuInstance {
                id: existing.gpu_instance,
                profile_id: profile.id,
                placement: *placement,
                compute_instances: vec![compute],
            },
        );
    }
    Ok(instances.into_values().collect())
}

/// A card is unhealthy if all its devices share a fault.
fn health(driver: &str, devices: &OfCard<'_>) -> Health {
    let faults = |device: &Device| -> BTreeSet<String> {
        let taints = device.taints.iter().flatten();
        taints.filter_map(|one| taint::fault_name(driver, &one.key, one.value.as_deref())).collect()
    };
    let common = devices.iter().map(|(_, device)| faults(device)).reduce(|one, other| &one & &other);
    let reason = common.and_then(|faults| faults.into_iter().next());
    reason.map_or(Health::Healthy, |reason| Health::Unhealthy { reason })
}

/// Parses `<clusterUUID>.<cliqueId>`. Other values are the address of a card, without a fabric.
fn fabric(domain: &str) -> Option<Fabric> {
    let (cluster, clique) = domain.split_once('.')?;
    let digits: String = cluster.chars().filter(|digit| *digit != '-').collect();
    let bytes: Vec<u8> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect::<Option<_>>()?;
    let cluster = ClusterUuid(bytes.try_into().ok()?);
    Some(Fabric { state: FabricState::Completed, cluster, clique: clique.parse().ok()? })
}

/// Sets NVLinks and PCIe levels from the report.
fn connect(machine: &mut Machine, report: &NodeReport) {
    let rate = report.link_rate;
    let version = NVLINKS.into_iter().find(|version| Some(version.megabytes_per_second()) == rate);
    let level = |level: &str| match level {
        "PIX" => CommonAncestor::SingleSwitch,
        "PXB" => CommonAncestor::MultipleSwitches,
        "PHB" => CommonAncestor::HostBridge,
        "NODE" => CommonAncestor::Node,
        _ => CommonAncestor::System,
    };
    let links: BTreeMap<(PciBusId, PciBusId), u32> =
        report.links.iter().map(|(one, other, links)| ((*one, *other), *links)).collect();
    let levels: BTreeMap<(PciBusId, PciBusId), &str> =
        report.pcie.iter().map(|(one, other, level)| ((*one, *other), level.as_str())).collect();
    let others = report.other_pairs.as_deref().unwrap_or_default();
    let addresses: Vec<PciBusId> = machine.cards.iter().map(|card| card.pci).collect();
    for (position, one) in addresses.iter().enumerate() {
        for other in &addresses[position + 1..] {
            let pair = (*one, *other);
            let links = links.get(&pair).copied().unwrap_or(0).min(MOST_LINKS);
            let common_ancestor = Some(level(levels.get(&pair).copied().unwrap_or(others)));
            machine.pairs.insert(*one, *other, Pair { nvlink_peer_access: Some(links > 0), common_ancestor });
        }
    }
    for card in &mut machine.cards {
        let of_card = links.iter().filter(|((one, other), _)| card.pci == *one || card.pci == *other);
        let of_card: Vec<(PciBusId, u32)> = of_card
            .map(|((one, other), links)| {
                (if card.pci == *one { *other } else { *one }, (*links).min(MOST_LINKS))
            })
            .collect();
        let link = |remote| NvLink { remote, version };
        let links = if report.through_switches {
            let most = of_card.iter().map(|(_, links)| *links).max().unwrap_or(0);
            vec![link(NvLinkRemote::Switch); most as usize]
        } else {
            let to =
                |(other, links): &(PciBusId, u32)| vec![link(NvLinkRemote::Gpu(*other)); *links as usize];
            of_card.iter().flat_map(to).collect()
        };
        if !links.is_empty() {
            card.nvlinks = Some(links);
        }
    }
}

fn attribute<'d>(device: &'d Device, name: &str) -> Option<&'d DeviceAttribute> {
    device.attributes.as_ref()?.get(name)
}

fn version<'d>(device: &'d Device, name: &str) -> Option<&'d str> {
    attribute(device, name)?.version.as_deref()
}
