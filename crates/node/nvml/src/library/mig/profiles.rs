use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::functions::{Functions, GpuInstanceHandle, Handle};
use super::{Mig, name};
use crate::GpuInstanceProfile;
use crate::error::{NvmlError, Reading};
use crate::mig::ComputeInstanceProfile;

/// NVML numbers its profiles from 0; today's headers have 18 of GPU instances and 9 of compute instances. Newer
/// drivers may have more; numbers unknown to a driver are reported as invalid.
const ENUMERATORS: u32 = 32;

/// Profiles of cards and GPU instances, cached: they stay the same until the next boot, and reading them takes dozens
/// of calls, each slow with many clients of the driver.
#[derive(Default)]
pub(in crate::library) struct Profiles {
    /// By the card's UUID.
    by_card: Known<String, GpuInstanceProfile>,
    /// By the card's UUID and the id of the GPU instance's profile.
    by_gpu_instance: Known<(String, u32), ComputeInstanceProfile>,
}

type Known<Of, Profile> = Mutex<HashMap<Of, Arc<[Profile]>>>;

impl Mig<'_> {
    pub(in crate::library) fn gpu_instance_profiles(&self) -> Reading<Arc<[GpuInstanceProfile]>> {
        let (functions, card) = self.card()?;
        // A card without MIG has no mode.
        if NvmlError::reading(functions.mig_mode(card))?.is_none() {
            return Ok(None);
        }
        NvmlError::reading(self.session.profiles.of_card(functions, card))
    }
}

impl Profiles {
    fn of_card(&self, functions: &Functions, card: Handle) -> Result<Arc<[GpuInstanceProfile]>, NvmlError> {
        let uuid = functions.uuid(card)?;
        let known = self.by_card.lock().unwrap_or_else(PoisonError::into_inner).get(&uuid).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut profiles: Vec<GpuInstanceProfile> = Vec::new();
        for enumerator in 0..ENUMERATORS {
            let Some(info) = functions.gpu_instance_profile(card, enumerator)? else { continue };
            let name = match info.name.as_deref().and_then(name::normalized) {
                Some(name) => name,
                None => {
                    let total = functions.memory(card)?.total;
                    name::derived(enumerator, info.compute_slices, info.memory_mib, total)
                }
            };
            let mut placements = functions.possible_placements(card, info.id)?;
            placements.sort_unstable();
            placements.dedup();
            profiles.push(GpuInstanceProfile {
                id: info.id,
                name,
                compute_slices: info.compute_slices,
                max_instances: info.max_instances,
                memory_bytes: info.memory_mib.saturating_mul(1 << 20),
                multiprocessors: info.multiprocessors,
                copy_engines: info.copy_engines,
                decoders: info.decoders,
                encoders: info.encoders,
                jpeg_engines: info.jpeg_engines,
                ofa_engines: info.ofa_engines,
                placements,
            });
        }
        profiles.sort_by(|one, other| (one.memory_bytes, &one.name).cmp(&(other.memory_bytes, &other.name)));
        let profiles: Arc<[GpuInstanceProfile]> = profiles.into();
        // Not cached if empty: an older driver lists nothing while the mode is off.
        if !profiles.is_empty() {
            let mut known = self.by_card.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(uuid, Arc::clone(&profiles));
        }
        Ok(profiles)
    }

    pub(super) fn of_gpu_instance(
        &self,
        functions: &Functions,
        card: Handle,
        instance: GpuInstanceHandle,
        profile_id: u32,
    ) -> Result<Arc<[ComputeInstanceProfile]>, NvmlError> {
        let key = (functions.uuid(card)?, profile_id);
        let known = self.by_gpu_instance.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut profiles: Vec<ComputeInstanceProfile> = Vec::new();
        for enumerator in 0..ENUMERATORS {
            let Some(info) = functions.compute_instance_profile(instance, enumerator)? else { continue };
            profiles.push(ComputeInstanceProfile {
                enumerator,
                id: info.id,
                compute_slices: info.compute_slices,
                multiprocessors: info.multiprocessors,
                max_instances: info.max_instances,
            });
        }
        profiles.sort_by_key(|profile| (profile.compute_slices, profile.enumerator));
        let profiles: Arc<[ComputeInstanceProfile]> = profiles.into();
        if !profiles.is_empty() {
            let mut known = self.by_gpu_instance.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(key, Arc::clone(&profiles));
        }
        Ok(profiles)
    }
}
