//! Fraction of a card that a device takes.

use std::collections::HashMap;

use k8s_openapi::api::resource::v1::{Device, DeviceRequestAllocationResult};
use tessera_api::{DeviceName, PciBusId, Quantity, attribute, capacity, counter};

use super::objects::Published;

/// Memory slices of cards with seven compute slices. Cards with four compute slices have four memory slices (NVIDIA's MIG User Guide).
const EIGHT: usize = 8;

/// The devices of a node with their fractions of a card.
#[derive(Debug, Default)]
pub struct Parts {
    devices: HashMap<String, Part>,
}

/// A device.
#[derive(Debug)]
struct Part {
    name: DeviceName,
    /// Fraction of the card; for a shared device, of all its shares together.
    of_card: f64,
    /// MIG profile, as NVIDIA writes it; empty without one.
    profile: String,
    /// Capacities divided among claims.
    capacities: Vec<(String, f64)>,
}

/// A claim's part of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The card.
    pub card: PciBusId,
    /// Fraction of the card's compute or memory, whichever is larger, from 0 to 1.
    pub of_card: f64,
    /// The part in words: `whole`, `1g.10gb`, `15 %`.
    pub words: String,
}

impl Parts {
    /// From the published devices.
    pub fn of(published: &Published) -> Self {
        let mut slices_of_card: HashMap<&str, usize> = HashMap::new();
        for set in published.counter_sets() {
            slices_of_card.insert(&set.name, memory_slices(set.counters.keys()));
        }
        let part = |device: &Device| Some((device.name.clone(), part(device, &slices_of_card)?));
        Self { devices: published.devices().filter_map(part).collect() }
    }

    /// MIG profiles of the partitions.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.devices.values().map(|part| part.profile.as_str()).filter(|profile| !profile.is_empty())
    }

    /// Memory in bytes of the smallest shared card; `None` if no card is shared.
    pub fn least_shared_memory(&self) -> Option<u64> {
        let shared = self.devices.values().filter(|part| matches!(part.name, DeviceName::Mps(_)));
        let memory = |part: &Part| Some(part.capacities.iter().find(|(name, _)| name == capacity::MEMORY)?.1);
        shared.filter_map(memory).map(|nanos| (nanos / 1e9) as u64).min()
    }

    /// The part taken by an allocation result; `None` for a device not on the node.
    pub fn taken(&self, result: &DeviceRequestAllocationResult) -> Option<Taken> {
        let part = self.devices.get(&result.device)?;
        let consumed = |name: &str| {
            let all = part.capacities.iter().find(|(known, _)| known == name)?.1;
            let consumed = result.consumed_capacity.as_ref()?;
            let text = consumed.iter().find(|(key, _)| plain(key) == name)?.1;
            (all > 0.0).then(|| amount(&text.0) / all)
        };
        let shares = [capacity::COMPUTE, capacity::MEMORY, capacity::SLOTS].map(consumed);
        let share = shares.into_iter().flatten().fold(0.0, f64::max);
        let (of_card, words) = match &part.name {
            DeviceName::Card(_) => (1.0, "whole".to_owned()),
            DeviceName::Partition(_) => (part.of_card, part.profile.clone()),
            DeviceName::PartitionMps(_) => {
                (part.of_card * share, format!("{} of {}", percent(share), part.profile))
            }
            DeviceName::TimeSlice(_) => (share, "a turn".to_owned()),
            _ => (share, percent(share)),
        };
        Some(Taken { card: part.name.card(), of_card, words })
    }
}

fn part(device: &Device, slices_of_card: &HashMap<&str, usize>) -> Option<Part> {
    let name: DeviceName = device.name.parse().ok()?;
    let of_card = match name.partition() {
        None => 1.0,
        Some(partition) => {
            let consumption = device.consumes_counters.as_ref()?.first()?;
            let all = *slices_of_card.get(consumption.counter_set.as_str())?;
            let compute_slices = if all == EIGHT { EIGHT - 1 } else { all };
            let of = |part: usize, all: usize| part as f64 / all.max(1) as f64;
            let memory = of(memory_slices(consumption.counters.keys()), all);
            memory.max(of(partition.profile.compute_slices() as usize, compute_slices)).min(1.0)
        }
    };
    let capacities = device.capacity.iter().flatten();
    let capacities =
        capacities.map(|(name, value)| (plain(name).to_owned(), amount(&value.value.0))).collect();
    let profile = device.attributes.as_ref().and_then(|all| all.get(attribute::PROFILE)?.string.clone());
    Some(Part { name, of_card, profile: profile.unwrap_or_default(), capacities })
}

fn memory_slices<'n>(names: impl Iterator<Item = &'n String>) -> usize {
    names.filter(|name| counter::memory_slice_number(name).is_some()).count()
}

/// A capacity's name without its domain.
fn plain(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn amount(text: &str) -> f64 {
    Quantity::parse(text).map_or(0.0, |quantity| quantity.nanos() as f64)
}

pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if (percent - percent.round()).abs() < 0.05 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}
