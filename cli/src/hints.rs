//! "Did you mean": unknown names, and the most similar published ones.

use std::collections::BTreeSet;

use tessera_cel::Selector;

use crate::devices::{Place, published_names};

/// Hints for a selector with unknown names.
pub fn unknown_names(selector: &Selector, places: &[Place<'_>]) -> Vec<String> {
    let (attributes, capacities) = published_names(places);
    let reads = selector.reads();
    let mut hints = Vec::new();
    for (kind, read, known) in
        [("attribute", &reads.attributes, &attributes), ("capacity", &reads.capacity, &capacities)]
    {
        for (domain, name) in read {
            let wanted = format!("{domain}/{name}");
            if !known.contains(&wanted) {
                hints.push(unknown(kind, &wanted, known));
            }
        }
    }
    for (kind, read, known) in [
        ("attribute", &reads.attribute_domains, &attributes),
        ("capacity", &reads.capacity_domains, &capacities),
    ] {
        let domains: BTreeSet<String> = known
            .iter()
            .filter_map(|name| name.split_once('/'))
            .map(|(domain, _)| domain.to_owned())
            .collect();
        for domain in read.iter().filter(|domain| !domains.contains(*domain)) {
            hints.push(unknown(&format!("{kind} of the domain"), domain, &domains));
        }
    }
    hints
}

/// `no device has attribute x: did you mean y?`
pub fn unknown(kind: &str, wanted: &str, known: &BTreeSet<String>) -> String {
    match nearest(wanted, known) {
        Some(near) => format!("no device has {kind} {wanted}: did you mean {near}?"),
        None => format!("no device has {kind} {wanted}"),
    }
}

/// The known name with the fewest different letters, if few, else one with this prefix; names in the wrong domain count as
/// similar.
pub fn nearest<'k>(wanted: &str, known: &'k BTreeSet<String>) -> Option<&'k str> {
    let id = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let same_id = known.iter().find(|name| id(name) == id(wanted));
    let limit = (id(wanted).chars().count() / 3).max(1);
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&name.to_lowercase(), &wanted.to_lowercase()), name))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name);
    let alike = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&id(name), &id(wanted)), name))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name);
    // memory is memoryMiB: another driver's name may be the first half.
    let longer = known.iter().find(|name| id(wanted).len() >= 3 && id(name).starts_with(&id(wanted)));
    near.or(same_id).or(alike).or(longer).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let known = ["gpu.tessera.dev/memoryMiB", "gpu.tessera.dev/type", "resource.kubernetes.io/pcieRoot"]
            .map(str::to_owned)
            .into();
        assert_eq!(nearest("gpu.tessera.dev/memoryMib", &known), Some("gpu.tessera.dev/memoryMiB"));
        assert_eq!(nearest("gpu.tessera.dev/memorMiB", &known), Some("gpu.tessera.dev/memoryMiB"));
        assert_eq!(nearest("gpu.tessera.dev/memory", &known), Some("gpu.tessera.dev/memoryMiB"));
        assert_eq!(nearest("gpu.tessera.dev/me", &known), None);
        assert_eq!(nearest("gpu.nvidia.com/type", &known), Some("gpu.tessera.dev/type"));
        assert_eq!(nearest("gpu.tessera.dev/pcieRoot", &known), Some("resource.kubernetes.io/pcieRoot"));
        assert_eq!(nearest("gpu.tessera.dev/colour", &known), None);
    }
}
