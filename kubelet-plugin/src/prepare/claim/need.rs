//! Step 4: an allocation's needs of its cards. Checks the cards' presence, identity with the published ones, and room for the
//! allocated partitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::future::join_all;
use tessera_api::facts::Placement;
use tessera_api::{ExistingInstance, PartitionName, PciBusId, ProfileSpelling};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_nvml::{GpuInstanceProfile, Identity, Nvml, NvmlError};

use super::allocation::AllocatedDevice;
use super::own::OwnSharing;
use crate::prepare::PrepareError;
use crate::prepare::cards::record_ids::partition_id;
use tessera_nvml::DriverCalls;

/// A device of an allocation, with the driver's data on its card.
#[derive(Clone, Debug)]
pub(in crate::prepare) struct DeviceNeed {
    pub allocated: AllocatedDevice,
    /// The device's name.
    pub name: String,
    pub identity: Identity,
    /// The partition to make or find; `None` for a whole card.
    pub partition: Option<PartitionNeed>,
    /// Memory of the device, MiB; `None` if not reported by the driver.
    pub memory_mib: Option<u64>,
    /// Whether the length of its card's time-slices can be set; `None` if unknown or irrelevant.
    pub has_time_slice_lengths: Option<bool>,
    /// How the claim's own pods share the device.
    pub own_sharing: Option<OwnSharing>,
}

/// A partition of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::prepare) struct PartitionNeed {
    /// Id of the partition's hardware record, if any.
    pub id: String,
    /// Name of the profile in NVIDIA's spelling.
    pub profile: String,
    pub profile_id: u32,
    pub placement: Placement,
    /// Width of the compute instance; `None` for all compute slices.
    pub compute_slices: Option<u32>,
    /// Existing instances to use as they are.
    pub existing: Option<ExistingInstance>,
}

/// Published data of a card.
#[derive(Clone, Debug)]
struct Published {
    uuid: Option<String>,
    has_time_slice_lengths: Option<bool>,
}

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
    fn of(
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

/// Checks the cards of an allocation against the published ones, and works out the allocation's partitions on them. All cards
/// concurrently, on blocking threads. Changes nothing.
///
/// # Errors
/// [`PrepareError::Hardware`], [`PrepareError::OtherCard`], [`PrepareError::NoMig`], [`PrepareError::Profile`],
/// [`PrepareError::NoPartition`], [`PrepareError::NotAnswering`]
pub(in crate::prepare) async fn needs(
    nvml: &Arc<dyn Nvml>,
    calls: &DriverCalls,
    profiles: &Arc<Profiles>,
    published: Option<&Machine>,
    allocated: &[AllocatedDevice],
) -> Result<Vec<DeviceNeed>, PrepareError> {
    let mut cards: BTreeMap<PciBusId, Vec<(usize, AllocatedDevice)>> = BTreeMap::new();
    for (index, device) in allocated.iter().enumerate() {
        cards.entry(device.device.card()).or_default().push((index, device.clone()));
    }
    let looks = cards.into_iter().map(|(card, devices)| {
        let known = published.and_then(|machine| machine.cards.iter().find(|known| known.pci == card));
        let published = Published {
            uuid: known.and_then(|card| card.uuid.clone()),
            has_time_slice_lengths: known.and_then(Card::has_time_slice_lengths),
        };
        let (nvml, profiles) = (nvml.clone(), profiles.clone());
        calls.ask(card, move || of_card(&nvml, &profiles, card, published, devices))
    });
    let mut needs = Vec::with_capacity(allocated.len());
    for found in join_all(looks).await {
        needs.extend(found??);
    }
    needs.sort_unstable_by_key(|(index, _)| *index);
    Ok(needs.into_iter().map(|(_, need)| need).collect())
}

fn of_card(
    nvml: &Arc<dyn Nvml>,
    profiles: &Profiles,
    card: PciBusId,
    published: Published,
    devices: Vec<(usize, AllocatedDevice)>,
) -> Result<Vec<(usize, DeviceNeed)>, PrepareError> {
    let first = devices.first().map(|(_, device)| device.device.to_string()).unwrap_or_default();
    let hardware = |source| PrepareError::Hardware { device: first.clone(), source };
    let identity = nvml.identify(card).map_err(hardware)?;
    if let Some(published) = published.uuid.filter(|uuid| *uuid != identity.uuid) {
        return Err(PrepareError::OtherCard { device: first, published, found: identity.uuid });
    }
    let offered = if devices.iter().any(|(_, device)| device.device.partition().is_some()) {
        let offered = profiles.of(nvml, card, &identity.uuid).map_err(hardware)?;
        let no_mig = || PrepareError::NoMig { device: first.clone(), uuid: identity.uuid.clone() };
        offered.filter(|offered| !offered.is_empty()).ok_or_else(no_mig)?
    } else {
        Vec::new().into()
    };
    let has_time_slice_lengths = match devices.iter().any(|(_, device)| device.sets_time_slices()) {
        true => published.has_time_slice_lengths.or_else(|| has_time_slice_lengths(&**nvml, card)),
        false => None,
    };
    let need = |(index, allocated): (usize, AllocatedDevice)| {
        let name = allocated.device.to_string();
        let mut memory_mib = None;
        let partition = match allocated.device.partition() {
            None => {
                if allocated.settings.has_memory_limit() {
                    // Not checked for a card without a memory report or without memory of its own.
                    let memory = nvml.memory(card).ok().flatten();
                    memory_mib = memory.map(|memory| memory.total >> 20);
                }
                None
            }
            Some(partition) => {
                let compute_slices = allocated.settings.mig.compute_slices;
                let found = match partition.existing {
                    None => on_demand(partition, &offered, compute_slices),
                    Some(existing) => {
                        let instances = nvml.gpu_instances(card);
                        let instances = instances
                            .map_err(|source| PrepareError::Hardware { device: name.clone(), source })?;
                        let instance = instances.iter().find(|instance| {
                            instance.id == existing.gpu_instance
                                && instance.placement.start == partition.start
                        });
                        let instance = instance.ok_or_else(|| PrepareError::NoPartition {
                            device: name.clone(),
                            uuid: identity.uuid.clone(),
                            note: "; somebody has destroyed it",
                        })?;
                        let profile = offered.iter().find(|profile| profile.id == instance.profile_id);
                        Some(PartitionNeed {
                            id: partition_id(partition),
                            profile: profile.map(|profile| profile.name.clone()).unwrap_or_default(),
                            profile_id: instance.profile_id,
                            placement: instance.placement,
                            compute_slices: None,
                            existing: Some(existing),
                        })
                    }
                };
                let found = found.ok_or_else(|| PrepareError::Profile {
                    device: name.clone(),
                    uuid: identity.uuid.clone(),
                    offered: list(&offered),
                })?;
                let profile = offered.iter().find(|profile| profile.id == found.profile_id);
                memory_mib = profile.map(|profile| profile.memory_bytes >> 20);
                Some(found)
            }
        };
        let identity = identity.clone();
        let need = DeviceNeed {
            allocated,
            name,
            identity,
            partition,
            memory_mib,
            has_time_slice_lengths,
            own_sharing: None,
        };
        Ok((index, need))
    };
    devices.into_iter().map(need).collect()
}

/// For a card not published yet, asks the driver: an allocation can be older than this start of the plugin.
fn has_time_slice_lengths(nvml: &dyn Nvml, card: PciBusId) -> Option<bool> {
    let capability = nvml.card(card).ok()?.compute_capability.ok()??;
    Some(capability.has_time_slice_lengths())
}

/// A partition made on demand, with this card's own profile and placement.
fn on_demand(
    partition: &PartitionName,
    offered: &[GpuInstanceProfile],
    compute_slices: Option<u32>,
) -> Option<PartitionNeed> {
    let is_asked = |profile: &&GpuInstanceProfile| {
        ProfileSpelling::of_profile(&profile.name).is_ok_and(|spelling| spelling == partition.profile)
    };
    let profile = offered.iter().find(is_asked)?;
    let placement = profile.placements.iter().find(|placement| placement.start == partition.start)?;
    Some(PartitionNeed {
        id: partition_id(partition),
        profile: profile.name.clone(),
        profile_id: profile.id,
        placement: *placement,
        compute_slices,
        existing: None,
    })
}

/// The profiles offered by a card, for an error: `1g.10gb at 0, 1, 2; 2g.20gb at 0, 2`.
fn list(offered: &[GpuInstanceProfile]) -> String {
    let profile = |profile: &GpuInstanceProfile| {
        let starts: Vec<String> =
            profile.placements.iter().map(|placement| placement.start.to_string()).collect();
        format!("{} at {}", profile.name, starts.join(", "))
    };
    offered.iter().map(profile).collect::<Vec<_>>().join("; ")
}
