//! The Kubernetes objects of a job.

mod claims;
mod environment;
mod pod;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::{
    Job as KubernetesJob, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule, SuccessPolicy, SuccessPolicyRule,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::job::{Job, Program};

/// Label of all these objects; the value is [`MANAGED_BY`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// See [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "kubectl-gpu";

/// Key, in the job's Secret, of the secret shared by its pods.
pub const STEP_KEY: &str = "key";

/// Port of the program `gpu-run` in each pod.
const PORT: i32 = 6818;

/// Exit code of `gpu-run` in a pod that ends because of another pod of the job.
const DISRUPTED: i32 = 213;

/// How long a finished Job is kept: a week, in seconds.
const KEPT: i32 = 7 * 24 * 3_600;

/// Objects of one job; all have its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Objects {
    /// The pods.
    pub job: KubernetesJob,
    /// The claim of each pod; `None` without GPUs.
    pub template: Option<ResourceClaimTemplate>,
    /// The pods' addresses; `None` for one pod.
    pub service: Option<Service>,
    /// The script; `None` for a command.
    pub script: Option<ConfigMap>,
}

impl Objects {
    /// The same for the same job.
    #[must_use]
    pub fn of(job: &Job) -> Self {
        Objects {
            job: KubernetesJob {
                metadata: metadata(job),
                spec: Some(specification(job)),
                ..KubernetesJob::default()
            },
            template: claims::template(job),
            service: has_steps(job).then(|| service(job)),
            script: script(job),
        }
    }

    /// The Secret shared by the pods; `None` for one pod. `key` has to be random: who has it can start
    /// programs in the pods.
    #[must_use]
    pub fn secret(&self, key: &str) -> Option<Secret> {
        let service = self.service.as_ref()?;
        Some(Secret {
            metadata: service.metadata.clone(),
            data: Some(BTreeMap::from([(STEP_KEY.to_owned(), ByteString(key.as_bytes().to_vec()))])),
            ..Secret::default()
        })
    }
}

/// Whether pods start programs in others.
fn has_steps(job: &Job) -> bool {
    job.nodes > 1
}

fn metadata(job: &Job) -> ObjectMeta {
    ObjectMeta {
        name: Some(job.name.clone()),
        namespace: job.namespace.clone(),
        labels: Some(BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())])),
        ..ObjectMeta::default()
    }
}

fn specification(job: &Job) -> JobSpec {
    let (completions, parallelism) = match &job.array {
        Some(array) => {
            let tasks = count(array.tasks.len());
            (tasks, array.at_once.map_or(tasks, |limit| tasks.min(count(limit))))
        }
        None => (count(job.nodes), count(job.nodes)),
    };
    let is_array = job.array.is_some();
    // An eviction is no end of the job; its own failure is.
    let action = match (job.requeue, is_array) {
        (true, _) => "Ignore",
        (false, true) => "FailIndex",
        (false, false) => "FailJob",
    };
    let evicted = PodFailurePolicyOnPodConditionsPattern {
        type_: "DisruptionTarget".to_owned(),
        status: Some("True".to_owned()),
    };
    let mut rules = vec![PodFailurePolicyRule {
        action: action.to_owned(),
        on_pod_conditions: Some(vec![evicted]),
        ..PodFailurePolicyRule::default()
    }];
    if has_steps(job) && job.requeue {
        // The others of an evicted pod end with it, and have no such condition.
        rules.push(PodFailurePolicyRule {
            action: "Ignore".to_owned(),
            on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                container_name: Some(pod::MAIN.to_owned()),
                operator: "In".to_owned(),
                values: vec![DISRUPTED],
            }),
            ..PodFailurePolicyRule::default()
        });
    }
    JobSpec {
        completion_mode: Some("Indexed".to_owned()),
        completions: Some(completions),
        parallelism: Some(parallelism),
        backoff_limit: (!is_array).then_some(0),
        backoff_limit_per_index: is_array.then_some(0),
        pod_failure_policy: Some(PodFailurePolicy { rules }),
        // The pod with the script decides alone.
        success_policy: has_steps(job).then(|| SuccessPolicy {
            rules: vec![SuccessPolicyRule {
                succeeded_indexes: Some("0".to_owned()),
                ..SuccessPolicyRule::default()
            }],
        }),
        template: pod::template(job),
        ttl_seconds_after_finished: Some(KEPT),
        ..JobSpec::default()
    }
}

fn count(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// Addresses are there before pods are ready: they find each other while they start.
fn service(job: &Job) -> Service {
    Service {
        metadata: metadata(job),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(vec![ServicePort {
                name: Some("steps".to_owned()),
                port: PORT,
                ..ServicePort::default()
            }]),
            publish_not_ready_addresses: Some(true),
            selector: Some(BTreeMap::from([("batch.kubernetes.io/job-name".to_owned(), job.name.clone())])),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn script(job: &Job) -> Option<ConfigMap> {
    let Program::Script { script, .. } = &job.program else { return None };
    Some(ConfigMap {
        metadata: metadata(job),
        data: Some(BTreeMap::from([(pod::SCRIPT_KEY.to_owned(), script.text.clone())])),
        ..ConfigMap::default()
    })
}
