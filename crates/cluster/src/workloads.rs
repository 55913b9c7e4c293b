//! What makes the pods of gangs, as far as it says how many there will be, and what keeps pods from being evicted. Each is read from any of its API's versions: they
//! have the same form here.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
// A selector by labels is of the same form, whatever it selects.
use tessera_api::gpu_pool::NodeSelector;

/// A `batch` Job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Job {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: JobSpec,
    /// What there is.
    pub status: JobStatus,
}

/// How many pods of a Job are done.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Indexes that succeeded: `1,3-5`.
    pub completed_indexes: Option<String>,
    /// Indexes that failed for good, in the same form.
    pub failed_indexes: Option<String>,
    /// Pods that succeeded.
    pub succeeded: Option<u32>,
}

/// How many pods a Job has, and whether they are numbered.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// `Indexed` or `NonIndexed`.
    pub completion_mode: Option<String>,
    /// Pods that are to succeed.
    pub completions: Option<u32>,
    /// Pods at once; 1 where it is absent.
    pub parallelism: Option<u32>,
}

/// A JobSet (`jobset.x-k8s.io`).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSet {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: JobSetSpec,
}

/// The Jobs of a JobSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetSpec {
    /// The Jobs.
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// In which order they start.
    pub startup_policy: Option<JobSetStartupPolicy>,
}

/// Jobs of a JobSet that are alike.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJob {
    /// Name.
    pub name: String,
    /// Number of Jobs; 1 where it is absent.
    pub replicas: Option<u32>,
    /// The Jobs.
    pub template: JobTemplate,
    /// Jobs that have to be ready or complete before.
    pub depends_on: Vec<DependsOn>,
}

/// A Job that has to be ready or complete before another.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DependsOn {
    /// Its name.
    pub name: String,
}

/// A Job of a JobSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobTemplate {
    /// What is wanted.
    pub spec: JobSpec,
}

/// In which order the Jobs of a JobSet start.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStartupPolicy {
    /// `AnyOrder` or `InOrder`.
    pub startup_policy_order: String,
}

impl JobSetSpec {
    /// Whether some of its pods come only when others are ready: these cannot wait for each other.
    pub fn is_ordered(&self) -> bool {
        let policy = self.startup_policy.as_ref().map(|policy| policy.startup_policy_order.as_str());
        policy == Some("InOrder") || self.replicated_jobs.iter().any(|job| !job.depends_on.is_empty())
    }
}

impl ReplicatedJob {
    /// Number of its pods.
    pub fn pods(&self) -> u64 {
        u64::from(self.replicas.unwrap_or(1)) * u64::from(self.template.spec.parallelism.unwrap_or(1))
    }
}

/// A LeaderWorkerSet (`leaderworkerset.x-k8s.io`).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSet {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: LeaderWorkerSetSpec,
}

/// In which order the pods of a LeaderWorkerSet come.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSetSpec {
    /// `LeaderCreated` or `LeaderReady`.
    pub startup_policy: Option<String>,
}

impl LeaderWorkerSetSpec {
    /// Whether the workers of a group come only when their leader is ready.
    pub fn is_leader_ready(&self) -> bool {
        self.startup_policy.as_deref() == Some("LeaderReady")
    }
}

/// A PodGroup (`scheduling.k8s.io`).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroup {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: PodGroupSpec,
}

/// How the pods of a PodGroup are to be scheduled.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// How.
    pub scheduling_policy: PodGroupPolicy,
}

/// See [`PodGroupSpec`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupPolicy {
    /// As a gang.
    pub gang: Option<GangPolicy>,
}

/// See [`PodGroupPolicy`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    /// Pods that are needed.
    pub min_count: u32,
}

/// A `policy` PodDisruptionBudget.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DisruptionBudget {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Which pods it is about.
    pub spec: DisruptionBudgetSpec,
    /// What it allows now.
    pub status: DisruptionBudgetStatus,
}

/// See [`DisruptionBudget`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DisruptionBudgetSpec {
    /// Their labels; without it, it is about none.
    pub selector: Option<NodeSelector>,
}

/// See [`DisruptionBudget`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudgetStatus {
    /// Pods that may be evicted now.
    pub disruptions_allowed: u32,
}

impl DisruptionBudget {
    /// Whether it is about a pod of its namespace with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.spec.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}
