//! MIG profiles of an H100 with 80 GB.

use tessera_nvml::{ComputeInstanceProfile, GpuInstanceProfile, Placement};

/// Profiles: id, name, compute slices, size in memory slices, starts.
pub(super) const PROFILES: [(u32, &str, u32, u32, &[u32]); 7] = [
    (19, "1g.10gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (20, "1g.10gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (15, "1g.20gb", 1, 2, &[0, 2, 4, 6]),
    (14, "2g.20gb", 2, 2, &[0, 2, 4]),
    (9, "3g.40gb", 3, 4, &[0, 4]),
    (5, "4g.40gb", 4, 4, &[0]),
    (0, "7g.80gb", 7, 8, &[0]),
];

pub(super) fn profile(
    (id, name, slices, size, starts): &(u32, &str, u32, u32, &[u32]),
) -> GpuInstanceProfile {
    GpuInstanceProfile {
        id: *id,
        name: (*name).to_owned(),
        compute_slices: *slices,
        max_instances: u32::try_from(starts.len()).unwrap(),
        memory_bytes: u64::from(*size) * (10 << 30),
        multiprocessors: slices * 16,
        copy_engines: *slices,
        decoders: *slices,
        encoders: 0,
        jpeg_engines: *slices,
        ofa_engines: 0,
        placements: starts.iter().map(|start| Placement { start: *start, size: *size }).collect(),
    }
}

/// The id of a compute instance profile is its number of slices; of the narrow variant 101.
pub(super) fn compute_profile(enumerator: u32, width: u32, most: u32) -> ComputeInstanceProfile {
    ComputeInstanceProfile {
        enumerator,
        id: if enumerator == 7 { 101 } else { width },
        compute_slices: width,
        multiprocessors: width * 16,
        max_instances: most,
    }
}

pub(super) fn widest(profile: u32) -> u32 {
    PROFILES.iter().find(|known| known.0 == profile).unwrap().2
}
