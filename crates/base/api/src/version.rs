//! Versions in Kubernetes' form: strict semantic versions 2.0.0, at most 64 bytes.

use crate::limits;

/// The oldest supported branch of NVIDIA's driver; the reasons are in `tessera_nvml`.
pub const MINIMUM_DRIVER: u32 = 535;

/// Makes a semantic version of a dotted one: removes leading zeros, fills missing parts with 0, keeps a `-suffix` or
/// `+suffix`. `580.95.05` gives `580.95.5`, `9.0` gives `9.0.0`.
///
/// `None` for text without such a form: more than three numbers, other characters, more than 64 bytes.
#[must_use]
pub fn coerce(text: &str) -> Option<String> {
    let (numbers, suffix) = match text.find(['-', '+']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let mut parts = Vec::with_capacity(3);
    for part in numbers.split('.') {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = part.trim_start_matches('0');
        parts.push(if significant.is_empty() { "0" } else { significant });
    }
    parts.resize(parts.len().max(3), "0");
    let version = format!("{}{suffix}", parts.join("."));
    limits::is_version_value(&version).then_some(version)
}

/// The semantic version of CUDA's number, 1000 × major + 10 × minor: 13000 gives `13.0.0`
/// (`nvmlSystemGetCudaDriverVersion`).
#[must_use]
pub fn cuda(number: u32) -> String {
    format!("{}.{}.0", number / 1000, number % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_drivers_say() {
        for (text, version) in [
            ("580.95.05", Some("580.95.5")),
            ("535.161", Some("535.161.0")),
            ("570.00.00", Some("570.0.0")),
            ("9.0", Some("9.0.0")),
            ("550.54.15-grid", Some("550.54.15-grid")),
            ("1.2.3.4", None),
            ("", None),
            ("v1.2.3", None),
            ("1..3", None),
            ("99999999999999999999999.0.0", None),
        ] {
            assert_eq!(coerce(text).as_deref(), version, "{text:?}");
        }
        assert_eq!(cuda(13000), "13.0.0");
        assert_eq!(cuda(12040), "12.4.0");
    }

    proptest! {
        #[test]
        fn whatever_comes_out_is_valid(text in "[0-9]{1,5}(\\.[0-9]{1,5}){0,4}([-+].{0,8})?|.*") {
            if let Some(version) = coerce(&text) {
                prop_assert!(limits::is_version_value(&version), "{}", version);
            }
        }

        #[test]
        fn every_cuda_number_is_valid(number: u32) {
            prop_assert!(limits::is_version_value(&cuda(number)));
        }
    }
}
