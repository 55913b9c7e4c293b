//! GPU instances.

use crate::failure::Failure;
use crate::hardware::mig::{GpuInstanceProfile, MigModel};
use crate::state::mig::{GpuInstance, Mig};

/// Where an instance lies: first memory slice, number of memory slices.
type Range = (u32, u32);

fn overlap(one: Range, other: Range) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

/// Id of an instance, by its place in the tree of halves: 0 is the whole card, 1 and 2 its halves, 3 to 6 its quarters, 7
/// to 14 its eighths. Captures of 8-unit Ampere boards show both this order and the swapped order of halves, hence
/// `swapped`.
pub fn id(model: &MigModel, start: u32, size: u32, swapped: bool) -> u32 {
    let places = (model.memory_slices / size.max(1)).max(1);
    let place = start / size.max(1);
    let place = if swapped { (place + places / 2) % places } else { place };
    places - 1 + place
}

/// Whether one more instance of a profile fits at `start`.
pub fn fits(model: &MigModel, mig: &Mig, profile: &GpuInstanceProfile, start: u32) -> bool {
    let range = (start, profile.memory_slices);
    mig.instances.iter().all(|instance| !overlap(range, (instance.start, instance.size)))
        && count(mig, profile) < profile.max_instances
        && engines_suffice(model, mig, profile)
}

fn count(mig: &Mig, profile: &GpuInstanceProfile) -> u32 {
    mig.instances.iter().filter(|instance| instance.profile == profile.id).count() as u32
}

/// Whether the engines of the card suffice for the instances and one more. The card has as many of each kind as its widest
/// profile; a kind whose number is unknown limits nothing.
fn engines_suffice(model: &MigModel, mig: &Mig, profile: &GpuInstanceProfile) -> bool {
    let most = |kind: usize| model.profiles.iter().map(|profile| profile.engines()[kind]).max().flatten();
    (0..profile.engines().len()).all(|kind| {
        let (Some(most), Some(more)) = (most(kind), profile.engines()[kind]) else { return true };
        let used: u32 = mig
            .instances
            .iter()
            .filter_map(|instance| model.profile(instance.profile)?.engines()[kind])
            .sum();
        // An instance without engines of a kind is never refused for that kind.
        more == 0 || used + more <= most
    })
}

/// The driver's choice of a placement. The real rule is unknown; the emulator takes the first placement among those blocking the
/// fewest other placements.
pub fn choose(model: &MigModel, mig: &Mig, profile: &GpuInstanceProfile) -> Option<u32> {
    let spoiled = |start: u32| {
        let range = (start, profile.memory_slices);
        model
            .profiles
            .iter()
            .flat_map(|other| other.starts.iter().map(move |start| (other, *start)))
            .filter(|(other, start)| overlap(range, (*start, other.memory_slices)))
            .filter(|(other, start)| fits(model, mig, other, *start))
            .count()
    };
    let free = profile.starts.iter().copied().filter(|start| fits(model, mig, profile, *start));
    free.min_by_key(|start| (spoiled(*start), *start))
}

/// Number of further instances possible with a profile.
pub fn remaining(model: &MigModel, mig: &Mig, profile: &GpuInstanceProfile) -> u32 {
    let mut mig = mig.clone();
    let mut more = 0;
    // Placements of one profile do not partly overlap, so taking them greedily gives the most.
    for start in &profile.starts {
        if fits(model, &mig, profile, *start) {
            insert(&mut mig, profile, *start, u32::MAX);
            more += 1;
        }
    }
    more
}

fn insert(mig: &mut Mig, profile: &GpuInstanceProfile, start: u32, id: u32) -> u64 {
    let serial = mig.next_serial();
    let instance = GpuInstance {
        serial,
        id,
        profile: profile.id,
        start,
        size: profile.memory_slices,
        compute_instances: Vec::new(),
    };
    let place = mig.instances.partition_point(|other| other.id < id);
    mig.instances.insert(place, instance);
    serial
}

/// Makes an instance, at `placement` or where the driver likes. Returns its serial number.
///
/// # Errors
/// `NOT_SUPPORTED` with the mode off, `INVALID_ARGUMENT` for a profile or a placement unknown to the card,
/// `INSUFFICIENT_RESOURCES` where engines or slices are taken.
pub fn create(
    model: &MigModel,
    mig: &mut Mig,
    profile: u32,
    placement: Option<Range>,
    swapped: bool,
) -> Result<u64, Failure> {
    if !mig.enabled {
        return Err(Failure::NOT_SUPPORTED);
    }
    let profile = model.profile(profile).ok_or(Failure::INVALID_ARGUMENT)?;
    let start = match placement {
        Some((start, size)) => {
            if size != profile.memory_slices || !profile.starts.contains(&start) {
                return Err(Failure::INVALID_ARGUMENT);
            }
            Some(start).filter(|start| fits(model, mig, profile, *start))
        }
        None => choose(model, mig, profile),
    };
    let start = start.ok_or(Failure::INSUFFICIENT_RESOURCES)?;
    Ok(insert(mig, profile, start, id(model, start, profile.memory_slices, swapped)))
}

/// Destroys an instance. `used` is whether processes run on it.
///
/// # Errors
/// `IN_USE` while it has compute instances or processes, `INVALID_ARGUMENT` if the instance is gone.
pub fn destroy(mig: &mut Mig, serial: u64, used: impl FnOnce(&GpuInstance) -> bool) -> Result<(), Failure> {
    let place = mig
        .instances
        .iter()
        .position(|instance| instance.serial == serial)
        .ok_or(Failure::INVALID_ARGUMENT)?;
    if !mig.instances[place].compute_instances.is_empty() || used(&mig.instances[place]) {
        return Err(Failure::IN_USE);
    }
    mig.instances.remove(place);
    Ok(())
}
