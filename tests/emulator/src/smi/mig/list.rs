//! Lists of partitions, in the form of the real tool.

use std::fmt::Write;

use super::super::card::Reading;
use super::super::library::{Library, SmiError};
use super::read::{self, GpuInstance};

/// A table: heading, then rows of lines, each row with a rule below.
fn table(width: usize, heading: &[&str], rows: &[Vec<String>]) -> String {
    let rule = format!("+{}+\n", "-".repeat(width));
    let mut text = rule.clone();
    let line = |text: &mut String, content: &str| {
        let _ = writeln!(text, "|{content:<width$}|");
    };
    for content in heading {
        line(&mut text, content);
    }
    let _ = writeln!(text, "|{}|", "=".repeat(width));
    for row in rows {
        for content in row {
            line(&mut text, content);
        }
        text.push_str(&rule);
    }
    text
}

/// A table of `what` for each chosen GPU instance; an error if there is nothing.
fn table_of(
    what: &str,
    width: usize,
    heading: &[&str],
    readings: &[Reading],
    chosen: impl Chosen,
    mut rows_of: impl FnMut(&Reading, &GpuInstance) -> Result<Vec<Vec<String>>, SmiError>,
) -> Result<String, SmiError> {
    let mut rows = Vec::new();
    for reading in readings {
        for gpu in chosen(reading)? {
            rows.extend(rows_of(reading, &gpu)?);
        }
    }
    if rows.is_empty() {
        return Err(SmiError::Plain { text: format!("No {what} found: Not Found"), code: super::NOT_FOUND });
    }
    Ok(table(width, heading, &rows))
}

pub(super) fn gpu_instance_profiles(library: &Library, readings: &[Reading]) -> Result<String, SmiError> {
    let mut rows = Vec::new();
    for reading in readings {
        for profile in read::profiles(library, reading)? {
            let function = "nvmlDeviceGetGpuInstanceRemainingCapacity";
            let free: Result<u32, u32> = library.value_of(function, reading.device, profile.id);
            let free = library.named("Failed to get remaining capacity", free)?;
            let [copy, decoders, encoders, jpeg, ofa] = profile.engines;
            let instances = format!("{free}/{}", profile.most);
            rows.push(vec![
                format!(
                    " {:>3}  MIG {:<14} {:>3} {instances:>7} {:>12.2}       No {:>6} {decoders:>5} {encoders:>5}",
                    reading.index,
                    profile.name,
                    profile.id,
                    profile.memory_mib as f64 / 1024.0,
                    profile.multiprocessors
                ),
                format!("{:>62} {jpeg:>5} {ofa:>5}", copy),
            ]);
        }
    }
    let heading = [
        " GPU instance profiles:",
        " GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC",
        "                                Free/Total   GiB              CE    JPEG  OFA",
    ];
    Ok(table(79, &heading, &rows))
}

pub(super) fn possible_placements(library: &Library, readings: &[Reading]) -> Result<String, SmiError> {
    let mut text = String::new();
    for reading in readings {
        for profile in read::profiles(library, reading)? {
            let placements = read::placements(library, reading, &profile)?;
            let starts: Vec<String> = placements.iter().map(|(start, _)| start.to_string()).collect();
            let _ = writeln!(
                text,
                "GPU {:>2} Profile ID {:>2} {}: {{{}}}:{}",
                reading.index,
                profile.id,
                if starts.len() == 1 { "Placement " } else { "Placements" },
                starts.join(","),
                placements.first().map_or(0, |(_, size)| *size)
            );
        }
    }
    Ok(text)
}

/// The chosen GPU instances of a card.
pub(super) trait Chosen: Fn(&Reading) -> Result<Vec<GpuInstance>, SmiError> {}
impl<T: Fn(&Reading) -> Result<Vec<GpuInstance>, SmiError>> Chosen for T {}

pub(super) fn gpu_instances(
    _library: &Library,
    readings: &[Reading],
    chosen: impl Chosen,
) -> Result<String, SmiError> {
    let heading = [
        " GPU instances:",
        " GPU   Name               Profile  Instance   Placement",
        "                            ID       ID       Start:Size",
    ];
    table_of("GPU instances", 57, &heading, readings, chosen, |reading, gpu| {
        let placement = format!("{}:{}", gpu.start, gpu.size);
        Ok(vec![vec![format!(
            " {:>3}  MIG {:<16} {:>3} {:>8} {placement:>12}",
            reading.index, gpu.name, gpu.profile, gpu.id
        )]])
    })
}

pub(super) fn compute_instance_profiles(
    library: &Library,
    readings: &[Reading],
    chosen: impl Chosen,
) -> Result<String, SmiError> {
    let heading = [
        " Compute instance profiles:",
        " GPU     GPU       Name             Profile  Instances   Exclusive       Shared",
        "       Instance                       ID     Free/Total     SM       DEC   ENC   OFA",
        "         ID                                                          CE    JPEG",
    ];
    table_of("GPU instances", 86, &heading, readings, chosen, |reading, gpu| {
        let row = |profile: read::Profile| {
            let function = "nvmlGpuInstanceGetComputeInstanceRemainingCapacity";
            let free: Result<u32, u32> = library.value_of(function, gpu.handle, profile.id);
            let free = library.named("Failed to get remaining capacity", free)?;
            let [copy, decoders, encoders, jpeg, ofa] = profile.engines;
            // The star marks the default profile of -C.
            let id = format!("{}{}", profile.id, if profile.name == gpu.name { "*" } else { "" });
            Ok(vec![
                format!(
                    " {:>3} {:>6}       MIG {:<15} {id:>3} {:>8} {:>12} {decoders:>8} {encoders:>5} {ofa:>5}",
                    reading.index,
                    gpu.id,
                    profile.name,
                    format!("{free}/{}", profile.most),
                    profile.multiprocessors
                ),
                format!("{copy:>70} {jpeg:>5}"),
            ])
        };
        read::compute_profiles(library, gpu).into_iter().map(row).collect()
    })
}

pub(super) fn compute_instances(
    library: &Library,
    readings: &[Reading],
    chosen: impl Chosen,
) -> Result<String, SmiError> {
    let heading = [
        " Compute instances:",
        " GPU     GPU       Name             Profile   Instance   Placement",
        "       Instance                       ID        ID       Start:Size",
        "         ID",
    ];
    table_of("compute instances", 68, &heading, readings, chosen, |reading, gpu| {
        let row = |compute: read::ComputeInstance| {
            let placement = format!("{}:{}", compute.start, compute.size);
            vec![format!(
                " {:>3} {:>6}       MIG {:<15} {:>3} {:>9} {placement:>11}",
                reading.index, gpu.id, compute.name, compute.profile, compute.id
            )]
        };
        Ok(read::compute_instances(library, gpu)?.into_iter().map(row).collect())
    })
}
