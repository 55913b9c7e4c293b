//! Attributes and taints common to all devices of a card.

use k8s_openapi::api::resource::v1::{DeviceCapacity, DeviceTaint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::config::NVIDIA_DRIVER_NAME;
use tessera_api::{Quantity, attribute, limits, version};

use super::attributes::{AttributeMap, Attributes, semantic_version};
use super::taints::{self, HealthTaints};
use super::{CardOffer, PoolOptions};
use crate::machine::{Card, Machine, Placement};
use crate::warning::Warning;

/// Facts common to all devices of a machine.
pub struct Versions {
    driver: Option<String>,
    cuda_driver: Option<String>,
}

/// Facts common to all devices of a card.
pub struct Description {
    /// Attributes.
    pub attributes: AttributeMap,
    /// The taint of a card allocated by the controller.
    allocation: Option<DeviceTaint>,
    /// The taints of the card's faults.
    health: HealthTaints,
    /// The card's memory in bytes, if within Kubernetes' number range.
    pub memory: Option<i64>,
    /// Whether its partitions have all capacities of NVIDIA's driver: the driver has its name, or devices are shared in its way.
    pub has_nvidia_capacities: bool,
}

impl Versions {
    pub fn new(machine: &Machine, warnings: &mut Vec<Warning>) -> Self {
        Self {
            driver: semantic_version(attribute::DRIVER_VERSION, machine.driver_version.as_deref(), warnings),
            cuda_driver: machine.cuda_driver_version.map(version::cuda),
        }
    }
}

impl Description {
    pub fn new(
        card: &Card,
        versions: &Versions,
        options: &PoolOptions,
        CardOffer { pool, allocation, offer }: &CardOffer,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let memory = card.memory_bytes.and_then(|bytes| {
            let memory = i64::try_from(bytes).ok();
            if memory.is_none() {
                warnings.push(Warning::Memory { card: card.pci, bytes });
            }
            memory
        });
        let mut attributes = Attributes::new(card.pci, warnings);
        attributes.string(attribute::GPU_POOL, pool.as_deref());
        attributes.string(attribute::PRODUCT_NAME, card.product_name.as_deref());
        attributes.string(attribute::BRAND, card.brand.as_deref());
        attributes.string(attribute::ARCHITECTURE, card.architecture.as_deref());
        let capability =
            card.compute_capability.map(|version| format!("{}.{}.0", version.major, version.minor));
        attributes.version(attribute::CUDA_COMPUTE_CAPABILITY, capability);
        attributes.version(attribute::DRIVER_VERSION, versions.driver.clone());
        attributes.version(attribute::CUDA_DRIVER_VERSION, versions.cuda_driver.clone());
        attributes.string(attribute::ADDRESSING_MODE, card.addressing_mode.as_deref());
        attributes.string(attribute::PCI_BUS_ID, Some(&card.pci.to_string()));
        attributes.string(attribute::PCIE_ROOT, card.pcie_root.as_deref());
        attributes.int(attribute::NUMA_NODE, card.numa_node);
        let health = HealthTaints::new(&options.driver_name, card, &options.health);
        Self {
            attributes: attributes.into_map(),
            allocation: taints::of_allocation(*allocation),
            health,
            memory,
            has_nvidia_capacities: options.driver_name == NVIDIA_DRIVER_NAME
                || offer.sharing.consumable_shares.is_some(),
        }
    }

    /// The taints of a device in these memory slices of the card, or in all of the card: from its faults, and
    /// from allocation by the controller. The latter is never left out.
    pub fn taints(&self, slices: Option<Placement>) -> Option<Vec<DeviceTaint>> {
        let room = limits::TAINTS_PER_DEVICE - usize::from(self.allocation.is_some());
        let taints: Vec<DeviceTaint> =
            self.health.of_device(slices).take(room).chain(self.allocation.clone()).collect();
        (!taints.is_empty()).then_some(taints)
    }
}

/// A capacity in bytes.
pub fn bytes(bytes: i64) -> DeviceCapacity {
    DeviceCapacity { value: QuantityText(Quantity::bytes(bytes).to_string()), ..DeviceCapacity::default() }
}

/// A capacity counting units.
pub fn number(number: impl Into<i64>) -> DeviceCapacity {
    let value = QuantityText(Quantity::decimal(number.into()).to_string());
    DeviceCapacity { value, ..DeviceCapacity::default() }
}
