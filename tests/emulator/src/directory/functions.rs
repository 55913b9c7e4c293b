//! The driver version that introduced each function of `nvml.h`.

use std::collections::BTreeSet;

const LIST: &str = include_str!("../../data/nvml-functions.txt");

/// Every function, with the newest driver branch known to lack it.
pub fn all() -> impl Iterator<Item = (&'static str, Option<u32>)> {
    LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (name, branch) = line.split_once(' ').unwrap_or((line, ""));
        (name, branch.parse().ok())
    })
}

/// Functions missing in a driver of this version.
pub fn lacked_by(version: &str) -> BTreeSet<&'static str> {
    let branch: u32 = version.split('.').next().and_then(|branch| branch.parse().ok()).unwrap_or(u32::MAX);
    all()
        .filter(|(_, lacking)| lacking.is_some_and(|lacking| branch <= lacking))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_drivers_lack_more() {
        assert!(lacked_by("525.60.13").contains("nvmlDeviceGetGpuFabricInfoV"));
        assert!(!lacked_by("580.105.08").contains("nvmlDeviceGetGpuFabricInfoV"));
        assert!(lacked_by("470.1").len() > lacked_by("580.1").len());
        assert!(all().all(|(name, _)| name.starts_with("nvml")));
    }
}
