use nvml_wrapper_sys::bindings as sys;

/// `3_SLICE_GFX`, still missing from the bindings.
const PROFILE_3_SLICE_GFX: u32 = 17;

/// The driver's name of a profile in its usual form: `MIG 1g.10gb` → `1g.10gb`. `None` for an invalid name.
pub(super) fn normalized(name: &str) -> Option<String> {
    let name = name.trim().trim_start_matches("MIG").trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The name for a profile without a name from the driver, by the rule of NVIDIA's own tools (`go-nvlib`): the memory is the
/// profile's share of the card in eighths, rounded up, of the card's memory in GiB, rounded up.
pub(super) fn derived(enumerator: u32, compute_slices: u32, memory_mib: u64, card_bytes: u64) -> String {
    let gibibytes = u128::from(card_bytes.div_ceil(1 << 30));
    let eighths = (u128::from(memory_mib) << 23).div_ceil(u128::from(card_bytes.max(1)));
    // Rounded half up.
    let gigabytes = (eighths * gibibytes * 2 + 8) / 16;
    format!("{compute_slices}g.{gigabytes}gb{}", attribute(enumerator))
}

fn attribute(enumerator: u32) -> &'static str {
    match enumerator {
        sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 | sys::NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1 => "+me",
        sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX
        | sys::NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX
        | sys::NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX
        | PROFILE_3_SLICE_GFX => "+gfx",
        sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME | sys::NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME => "-me",
        sys::NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME | sys::NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME => {
            "+me.all"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_drivers_prefix_goes() {
        assert_eq!(normalized("MIG 1g.10gb+me").as_deref(), Some("1g.10gb+me"));
        assert_eq!(normalized("1g.24gb-me").as_deref(), Some("1g.24gb-me"));
        assert_eq!(normalized("MIG "), None);
    }

    /// Enumerator, compute slices and MiB of profiles, MiB of the card, and nvidia-smi's name (MIG
    /// User Guide and captured listings).
    #[test]
    fn derived_names_are_those_of_nvidia_smi() {
        for (enumerator, slices, memory, card, name) in [
            (0, 1, 4864, 40960, "1g.5gb"),
            (7, 1, 4864, 40960, "1g.5gb+me"),
            (9, 1, 9984, 40960, "1g.10gb"),
            (2, 3, 20096, 40960, "3g.20gb"),
            (4, 7, 40320, 40960, "7g.40gb"),
            (0, 1, 9984, 81559, "1g.10gb"),
            (3, 4, 40448, 81559, "4g.40gb"),
            (4, 7, 81152, 81559, "7g.80gb"),
            (0, 1, 11008, 95830, "1g.12gb"),
            (2, 3, 47488, 95830, "3g.47gb"),
            (4, 7, 95360, 95830, "7g.94gb"),
            (0, 1, 20992, 183359, "1g.23gb"),
            (1, 2, 45312, 183359, "2g.45gb"),
            (8, 2, 11968, 24576, "2g.12gb+me"),
            (15, 1, 24192, 97887, "1g.24gb+me.all"),
            (13, 1, 24192, 97887, "1g.24gb-me"),
            (11, 2, 48512, 97887, "2g.48gb+gfx"),
        ] {
            assert_eq!(derived(enumerator, slices, memory, card * MIB), name);
        }
    }

    #[test]
    fn nonsense_gives_some_name() {
        assert_eq!(derived(99, 0, 0, 0), "0g.0gb");
        assert!(derived(0, 1, u64::MAX, 1).starts_with("1g."));
    }
}
