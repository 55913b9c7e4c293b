use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_nvml::{Identity, Nvml, NvmlError, PciAddress};

use super::PrepareError;
use super::allocation::AllocatedDevice;

/// Checks that the cards of an allocation are there and are those that were published, and, unless only looked at, that
/// they can be used whole. All cards at once, on blocking threads.
///
/// # Errors
/// [`PrepareError::Hardware`], [`PrepareError::OtherCard`], [`PrepareError::MigMode`]
pub(super) async fn check(
    nvml: &Arc<dyn Nvml>,
    published: Option<&Machine>,
    allocated: &[AllocatedDevice],
) -> Result<BTreeMap<PciBusId, Identity>, PrepareError> {
    let addresses: BTreeMap<PciBusId, &AllocatedDevice> =
        allocated.iter().map(|device| (device.device.card(), device)).collect();
    let identities = join_all(addresses.keys().map(|card| identify(nvml, *card))).await;
    let mut cards = BTreeMap::new();
    for ((card, device), identity) in addresses.into_iter().zip(identities) {
        let device = device.device.to_string();
        let identity =
            identity?.map_err(|source| PrepareError::Hardware { device: device.clone(), source })?;
        let uuid = published
            .and_then(|machine| machine.cards.iter().find(|known| known.pci == card))
            .and_then(|card| card.uuid.clone());
        if let Some(published) = uuid.filter(|uuid| *uuid != identity.uuid) {
            return Err(PrepareError::OtherCard { device, published, found: identity.uuid });
        }
        cards.insert(card, identity);
    }
    for device in allocated.iter().filter(|device| !device.admin_access) {
        if let Some(card) = cards.get(&device.device.card()).filter(|card| card.mig_mode == Some(true)) {
            return Err(PrepareError::MigMode { device: device.device.to_string(), uuid: card.uuid.clone() });
        }
    }
    Ok(cards)
}

/// Asks the driver which card is at an address, on a blocking thread.
///
/// # Errors
/// [`PrepareError::Panic`] where the call panicked.
pub(super) async fn identify(
    nvml: &Arc<dyn Nvml>,
    card: PciBusId,
) -> Result<Result<Identity, NvmlError>, PrepareError> {
    let address = PciAddress { domain: card.domain(), bus: card.bus(), device: card.device() };
    let nvml = nvml.clone();
    super::blocking::run(move || nvml.identify(address)).await
}
