//! Objects creating pods, for a simulation.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tessera_simulate::fleet::{JobSet, LeaderWorkerSet, Manifest, is_of_cards};

use super::Found;
use crate::files::{FileError, Loaded, Manifests};

/// Kinds read only for their pod templates.
const OF_OTHERS: [&str; 2] = ["JobSet", "LeaderWorkerSet"];

/// Whether an object creates pods waiting for devices, or defines their priority.
pub fn is_one(version: &str, kind: &str, object: &Value) -> bool {
    match (version, kind) {
        ("v1", "Pod") => object.pointer("/spec/nodeName").is_none_or(Value::is_null),
        ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch/v1", "Job" | "CronJob")
        | ("scheduling.k8s.io/v1", "PriorityClass") => true,
        (_, "JobSet") => version.starts_with("jobset.x-k8s.io/"),
        (_, "LeaderWorkerSet") => version.starts_with("leaderworkerset.x-k8s.io/"),
        // Of other workloads, all objects requesting devices.
        ("resource.k8s.io/v1", _) => false,
        _ => asks_for_devices(object),
    }
}

/// Whether the object contains claims of a pod anywhere, or limits by the names of NVIDIA's device plugin or of DeviceClasses.
fn asks_for_devices(value: &Value) -> bool {
    let is_one = |key: &str, value: &Value| match value {
        Value::Array(claims) => key == "resourceClaims" && !claims.is_empty(),
        Value::Object(limits) => key == "limits" && limits.keys().any(|name| is_of_cards(name)),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| is_one(key, value) || asks_for_devices(value))
        }
        Value::Array(items) => items.iter().any(asks_for_devices),
        _ => false,
    }
}

impl Found<'_, '_> {
    /// Adds such an object.
    pub(super) fn manifest(self, namespace: &str, loaded: &mut Loaded) -> Result<(), FileError> {
        let Some(manifests) = &mut loaded.manifests else { return Ok(()) };
        let warnings = &mut loaded.warnings;
        let text =
            |field: &str| self.value.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        match kind.as_str() {
            "Pod" => self.made("Pod", namespace, manifests, warnings, |pod: Pod| vec![pod.into()]),
            "Deployment" => {
                self.made("Deployment", namespace, manifests, warnings, |set: Deployment| vec![set.into()])
            }
            "ReplicaSet" => {
                self.made("ReplicaSet", namespace, manifests, warnings, |set: ReplicaSet| vec![set.into()])
            }
            "StatefulSet" => {
                self.made("StatefulSet", namespace, manifests, warnings, |set: StatefulSet| vec![set.into()])
            }
            "Job" => self.made("Job", namespace, manifests, warnings, |job: Job| vec![job.into()]),
            "CronJob" => {
                self.made("CronJob", namespace, manifests, warnings, |job: CronJob| vec![job.into()])
            }
            "JobSet" => self.made("JobSet", namespace, manifests, warnings, |set: JobSet| set.into()),
            "LeaderWorkerSet" => {
                self.made("LeaderWorkerSet", namespace, manifests, warnings, |set: LeaderWorkerSet| {
                    set.into()
                })
            }
            "PriorityClass" => self.keep(
                &mut manifests.priority_classes,
                "PriorityClass",
                None,
                warnings,
                |class: PriorityClass| class.value.unwrap_or(0),
            ),
            _ => {
                let reason = format!(
                    "{kind} {name} cannot be simulated: only Pods, Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs, \
                     JobSets and LeaderWorkerSets can"
                );
                // Of a cluster its pods are there, too.
                if self.value.pointer("/metadata/uid").is_none() {
                    return Err(self.error(&[], reason));
                }
                warnings.push(format!("{reason}; only its existing pods count"));
                Ok(())
            }
        }
    }

    /// Adds an object with its manifests.
    fn made<T: DeserializeOwned + Serialize + Resource>(
        self,
        kind: &'static str,
        namespace: &str,
        manifests: &mut Manifests,
        warnings: &mut Vec<String>,
        make: impl FnOnce(T) -> Vec<Manifest>,
    ) -> Result<(), FileError> {
        let origin = format!("{}, line {}", self.document.file, self.document.line_of(&self.path));
        let (kept, place) = manifests.of_kind(kind);
        let mut unknown = Vec::new();
        self.keep(kept, kind, Some(namespace), &mut unknown, |object: T| {
            let mut made = make(object);
            made.iter_mut().for_each(|manifest| manifest.origin.clone_from(&origin));
            (place, made)
        })?;
        // Of others' kinds only templates are known in full.
        let is_of_template = |warning: &str| {
            [".template.", ".leaderTemplate.", ".workerTemplate."].iter().any(|part| warning.contains(part))
        };
        unknown.retain(|warning| !OF_OTHERS.contains(&kind) || is_of_template(warning));
        warnings.append(&mut unknown);
        Ok(())
    }
}
