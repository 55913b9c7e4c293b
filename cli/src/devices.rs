//! The devices of slices, in the form for CEL evaluation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::resource::v1::{
    Device, DeviceAttribute, DeviceCapacity, DeviceRequestAllocationResult, ResourceSlice,
};
use serde::Serialize;
use tessera_allocator::inventory::DeviceRef;
use tessera_api::quantity::QuantityError;
use tessera_api::{attribute, taint};
use tessera_cel::{PublishedAttribute, Selector, split_name};

/// Identifies a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct DeviceId {
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Name in the pool.
    pub device: String,
}

impl DeviceId {
    /// Whether the allocation names this device.
    pub fn is_of(&self, allocated: &DeviceRequestAllocationResult) -> bool {
        self.driver == allocated.driver && self.pool == allocated.pool && self.device == allocated.device
    }
}

impl From<DeviceRef<'_>> for DeviceId {
    fn from(device: DeviceRef<'_>) -> Self {
        DeviceId {
            driver: device.driver_name().to_owned(),
            pool: device.pool().to_owned(),
            device: device.name().to_owned(),
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// A device and its slice.
#[derive(Debug, Clone)]
pub struct Place<'s> {
    /// Its name.
    pub id: DeviceId,
    /// The slice listing the device.
    pub slice: &'s ResourceSlice,
    /// The device as published.
    pub device: &'s Device,
}

impl Place<'_> {
    /// Its node; for several nodes, a text in place of the name.
    pub fn node(&self) -> &str {
        let node = self.device.node_name.as_deref().or(self.slice.spec.node_name.as_deref());
        let all = self.slice.spec.all_nodes == Some(true) || self.device.all_nodes == Some(true);
        node.unwrap_or(if all { "<all>" } else { "<selected>" })
    }
}

/// Fault of a device, from its taints: `xid-79`, `mig-layout-pending`.
pub fn fault(device: &Device, driver: &str) -> Option<String> {
    let mut taints = device.taints.iter().flatten();
    taints.find_map(|taint| taint::fault_name(driver, &taint.key, taint.value.as_deref()))
}

/// Meaning of a card's fault, in words.
pub fn of_fault(fault: &str) -> String {
    match fault {
        taint::MIG_LAYOUT_PENDING => "waits for its MIG layout and gets no new claims".to_owned(),
        _ => format!("has a fault and gets no new claims: {fault}"),
    }
}

/// The devices in kube-scheduler's order: by driver, pool and name of the slice, and then as listed. Only the newest
/// generation of each pool counts.
pub fn devices<'s>(slices: impl Iterator<Item = &'s ResourceSlice> + Clone) -> Vec<Place<'s>> {
    let mut newest: HashMap<(&str, &str), i64> = HashMap::new();
    for slice in slices.clone() {
        let pool = &slice.spec.pool;
        let generation = newest.entry((&slice.spec.driver, &pool.name)).or_insert(pool.generation);
        *generation = (*generation).max(pool.generation);
    }
    let mut current: Vec<&ResourceSlice> = slices
        .filter(|slice| {
            let pool = &slice.spec.pool;
            newest[&(slice.spec.driver.as_str(), pool.name.as_str())] == pool.generation
        })
        .collect();
    current.sort_by_key(|slice| (&slice.spec.driver, &slice.spec.pool.name, &slice.metadata.name));
    current
        .into_iter()
        .flat_map(|slice| {
            slice.spec.devices.iter().flatten().map(move |device| Place {
                id: DeviceId {
                    driver: slice.spec.driver.clone(),
                    pool: slice.spec.pool.name.clone(),
                    device: device.name.clone(),
                },
                slice,
                device,
            })
        })
        .collect()
}

/// A device for evaluation.
///
/// # Errors
/// A capacity is not a quantity; an API server would not accept the slice.
pub fn for_evaluation(
    driver: &str,
    attributes: Option<&BTreeMap<String, DeviceAttribute>>,
    capacity: Option<&BTreeMap<String, DeviceCapacity>>,
    allow_multiple_allocations: bool,
    reads_lists: bool,
) -> Result<tessera_cel::Device, QuantityError> {
    let attributes =
        attributes.into_iter().flatten().map(|(name, value)| (name.clone(), published(value))).collect();
    let capacity =
        capacity.into_iter().flatten().map(|(name, value)| (name.clone(), value.value.0.clone())).collect();
    tessera_cel::Device::new(driver)
        .with_multiple_allocations(allow_multiple_allocations)
        .with_attributes(&attributes, reads_lists)
        .with_capacity(&capacity)
}

/// A published device, for evaluation.
///
/// # Errors
/// As [`for_evaluation`].
pub fn of_published(driver: &str, device: &Device) -> Result<tessera_cel::Device, QuantityError> {
    let shared = device.allow_multiple_allocations == Some(true);
    for_evaluation(driver, device.attributes.as_ref(), device.capacity.as_ref(), shared, true)
}

/// Whether all selectors match; an error is no match.
pub fn all_match(selectors: &[Selector], device: &tessera_cel::Device) -> bool {
    selectors.iter().all(|selector| selector.matches(device) == Ok(true))
}

/// Whether all selectors match the device; an error is no match.
pub fn matches(selectors: &[Selector], place: &Place<'_>) -> bool {
    of_published(&place.id.driver, place.device).is_ok_and(|device| all_match(selectors, &device))
}

/// Attributes with different values among devices of one kind.
const OWN: [&str; 11] = [
    attribute::UUID,
    attribute::PARENT_UUID,
    attribute::INDEX,
    attribute::PCI_BUS_ID,
    attribute::PCIE_ROOT,
    attribute::NUMA_NODE,
    attribute::NVLINK_DOMAIN,
    attribute::NVLINK_GROUP_2,
    attribute::NVLINK_GROUP_4,
    attribute::ALIGN_GROUP_2,
    attribute::ALIGN_GROUP_4,
];

/// Whether a selector reads attributes with different values among devices of one kind.
pub fn asks_for_own(expression: &str) -> bool {
    // `resource.kubernetes.io/pcieRoot` is written `["resource.kubernetes.io"].pcieRoot`.
    OWN.iter().any(|name| expression.contains(name.rsplit('/').next().unwrap_or(name)))
}

/// Hash of the device's kind: for a selector without per-device attributes, one device stands for all of its kind. A thousand
/// nodes with 200,000 devices have a few dozen kinds.
pub fn kind(driver: &str, device: &Device) -> u64 {
    let mut hasher = DefaultHasher::new();
    (driver, device.allow_multiple_allocations).hash(&mut hasher);
    for (name, value) in device.attributes.iter().flatten().filter(|(name, _)| !OWN.contains(&name.as_str()))
    {
        name.hash(&mut hasher);
        (value.int, value.bool, &value.string, &value.version).hash(&mut hasher);
        (&value.ints, &value.bools, &value.strings, &value.versions).hash(&mut hasher);
    }
    for (name, value) in device.capacity.iter().flatten() {
        (name, &value.value.0).hash(&mut hasher);
    }
    hasher.finish()
}

/// The names, with domain, of all attributes and of all capacities of these devices.
pub fn published_names(places: &[Place<'_>]) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut attributes, mut capacities) = (BTreeSet::new(), BTreeSet::new());
    for place in places {
        let qualified = |name: &String| {
            let (domain, id) = split_name(name, &place.id.driver);
            format!("{domain}/{id}")
        };
        attributes.extend(place.device.attributes.iter().flatten().map(|(name, _)| qualified(name)));
        capacities.extend(place.device.capacity.iter().flatten().map(|(name, _)| qualified(name)));
    }
    (attributes, capacities)
}

fn published(attribute: &DeviceAttribute) -> PublishedAttribute {
    if let Some(value) = attribute.int {
        PublishedAttribute::Int(value)
    } else if let Some(value) = attribute.bool {
        PublishedAttribute::Bool(value)
    } else if let Some(value) = &attribute.string {
        PublishedAttribute::String(value.clone())
    } else if let Some(value) = &attribute.version {
        PublishedAttribute::Version(value.clone())
    } else if let Some(values) = &attribute.ints {
        PublishedAttribute::Ints(values.clone())
    } else if let Some(values) = &attribute.bools {
        PublishedAttribute::Bools(values.clone())
    } else if let Some(values) = &attribute.strings {
        PublishedAttribute::Strings(values.clone())
    } else if let Some(values) = &attribute.versions {
        PublishedAttribute::Versions(values.clone())
    } else {
        PublishedAttribute::Unknown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_device_stands_for_its_kind() {
        let kind = |uuid: &str, profile: &str, memory: &str| {
            let device = json!({ "name": uuid, "capacity": { "memory": { "value": memory } },
                "attributes": { "uuid": { "string": uuid }, "profile": { "string": profile } } });
            super::kind("d", &serde_json::from_value(device).unwrap())
        };
        let first = kind("1", "x", "1Gi");
        assert_eq!(first, kind("2", "x", "1Gi"));
        assert!(first != kind("1", "y", "1Gi") && first != kind("1", "x", "2Gi"));
        assert!(asks_for_own(r#"device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:01""#));
        assert!(!asks_for_own(r#"device.attributes["d"].type == "gpu""#));
    }
}
