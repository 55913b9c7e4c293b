use std::fmt;
use std::str::FromStr;

/// Version of the NVIDIA driver, for comparison: `580.95.05`. A suffix, as in `550.54.15-grid`, is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// The branch: 535, 570, 580, …
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; 0 where the driver has only two.
    pub patch: u32,
}

/// The oldest driver supported by Tessera.
///
/// Required functions without a replacement, by NVML's change log: since 510 `nvmlDeviceGetMemoryInfo_v2` (the older
/// call takes the reserved memory off the total, so that one card would be published with two sizes) and MIG profile
/// names; since 535 `nvmlDeviceGetComputeRunningProcesses_v3` (the older calls' record has another layout). 535 is
/// also the oldest branch NVIDIA supported for long. Later functions are optional.
pub const MINIMUM_DRIVER_VERSION: DriverVersion =
    DriverVersion { major: tessera_api::version::MINIMUM_DRIVER, minor: 0, patch: 0 };

/// The text is not a driver version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a driver version such as 580.95.05")]
pub struct InvalidDriverVersion(String);

/// Version of CUDA supported by the driver (`nvmlSystemGetCudaDriverVersion_v2`): `13.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl FromStr for DriverVersion {
    type Err = InvalidDriverVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidDriverVersion(text.chars().take(40).collect());
        let (numbers, _suffix) = text.split_once(['-', '+']).unwrap_or((text, ""));
        let numbers = numbers
            .split('.')
            .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten())
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(invalid)?;
        match numbers[..] {
            [major, minor] => Ok(DriverVersion { major, minor, patch: 0 }),
            [major, minor, patch] => Ok(DriverVersion { major, minor, patch }),
            _ => Err(invalid()),
        }
    }
}

/// Without leading zeros, as required for semantic versions: `580.95.5`.
impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl CudaVersion {
    /// From CUDA's one number: 1000 × major + 10 × minor.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        CudaVersion { major: number / 1000, minor: number % 1000 / 10 }
    }

    /// CUDA's one number: 1000 × major + 10 × minor.
    #[must_use]
    pub fn number(self) -> u32 {
        self.major.saturating_mul(1000).saturating_add(self.minor.saturating_mul(10))
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let version = |text: &str| text.parse::<DriverVersion>().unwrap();
        assert_eq!(version("580.95.05").to_string(), "580.95.5");
        assert_eq!(version("535.54").to_string(), "535.54.0");
        assert_eq!(version("550.54.15-grid").to_string(), "550.54.15");
        assert!(version("580.9") < version("580.95.05"));
        assert!(version("1000.1.1") > version("580.95.05"));
        assert!(version("535.288.01") >= MINIMUM_DRIVER_VERSION);
        assert!(version("470.256.02") < MINIMUM_DRIVER_VERSION);
    }

    #[test]
    fn garbage_is_refused() {
        for text in ["", "580", "580.", "a.b.c", "580.95.05.1", "580.-1", "580.+1", "99999999999.1"] {
            assert!(text.parse::<DriverVersion>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn cuda_numbers() {
        assert_eq!(CudaVersion::from_number(13000).to_string(), "13.0");
        assert_eq!(CudaVersion::from_number(12040).to_string(), "12.4");
        assert_eq!(CudaVersion::from_number(12040).number(), 12040);
    }
}
