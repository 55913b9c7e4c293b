//! Names of extended resources lost by kube-scheduler: if any DeviceClass is deleted or loses its name, the cache drops the
//! name, even for another class with it (`removeResourceName2class` of k8s.io/dynamic-resource-allocation, 1.36 and 1.37).

use tessera_cluster::{Key, Objects};

/// Resources reported by kube-scheduler as insufficient, as for a device plugin's alone, though a class stands for them and no
/// node has any; each with its class.
pub fn forgotten<'o>(objects: &'o Objects, said: &str) -> Vec<(String, &'o str)> {
    let classes = objects.classes.iter().filter_map(|(Key { name, .. }, class)| {
        let resource = class.spec.as_ref()?.extended_resource_name.as_deref()?;
        let phrase = format!("Insufficient {resource}");
        // `nvidia.com/gpu` is no word of `nvidia.com/gpu.shared`.
        let is_word = |(place, found): (usize, &str)| {
            let rest = &said[place + found.len()..];
            let mut rest = rest.chars();
            match rest.next() {
                None | Some(',' | ' ' | ';') => true,
                Some('.') => rest.next().is_none_or(char::is_whitespace),
                _ => false,
            }
        };
        let is_named = said.match_indices(&phrase).any(is_word);
        (is_named && !is_served(objects, resource)).then(|| (resource.to_owned(), name.as_str()))
    });
    classes.collect()
}

/// Whether a node has the resource from a device plugin.
fn is_served(objects: &Objects, resource: &str) -> bool {
    let allocatable = objects.nodes.values().filter_map(|node| node.status.as_ref()?.allocatable.as_ref());
    let mut amounts = allocatable.filter_map(|all| all.get(resource));
    amounts.any(|amount| amount.0 != "0")
}

/// The remedy.
pub fn remedy(class: &str) -> String {
    format!(
        "change the class in any way, and kube-scheduler learns the name again: kubectl annotate deviceclass \
         {class} gpu.tessera.dev/touched=\"$(date)\" --overwrite; waiting pods are retried within five minutes"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(allocatable: &str) -> Objects {
        let class =
            json!({ "metadata": { "name": "gpu" }, "spec": { "extendedResourceName": "nvidia.com/gpu" } });
        let node = json!({ "metadata": { "name": "n" }, "status": { "allocatable": { "nvidia.com/gpu": allocatable } } });
        let named = |name: &str| Key::cluster(name);
        Objects {
            classes: [(named("gpu"), serde_json::from_value(class).unwrap())].into(),
            nodes: [(named("n"), serde_json::from_value(node).unwrap())].into(),
            ..Objects::default()
        }
    }

    #[test]
    fn a_name_that_a_class_has_is_never_insufficient() {
        let said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3";
        assert_eq!(forgotten(&objects("0"), said), [("nvidia.com/gpu".to_owned(), "gpu")]);
        assert_eq!(
            forgotten(&objects("0"), "3 Insufficient nvidia.com/gpu"),
            [("nvidia.com/gpu".to_owned(), "gpu")]
        );
        assert_eq!(forgotten(&objects("8"), said), [], "a device plugin's");
        assert_eq!(forgotten(&objects("0"), "3 Insufficient nvidia.com/gpu.shared."), []);
        assert_eq!(forgotten(&objects("0"), "3 cannot allocate all claims"), []);
    }
}
