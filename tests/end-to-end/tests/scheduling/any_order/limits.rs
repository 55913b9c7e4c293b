//! Limits of what may be given out: by the published numbers, and by the hardware.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::Device;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tessera_api::{DeviceName, PartitionName, ProfileSpelling};
use tessera_inventory::machine::{Card, GpuInstanceProfile};

use super::cluster::{Cluster, Grant, Pod, Published, asked, nanos};
use super::scenario::{Arrival, Ask};

type Result = std::result::Result<(), TestCaseError>;

const ONE: i128 = 1_000_000_000;

/// What is in use: for each device of each node, what each of its users has.
pub struct Sums<'a>(BTreeMap<(usize, &'a str), Vec<&'a Grant>>);

impl<'a> Sums<'a> {
    pub fn of(cluster: &'a Cluster, live: &'a [Pod]) -> Self {
        let mut used: BTreeMap<(usize, &str), Vec<&Grant>> = BTreeMap::new();
        for pod in live {
            for grant in &pod.grants {
                assert!(cluster.nodes[pod.node].devices.contains_key(&grant.device), "{grant:?}");
                used.entry((pod.node, grant.device.as_str())).or_default().push(grant);
            }
        }
        Self(used)
    }

    /// No device, counter or card gives out more than it has.
    pub fn check(&self, cluster: &Cluster) -> Result {
        for ((node, name), grants) in &self.0 {
            check_device(&cluster.nodes[*node].devices[*name], grants)?;
        }
        for (number, node) in cluster.nodes.iter().enumerate() {
            let used: Vec<(&str, &Vec<&Grant>)> = self
                .0
                .iter()
                .filter(|((of, _), _)| *of == number)
                .map(|((_, name), of)| (*name, of))
                .collect();
            check_counters(node, used.iter().map(|(name, _)| *name))?;
            for card in &node.machine.cards {
                let of_card: Vec<(DeviceName, &Vec<&Grant>)> = used
                    .iter()
                    .map(|(name, grants)| (name.parse::<DeviceName>().unwrap(), *grants))
                    .filter(|(name, _)| name.card() == card.pci)
                    .collect();
                check_card(node, card, &of_card)?;
            }
        }
        Ok(())
    }
}

/// Checks a device by what is published of it.
fn check_device(device: &Device, grants: &[&Grant]) -> Result {
    if device.allow_multiple_allocations != Some(true) {
        prop_assert_eq!(grants.len(), 1, "{} has several users", device.name);
        prop_assert!(grants[0].share.is_none() && grants[0].consumed.is_empty());
        return Ok(());
    }
    let mut shares: Vec<&String> = grants.iter().filter_map(|grant| grant.share.as_ref()).collect();
    shares.sort();
    shares.dedup();
    prop_assert_eq!(shares.len(), grants.len(), "{}: each share has an id of its own", device.name);
    for (name, capacity) in device.capacity.iter().flatten() {
        let mut sum = 0;
        for grant in grants {
            let Some(consumed) = grant.consumed.get(name) else {
                return Err(TestCaseError::fail(format!("{}: {name} is not counted", device.name)));
            };
            prop_assert!(*consumed > 0, "{}: {consumed} of {name}", device.name);
            sum += consumed;
        }
        prop_assert!(sum <= nanos(&capacity.value.0), "{}: {sum} of {name}", device.name);
    }
    Ok(())
}

/// Each device in use draws on its counters once, however many claims share it.
fn check_counters<'a>(node: &Published, used: impl Iterator<Item = &'a str>) -> Result {
    let mut left: BTreeMap<(String, String), i128> = BTreeMap::new();
    for set in node.pool.counter_sets() {
        for (name, counter) in &set.counters {
            left.insert((set.name.clone(), name.clone()), nanos(&counter.value.0));
        }
    }
    for name in used {
        for consumption in node.devices[name].consumes_counters.iter().flatten() {
            for (counter, drawn) in &consumption.counters {
                let key = (consumption.counter_set.clone(), counter.clone());
                let left = left.get_mut(&key).unwrap_or_else(|| panic!("{name} draws on {key:?}"));
                *left -= nanos(&drawn.value.0);
                prop_assert!(*left >= 0, "{key:?} is at {left} with {name}");
            }
        }
    }
    Ok(())
}

/// Checks a card by its hardware, independent of what was published: one use at a time, and no more memory, compute and
/// clients than it has.
fn check_card(node: &Published, card: &Card, used: &[(DeviceName, &Vec<&Grant>)]) -> Result {
    let memory_of_card = i128::from(card.memory_bytes.unwrap());
    let mut memory = 0;
    for (position, (name, grants)) in used.iter().enumerate() {
        for (other, _) in &used[..position] {
            prop_assert!(beside(node, name, other), "{name} and {other} at once");
        }
        let of_partition = name.partition().map(|partition| profile(card, partition));
        let whole = of_partition.map_or(memory_of_card, |profile| i128::from(profile.memory_bytes));
        let sum = |capacity: &str| -> i128 { grants.iter().map(|grant| grant.consumed[capacity]).sum() };
        memory += match name {
            DeviceName::Mps(_) | DeviceName::PartitionMps(_) => {
                prop_assert!(sum("memory") <= whole * ONE, "{name}: {} of {whole}", sum("memory") / ONE);
                prop_assert!(sum("compute") <= 100 * ONE, "{name}: {} %", sum("compute") / ONE);
                let slices = of_partition.map(|profile| {
                    let of_card = card.mig.iter().flat_map(|mig| &mig.profiles);
                    (profile.compute_slices, of_card.map(|profile| profile.compute_slices).max().unwrap())
                });
                let most = most_clients(node, card, slices);
                prop_assert!(
                    sum("clients") <= i128::from(most) * ONE,
                    "{name}: {} clients",
                    sum("clients") / ONE
                );
                sum("memory") / ONE
            }
            DeviceName::TimeSlice(_) => {
                let replicas = node.config.sharing.time_slicing.as_ref().unwrap().replicas;
                prop_assert!(grants.len() <= replicas as usize, "{name}: {} turns", grants.len());
                whole
            }
            _ => whole,
        };
    }
    // An A30's profiles add up to slightly more than the card's reported memory.
    prop_assert!(memory <= memory_of_card + (1 << 30), "{}: {memory} of {memory_of_card}", card.pci);
    Ok(())
}

/// Whether two different devices of one card may be in use at once.
fn beside(node: &Published, one: &DeviceName, other: &DeviceName) -> bool {
    let (Some(one), Some(other)) = (one.partition(), other.partition()) else { return false };
    let slices = |partition: &PartitionName| {
        let card = node.machine.cards.iter().find(|card| card.pci == partition.card).unwrap();
        let mut placements = profile(card, partition).placements.iter();
        *placements.find(|placement| placement.start == partition.start).unwrap()
    };
    !slices(one).overlaps(slices(other))
}

/// The profile of a partition that is a whole GPU instance.
fn profile<'a>(card: &'a Card, partition: &PartitionName) -> &'a GpuInstanceProfile {
    let mut profiles = card.mig.as_ref().unwrap().profiles.iter();
    let is_its = |profile: &&GpuInstanceProfile| {
        ProfileSpelling::of_profile(&profile.name).unwrap() == partition.profile
    };
    profiles.find(is_its).unwrap_or_else(|| panic!("{partition}"))
}

/// NVIDIA's MPS documentation: 16 clients before Volta, 48 since, 60 from CUDA 13.1; for a partition in proportion to
/// its compute slices (MIG User Guide). A configuration can only lower it.
fn most_clients(node: &Published, card: &Card, slices: Option<(u32, u32)>) -> u32 {
    let is_old = card.compute_capability.is_some_and(|version| version.major < 7);
    let of_driver = if node.machine.cuda_driver_version.unwrap() >= 13_010 { 60 } else { 48 };
    let of_card = if is_old { 16 } else { of_driver };
    let most = slices.map_or(of_card, |(slices, of)| (of_card * slices / of).max(1));
    let limit = node.config.sharing.mps.as_ref().unwrap().max_clients;
    limit.map_or(most, |limit| limit.min(most))
}

/// A pod got what it requested: for each request the requested number of devices, on one node, and of each at least the
/// requested amount.
pub fn is_what_was_asked(cluster: &Cluster, arrival: &Arrival, pod: &Pod) -> Result {
    let node = &cluster.nodes[pod.node];
    for (number, claim) in arrival.claims.iter().enumerate() {
        for (place, request) in claim.iter().enumerate() {
            let of_request = |grant: &&Grant| grant.claim == number && grant.request.0 == place;
            let grants: Vec<&Grant> = pod.grants.iter().filter(of_request).collect();
            let alternative = grants.first().map_or(0, |grant| grant.request.1);
            let ask = &request.alternatives[alternative];
            prop_assert!(grants.iter().all(|grant| grant.request.1 == alternative));
            prop_assert_eq!(grants.len() as i64, ask.count);
            for grant in grants {
                let device = &node.devices[&grant.device];
                if let Some(kind) = kind(ask) {
                    let attributes = device.attributes.as_ref().unwrap();
                    prop_assert_eq!(attributes["type"].string.as_deref(), Some(kind));
                }
                for (name, amount) in &ask.capacity {
                    let consumed = grant.consumed.get(*name);
                    let is_enough = consumed.is_none_or(|consumed| *consumed >= asked(amount));
                    prop_assert!(is_enough, "{amount} of {name} asked, {consumed:?} given");
                }
            }
        }
    }
    Ok(())
}

fn kind(ask: &Ask) -> Option<&'static str> {
    match ask.class {
        "" => Some("gpu"),
        "any" => None,
        kind => Some(kind),
    }
}

/// For a pod with a single request that was refused: no node has a device with that much left.
pub fn could_not_be_given(cluster: &Cluster, live: &[Pod], arrival: &Arrival) -> Result {
    let [claim] = arrival.claims.as_slice() else { return Ok(()) };
    let [request] = claim.as_slice() else { return Ok(()) };
    let [ask] = request.alternatives.as_slice() else { return Ok(()) };
    if ask.count != 1 || ask.selector.is_some() || kind(ask).is_none() {
        return Ok(());
    }
    let sums = Sums::of(cluster, live);
    for (number, node) in cluster.nodes.iter().enumerate() {
        for device in node.devices.values() {
            let attributes = device.attributes.as_ref().unwrap();
            if attributes["type"].string.as_deref() == kind(ask) {
                prop_assert!(
                    !has_room(&sums, number, node, device, ask),
                    "{} has room for {ask:?}",
                    device.name
                );
            }
        }
    }
    Ok(())
}

fn has_room(sums: &Sums<'_>, number: usize, node: &Published, device: &Device, ask: &Ask) -> bool {
    let users: &[&Grant] = sums.0.get(&(number, device.name.as_str())).map_or(&[], Vec::as_slice);
    let is_shared = device.allow_multiple_allocations == Some(true);
    if !users.is_empty() && !is_shared {
        return false;
    }
    let used = sums.0.keys().filter(|(of, _)| *of == number).map(|(_, name)| *name);
    if users.is_empty() && check_counters(node, used.chain([device.name.as_str()])).is_err() {
        return false;
    }
    let capacities = device.capacity.clone().unwrap_or_default();
    if ask.capacity.iter().any(|(name, _)| !capacities.contains_key(*name)) {
        return false;
    }
    capacities.iter().all(|(name, capacity)| {
        let asked = ask.capacity.iter().find(|(of, _)| of == name).map(|(_, amount)| asked(amount));
        let value = nanos(&capacity.value.0);
        if !is_shared {
            // Since 1.37 a negative amount is an error of the pod.
            return asked.is_none_or(|asked| (0..=value).contains(&asked));
        }
        let policy = capacity.request_policy.as_ref().unwrap();
        let range = policy.valid_range.as_ref().unwrap();
        let min = nanos(&range.min.0);
        let wanted = match asked {
            None => nanos(&policy.default.as_ref().unwrap().0),
            Some(asked) if asked <= min => min,
            Some(asked) => match &range.step {
                None => asked,
                // Kubernetes rounds up to whole units, then to whole steps.
                Some(step) => {
                    let (step, over) = (nanos(&step.0), (asked + ONE - 1) / ONE * ONE - min);
                    min + (over + step - 1) / step * step
                }
            },
        };
        let is_allowed = range.max.as_ref().is_none_or(|max| wanted <= nanos(&max.0));
        let taken: i128 = users.iter().map(|grant| grant.consumed[name]).sum();
        is_allowed && wanted <= value - taken
    })
}
