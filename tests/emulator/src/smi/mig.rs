//! `nvidia-smi mig` and `nvidia-smi -mig`: for partitioning by hand.

mod act;
mod arguments;
mod list;
mod read;

use super::card::Reading;
use super::library::{Library, SmiError};

pub(super) use self::act::set_mode;
pub(super) use self::arguments::{Mig, spell_out};
use self::read::Profile;

/// `NVML_ERROR_NOT_FOUND`
const NOT_FOUND: u32 = 6;

/// Runs `nvidia-smi mig`.
pub(super) fn run(library: &Library, mig: &Mig) -> Result<String, SmiError> {
    let mut readings = Reading::all(library, None)?;
    if let Some(ids) = &mig.id {
        let mut chosen = Vec::new();
        for id in ids.split(',') {
            chosen.extend(Reading::all(library, Some(id))?.into_iter().map(|reading| reading.index));
        }
        readings.retain(|reading| chosen.contains(&reading.index));
    }
    readings.retain(|reading| reading.mig.is_ok_and(|(current, _)| current == 1));
    if readings.is_empty() {
        return Err(SmiError::Plain { text: "No MIG-enabled devices found.".to_owned(), code: NOT_FOUND });
    }
    let of_gpu = |reading: &Reading| -> Result<Vec<read::GpuInstance>, SmiError> {
        let mut found = read::gpu_instances(library, reading)?;
        found.retain(|gpu| mig.gpu_instance_id.is_empty() || mig.gpu_instance_id.contains(&gpu.id));
        Ok(found)
    };
    let mut text = String::new();
    if mig.list_gpu_instance_profiles {
        text.push_str(&list::gpu_instance_profiles(library, &readings)?);
    }
    if mig.list_gpu_instance_possible_placements {
        text.push_str(&list::possible_placements(library, &readings)?);
    }
    if mig.list_gpu_instances {
        text.push_str(&list::gpu_instances(library, &readings, of_gpu)?);
    }
    if let Some(profiles) = &mig.create_gpu_instance {
        text.push_str(&act::create(library, &readings, profiles, mig.default_compute_instance)?);
    }
    if mig.destroy_gpu_instance {
        text.push_str(&act::destroy(library, &readings, of_gpu)?);
    }
    if mig.list_compute_instance_profiles {
        text.push_str(&list::compute_instance_profiles(library, &readings, of_gpu)?);
    }
    if mig.list_compute_instances {
        text.push_str(&list::compute_instances(library, &readings, of_gpu)?);
    }
    if let Some(profiles) = &mig.create_compute_instance {
        text.push_str(&act::create_compute(library, &readings, profiles, of_gpu)?);
    }
    if mig.destroy_compute_instance {
        text.push_str(&act::destroy_compute(library, &readings, &mig.compute_instance_id, of_gpu)?);
    }
    Ok(text)
}

/// The profile named by an admin, by id, by name, or by name behind `MIG `.
fn named<'profiles>(profiles: &'profiles [Profile], text: &str) -> Option<&'profiles Profile> {
    let plain = text.strip_prefix("MIG ").unwrap_or(text);
    profiles.iter().find(|profile| profile.id.to_string() == text || profile.name == plain)
}
