//! Whether a node's container runtime reads CDI specs, needed for containers to get their cards.

use super::versions::parsed;
use super::{Finding, error, warning};

/// A runtime without CDI, or without CDI by default. `version` is the kubelet's string: `containerd://1.7.27`.
pub fn finding(about: &str, version: &str) -> Option<Finding> {
    let (runtime, number) = version.split_once("://")?;
    let known = parsed(number)?;
    match runtime {
        // From its change logs: CDI came with 1.7, with enable_cdi = false; true since 2.0.
        "containerd" if known < (1, 7) => Some(error(
            about,
            format!("containerd {number} ignores CDI: containers start without their cards"),
            "upgrade containerd to 2.0 or newer",
        )),
        "containerd" if known < (2, 0) => Some(warning(
            about,
            format!(
                "containerd {number} reads CDI specs only if enabled: otherwise containers start without their cards"
            ),
            "upgrade containerd to 2.0 or newer; until then set enable_cdi = true in \
             [plugins.\"io.containerd.grpc.v1.cri\"] of its configuration",
        )),
        "cri-o" if known < (1, 23) => Some(error(
            about,
            format!("CRI-O {number} ignores CDI: containers start without their cards"),
            "upgrade CRI-O to the kubelet's version",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn runtimes_without_cdi_are_told() {
        for (version, wanted) in [
            ("containerd://1.6.38", Some(Severity::Error)),
            ("containerd://1.7.27-k3s1", Some(Severity::Warning)),
            ("containerd://2.0.5", None),
            ("containerd://2.2.0-rc.1", None),
            ("cri-o://1.22.5", Some(Severity::Error)),
            ("cri-o://1.36.0", None),
            ("docker://28.0.1", None),
            ("containerd://unknown", None),
            ("", None),
        ] {
            assert_eq!(finding("n", version).map(|found| found.severity), wanted, "{version}");
        }
    }
}
