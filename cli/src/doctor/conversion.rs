//! Extended resources that are to be turned into claims (docs/managed.md).

use super::{Facts, Finding, warning};

/// Suffix of the policy's name.
const POLICY: &str = "-conversion";

/// Namespaces that wait for a policy in vain.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(conversion) = facts.live.and_then(|live| live.conversion.as_ref()) else { return Vec::new() };
    if conversion.namespaces.is_empty() || conversion.policies.iter().any(|policy| policy.ends_with(POLICY)) {
        return Vec::new();
    }
    vec![warning(
        "admission policy",
        format!(
            "no policy turns extended resources into claims, though the label gpu.tessera.dev/claims asks for it in {}: new pods \
             with nvidia.com/gpu in their limits are native there, and get no cards of managed pools",
            conversion.namespaces.join(", ")
        ),
        "set managed.convertExtendedResources.enabled in the chart, then let the pods be made anew",
    )]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use tessera_cluster::Objects;

    use super::*;
    use crate::doctor::published::Published;
    use crate::doctor::{Conversion, Live};

    fn told(namespaces: &[&str], policies: &[&str]) -> Vec<String> {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let conversion = Conversion { namespaces: owned(namespaces), policies: owned(policies) };
        let live = Live { conversion: Some(conversion), ..Live::default() };
        let facts = Facts {
            objects: &Objects::default(),
            published: &Published::default(),
            pools: None,
            live: Some(&live),
            driver: "gpu.tessera.dev",
            node: None,
            now: Timestamp::UNIX_EPOCH,
        };
        findings(&facts).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_label_without_a_policy_is_told() {
        assert_eq!(told(&[], &[]), [""; 0]);
        assert_eq!(told(&["a"], &["gpu-tessera-steering", "gpu-tessera-conversion"]), [""; 0]);
        let told = told(&["a", "b"], &["gpu-tessera-steering"]);
        assert!(told.len() == 1 && told[0].contains("asks for it in a, b"), "{told:?}");
    }
}
