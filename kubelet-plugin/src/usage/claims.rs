//! Devices of claims and their use: read from the device if exclusive, else from the processes of the claim's pods.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::machine::Card;
use tessera_journal::{ClaimDevice, ClaimRecord};

use super::look::{Look, ProcessLook};
use super::pods::Owner;
use super::report::{CardReport, ClaimReport, DeviceReport, MIB, multiprocessor_share};

/// A device of a claim, by the source of its use.
enum Extent {
    /// The whole card.
    Card,
    /// A GPU instance.
    Partition { gpu_instance: u32 },
    /// A compute instance smaller than its GPU instance.
    PartOfPartition { gpu_instance: u32, compute_instance: u32 },
    /// A share, of the card or a GPU instance.
    Share { gpu_instance: Option<u32> },
    /// A partition that does not exist.
    Unknown,
}

/// The claims, and each card's allocated share of memory. `owner` gives the owner of a process.
pub fn claims<'a>(
    records: impl IntoIterator<Item = &'a ClaimRecord>,
    facts: &BTreeMap<PciBusId, &Card>,
    looks: &BTreeMap<PciBusId, Look>,
    mut owner: impl FnMut(u32) -> Owner,
) -> (Vec<ClaimReport>, BTreeMap<PciBusId, f64>) {
    let records: Vec<&ClaimRecord> = records.into_iter().collect();
    let claimants = claimants(&records);
    let mut allocated = BTreeMap::<PciBusId, f64>::new();
    let mut claims = Vec::new();
    // A claim recreated under the same name counts once: two records would have the same labels.
    let mut names = BTreeSet::new();
    for record in &records {
        if !names.insert((&record.namespace, &record.name)) {
            continue;
        }
        let mut devices = BTreeMap::<&str, DeviceReport>::new();
        for device in record.devices.iter().filter(|device| !device.admin_access) {
            let card = facts.get(&device.card).copied();
            let report = report(device, record, card, looks.get(&device.card), &claimants, &mut owner);
            let total = card.and_then(usable).unwrap_or_default();
            if total > 0 {
                *allocated.entry(device.card).or_default() += report.memory_granted as f64 / total as f64;
            }
            // Processes of two shares of one device cannot be told apart.
            match devices.get_mut(&*device.device) {
                Some(first) => {
                    first.memory_granted = (first.memory_granted + report.memory_granted).min(total);
                    first.sm_granted = first
                        .sm_granted
                        .zip(report.sm_granted)
                        .map(|(one, other)| f64::min(one + other, 1.0));
                }
                None => drop(devices.insert(&device.device, report)),
            }
        }
        claims.push(ClaimReport {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            uid: record.uid.clone(),
            pods: record.pods.clone(),
            devices: devices.into_values().collect(),
        });
    }
    claims.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    allocated.values_mut().for_each(|share| *share = share.min(1.0));
    (claims, allocated)
}

impl CardReport {
    /// A card with its allocated share.
    pub(super) fn new(facts: &Card, look: Look, allocated: &BTreeMap<PciBusId, f64>) -> Self {
        let allocated = allocated.get(&facts.pci).copied().unwrap_or_default();
        Self { facts: facts.clone(), look, allocated }
    }
}

/// UIDs of the claims by pod and device: a pod's use of a device held by two of its claims belongs to neither alone.
fn claimants<'a>(records: &[&'a ClaimRecord]) -> BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>> {
    let mut claimants = BTreeMap::<_, BTreeSet<_>>::new();
    for record in records {
        for device in record.devices.iter().filter(|device| !device.admin_access) {
            for pod in &record.pods {
                claimants.entry((&*pod.uid, &*device.device)).or_default().insert(&*record.uid);
            }
        }
    }
    claimants
}

fn report(
    device: &ClaimDevice,
    record: &ClaimRecord,
    card: Option<&Card>,
    look: Option<&Look>,
    claimants: &BTreeMap<(&str, &str), BTreeSet<&str>>,
    owner: &mut impl FnMut(u32) -> Owner,
) -> DeviceReport {
    let name = device.device.parse::<DeviceName>().ok();
    let partition = device.partition.as_ref().map(|partition| {
        let gpu_instance = partition.instances.as_ref().map(|instances| instances.gpu_instance);
        (of_gpu_instance(&partition.profile).to_owned(), gpu_instance)
    });
    let profile = partition.as_ref().map(|(profile, _)| profile.as_str());
    let multiprocessors = match profile {
        None => Some(1.0),
        Some(profile) => card.and_then(|card| multiprocessor_share(card, profile)),
    };
    let is_shared = device.share_id.is_some()
        || matches!(name, Some(DeviceName::Mps(_) | DeviceName::PartitionMps(_) | DeviceName::TimeSlice(_)));
    let granted = match profile {
        None => card.and_then(usable),
        Some(profile) => card.and_then(|card| profile_memory(card, profile)),
    };
    let share = device.mps.as_ref().filter(|_| is_shared);
    let memory_granted = match share {
        Some(share) => share.memory_mib.or(share.memory_limit_mib),
        None => device.memory_mib,
    };
    let memory_granted = memory_granted.map(|mib| mib.saturating_mul(MIB));
    let sm_granted = match (&name, share) {
        (Some(DeviceName::TimeSlice(_)), _) => None,
        (_, Some(share)) => multiprocessors
            .zip(share.compute)
            .map(|(multiprocessors, percent)| multiprocessors * f64::from(percent) / 100.0),
        _ if is_shared => None,
        _ => multiprocessors,
    };
    let pods: BTreeSet<&str> = record
        .pods
        .iter()
        .map(|pod| &*pod.uid)
        .filter(|pod| claimants.get(&(*pod, &*device.device)).is_some_and(|claims| claims.len() == 1))
        .collect();
    let (memory_used, sm_activity) = look
        .map_or((None, None), |look| used(&extent(device, is_shared), look, multiprocessors, &pods, owner));
    DeviceReport {
        device: device.device.clone(),
        card: device.card,
        card_uuid: device.card_uuid.clone(),
        partition,
        memory_granted: memory_granted.or(granted).unwrap_or_default(),
        is_unlimited: share.is_none() && device.memory_mib.is_some(),
        sm_granted,
        memory_used,
        sm_activity,
    }
}

fn extent(device: &ClaimDevice, is_shared: bool) -> Extent {
    let Some(partition) = &device.partition else {
        return if is_shared { Extent::Share { gpu_instance: None } } else { Extent::Card };
    };
    let Some(instances) = &partition.instances else { return Extent::Unknown };
    let gpu_instance = instances.gpu_instance;
    if is_shared {
        Extent::Share { gpu_instance: Some(gpu_instance) }
    } else if of_gpu_instance(&partition.profile) == partition.profile {
        Extent::Partition { gpu_instance }
    } else {
        Extent::PartOfPartition { gpu_instance, compute_instance: instances.compute_instance }
    }
}

/// Memory in bytes, and multiprocessors as a share of the card's.
fn used(
    extent: &Extent,
    look: &Look,
    multiprocessors: Option<f64>,
    pods: &BTreeSet<&str>,
    owner: &mut impl FnMut(u32) -> Owner,
) -> (Option<u64>, Option<f64>) {
    let processes = |wanted: &dyn Fn(&ProcessLook) -> bool| -> Option<Vec<&ProcessLook>> {
        Some(look.processes.as_ref()?.iter().filter(|process| wanted(process)).collect())
    };
    match *extent {
        Extent::Unknown => (None, None),
        Extent::Card => (look.memory.map(|memory| memory.used), look.activity.sm.or(look.utilization)),
        Extent::Partition { gpu_instance } => {
            let mut partitions = look.partitions.iter().flatten();
            let Some(partition) = partitions.find(|partition| partition.gpu_instance == gpu_instance) else {
                return (None, None);
            };
            let sm = partition.activity.sm.zip(multiprocessors).map(|(sm, share)| sm * share);
            (partition.memory.map(|memory| memory.used), sm)
        }
        Extent::PartOfPartition { gpu_instance, compute_instance } => {
            let of_it = |process: &ProcessLook| {
                (process.gpu_instance, process.compute_instance)
                    == (Some(gpu_instance), Some(compute_instance))
            };
            (processes(&of_it).and_then(|processes| memory_of(&processes)), None)
        }
        Extent::Share { gpu_instance } => {
            let of_device = |process: &ProcessLook| process.gpu_instance == gpu_instance;
            let Some(on_it) = processes(&of_device) else { return (None, None) };
            let mut own = Vec::new();
            for process in on_it {
                match owner(process.pid) {
                    Owner::Pod(pod) if pods.contains(&*pod) => own.push(process),
                    Owner::Pod(_) | Owner::Node => {}
                    // The process may be this claim's.
                    Owner::Unknown => return (None, None),
                }
            }
            // A claim without a pod owns none of the processes for certain.
            if pods.is_empty() {
                return (None, None);
            }
            let sm: Option<f64> = own.iter().map(|process| process.sm).sum();
            (memory_of(&own), sm.map(|sm| sm.clamp(0.0, 1.0)))
        }
    }
}

/// `None` if the driver lacks the value for one of them.
fn memory_of(processes: &[&ProcessLook]) -> Option<u64> {
    processes.iter().map(|process| process.memory_bytes).sum()
}

/// Memory of a card available to programs, bytes.
fn usable(card: &Card) -> Option<u64> {
    card.memory_bytes.map(|total| total.saturating_sub(card.reserved_memory_bytes))
}

fn profile_memory(card: &Card, profile: &str) -> Option<u64> {
    let profiles = &card.mig.as_ref()?.profiles;
    profiles.iter().find(|known| known.name == profile).map(|profile| profile.memory_bytes)
}

/// `3g.40gb` of `1c.3g.40gb`.
fn of_gpu_instance(profile: &str) -> &str {
    match profile.split_once('.') {
        Some((slices, rest)) if slices.ends_with('c') => rest,
        _ => profile,
    }
}

#[cfg(test)]
mod tests;
