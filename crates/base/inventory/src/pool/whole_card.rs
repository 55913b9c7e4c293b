//! A whole card as a device.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCapacity};
use tessera_api::{DeviceName, DeviceType, attribute, capacity};

use super::attributes::Attributes;
use super::description::{Description, bytes, number};
use super::{counters, partition};
use crate::machine::Card;
use crate::mig::Grid;
use crate::topology::{Group, Groups, Topology};
use crate::warning::Warning;

/// Makes the devices of whole cards.
pub struct WholeCards<'a> {
    topology: &'a Topology,
    groups: &'a Groups,
    nvlink_domains: Vec<Option<String>>,
}

impl<'a> WholeCards<'a> {
    pub fn new(topology: &'a Topology, groups: &'a Groups) -> Self {
        Self { topology, groups, nvlink_domains: topology.nvlink_domains() }
    }

    /// The card at `position` of the topology, with the possible partitions of `grid`, consuming all of
    /// `counter_set`; `None` if nothing else of the card is published.
    pub fn device(
        &self,
        position: usize,
        card: &Card,
        description: &Description,
        grid: &Grid<'_>,
        counter_set: Option<&CounterSet>,
        warnings: &mut Vec<Warning>,
    ) -> Device {
        let mut attributes = Attributes::with(card.pci, description.attributes.clone(), warnings);
        attributes.string(attribute::TYPE, Some(DeviceType::Gpu.as_str()));
        attributes.string(attribute::UUID, card.uuid.as_deref());
        attributes.int(attribute::INDEX, card.index);
        attributes.int(attribute::MEMORY_MIB, description.memory.map(|bytes| bytes >> 20));
        attributes.bool(attribute::MIG_CAPABLE, card.mig_capable);
        attributes.bool(attribute::TIME_SLICE_INTERVALS, card.has_time_slice_lengths());
        attributes.string(attribute::NVLINK_DOMAIN, self.nvlink_domains[position].as_deref());
        let links = card.nvlinks.as_ref().and_then(|links| i64::try_from(links.len()).ok());
        attributes.int(attribute::NVLINK_COUNT, links);
        for (name, group) in [
            (attribute::NVLINK_GROUP_2, Group::NvLink2),
            (attribute::NVLINK_GROUP_4, Group::NvLink4),
            (attribute::ALIGN_GROUP_2, Group::Align2),
            (attribute::ALIGN_GROUP_4, Group::Align4),
        ] {
            let value = self.groups.value(self.topology, group, position).map(|value| value.to_string());
            attributes.string(name, value.as_deref());
        }

        Device {
            name: DeviceName::Card(card.pci).to_string(),
            attributes: Some(attributes.into_map()),
            capacity: capacities(description, grid),
            consumes_counters: counter_set.map(|set| vec![counters::all_of(set)]),
            taints: description.taints(None),
            ..Device::default()
        }
    }
}

/// The card's memory, and for the other capacities the maximum of its partitions: the driver has no other facts
/// about a whole card's engines. `None` if nothing is known.
fn capacities(description: &Description, grid: &Grid<'_>) -> Option<BTreeMap<String, DeviceCapacity>> {
    let mut most: BTreeMap<String, u32> = BTreeMap::new();
    for (name, count) in grid.profiles.iter().flat_map(|profile| partition::engines(profile.facts)) {
        let known = most.entry(name.to_owned()).or_default();
        *known = count.max(*known);
    }
    let mut capacities: BTreeMap<_, _> =
        most.into_iter().map(|(name, count)| (name, number(count))).collect();
    if let Some(memory) = description.memory {
        capacities.insert(capacity::MEMORY.to_owned(), bytes(memory));
    }
    (!capacities.is_empty()).then_some(capacities)
}
