//! MIG partitions as devices: those created on demand, and those created by someone else.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCapacity, DeviceCounterConsumption};
use tessera_api::{
    DeviceName, DeviceType, ExistingInstance, PartitionName, ProfileSpelling, attribute, capacity, limits,
};

use super::attributes::Attributes;
use super::counters;
use super::description::{Description, bytes, number};
use crate::machine::{Card, ComputeInstance, GpuInstance, GpuInstanceProfile, Placement};
use crate::mig::{Grid, GridProfile};
use crate::warning::Warning;

/// The most memory slices listed in a partition's capacities.
const MOST_SLICES: u32 = 8;

/// A partition of a card, not yet a device of some type.
pub struct Partition<'a> {
    pub name: PartitionName,
    /// `1g.10gb`, with a width in front if a compute instance has only part of its GPU instance.
    pub profile_name: String,
    pub profile: &'a GridProfile<'a>,
    /// Its compute slices.
    pub compute_slices: u32,
    /// Bytes of memory: its part of its GPU instance's.
    memory: i64,
    multiprocessors: Option<u32>,
    /// The memory slices of its GPU instance.
    pub placement: Placement,
    /// The existing instance, if any.
    memory_slices: Option<Placement>,
    /// `MIG-…`, if existing.
    uuid: Option<&'a str>,
    pub consumption: DeviceCounterConsumption,
    /// Whether this is all of its GPU instance.
    pub is_full_width: bool,
}

/// Every profile of the grid at every placement, in the order of trying.
pub fn on_demand<'a>(card: &Card, grid: &'a Grid<'a>, set: &CounterSet) -> Vec<Partition<'a>> {
    let mut partitions = Vec::new();
    for profile in &grid.profiles {
        for placement in &profile.placements {
            let name = PartitionName {
                card: card.pci,
                profile: profile.spelling.clone(),
                start: placement.start,
                existing: None,
            };
            partitions.push(Partition {
                name,
                profile_name: profile.facts.name.clone(),
                profile,
                compute_slices: profile.facts.compute_slices,
                memory: memory_of(profile, 1),
                multiprocessors: Some(profile.facts.multiprocessors),
                placement: *placement,
                memory_slices: None,
                uuid: None,
                consumption: counters::of_partition(set, grid, profile, *placement),
                is_full_width: true,
            });
        }
    }
    partitions
}

/// The MIG devices of instances created by someone else, smallest first.
pub fn existing<'a>(
    card: &'a Card,
    grid: &'a Grid<'a>,
    set: &CounterSet,
    warnings: &mut Vec<Warning>,
) -> Vec<Partition<'a>> {
    let mut partitions = Vec::new();
    for instance in card.mig.iter().flat_map(|mig| &mig.instances) {
        let unusable =
            |reason| Warning::UnusableInstance { card: card.pci, gpu_instance: instance.id, reason };
        let Some(profile) = grid.profile_of(instance) else {
            warnings.push(unusable("the driver names no profile with its id"));
            continue;
        };
        if instance.placement.end() > grid.memory_slices || instance.placement.size == 0 {
            warnings.push(unusable("it is not within the memory slices of the card"));
            continue;
        }
        if instance.compute_instances.is_empty() {
            warnings.push(unusable("it has no compute instance; make one (nvidia-smi mig -cci) or destroy it (nvidia-smi mig -dgi)"));
            continue;
        }
        for compute in &instance.compute_instances {
            match of_compute_instance(card, profile, instance, compute, set) {
                Some(partition) => partitions.push(partition),
                None => {
                    warnings.push(unusable("the driver shows no MIG device for one of its compute instances"))
                }
            }
        }
    }
    partitions.sort_by(|one, other| {
        let key = |partition: &Partition<'_>| (partition.memory, partition.compute_slices);
        key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
    });
    let mut names = BTreeSet::new();
    partitions.retain(|partition| names.insert(partition.name.clone()));
    partitions
}

fn of_compute_instance<'a>(
    card: &Card,
    profile: &'a GridProfile<'a>,
    instance: &'a GpuInstance,
    compute: &'a ComputeInstance,
    set: &CounterSet,
) -> Option<Partition<'a>> {
    let uuid = compute.uuid.as_deref().filter(|uuid| !uuid.is_empty())?;
    let width = compute.placement.size;
    let is_full_width = width >= profile.facts.compute_slices;
    let parts = instance.compute_instances.len();
    let (spelling, profile_name): (ProfileSpelling, String) = if is_full_width {
        (profile.spelling.clone(), profile.facts.name.clone())
    } else {
        (profile.spelling.with_compute_slices(width).ok()?, format!("{width}c.{}", profile.facts.name))
    };
    let Placement { start, .. } = instance.placement;
    let existing = ExistingInstance { gpu_instance: instance.id, compute_instance: compute.id };
    Some(Partition {
        name: PartitionName { card: card.pci, profile: spelling, start, existing: Some(existing) },
        profile_name,
        profile,
        compute_slices: width.min(profile.facts.compute_slices),
        memory: memory_of(profile, parts),
        multiprocessors: match compute.multiprocessors {
            None if is_full_width => Some(profile.facts.multiprocessors),
            multiprocessors => multiprocessors,
        },
        placement: instance.placement,
        memory_slices: Some(instance.placement),
        uuid: Some(uuid),
        consumption: counters::part_of_slices(set, instance.placement, parts),
        is_full_width,
    })
}

/// Engines and multiprocessors of a profile, by the names of capacities.
pub const fn engines(facts: &GpuInstanceProfile) -> [(&'static str, u32); 6] {
    [
        (capacity::MULTIPROCESSORS, facts.multiprocessors),
        (capacity::COPY_ENGINES, facts.copy_engines),
        (capacity::DECODERS, facts.decoders),
        (capacity::ENCODERS, facts.encoders),
        (capacity::JPEG_ENGINES, facts.jpeg_engines),
        (capacity::OFA_ENGINES, facts.ofa_engines),
    ]
}

/// Guaranteed part of an instance's memory for each of `parts` users: MIG does not divide the memory between them.
fn memory_of(profile: &GridProfile<'_>, parts: usize) -> i64 {
    let memory = i64::try_from(profile.facts.memory_bytes).unwrap_or(i64::MAX);
    match i64::try_from(parts) {
        Ok(parts) if parts > 1 => memory / parts / (1 << 20) * (1 << 20),
        _ => memory,
    }
}

impl Partition<'_> {
    /// The partition as an exclusive device; `None` if its name would be invalid.
    pub fn device(
        &self,
        card: &Card,
        description: &Description,
        warnings: &mut Vec<Warning>,
    ) -> Option<Device> {
        let name = DeviceName::Partition(self.name.clone()).to_string();
        if !limits::is_dns_label(&name) {
            warnings.push(Warning::DeviceName(name.chars().take(100).collect()));
            return None;
        }
        let mut attributes = self.attributes(DeviceType::Mig, card, description, warnings);
        attributes.string(attribute::UUID, self.uuid);
        let attributes = attributes.into_map();
        Some(Device {
            name,
            attributes: Some(attributes),
            capacity: Some(self.capacities(description)),
            consumes_counters: Some(vec![self.consumption.clone()]),
            taints: description.taints(Some(self.placement)),
            ..Device::default()
        })
    }

    /// Its attributes as a device of a type.
    pub fn attributes<'w>(
        &self,
        device_type: DeviceType,
        card: &Card,
        description: &Description,
        warnings: &'w mut Vec<Warning>,
    ) -> Attributes<'w> {
        let mut attributes = Attributes::with(card.pci, description.attributes.clone(), warnings);
        attributes.string(attribute::TYPE, Some(device_type.as_str()));
        attributes.string(attribute::PROFILE, Some(&self.profile_name));
        attributes.string(attribute::PARENT_UUID, card.uuid.as_deref());
        attributes.int(attribute::MEMORY_MIB, Some(self.memory >> 20));
        attributes
    }

    /// Bytes of memory.
    pub const fn memory(&self) -> i64 {
        self.memory
    }

    fn capacities(&self, description: &Description) -> BTreeMap<String, DeviceCapacity> {
        let mut capacities: BTreeMap<String, DeviceCapacity> = BTreeMap::new();
        if description.has_nvidia_capacities {
            capacities
                .extend(engines(self.profile.facts).map(|(name, value)| (name.to_owned(), number(value))));
        }
        capacities.insert(capacity::MEMORY.to_owned(), bytes(self.memory));
        match self.multiprocessors {
            Some(count) => capacities.insert(capacity::MULTIPROCESSORS.to_owned(), number(count)),
            None => capacities.remove(capacity::MULTIPROCESSORS),
        };
        // As many slices as fit within the API's limit of 32 attributes and capacities of a device: all known cards
        // have at most eight.
        let slices = self.memory_slices.filter(|placement| placement.size <= MOST_SLICES);
        let slices = slices.map(|placement| placement.start..placement.end()).into_iter().flatten();
        capacities.extend(slices.map(|index| (capacity::memory_slice(index), number(1))));
        capacities
    }
}
