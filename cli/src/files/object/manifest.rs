//! What makes pods, for a simulation.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;
use tessera_simulate::fleet::Manifest;

use super::Found;
use crate::files::{FileError, Loaded};

/// Whether an object makes pods that wait for devices, or says what priority they have.
pub fn is_one(version: &str, kind: &str, object: &Value) -> bool {
    match (version, kind) {
        ("v1", "Pod") => object.pointer("/spec/nodeName").is_none_or(Value::is_null),
        ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch/v1", "Job")
        | ("scheduling.k8s.io/v1", "PriorityClass") => true,
        // Of what makes pods in other ways, all that asks for devices.
        ("resource.k8s.io/v1", _) => false,
        _ => names_claims(object),
    }
}

/// Whether there are claims of a pod anywhere in it.
fn names_claims(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            (key == "resourceClaims" && value.as_array().is_some_and(|claims| !claims.is_empty()))
                || names_claims(value)
        }),
        Value::Array(items) => items.iter().any(names_claims),
        _ => false,
    }
}

impl Found<'_, '_> {
    /// Adds such an object.
    pub(super) fn manifest(self, namespace: &str, loaded: &mut Loaded) -> Result<(), FileError> {
        let Some(manifests) = &mut loaded.manifests else { return Ok(()) };
        let warnings = &mut loaded.warnings;
        let line = self.document.line_of(&self.path);
        let origin = format!("{}, line {line}", self.document.file);
        let order = manifests.count();
        let text =
            |field: &str| self.value.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        let made = |mut manifest: Manifest| {
            manifest.origin = origin;
            (order, manifest)
        };
        let namespace = Some(namespace);
        match kind.as_str() {
            "Pod" => self.keep(&mut manifests.pods, "Pod", namespace, warnings, |pod: Pod| made(pod.into())),
            "Deployment" => self.keep(
                &mut manifests.deployments,
                "Deployment",
                namespace,
                warnings,
                |object: Deployment| made(object.into()),
            ),
            "ReplicaSet" => self.keep(
                &mut manifests.replica_sets,
                "ReplicaSet",
                namespace,
                warnings,
                |object: ReplicaSet| made(object.into()),
            ),
            "StatefulSet" => self.keep(
                &mut manifests.stateful_sets,
                "StatefulSet",
                namespace,
                warnings,
                |object: StatefulSet| made(object.into()),
            ),
            "Job" => self.keep(&mut manifests.jobs, "Job", namespace, warnings, |job: Job| made(job.into())),
            "PriorityClass" => self.keep(
                &mut manifests.priority_classes,
                "PriorityClass",
                None,
                warnings,
                |class: PriorityClass| class.value.unwrap_or(0),
            ),
            _ => Err(self.error(
                &[],
                format!(
                    "{kind} {name} cannot be simulated: only Pods, Deployments, ReplicaSets, StatefulSets and Jobs can"
                ),
            )),
        }
    }
}
