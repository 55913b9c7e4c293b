//! Objects of other drivers, unmodified: of their own kinds, or of kinds read in raw form.

use serde_json::Value;

/// Objects of other drivers in a cluster.
#[derive(Debug, Default)]
pub struct Foreign {
    /// Secrets, including helm's releases.
    pub secrets: Vec<Value>,
    /// ConfigMaps.
    pub config_maps: Vec<Value>,
    /// DaemonSets.
    pub daemon_sets: Vec<Value>,
    /// ClusterPolicies of the GPU Operator.
    pub cluster_policies: Vec<Value>,
}

impl Foreign {
    /// Whether objects of a kind belong here.
    pub fn has(version: &str, kind: &str) -> bool {
        matches!(
            (version, kind),
            ("v1", "Secret" | "ConfigMap") | ("apps/v1", "DaemonSet") | ("nvidia.com/v1", "ClusterPolicy")
        )
    }

    /// Adds an object of such a kind; `namespace` is the default.
    pub fn add(&mut self, kind: &str, namespace: &str, mut object: Value) {
        let list = match kind {
            "Secret" => &mut self.secrets,
            "ConfigMap" => &mut self.config_maps,
            "DaemonSet" => &mut self.daemon_sets,
            _ => &mut self.cluster_policies,
        };
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("namespace").or_insert_with(|| namespace.into());
        }
        list.push(object);
    }
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

/// The namespace of an object.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace").unwrap_or_default()
}

/// A text in an object, by its JSON pointer.
pub fn text<'o>(object: &'o Value, pointer: &str) -> Option<&'o str> {
    object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// A list in an object, by its JSON pointer.
pub fn list<'o>(object: &'o Value, pointer: &str) -> &'o [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The images of a DaemonSet's containers.
pub fn images(daemon_set: &Value) -> impl Iterator<Item = &str> {
    list(daemon_set, "/spec/template/spec/containers")
        .iter()
        .filter_map(|container| text(container, "/image"))
}
