//! Kueue's objects, reduced to the fields read for its AdmissionCheck. They have the same form in v1beta1 and v1beta2.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

/// A Workload: the pods of a job, admitted together.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    /// The version of the API when read.
    pub api_version: String,
    /// Its metadata, with resourceVersion and annotations.
    pub metadata: ObjectMeta,
    /// Desired state; not kept for a Workload without AdmissionChecks.
    pub spec: WorkloadSpec,
    /// Current state.
    pub status: WorkloadStatus,
}

/// The pods of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// Groups of equal pods.
    pub pod_sets: Vec<PodSet>,
    /// Priority in Kueue's queue.
    pub priority: Option<i32>,
}

/// Equal pods.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// Number of pods asked for.
    pub count: u32,
    /// The pods.
    pub template: PodTemplateSpec,
}

impl Default for PodSet {
    /// The defaults of its definition.
    fn default() -> Self {
        PodSet { name: "main".to_owned(), count: 1, template: PodTemplateSpec::default() }
    }
}

/// See [`Workload`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Conditions: `QuotaReserved`, `Admitted` and others.
    pub conditions: Vec<Condition>,
    /// The quota reserved.
    pub admission: Admission,
    /// All AdmissionChecks as they were read, since a list is written as a whole.
    pub admission_checks: Vec<Value>,
}

/// The quota reserved for a Workload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// Quota by PodSet.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// The quota reserved for a PodSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetAssignment {
    /// Name of the PodSet.
    pub name: String,
    /// Name of the ResourceFlavor by resource.
    pub flavors: BTreeMap<String, String>,
    /// Number of pods admitted; all where absent.
    pub count: Option<u32>,
}

/// A ResourceFlavor: node labels and tolerations added to pods with its quota.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceFlavor {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: ResourceFlavorSpec,
}

/// See [`ResourceFlavor`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavorSpec {
    /// Labels of its nodes, to be the pods' node selector.
    pub node_labels: BTreeMap<String, String>,
    /// Added to the pods'.
    pub tolerations: Vec<Toleration>,
}

/// An AdmissionCheck.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdmissionCheck {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: AdmissionCheckSpec,
}

/// See [`AdmissionCheck`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckSpec {
    /// The controller with its answers.
    pub controller_name: String,
}

impl Workload {
    /// The condition, if true.
    pub fn condition(&self, r#type: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|one| one.type_ == r#type && one.status == "True")
    }

    /// Whether the Workload has quota, and neither ended nor gives the quota back.
    pub fn has_quota(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && self.condition("QuotaReserved").is_some()
            && ["Evicted", "Finished"].iter().all(|ended| self.condition(ended).is_none())
    }
}
