//! Metadata of a claim's devices for its containers (KEP-5304): attributes as published, and the UUID of a partition, unknown
//! when the partition was published.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::DeviceAttribute;
use tessera_api::{DeviceName, attribute};
use tessera_inventory::{Machine, pool};
use tessera_journal::{ClaimDevice, ClaimRecord};

use crate::cdi::{self, CdiError, DeviceMetadata, MetadataClaim, RequestMetadata};

/// Whether all files of a claim's metadata exist. Blocks for file reads.
pub(in crate::prepare) fn has_metadata(cdi: &cdi::Directory, record: &ClaimRecord) -> Result<bool, CdiError> {
    let requests = record.devices.iter().map(|device| &*device.request);
    Ok(record.metadata.is_none() || cdi.has_metadata(&record.uid, requests)?)
}

/// Writes the files of a claim whose record has metadata. `published` is the machine as published; cards missing there get only
/// the data in the record. Blocks for file operations.
pub(in crate::prepare) fn write_metadata(
    cdi: &cdi::Directory,
    record: &ClaimRecord,
    published: Option<&Machine>,
) -> Result<(), CdiError> {
    let Some(metadata) = &record.metadata else { return Ok(()) };
    let claim = MetadataClaim {
        namespace: &record.namespace,
        name: &record.name,
        uid: &record.uid,
        pod_claim: metadata.pod_claim.as_deref(),
    };
    let mut requests: BTreeMap<&str, RequestMetadata<'_>> = BTreeMap::new();
    for device in &record.devices {
        let request = requests.entry(&device.request).or_insert_with(|| RequestMetadata {
            request: &device.request,
            alternative: device.alternative.as_deref(),
            devices: Vec::new(),
        });
        let (pool, name) = (&*device.pool, &*device.device);
        request.devices.push(DeviceMetadata { pool, name, attributes: attributes(device, published) });
    }
    cdi.write_metadata(claim, &requests.into_values().collect::<Vec<_>>())
}

fn attributes(device: &ClaimDevice, published: Option<&Machine>) -> BTreeMap<String, DeviceAttribute> {
    let mut attributes =
        published.and_then(|machine| pool::card_attributes(machine, device.card)).unwrap_or_default();
    let mut text = |name: &str, value: &str| {
        let value = DeviceAttribute { string: Some(value.to_owned()), ..DeviceAttribute::default() };
        attributes.insert(name.to_owned(), value);
    };
    text(attribute::PCI_BUS_ID, &device.card.to_string());
    let name = device.device.parse::<DeviceName>().ok();
    if let Some(name) = &name {
        text(attribute::TYPE, name.device_type().as_str());
    }
    if !matches!(name, Some(DeviceName::Card(_))) {
        text(attribute::PARENT_UUID, &device.card_uuid);
    }
    match &device.partition {
        None => text(attribute::UUID, &device.card_uuid),
        Some(partition) => {
            text(attribute::PROFILE, &partition.profile);
            if let Some(instances) = &partition.instances {
                text(attribute::UUID, &instances.uuid);
            }
        }
    }
    attributes
}
