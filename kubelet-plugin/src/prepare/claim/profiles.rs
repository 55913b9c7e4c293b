//! The partition profiles of cards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tessera_api::PciBusId;
use tessera_nvml::{GpuInstanceProfile, Nvml, NvmlError};

/// The profiles of cards, read once each time the driver library is opened. A card offers the same profiles for as long as the
/// card is in the machine.
#[derive(Default)]
pub(in crate::prepare) struct Profiles {
    latest: Mutex<Option<Known>>,
}

struct Known {
    of: Weak<dyn Nvml>,
    cards: BTreeMap<String, Arc<[GpuInstanceProfile]>>,
}

impl Profiles {
    /// The profiles of a card by its address and UUID; `None` for a card without MIG. Blocks on driver calls.
    pub fn of(
        &self,
        nvml: &Arc<dyn Nvml>,
        card: PciBusId,
        uuid: &str,
    ) -> Result<Option<Arc<[GpuInstanceProfile]>>, NvmlError> {
        let lock = || self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let of = Arc::downgrade(nvml);
        if let Some(known) = &*lock()
            && known.of.ptr_eq(&of)
            && let Some(profiles) = known.cards.get(uuid)
        {
            return Ok(Some(profiles.clone()));
        }
        let Some(profiles) = nvml.gpu_instance_profiles(card)? else { return Ok(None) };
        let profiles: Arc<[GpuInstanceProfile]> = profiles.into();
        let mut latest = lock();
        match &mut *latest {
            Some(known) if known.of.ptr_eq(&of) => {
                known.cards.insert(uuid.to_owned(), profiles.clone());
            }
            _ => *latest = Some(Known { of, cards: BTreeMap::from([(uuid.to_owned(), profiles.clone())]) }),
        }
        Ok(Some(profiles))
    }
}
