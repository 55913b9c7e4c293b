//! Changes of partitions and of the mode.

use std::fmt::Write;

use super::super::card::Reading;
use super::super::library::{Library, SmiError};
use super::list::Chosen;
use super::read::{self, GpuInstance, Profile};

/// `NVML_ERROR_INVALID_ARGUMENT`
const INVALID_ARGUMENT: u32 = 2;

/// `nvidia-smi -mig`: the mode of these cards. A card unable to switch now is reported, but is not an error, as
/// with the real tool.
pub(in super::super) fn set_mode(
    library: &Library,
    readings: &[Reading],
    on: u32,
) -> Result<String, SmiError> {
    let mut text = String::new();
    let word = if on == 1 { "enable" } else { "disable" };
    for reading in readings {
        let bus = reading.pci.map_or("N/A".to_owned(), |pci| pci.id());
        let what = format!("Unable to {word} MIG Mode for GPU {bus}");
        let mut status = 0_u32;
        let outcome = library.fill_of("nvmlDeviceSetMigMode", reading.device, on, &mut status);
        library.named(&what, outcome)?;
        if status == 0 {
            let _ = writeln!(text, "{}d MIG Mode for GPU {bus}", if on == 1 { "Enable" } else { "Disable" });
        } else {
            let reason = library.error_text(status);
            let _ = writeln!(text, "Warning: MIG mode is in pending {word} state for GPU {bus}:{reason}");
        }
    }
    text.push_str("All done.\n");
    Ok(text)
}

/// `19`, `1g.10gb` or `MIG 1g.10gb`, with or without `:START` at the end.
fn asked(text: &str) -> Result<(&str, Option<u32>), SmiError> {
    match text.trim().rsplit_once(':') {
        None => Ok((text.trim(), None)),
        Some((profile, start)) => match start.parse() {
            Ok(start) => Ok((profile, Some(start))),
            Err(_) => Err(unknown(text)),
        },
    }
}

fn unknown(text: &str) -> SmiError {
    let text = format!(
        "{text:?} is not a profile here: name or id, with :START or without (-lgip and -lgipp list them)"
    );
    SmiError::Plain { text, code: INVALID_ARGUMENT }
}

/// Reports the work done before a failure, like the real tool.
fn told<T>(text: &str, outcome: Result<T, SmiError>) -> Result<T, SmiError> {
    if outcome.is_err() {
        print!("{text}");
    }
    outcome
}

pub(super) fn create(
    library: &Library,
    readings: &[Reading],
    profiles: &str,
    with_compute: bool,
) -> Result<String, SmiError> {
    let mut text = String::new();
    for reading in readings {
        let offered = read::profiles(library, reading)?;
        for one in profiles.split(',') {
            let gpu = told(&text, create_one(library, reading, &offered, one))?;
            let _ = writeln!(
                text,
                "Successfully created GPU instance ID {:>2} on GPU {:>2} using profile MIG {} (ID {:>2})",
                gpu.id, reading.index, gpu.name, gpu.profile
            );
            if with_compute {
                let made = told(&text, create_compute_in(library, reading, &gpu, ""))?;
                text.push_str(&made);
            }
        }
    }
    Ok(text)
}

fn create_one(
    library: &Library,
    reading: &Reading,
    offered: &[Profile],
    text: &str,
) -> Result<GpuInstance, SmiError> {
    let (name, start) = asked(text)?;
    let profile = super::named(offered, name).ok_or_else(|| unknown(text))?;
    let what =
        format!("Unable to create a GPU instance on GPU {:>2} using profile {}", reading.index, profile.id);
    let handle = match start {
        None => library.make("nvmlDeviceCreateGpuInstance", reading.device, profile.id),
        Some(start) => {
            let size = read::placements(library, reading, profile)?.first().map_or(0, |(_, size)| *size);
            library.make_at(
                "nvmlDeviceCreateGpuInstanceWithPlacement",
                reading.device,
                profile.id,
                [start, size],
            )
        }
    };
    let handle = library.named(&what, handle)?;
    let found = read::gpu_instances(library, reading)?.into_iter().find(|gpu| gpu.handle == handle);
    library.named(&what, found.ok_or(super::NOT_FOUND))
}

/// Makes compute instances in one GPU instance: of these profiles, or one of full width.
fn create_compute_in(
    library: &Library,
    reading: &Reading,
    gpu: &GpuInstance,
    profiles: &str,
) -> Result<String, SmiError> {
    let offered = read::compute_profiles(library, gpu);
    let mut text = String::new();
    for one in profiles.split(',') {
        let (name, start) = asked(one)?;
        let profile = if name.is_empty() {
            offered.iter().max_by_key(|profile| (profile.slices, std::cmp::Reverse(profile.id)))
        } else {
            super::named(&offered, name)
        };
        let profile = profile.ok_or_else(|| unknown(one))?;
        let what = format!(
            "Unable to create a compute instance on GPU {:>2} GPU instance ID {:>2} using profile {}",
            reading.index, gpu.id, profile.id
        );
        let handle = match start {
            None => library.make("nvmlGpuInstanceCreateComputeInstance", gpu.handle, profile.id),
            Some(start) => {
                let function = "nvmlGpuInstanceCreateComputeInstanceWithPlacement";
                library.make_at(function, gpu.handle, profile.id, [start, profile.slices])
            }
        };
        let handle = told(&text, library.named(&what, handle))?;
        let found =
            read::compute_instances(library, gpu)?.into_iter().find(|compute| compute.handle == handle);
        let id = library.named(&what, found.map(|compute| compute.id).ok_or(super::NOT_FOUND))?;
        let _ = writeln!(
            text,
            "Successfully created compute instance ID {id:>2} on GPU {:>2} GPU instance ID {:>2} using profile MIG {} (ID {:>2})",
            reading.index, gpu.id, profile.name, profile.id
        );
    }
    Ok(text)
}

pub(super) fn create_compute(
    library: &Library,
    readings: &[Reading],
    profiles: &str,
    chosen: impl Chosen,
) -> Result<String, SmiError> {
    let mut text = String::new();
    for reading in readings {
        for gpu in chosen(reading)? {
            let made = told(&text, create_compute_in(library, reading, &gpu, profiles))?;
            text.push_str(&made);
        }
    }
    Ok(text)
}

pub(super) fn destroy(
    library: &Library,
    readings: &[Reading],
    chosen: impl Chosen,
) -> Result<String, SmiError> {
    let mut text = String::new();
    for reading in readings {
        for gpu in chosen(reading)? {
            let place = format!("GPU instance ID {:>2} from GPU {:>2}", gpu.id, reading.index);
            let outcome = library.of("nvmlGpuInstanceDestroy", gpu.handle);
            told(&text, library.named(&format!("Unable to destroy {place}"), outcome))?;
            let _ = writeln!(text, "Successfully destroyed {place}");
        }
    }
    if text.is_empty() {
        return Err(SmiError::Plain {
            text: "No GPU instances found: Not Found".to_owned(),
            code: super::NOT_FOUND,
        });
    }
    Ok(text)
}

pub(super) fn destroy_compute(
    library: &Library,
    readings: &[Reading],
    ids: &[u32],
    chosen: impl Chosen,
) -> Result<String, SmiError> {
    let mut text = String::new();
    for reading in readings {
        for gpu in chosen(reading)? {
            let mut found = read::compute_instances(library, &gpu)?;
            found.retain(|compute| ids.is_empty() || ids.contains(&compute.id));
            for compute in found {
                let place = format!(
                    "compute instance ID {:>2} from GPU {:>2} GPU instance ID {:>2}",
                    compute.id, reading.index, gpu.id
                );
                let outcome = library.of("nvmlComputeInstanceDestroy", compute.handle);
                told(&text, library.named(&format!("Unable to destroy {place}"), outcome))?;
                let _ = writeln!(text, "Successfully destroyed {place}");
            }
        }
    }
    if text.is_empty() {
        let text = "No compute instances found: Not Found".to_owned();
        return Err(SmiError::Plain { text, code: super::NOT_FOUND });
    }
    Ok(text)
}
