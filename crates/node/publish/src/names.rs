//! Names of ResourceSlices.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Longest `metadata.name` of a ResourceSlice: a DNS subdomain.
const NAME_BYTES: usize = 253;
/// Length of the digest in place of the part cut off, in bytes; written with twice as many hexadecimal digits.
const DIGEST_BYTES: usize = 8;

/// The name of a slice of `driver_name` on `node_name`: `<node>-<driver>-<suffix>`, so that slices of one pool sort by
/// `suffix`, and a slice keeps its name across restarts.
///
/// If the name would be too long, the node's name is cut and followed by a digest of node and driver.
#[must_use]
pub fn slice_name(node_name: &str, driver_name: &str, suffix: &str) -> String {
    let plain = format!("{node_name}-{driver_name}-{suffix}");
    if plain.len() <= NAME_BYTES {
        return plain;
    }
    let digest = Sha256::new().chain_update(node_name).chain_update([0]).chain_update(driver_name).finalize();
    let mut tail = String::from("-");
    for byte in &digest[..DIGEST_BYTES] {
        // Writing to a String cannot fail.
        let _ = write!(tail, "{byte:02x}");
    }
    let room = NAME_BYTES.saturating_sub(tail.len() + driver_name.len() + suffix.len() + 2);
    // Node names are ASCII (DNS subdomains); `get`, so that other input can't panic either.
    let head = node_name.get(..room.min(node_name.len())).unwrap_or_default();
    // The label before the digest must not end in `-` or be empty.
    let head = head.trim_end_matches(['-', '.']);
    format!("{head}{tail}-{driver_name}-{suffix}")
}

/// The suffix passed to [`slice_name`] for this name; `None` for a name of another origin.
#[must_use]
pub fn name_suffix<'a>(node_name: &str, driver_name: &str, name: &'a str) -> Option<&'a str> {
    let (_, suffix) = name.rsplit_once(&format!("-{driver_name}-"))?;
    (slice_name(node_name, driver_name, suffix) == name).then_some(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_node_driver_suffix() {
        let name = "node-a-gpu.tessera.dev-30-gpu-0";
        assert_eq!(slice_name("node-a", "gpu.tessera.dev", "30-gpu-0"), name);
        assert_eq!(name_suffix("node-a", "gpu.tessera.dev", name), Some("30-gpu-0"));
        assert_eq!(name_suffix("node-b", "gpu.tessera.dev", name), None);
    }

    #[test]
    fn the_longest_node_and_driver_names_give_valid_distinct_names_that_sort_by_suffix() {
        let driver = format!("{}.dev", "d".repeat(59));
        let long = |end: &str| format!("{}.{end}", "n".repeat(253 - 1 - end.len()));
        let names: Vec<String> = ["a", "b"]
            .iter()
            .flat_map(|end| ["00-counters-0", "30-gpu-0"].map(|s| slice_name(&long(end), &driver, s)))
            .collect();
        for name in &names {
            assert!(tessera_api::limits::is_dns_subdomain(name), "{name}");
            assert!(name.len() <= NAME_BYTES);
            let suffixes = ["a", "b"].map(|end| name_suffix(&long(end), &driver, name));
            assert_eq!(suffixes.iter().flatten().count(), 1, "{suffixes:?}");
        }
        assert!(names[0] < names[1] && names[2] < names[3]);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn a_cut_never_leaves_a_hyphen_or_dot_before_the_digest() {
        let driver = "gpu.tessera.dev";
        for length in 200..=253 {
            let node: String = "a.-".chars().cycle().take(length - 1).chain(['z']).collect();
            let node = node.replace(".-", ".b");
            let name = slice_name(&node, driver, "30-gpu-0");
            assert!(tessera_api::limits::is_dns_subdomain(&name), "{name}");
        }
    }
}
