//! Workload objects owning the pods of gangs, reduced to their numbers of pods, and PodDisruptionBudgets. Each type reads any
//! version of its API, because the fields used here have the same form in all.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use tessera_api::label_selector::LabelSelector;

/// A `batch` Job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Job {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: JobSpec,
    /// Current state.
    pub status: JobStatus,
}

/// Finished pods of a Job.
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

/// Number of a Job's pods, and whether they are indexed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// `Indexed` or `NonIndexed`.
    pub completion_mode: Option<String>,
    /// Number of pods to succeed.
    pub completions: Option<u32>,
    /// Number of pods running at once; 1 if absent.
    pub parallelism: Option<u32>,
    /// Failed pods after which the Job fails; 6 if absent.
    pub backoff_limit: Option<u32>,
    /// The same for each index.
    pub backoff_limit_per_index: Option<u32>,
    /// What the failure of a pod does.
    pub pod_failure_policy: Option<serde_json::Value>,
}

impl JobSpec {
    /// Whether the Job goes on after the eviction of a pod, and makes the pod anew.
    pub fn survives_evictions(&self) -> bool {
        let rules = self.pod_failure_policy.as_ref().and_then(|policy| policy["rules"].as_array());
        let is_of_evictions = |rule: &&serde_json::Value| {
            let conditions = rule["onPodConditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "DisruptionTarget"))
        };
        let rule = rules.into_iter().flatten().find(is_of_evictions);
        match rule.and_then(|rule| rule["action"].as_str()) {
            Some("Ignore") => true,
            Some("FailJob" | "FailIndex") => false,
            _ => self.backoff_limit_per_index.or(self.backoff_limit) != Some(0),
        }
    }
}

/// A JobSet (`jobset.x-k8s.io`).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSet {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: JobSetSpec,
}

/// The Jobs of a JobSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetSpec {
    /// The Jobs.
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// Order of starting the Jobs.
    pub startup_policy: Option<JobSetStartupPolicy>,
}

/// Jobs of a JobSet with the same template.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJob {
    /// Name.
    pub name: String,
    /// Number of Jobs; 1 if absent.
    pub replicas: Option<u32>,
    /// The Jobs.
    pub template: JobTemplate,
    /// Jobs to be ready or complete first.
    pub depends_on: Vec<DependsOn>,
}

/// A Job to be ready or complete before another.
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
    /// Desired state.
    pub spec: JobSpec,
}

/// Order of starting the Jobs of a JobSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStartupPolicy {
    /// `AnyOrder` or `InOrder`.
    pub startup_policy_order: String,
}

impl JobSetSpec {
    /// Whether some pods start only when others are ready. Such pods cannot wait for each other.
    pub fn is_ordered(&self) -> bool {
        let policy = self.startup_policy.as_ref().map(|policy| policy.startup_policy_order.as_str());
        policy == Some("InOrder") || self.replicated_jobs.iter().any(|job| !job.depends_on.is_empty())
    }
}

impl ReplicatedJob {
    /// Number of pods.
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
    /// Desired state.
    pub spec: LeaderWorkerSetSpec,
}

/// Order of starting the pods of a LeaderWorkerSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSetSpec {
    /// `LeaderCreated` or `LeaderReady`.
    pub startup_policy: Option<String>,
}

impl LeaderWorkerSetSpec {
    /// Whether the workers of a group start only when their leader is ready.
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
    /// Desired state.
    pub spec: PodGroupSpec,
}

/// Scheduling of the pods of a PodGroup.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// Scheduling policy.
    pub scheduling_policy: PodGroupPolicy,
}

/// See [`PodGroupSpec`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupPolicy {
    /// Gang policy.
    pub gang: Option<GangPolicy>,
}

/// See [`PodGroupPolicy`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    /// Minimum number of pods.
    pub min_count: u32,
}

/// A `policy` PodDisruptionBudget.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DisruptionBudget {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Selector of the pods protected.
    pub spec: DisruptionBudgetSpec,
    /// Evictions allowed now.
    pub status: DisruptionBudgetStatus,
}

/// See [`DisruptionBudget`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudgetSpec {
    /// Labels of the pods; without a selector, no pods are protected.
    pub selector: Option<LabelSelector>,
    /// Pods that stay: a number, or a percentage.
    pub min_available: Option<IntOrString>,
    /// Pods allowed to be missing: a number, or a percentage.
    pub max_unavailable: Option<IntOrString>,
}

/// See [`DisruptionBudget`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudgetStatus {
    /// Number of pods allowed to be evicted now.
    pub disruptions_allowed: u32,
    /// Number of pods counted, ready or not; 0 before the first count.
    pub expected_pods: u32,
    /// Number of pods to stay.
    pub desired_healthy: u32,
}

impl DisruptionBudget {
    /// Whether the budget covers a pod of its namespace with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.spec.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Whether no eviction is allowed even when all pods are ready.
    pub fn never_allows_any(&self) -> bool {
        let is = |value: &Option<IntOrString>, percentage: &str| matches!(value, Some(IntOrString::String(text)) if text == percentage);
        let DisruptionBudgetSpec { min_available, max_unavailable, .. } = &self.spec;
        let DisruptionBudgetStatus { expected_pods, desired_healthy, .. } = self.status;
        *max_unavailable == Some(IntOrString::Int(0))
            || is(max_unavailable, "0%")
            || is(min_available, "100%")
            || (expected_pods > 0 && desired_healthy >= expected_pods)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_survives_evictions_unless_it_says_otherwise() {
        let of = |spec| serde_json::from_value::<JobSpec>(spec).unwrap().survives_evictions();
        let policy = |action| {
            json!({ "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [3] } },
                { "action": action, "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }] })
        };
        assert!(of(json!({})));
        assert!(!of(json!({ "backoffLimit": 0 })));
        assert!(of(json!({ "backoffLimit": 0, "podFailurePolicy": policy("Ignore") })));
        assert!(!of(json!({ "podFailurePolicy": policy("FailJob") })));
        assert!(of(
            json!({ "backoffLimit": 0, "backoffLimitPerIndex": 1, "podFailurePolicy": policy("Count") })
        ));
        assert!(!of(json!({ "backoffLimitPerIndex": 0 })));
    }
}
