//! Turns a document into Kubernetes objects.

mod manifest;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;
use tessera_cluster::Key;

use super::document::{Document, Step};
use super::{FileError, Loaded};
use crate::defaults;
use crate::foreign::Foreign;
use crate::quantities;

/// Adds the object of a document, or the objects of its list.
pub fn add(
    document: &Document<'_>,
    namespace: &str,
    loaded: &mut Loaded,
    unused: &mut Vec<String>,
) -> Result<(), FileError> {
    let found = Found { document, path: Vec::new(), value: document.value() };
    found.add(None, namespace, loaded, unused)
}

/// A value, and its position in a file.
struct Found<'d, 'f> {
    document: &'d Document<'f>,
    path: Vec<Step>,
    value: Value,
}

impl Found<'_, '_> {
    fn error(&self, below: &[Step], reason: impl Into<String>) -> FileError {
        let path: Vec<Step> = self.path.iter().chain(below).cloned().collect();
        self.document.error(self.document.line_of(&path), reason)
    }

    /// `of_list`: the apiVersion and kind of a typed list's items, which have none of their own.
    fn add(
        mut self,
        of_list: Option<(&str, &str)>,
        namespace: &str,
        loaded: &mut Loaded,
        unused: &mut Vec<String>,
    ) -> Result<(), FileError> {
        let Value::Object(fields) = &mut self.value else {
            return Err(self.error(&[], "not a Kubernetes object: it has no apiVersion and kind"));
        };
        if let Some((version, kind)) = of_list {
            fields.entry("apiVersion").or_insert_with(|| version.into());
            fields.entry("kind").or_insert_with(|| kind.into());
        }
        let text = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
        let (Some(version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            let missing = match (text("apiVersion"), text("kind")) {
                (None, None) => "apiVersion and kind",
                (None, _) => "apiVersion",
                _ => "kind",
            };
            return Err(self.error(&[], format!("not a Kubernetes object: it has no {missing}")));
        };
        if let Some(item_kind) = kind.strip_suffix("List")
            && let Some(Value::Array(items)) = fields.get_mut("items").map(Value::take)
        {
            // A plain List does not name its items' type.
            let of_list = (!item_kind.is_empty()).then_some((version.as_str(), item_kind));
            for (index, value) in items.into_iter().enumerate() {
                let mut path = self.path.clone();
                path.extend([Step::Key("items".to_owned()), Step::Index(index)]);
                Found { document: self.document, path, value }.add(of_list, namespace, loaded, unused)?;
            }
            return Ok(());
        }
        let group_version = match version.as_str() {
            "resource.k8s.io/v1beta2" => "resource.k8s.io/v1",
            "resource.k8s.io/v1alpha3" if kind == "DeviceTaintRule" => "resource.k8s.io/v1",
            "resource.k8s.io/v1beta1" => {
                return Err(self.error(
                    &[Step::Key("apiVersion".to_owned())],
                    "resource.k8s.io/v1beta1 has a different format of claims and slices; convert it to \
                     resource.k8s.io/v1 (`kubectl convert`, or `kubectl get` with the full name of the version)",
                ));
            }
            other => other,
        };
        fields.insert("apiVersion".to_owned(), group_version.into());
        let objects = &mut loaded.objects;
        let warnings = &mut loaded.warnings;
        match (group_version, kind.as_str()) {
            ("v1", "Node") => self.keep(&mut objects.nodes, "Node", None, warnings, |object| object),
            (version, kind) if loaded.manifests.is_some() && manifest::is_one(version, kind, &self.value) => {
                self.manifest(namespace, loaded)
            }
            ("v1", "Pod") => self.keep(&mut objects.pods, "Pod", Some(namespace), warnings, Arc::new),
            ("resource.k8s.io/v1", "ResourceClaim") => self.keep(
                &mut objects.claims,
                "ResourceClaim",
                Some(namespace),
                warnings,
                |mut claim: ResourceClaim| {
                    defaults::claim(claim.spec.as_mut());
                    Arc::new(claim)
                },
            ),
            ("resource.k8s.io/v1", "ResourceClaimTemplate") => self.keep(
                &mut objects.templates,
                "ResourceClaimTemplate",
                Some(namespace),
                warnings,
                |mut template: ResourceClaimTemplate| {
                    defaults::claim(template.spec.as_mut().and_then(|spec| spec.spec.as_mut()));
                    template
                },
            ),
            ("resource.k8s.io/v1", "ResourceSlice") => {
                self.keep(&mut objects.slices, "ResourceSlice", None, warnings, |object| object)
            }
            ("resource.k8s.io/v1", "DeviceClass") => {
                self.keep(&mut objects.classes, "DeviceClass", None, warnings, |object| object)
            }
            ("resource.k8s.io/v1", "DeviceTaintRule") => {
                self.keep(&mut objects.taint_rules, "DeviceTaintRule", None, warnings, |object| object)
            }
            ("v1", "PersistentVolumeClaim") => self.keep(
                &mut objects.volume_claims,
                "PersistentVolumeClaim",
                Some(namespace),
                warnings,
                |object| object,
            ),
            ("v1", "PersistentVolume") => {
                self.keep(&mut objects.volumes, "PersistentVolume", None, warnings, |object| object)
            }
            ("v1", "Namespace") => {
                self.keep(&mut objects.namespaces, "Namespace", None, warnings, |namespace: Namespace| {
                    namespace.metadata.labels.unwrap_or_default()
                })
            }
            ("policy/v1", "PodDisruptionBudget") => {
                let as_read = |budget: PodDisruptionBudget| {
                    let read = serde_json::to_value(budget).and_then(serde_json::from_value);
                    read.unwrap_or_default()
                };
                self.keep(&mut objects.budgets, "PodDisruptionBudget", Some(namespace), warnings, as_read)
            }
            ("gpu.tessera.dev/v1alpha1", "GpuPool") => {
                self.keep(&mut loaded.pools, "GpuPool", None, warnings, |object| object)
            }
            ("gpu.tessera.dev/v1alpha1", "GpuQuota") => {
                self.keep(&mut loaded.quotas, "GpuQuota", None, warnings, |object| object)
            }
            ("v1", "Event") => {
                self.keep(&mut loaded.events, "Event", Some(namespace), warnings, |object| object)
            }
            (version, "ResourceClaim" | "ResourceClaimTemplate" | "ResourceSlice" | "DeviceClass") => {
                let reason = format!("{kind} is not known in {version}; use resource.k8s.io/v1");
                Err(self.error(&[Step::Key("apiVersion".to_owned())], reason))
            }
            (version, kind) if loaded.foreign.is_some() && Foreign::has(version, kind) => {
                if let Some(foreign) = &mut loaded.foreign {
                    foreign.add(kind, namespace, self.value);
                }
                Ok(())
            }
            (version, _) => {
                unused.push(format!("{kind} ({version})"));
                Ok(())
            }
        }
    }

    fn keep<T, Kept>(
        mut self,
        kept: &mut BTreeMap<Key, Kept>,
        kind: &'static str,
        namespace: Option<&str>,
        warnings: &mut Vec<String>,
        complete: impl FnOnce(T) -> Kept,
    ) -> Result<(), FileError>
    where
        T: DeserializeOwned + Serialize + Resource,
    {
        quantities::as_text(&mut self.value);
        let mut object: T = serde_path_to_error::deserialize(&self.value).map_err(|error| {
            let path = steps(error.path());
            let place = error.path().to_string();
            let reason = error.inner();
            let of = if place == "." { String::new() } else { format!(" at {place}") };
            self.error(&path, format!("not a {kind}{of}: {reason}"))
        })?;
        if let Ok(understood) = serde_json::to_value(&object) {
            let mut unknown = Vec::new();
            not_understood(&self.value, &understood, &mut Vec::new(), &mut unknown);
            for path in unknown {
                let whole: Vec<Step> = self.path.iter().chain(&path).cloned().collect();
                warnings.push(format!(
                    "{}, line {}: {kind} has no field {}",
                    self.document.file,
                    self.document.line_of(&whole),
                    display(&path)
                ));
            }
        }
        let metadata = object.meta_mut();
        let Some(name) = metadata.name.clone().filter(|name| !name.is_empty()) else {
            return Err(self.error(
                &[Step::Key("metadata".to_owned())],
                format!("the {kind} has no metadata.name; give it one"),
            ));
        };
        let namespace =
            namespace.map(|default| metadata.namespace.get_or_insert_with(|| default.to_owned()).clone());
        let key = Key::new(namespace.unwrap_or_default(), name);
        if kept.contains_key(&key) {
            return Err(self.error(&[], format!("{kind} {key} is given twice; remove one of the two")));
        }
        kept.insert(key, complete(object));
        Ok(())
    }
}

fn steps(path: &serde_path_to_error::Path) -> Vec<Step> {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

fn display(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.push_str(&format!(".{key}")),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Paths in `given` but not in `understood`. Null and empty values are ignored.
fn not_understood(given: &Value, understood: &Value, path: &mut Vec<Step>, unknown: &mut Vec<Vec<Step>>) {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            for (key, value) in given {
                path.push(Step::Key(key.clone()));
                match understood.get(key) {
                    Some(understood) => not_understood(value, understood, path, unknown),
                    None if !means_nothing(value) => unknown.push(path.clone()),
                    None => {}
                }
                path.pop();
            }
        }
        (Value::Array(given), Value::Array(understood)) => {
            for (index, (given, understood)) in given.iter().zip(understood).enumerate() {
                path.push(Step::Index(index));
                not_understood(given, understood, path, unknown);
                path.pop();
            }
        }
        _ => {}
    }
}

fn means_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}
