//! A whole card as a device.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::{DeviceName, DeviceType, Quantity, attribute, capacity, version};

use super::attributes::{Attributes, semantic_version};
use super::{Warning, counters, taints};
use crate::machine::{Card, Machine};
use crate::topology::{Group, Groups, Topology};

/// Makes the devices of whole cards: what all cards of a machine share, read once.
pub struct WholeCards<'a> {
    topology: &'a Topology,
    groups: Groups,
    nvlink_domains: Vec<Option<String>>,
    driver_version: Option<String>,
    cuda_driver_version: Option<String>,
    driver_name: &'a str,
    pub warnings: &'a mut Vec<Warning>,
}

impl<'a> WholeCards<'a> {
    pub fn new(
        machine: &Machine,
        topology: &'a Topology,
        driver_name: &'a str,
        warnings: &'a mut Vec<Warning>,
    ) -> Self {
        let driver_version = machine.driver_version.as_deref();
        Self {
            topology,
            groups: topology.groups(),
            nvlink_domains: topology.nvlink_domains(),
            driver_version: semantic_version(attribute::DRIVER_VERSION, driver_version, warnings),
            cuda_driver_version: machine.cuda_driver_version.map(version::cuda),
            driver_name,
            warnings,
        }
    }

    /// Positions of all cards, in the order of publication.
    pub fn order(&self) -> Vec<usize> {
        self.groups.order.clone()
    }

    /// The card at `position` of the topology, drawing all of `counter_set`.
    pub fn device(&mut self, position: usize, card: &Card, counter_set: &CounterSet) -> Device {
        let memory = self.memory(card);
        let mut attributes = Attributes::new(card.pci, self.warnings);
        attributes.string(attribute::TYPE, Some(DeviceType::Gpu.as_str()));
        attributes.string(attribute::UUID, card.uuid.as_deref());
        attributes.int(attribute::INDEX, card.index);
        attributes.string(attribute::PRODUCT_NAME, card.product_name.as_deref());
        attributes.string(attribute::BRAND, card.brand.as_deref());
        attributes.string(attribute::ARCHITECTURE, card.architecture.as_deref());
        let capability =
            card.compute_capability.map(|version| format!("{}.{}.0", version.major, version.minor));
        attributes.version(attribute::CUDA_COMPUTE_CAPABILITY, capability);
        attributes.version(attribute::DRIVER_VERSION, self.driver_version.clone());
        attributes.version(attribute::CUDA_DRIVER_VERSION, self.cuda_driver_version.clone());
        attributes.int(attribute::MEMORY_MIB, memory.map(|bytes| bytes >> 20));
        attributes.bool(attribute::MIG_CAPABLE, card.mig_capable);
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
        attributes.string(attribute::PCI_BUS_ID, Some(&card.pci.to_string()));
        attributes.string(attribute::PCIE_ROOT, card.pcie_root.as_deref());
        attributes.int(attribute::NUMA_NODE, card.numa_node);

        Device {
            name: DeviceName::Card(card.pci).to_string(),
            attributes: Some(attributes.into_map()),
            capacity: memory
                .map(|bytes| BTreeMap::from([(capacity::MEMORY.to_owned(), memory_capacity(bytes))])),
            consumes_counters: Some(vec![counters::all_of(counter_set)]),
            taints: taints::of_health(self.driver_name, &card.health).map(|taint| vec![taint]),
            ..Device::default()
        }
    }

    /// Bytes of memory, where they are a number that Kubernetes can hold.
    fn memory(&mut self, card: &Card) -> Option<i64> {
        let bytes = card.memory_bytes?;
        let memory = i64::try_from(bytes).ok();
        if memory.is_none() {
            self.warnings.push(Warning::Memory { card: card.pci, bytes });
        }
        memory
    }
}

fn memory_capacity(bytes: i64) -> DeviceCapacity {
    DeviceCapacity { value: QuantityText(Quantity::bytes(bytes).to_string()), ..DeviceCapacity::default() }
}
