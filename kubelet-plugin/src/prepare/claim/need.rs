//! Step 4: an allocation's needs of its cards. Checks the cards' presence, identity with the published ones, and room for the
//! allocated partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use tessera_api::config::Sharing;
use tessera_api::facts::Placement;
use tessera_api::offer::TimeSliceInterval;
use tessera_api::{ExistingInstance, PartitionName, PciBusId, ProfileSpelling};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_nvml::{DriverCalls, GpuInstanceProfile, Identity, Nvml};

use super::allocation::AllocatedDevice;
use super::own::{OwnDaemon, OwnSharing};
use super::profiles::Profiles;
use crate::prepare::{ClaimReference, PrepareError};

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
    pub name: PartitionName,
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

/// Checks the cards of an allocation against the published ones, and works out the allocation's partitions on them and how the
/// claim's pods share its devices. All cards concurrently, on blocking threads. Changes nothing. In the order of the allocation.
///
/// # Errors
/// [`PrepareError::Hardware`], [`PrepareError::OtherCard`], [`PrepareError::NoMig`], [`PrepareError::Profile`],
/// [`PrepareError::NoPartition`], [`PrepareError::NotAnswering`], [`PrepareError::Sharing`],
/// [`PrepareError::TimeSliceIntervals`]
pub(in crate::prepare) async fn needs(
    nvml: &Arc<dyn Nvml>,
    calls: &DriverCalls,
    profiles: &Arc<Profiles>,
    published: Option<&Machine>,
    claim: &ClaimReference,
    driver_name: &str,
    allocated: &[AllocatedDevice],
) -> Result<Vec<DeviceNeed>, PrepareError> {
    let mut cards: BTreeMap<PciBusId, Vec<AllocatedDevice>> = BTreeMap::new();
    for device in allocated {
        cards.entry(device.device.card()).or_default().push(device.clone());
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
    let mut needs: Vec<DeviceNeed> = Vec::with_capacity(allocated.len());
    for found in join_all(looks).await {
        needs.extend(found??);
    }
    needs.sort_by_key(|need| allocated.iter().position(|device| *device == need.allocated));
    let shared = needs.iter().map(|need| own_sharing(claim, driver_name, need, &needs));
    let shared = shared.collect::<Result<Vec<_>, _>>()?;
    needs.iter_mut().zip(shared).for_each(|(need, shared)| need.own_sharing = shared);
    Ok(needs)
}

fn of_card(
    nvml: &Arc<dyn Nvml>,
    profiles: &Profiles,
    card: PciBusId,
    published: Published,
    devices: Vec<AllocatedDevice>,
) -> Result<Vec<DeviceNeed>, PrepareError> {
    let first = devices.first().map(|device| device.device.to_string()).unwrap_or_default();
    let hardware = |source| PrepareError::Hardware { device: first.clone(), source };
    let identity = nvml.identify(card).map_err(hardware)?;
    if let Some(published) = published.uuid.filter(|uuid| *uuid != identity.uuid) {
        return Err(PrepareError::OtherCard { device: first, published, found: identity.uuid });
    }
    let offered = if devices.iter().any(|device| device.device.partition().is_some()) {
        let offered = profiles.of(nvml, card, &identity.uuid).map_err(hardware)?;
        let no_mig = || PrepareError::NoMig { device: first.clone(), uuid: identity.uuid.clone() };
        offered.filter(|offered| !offered.is_empty()).ok_or_else(no_mig)?
    } else {
        Vec::new().into()
    };
    let has_time_slice_lengths = match devices.iter().any(AllocatedDevice::sets_time_slices) {
        true => published.has_time_slice_lengths.or_else(|| has_time_slice_lengths(&**nvml, card)),
        false => None,
    };
    let need = |allocated: AllocatedDevice| {
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
                            name: partition.clone(),
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
        let own_sharing = None;
        Ok(DeviceNeed {
            allocated,
            name,
            identity,
            partition,
            memory_mib,
            has_time_slice_lengths,
            own_sharing,
        })
    };
    devices.into_iter().map(need).collect()
}

/// How the pods of the claim share a device; `needs` are all of the claim's.
///
/// # Errors
/// [`PrepareError::Sharing`] and [`PrepareError::TimeSliceIntervals`] for impossible sharing, as far as known before anything is
/// made.
fn own_sharing(
    claim: &ClaimReference,
    driver_name: &str,
    need: &DeviceNeed,
    needs: &[DeviceNeed],
) -> Result<Option<OwnSharing>, PrepareError> {
    let Some(sharing) = need.allocated.own_sharing() else { return Ok(None) };
    let failed = |reason| PrepareError::Sharing { device: need.name.clone(), reason };
    let limits = match &sharing.how {
        Sharing::TimeSlicing(slicing)
            if slicing.interval != TimeSliceInterval::Default
                && need.has_time_slice_lengths == Some(false) =>
        {
            return Err(PrepareError::TimeSliceIntervals {
                claim: format!("{}/{}", claim.namespace, claim.name),
                device: need.name.clone(),
                uuid: need.identity.uuid.clone(),
                interval: slicing.interval.as_str(),
                driver_name: driver_name.to_owned(),
            });
        }
        Sharing::TimeSlicing(slicing) => {
            return Ok(Some(OwnSharing::TimeSlicing { interval: slicing.interval.number() }));
        }
        Sharing::Mps(limits) => limits.clone(),
        _ => return Err(failed("this version of the plugin does not know how".to_owned())),
    };
    let memory = |need: &DeviceNeed| (need.allocated.device.card(), need.memory_mib);
    let mut daemon = OwnDaemon { owner: claim.uid.clone(), limits, cards: BTreeMap::new(), partition: None };
    if need.partition.is_some() {
        one_partition_a_request(need, needs)?;
        daemon.partition = Some(memory(need));
    } else {
        let is_with = |other: &&DeviceNeed| {
            other.partition.is_none()
                && other.allocated.own_sharing().is_some_and(|its| its.object == sharing.object)
        };
        let with = needs.iter().filter(is_with);
        daemon.cards = with.map(|need| (need.identity.uuid.clone(), memory(need))).collect();
        daemon.memory_limits("").map_err(failed)?;
    }
    Ok(Some(OwnSharing::Mps(daemon)))
}

/// Refuses two partitions with daemons in one request: a container gets all devices of a request, but can be a client
/// of only one daemon.
fn one_partition_a_request(need: &DeviceNeed, needs: &[DeviceNeed]) -> Result<(), PrepareError> {
    let mut earlier = needs.iter().take_while(|other| !std::ptr::eq(*other, need));
    let has_daemon = |other: &DeviceNeed| {
        other.partition.is_some()
            && other.allocated.request == need.allocated.request
            && other.allocated.own_sharing().is_some()
    };
    if !earlier.any(has_daemon) {
        return Ok(());
    }
    Err(PrepareError::Sharing {
        device: need.name.clone(),
        reason: format!(
            "request {} was given several partitions. Each has an MPS daemon of its own, and a process can be client of one \
             only: ask for one larger partition, or for several by requests of their own, each used by another container",
            need.allocated.request
        ),
    })
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
        name: partition.clone(),
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
