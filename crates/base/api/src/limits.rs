//! Limits of `resource.k8s.io/v1` on a driver's published objects (`k8s.io/api/resource/v1/types.go` of 1.36 and the
//! validation of the API server), and checks of single values against them.

/// Devices of one ResourceSlice.
pub const DEVICES_PER_SLICE: usize = 128;
/// Devices of one ResourceSlice in which any device has taints or consumes counters
/// (`ResourceSliceMaxDevicesWithAdvancedFeatures`).
pub const ADVANCED_DEVICES_PER_SLICE: usize = 64;
/// Counter sets of one ResourceSlice.
pub const COUNTER_SETS_PER_SLICE: usize = 8;
/// Counters of one counter set.
pub const COUNTERS_PER_SET: usize = 32;
/// Entries of `consumesCounters` of one device.
pub const COUNTER_CONSUMPTIONS_PER_DEVICE: usize = 2;
/// Attributes and capacities of one device together.
pub const ATTRIBUTES_AND_CAPACITIES_PER_DEVICE: usize = 32;
/// Bytes of a string or version attribute.
pub const ATTRIBUTE_VALUE_BYTES: usize = 64;
/// Bytes of all keys and values of an object's annotations together (`TotalAnnotationSizeLimitB`).
pub const ANNOTATIONS_BYTES: usize = 256 << 10;
/// Bytes of the message of a condition (`maxMessageLen` of `k8s.io/apimachinery`'s validation).
pub const CONDITION_MESSAGE_BYTES: usize = 32 << 10;
/// Taints of one device since Kubernetes 1.35 (4 before).
pub const TAINTS_PER_DEVICE: usize = 16;
/// Bytes of a driver name, and of the domain of a qualified name.
pub const DOMAIN_BYTES: usize = 63;
/// Bytes of the identifier of a qualified name.
pub const IDENTIFIER_BYTES: usize = 32;
/// Bytes of a pool name.
pub const POOL_NAME_BYTES: usize = 253;

/// Whether `text` is a DNS label (RFC 1123): 1 to 63 of `a-z`, `0-9`, `-`, no `-` at either end.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether `text` is a DNS subdomain (RFC 1123): up to 253 bytes of labels joined by dots. As in Kubernetes, the 63
/// bytes of a label are not enforced inside a subdomain.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether `text` may be the name of a DRA driver: a DNS subdomain of at most 63 bytes.
#[must_use]
pub fn is_driver_name(text: &str) -> bool {
    text.len() <= DOMAIN_BYTES && is_dns_subdomain(text)
}

/// Whether `text` may be the name of a pool: DNS subdomains joined by `/`, at most 253 bytes.
#[must_use]
pub fn is_pool_name(text: &str) -> bool {
    text.len() <= POOL_NAME_BYTES && text.split('/').all(is_dns_subdomain)
}

/// Whether `text` is a C identifier: letters, digits and `_`, no digit first.
#[must_use]
pub fn is_c_identifier(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.as_bytes()[0].is_ascii_digit()
}

/// Whether `text` may name an attribute or a capacity: a C identifier of at most 32 bytes, with or without a domain in
/// front (`<DNS subdomain of at most 63 bytes>/`).
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    let (domain, identifier) = match text.split_once('/') {
        Some((domain, identifier)) => (Some(domain), identifier),
        None => (None, text),
    };
    domain.is_none_or(is_driver_name) && identifier.len() <= IDENTIFIER_BYTES && is_c_identifier(identifier)
}

/// Whether `text` fits a string attribute: at most 64 bytes.
#[must_use]
pub fn is_string_value(text: &str) -> bool {
    text.len() <= ATTRIBUTE_VALUE_BYTES
}

/// Whether `text` fits a version attribute: a strict semantic version 2.0.0 of at most 64 bytes.
#[must_use]
pub fn is_version_value(text: &str) -> bool {
    text.len() <= ATTRIBUTE_VALUE_BYTES && semver::Version::parse(text).is_ok()
}

/// Whether `text` may be the value of a label or taint: empty, or 1 to 63 of letters, digits, `-`, `_`, `.`, beginning
/// and ending with a letter or digit.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, rule: fn(&str) -> bool, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(rule(text), "{name} should take {text:?}");
        }
        for text in bad {
            assert!(!rule(text), "{name} should refuse {text:?}");
        }
    }

    #[test]
    fn names() {
        let long = "a".repeat(64);
        check(
            "label",
            is_dns_label,
            &["a", "gpu-3b-00", &long[1..]],
            &["", "-a", "a-", "A", "a.b", "ä", &long],
        );
        check("subdomain", is_dns_subdomain, &["a.b", &long], &["", "a..b", ".a", "a.", "a/b", "A.b"]);
        check("driver", is_driver_name, &["gpu.tessera.dev", &long[1..]], &["", "gpu/tessera", &long]);
        check("pool", is_pool_name, &["gpu.tessera.dev/node-1", "node"], &["", "a/", "/a", "a//b", "a/B"]);
        check("identifier", is_c_identifier, &["_", "memoryMiB", "a1"], &["", "1a", "a-b", "a.b", "ä"]);
        check(
            "qualified",
            is_qualified_name,
            &["memory", "resource.kubernetes.io/pciBusID"],
            &["", "/a", "a/", "a/b/c", "a.b", &long[31..]],
        );
    }

    #[test]
    fn values() {
        let long = "x".repeat(65);
        check("string", is_string_value, &["", "NVIDIA H100", &long[1..]], &[&long, &"ä".repeat(33)]);
        check(
            "version",
            is_version_value,
            &["580.95.5", "1.0.0-a+b"],
            &["", "1.0", "v1.0.0", "1.02.0", "1.0.0.0"],
        );
        check("label value", is_label_value, &["", "lost", "xid-79", "a_b.c"], &["-a", "a.", "a b", &long]);
    }
}
