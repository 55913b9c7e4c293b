//! JobSets and LeaderWorkerSets, as far as needed to create pods. All API versions are read alike: the fields used here are the same.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{Job, JobTemplateSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use serde::{Deserialize, Serialize};
use tessera_cluster::gang::labels;
use tessera_cluster::workloads;

use super::{MadeBy, Manifest, Obstacle, Replicas};

/// A JobSet (`jobset.x-k8s.io`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobSet {
    /// Its metadata.
    pub metadata: ObjectMeta,
    spec: JobSetSpec,
    #[serde(default)]
    status: JobSetStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobSetStatus {
    /// Number of restarts of the whole set.
    restarts: u32,
    /// `Completed` or `Failed`; absent while neither.
    terminal_state: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobSetSpec {
    replicated_jobs: Vec<ReplicatedJob>,
    suspend: Option<bool>,
    startup_policy: Option<JobSetStartupPolicy>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobSetStartupPolicy {
    startup_policy_order: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicatedJob {
    name: String,
    replicas: Option<i32>,
    template: JobTemplateSpec,
    #[serde(default)]
    depends_on: Vec<DependsOn>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct DependsOn {
    name: String,
    /// `Ready` or `Complete`.
    status: String,
}

/// A LeaderWorkerSet (`leaderworkerset.x-k8s.io`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeaderWorkerSet {
    /// Its metadata.
    pub metadata: ObjectMeta,
    spec: LeaderWorkerSetSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaderWorkerSetSpec {
    replicas: Option<i32>,
    startup_policy: Option<String>,
    leader_worker_template: LeaderWorkerTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaderWorkerTemplate {
    /// Defaults to the worker template.
    leader_template: Option<PodTemplateSpec>,
    worker_template: PodTemplateSpec,
    /// Pods of each replica, including the leader.
    size: Option<i32>,
}

impl From<JobSet> for Vec<Manifest> {
    /// The pods of the Jobs without dependencies on completed Jobs.
    fn from(JobSet { metadata, spec, status }: JobSet) -> Self {
        let is_over = status.terminal_state.is_some_and(|state| !state.is_empty());
        let mut jobs = 0;
        let set = metadata.name.clone().unwrap_or_default();
        let made_by = MadeBy::JobSet(of_gangs(&metadata, &spec));
        let is_suspended = spec.suspend == Some(true);
        // Jobs waiting for the completion of others. A Job can only wait for earlier ones.
        let mut late: BTreeSet<String> = BTreeSet::new();
        let of_job = |job: ReplicatedJob| {
            let ReplicatedJob { name, replicas, template, depends_on } = job;
            let mut made =
                Manifest::from(Job { metadata: metadata.clone(), spec: template.spec, ..Job::default() });
            let count = made.number("replicas", replicas);
            let pod_labels = made.pod.metadata.labels.get_or_insert_default();
            pod_labels.insert(labels::JOBSET_NAME.to_owned(), set.clone());
            pod_labels.insert(labels::JOBSET_REPLICATED_JOB.to_owned(), name.clone());
            if let Some(uid) = metadata.uid.clone() {
                pod_labels.insert(labels::JOBSET_UID.to_owned(), uid);
                pod_labels.insert(labels::JOBSET_ATTEMPT.to_owned(), status.restarts.to_string());
            }
            if is_over {
                made.count = 0;
            }
            if let Some(after) =
                depends_on.iter().find(|after| after.status == "Complete" || late.contains(&after.name))
            {
                let reason =
                    format!("its Job {name} begins when {} is complete, at an unknown time", after.name);
                late.insert(name.clone());
                made.obstacle.get_or_insert(Obstacle::LeftOut(reason));
            }
            if is_suspended {
                made.obstacle.get_or_insert(Obstacle::LeftOut("it is suspended".to_owned()));
            }
            let replicas = Replicas {
                count,
                prefix: format!("{set}-{name}"),
                part: name,
                label: labels::JOBSET_JOB,
                offset: jobs,
                first: Some(0),
            };
            jobs = jobs.saturating_add(count);
            Manifest { kind: "JobSet", replicas: Some(replicas), made_by: Some(made_by.clone()), ..made }
        };
        spec.replicated_jobs.into_iter().map(of_job).collect()
    }
}

/// The JobSet's fields relevant for gangs.
fn of_gangs(metadata: &ObjectMeta, spec: &JobSetSpec) -> workloads::JobSet {
    let number = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok());
    let job = |job: &ReplicatedJob| {
        let of_job = job.template.spec.as_ref();
        workloads::ReplicatedJob {
            name: job.name.clone(),
            replicas: number(job.replicas),
            template: workloads::JobTemplate {
                spec: workloads::JobSpec {
                    parallelism: number(of_job.and_then(|spec| spec.parallelism)),
                    ..workloads::JobSpec::default()
                },
            },
            depends_on: job
                .depends_on
                .iter()
                .map(|after| workloads::DependsOn { name: after.name.clone() })
                .collect(),
        }
    };
    let order = spec.startup_policy.as_ref().map(|policy| workloads::JobSetStartupPolicy {
        startup_policy_order: policy.startup_policy_order.clone(),
    });
    workloads::JobSet {
        metadata: metadata.clone(),
        spec: workloads::JobSetSpec {
            replicated_jobs: spec.replicated_jobs.iter().map(job).collect(),
            startup_policy: order,
        },
    }
}

impl From<LeaderWorkerSet> for Vec<Manifest> {
    /// All leaders, then all workers, because leaders are created first.
    fn from(LeaderWorkerSet { metadata, spec }: LeaderWorkerSet) -> Self {
        let set = metadata.name.clone().unwrap_or_default();
        let LeaderWorkerTemplate { leader_template, worker_template, size } = spec.leader_worker_template;
        let made_by = MadeBy::LeaderWorkerSet(workloads::LeaderWorkerSet {
            metadata: metadata.clone(),
            spec: workloads::LeaderWorkerSetSpec { startup_policy: spec.startup_policy },
        });
        let leader = leader_template.unwrap_or_else(|| worker_template.clone());
        let made = |template: PodTemplateSpec, is_leader: bool| {
            let mut made = Manifest::new("LeaderWorkerSet", metadata.clone(), template, Some(1));
            let count = made.number("replicas", spec.replicas);
            let pods = made.number("size", size);
            if pods == 0 {
                made.obstacle.get_or_insert(Obstacle::Refused("size is 0; it must be 1 or more".to_owned()));
            }
            if !is_leader {
                made.count = pods.saturating_sub(1);
            }
            let pod = &mut made.pod.metadata;
            pod.labels.get_or_insert_default().insert(labels::LWS_NAME.to_owned(), set.clone());
            pod.annotations.get_or_insert_default().insert(labels::LWS_SIZE.to_owned(), pods.to_string());
            let replicas = Replicas {
                count,
                part: if is_leader { Replicas::LEADER } else { Replicas::WORKER }.to_owned(),
                label: labels::LWS_REPLICA,
                offset: 0,
                prefix: set.clone(),
                first: (!is_leader).then_some(1),
            };
            Manifest { replicas: Some(replicas), made_by: Some(made_by.clone()), ..made }
        };
        vec![made(leader, true), made(worker_template, false)]
    }
}

impl Resource for JobSet {
    const API_VERSION: &'static str = "jobset.x-k8s.io/v1alpha2";
    const GROUP: &'static str = "jobset.x-k8s.io";
    const KIND: &'static str = "JobSet";
    const VERSION: &'static str = "v1alpha2";
    const URL_PATH_SEGMENT: &'static str = "jobsets";
    type Scope = NamespaceResourceScope;
}

impl Metadata for JobSet {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for LeaderWorkerSet {
    const API_VERSION: &'static str = "leaderworkerset.x-k8s.io/v1";
    const GROUP: &'static str = "leaderworkerset.x-k8s.io";
    const KIND: &'static str = "LeaderWorkerSet";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "leaderworkersets";
    type Scope = NamespaceResourceScope;
}

impl Metadata for LeaderWorkerSet {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
