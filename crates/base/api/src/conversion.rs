//! Names for extended resources in the limits of pods that an admission policy of the chart turns into claims: managed pools serve
//! nothing else.

/// Key of the label by which a namespace opts in, with value [`OPT_IN_VALUE`]; where the chart converts in all namespaces,
/// [`OPT_OUT_VALUE`] leaves one out.
pub const OPT_IN_LABEL: &str = "gpu.tessera.dev/claims";

/// See [`OPT_IN_LABEL`].
pub const OPT_IN_VALUE: &str = "enabled";

/// See [`OPT_IN_LABEL`].
pub const OPT_OUT_VALUE: &str = "disabled";

/// Key of the label of converted Pods, with value `true`. Their annotation of the same key has the resources that were in the limits, by
/// container, as JSON: `{"train": "nvidia.com/gpu: 4"}`. The annotation is for people only.
pub const CONVERTED: &str = "gpu.tessera.dev/converted";

/// Key of the label of ResourceClaimTemplates made for converted Pods, with value [`MADE_FOR_VALUE`]. No others are deleted.
pub const MADE_FOR_LABEL: &str = "gpu.tessera.dev/made-for";

/// See [`MADE_FOR_LABEL`].
pub const MADE_FOR_VALUE: &str = "extended-resource";

/// Key of the annotation of claims made from these templates: the resource in the limits, as in `nvidia.com/gpu: 4`.
pub const RESOURCE_ANNOTATION: &str = "gpu.tessera.dev/extended-resource";

/// Most devices of one claim (Kubernetes: `AllocationResultsMaxSize`).
const MOST: i64 = 32;

/// Name of the template for so many devices of an extended resource, as in the chart's policy: `nvidia.com-gpu-4`.
#[must_use]
pub fn template_name(resource: &str, count: i64) -> String {
    format!("{}-{count}", resource.to_lowercase().replace(['/', '_'], "-"))
}

/// Name of the template's request: `nvidia-com-gpu`.
#[must_use]
pub fn request_name(resource: &str) -> String {
    resource.to_lowercase().replace(['/', '_', '.'], "-")
}

/// Number of devices, if the template has a name of this extended resource and the number is one that a claim can have.
#[must_use]
pub fn count(template: &str, resource: &str) -> Option<i64> {
    let count = template.rsplit_once('-')?.1.parse().ok()?;
    ((1..=MOST).contains(&count) && template == template_name(resource, count)).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_says_what_it_is_for() {
        assert_eq!(template_name("nvidia.com/mig-1g.10gb", 2), "nvidia.com-mig-1g.10gb-2");
        assert_eq!(template_name("Example.com/A_b", 1), "example.com-a-b-1");
        assert_eq!(request_name("Example.com/A_b"), "example-com-a-b");
        assert_eq!(count("nvidia.com-gpu-4", "nvidia.com/gpu"), Some(4));
        assert_eq!(count("nvidia.com-gpu.shared-4", "nvidia.com/gpu.shared"), Some(4));
        for (template, resource) in [
            ("nvidia.com-gpu.shared-4", "nvidia.com/gpu"),
            ("nvidia.com-gpu-04", "nvidia.com/gpu"),
            ("nvidia.com-gpu-+4", "nvidia.com/gpu"),
            ("nvidia.com-gpu-0", "nvidia.com/gpu"),
            ("nvidia.com-gpu-33", "nvidia.com/gpu"),
            ("nvidia.com-gpu-", "nvidia.com/gpu"),
            ("mine", "nvidia.com/gpu"),
        ] {
            assert_eq!(count(template, resource), None, "{template}");
        }
    }
}
