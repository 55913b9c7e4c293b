//! Cards and partitions that several claims share, each claim with a share of its own size.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, CounterSet, Device, DeviceCapacity,
    DeviceCounterConsumption,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::offer::{Mps, TimeSliceInterval, TimeSlicing};
use tessera_api::{DeviceName, DeviceType, Quantity, attribute, capacity, limits};

use super::attributes::AttributeMap;
use super::attributes::Attributes;
use super::counters;
use super::description::Description;
use super::partition::Partition;
use crate::machine::{Card, Placement};
use crate::static_partitions::{NoStaticPartitions, StaticPartitions};
use crate::warning::Warning;

/// The smallest share of memory, of which default shares are multiples: no CUDA context fits into less.
const MEMORY_STEP: i64 = 128 << 20;

const MIB: i64 = 1 << 20;

/// The most client processes of one MPS server, by the driver's CUDA version (1000 × major + 10 × minor).
const fn max_clients(compute_major: u32, cuda: u32) -> u32 {
    match (compute_major, cuda) {
        // Before Volta an MPS server had fewer.
        (0..7, _) => 16,
        (_, 13_010..) => 60,
        _ => 48,
    }
}

/// Makes the shared devices of a card.
pub struct SharedDevices<'a> {
    pub card: &'a Card,
    pub description: &'a Description,
    /// Newest CUDA of the driver, 1000 × major + 10 × minor.
    pub cuda_driver_version: Option<u32>,
}

impl SharedDevices<'_> {
    /// The card shared by MPS; `None` where its memory is unknown or too small to be shared.
    pub fn mps(&self, mps: &Mps, set: &CounterSet, warnings: &mut Vec<Warning>) -> Option<Device> {
        let memory = self.memory();
        let card = self.card.pci;
        let min_compute = match self.static_partitions(mps) {
            None => 1,
            Some(Ok(partitions)) => partitions.min_compute(),
            Some(Err(reason)) => {
                warnings.push(Warning::NoStaticPartitions { card, reason });
                return None;
            }
        };
        let capacity =
            memory.and_then(|memory| mps_capacities(memory, self.clients(mps, 1, 1), mps, min_compute));
        let Some(capacity) = capacity else {
            warnings.push(Warning::NotShared { card, memory });
            return None;
        };
        if default_compute(mps.default_shares, 1) < min_compute {
            let shares = mps.default_shares;
            warnings.push(Warning::FewerDefaultShares { card, shares, compute: min_compute });
        }
        let mut attributes = self.attributes(DeviceType::Mps, warnings);
        attributes.bool(attribute::STATIC_PARTITIONS, mps.static_partitions.then_some(true));
        attributes.int(attribute::MEMORY_MIB, self.description.memory.map(|bytes| bytes >> 20));
        let attributes = attributes.into_map();
        let name = DeviceName::Mps(self.card.pci);
        Some(self.device(name, None, attributes, capacity, counters::all_of(set)))
    }

    /// A partition shared by MPS, if the configuration says so and the partition is all of its GPU instance;
    /// `card_slices` are the compute slices of the whole card.
    pub fn partition_mps(
        &self,
        partition: &Partition<'_>,
        card_slices: u32,
        mps: &Mps,
        warnings: &mut Vec<Warning>,
    ) -> Option<Device> {
        if !partition.is_full_width || !mps.partitions.contains(&partition.profile.facts.name) {
            return None;
        }
        let name = DeviceName::PartitionMps(partition.name.clone());
        if !limits::is_dns_label(&name.to_string()) {
            warnings.push(Warning::DeviceName(name.to_string().chars().take(100).collect()));
            return None;
        }
        let memory = partition.memory();
        // The number of clients shrinks with the compute instance (MIG User Guide, "CUDA Multi-Process Service").
        let clients = self.clients(mps, partition.compute_slices, card_slices);
        let Some(capacity) = mps_capacities(memory, clients, mps, 1) else {
            warnings.push(Warning::NotShared { card: self.card.pci, memory: Some(memory) });
            return None;
        };
        let attributes =
            partition.attributes(DeviceType::Mps, self.card, self.description, warnings).into_map();
        let consumption = partition.consumption.clone();
        Some(self.device(name, Some(partition.placement), attributes, capacity, consumption))
    }

    /// The card shared by time-slicing; `None` if the configuration sets the length of a slice and the card has no
    /// such setting; otherwise claims would fail on the node.
    pub fn time_slices(
        &self,
        slicing: &TimeSlicing,
        set: &CounterSet,
        warnings: &mut Vec<Warning>,
    ) -> Option<Device> {
        let has_lengths = self.card.has_time_slice_lengths();
        if has_lengths == Some(false) && slicing.interval != TimeSliceInterval::Default {
            let interval = slicing.interval.as_str();
            warnings.push(Warning::NoTimeSliceLengths { card: self.card.pci, interval });
            return None;
        }
        let mut attributes = self.attributes(DeviceType::TimeSlice, warnings);
        attributes.bool(attribute::TIME_SLICE_INTERVALS, has_lengths);
        attributes.int(attribute::MEMORY_MIB, self.description.memory.map(|bytes| bytes >> 20));
        let attributes = attributes.into_map();
        // One slot for each request: two slots would not be more of the card than one.
        let range = range(Quantity::decimal(1), Some(Quantity::decimal(1)), None);
        let slots = shared(Quantity::decimal(slicing.replicas.into()), Quantity::decimal(1), range);
        let mut capacity = BTreeMap::from([(capacity::SLOTS.to_owned(), slots)]);
        let memory = self.memory().and_then(|memory| time_slice_memory(memory, slicing.replicas));
        capacity.extend(memory.map(|memory| (capacity::MEMORY.to_owned(), memory)));
        let name = DeviceName::TimeSlice(self.card.pci);
        Some(self.device(name, None, attributes, capacity, counters::all_of(set)))
    }

    /// Memory of the card that programs can have, bytes.
    fn memory(&self) -> Option<i64> {
        let reserved = i64::try_from(self.card.reserved_memory_bytes).unwrap_or(i64::MAX);
        self.description.memory.map(|memory| memory.saturating_sub(reserved).max(0))
    }

    /// The card's static partitions, if the configuration asks for them.
    fn static_partitions(&self, mps: &Mps) -> Option<Result<StaticPartitions, NoStaticPartitions>> {
        mps.static_partitions.then(|| StaticPartitions::of(self.card, self.cuda_driver_version))
    }

    fn clients(&self, mps: &Mps, slices: u32, of: u32) -> u32 {
        let major = self.card.compute_capability.map_or(7, |version| version.major);
        let most = max_clients(major, self.cuda_driver_version.unwrap_or(0));
        let most = u64::from(most) * u64::from(slices) / u64::from(of.max(1));
        let most = u32::try_from(most).unwrap_or(u32::MAX).max(1);
        mps.max_clients.map_or(most, |limit| limit.min(most))
    }

    fn attributes<'w>(&self, device_type: DeviceType, warnings: &'w mut Vec<Warning>) -> Attributes<'w> {
        let mut attributes = Attributes::with(self.card.pci, self.description.attributes.clone(), warnings);
        attributes.string(attribute::TYPE, Some(device_type.as_str()));
        attributes.string(attribute::PARENT_UUID, self.card.uuid.as_deref());
        attributes
    }

    /// A device in these memory slices, or on all of the card.
    fn device(
        &self,
        name: DeviceName,
        slices: Option<Placement>,
        attributes: AttributeMap,
        capacity: BTreeMap<String, DeviceCapacity>,
        consumption: DeviceCounterConsumption,
    ) -> Device {
        Device {
            name: name.to_string(),
            attributes: Some(attributes),
            capacity: Some(capacity),
            allow_multiple_allocations: Some(true),
            // Consumed with the first share, released with the last.
            consumes_counters: Some(vec![consumption]),
            taints: self.description.taints(slices),
            ..Device::default()
        }
    }
}

/// The memory from which time-slices take their parts: all of them fit with what they get unasked. `None` if a part is below 1 MiB.
fn time_slice_memory(memory: i64, replicas: u32) -> Option<DeviceCapacity> {
    let part = memory / i64::from(replicas.max(1)) / MIB * MIB;
    let valid = range(Quantity::binary(MIB), None, None);
    (part > 0).then(|| shared(Quantity::binary(memory / MIB * MIB), Quantity::binary(part), valid))
}

/// Percent of the multiprocessors for each of that many shares, at least `min`.
fn default_compute(shares: u32, min: u32) -> u32 {
    (100 / shares.max(1)).max(min)
}

/// The capacities from which shares of `memory` bytes are taken, each with at least `min_compute` percent of the
/// multiprocessors; `None` if there is less than one step for each default share.
fn mps_capacities(
    memory: i64,
    clients: u32,
    mps: &Mps,
    min_compute: u32,
) -> Option<BTreeMap<String, DeviceCapacity>> {
    let steps = |bytes: i64| bytes / MEMORY_STEP * MEMORY_STEP;
    // No more shares than the most clients: each share has at least one.
    let shares = mps.default_shares.clamp(1, clients.max(1));
    let default = steps(memory / i64::from(shares));
    if default < MEMORY_STEP || steps(memory) < 2 * MEMORY_STEP {
        return None;
    }
    // No step: kube-scheduler rounds a request near 2^63 up to a negative number, which it allocates. With steps of one,
    // as of the others, there is nothing to round.
    let memory = shared(
        Quantity::binary(steps(memory)),
        Quantity::binary(default),
        range(Quantity::binary(MEMORY_STEP), None, None),
    );
    let one = || Quantity::decimal(1);
    let percent = Quantity::decimal(default_compute(shares, min_compute).into());
    let least = Quantity::decimal(min_compute.into());
    // A step must fit on top of the minimum; of one share there is nothing to step to.
    let compute_step = (min_compute < 100).then(one);
    let compute = shared(Quantity::decimal(100), percent, range(least, None, compute_step));
    // A step must fit on top of the minimum; of one client there is nothing to step to.
    let client_step = (clients > 1).then(one);
    let clients = shared(Quantity::decimal(clients.into()), one(), range(one(), None, client_step));
    let capacities = [(capacity::MEMORY, memory), (capacity::COMPUTE, compute), (capacity::CLIENTS, clients)];
    Some(capacities.into_iter().map(|(name, capacity)| (name.to_owned(), capacity)).collect())
}

fn shared(value: Quantity, default: Quantity, valid: CapacityRequestPolicyRange) -> DeviceCapacity {
    DeviceCapacity {
        value: text(value),
        request_policy: Some(CapacityRequestPolicy {
            default: Some(text(default)),
            valid_range: Some(valid),
            valid_values: None,
        }),
    }
}

fn range(min: Quantity, max: Option<Quantity>, step: Option<Quantity>) -> CapacityRequestPolicyRange {
    CapacityRequestPolicyRange { min: text(min), max: max.map(text), step: step.map(text) }
}

fn text(quantity: Quantity) -> QuantityText {
    QuantityText(quantity.to_string())
}
