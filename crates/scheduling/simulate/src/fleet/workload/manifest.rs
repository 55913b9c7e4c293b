//! Objects that create pods: Deployment, StatefulSet, ReplicaSet, Job, CronJob, JobSet, LeaderWorkerSet, or a Pod by itself.

mod sets;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tessera_cluster::workloads;

pub use sets::{JobSet, LeaderWorkerSet};

/// An object creating identical pods.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// `Deployment`, for example.
    pub kind: &'static str,
    /// Source, as `jobs.yaml, line 12`; empty for an object from a cluster.
    pub origin: String,
    /// One of the pods, with name, namespace, uid and owner of the creating object.
    pub pod: Pod,
    /// Number of pods, per replica if there are replicas; may be 0.
    pub count: usize,
    /// Run time of each pod; `None` for ever.
    pub duration: Option<Duration>,
    /// For a started Job, the deadline for its pods.
    pub(in crate::fleet) ends: Option<Timestamp>,
    /// Groups of pods, for kinds with groups.
    pub(super) replicas: Option<Replicas>,
    /// The object by which the pods are a gang.
    pub(super) made_by: Option<MadeBy>,
    /// Why the manifest creates no pods.
    pub(super) obstacle: Option<Obstacle>,
}

/// Groups of identical pods: Jobs of a JobSet, replicas of a LeaderWorkerSet.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    /// Number of groups.
    pub count: usize,
    /// The part of the object: the name of a JobSet's replicated Job, or leader or worker.
    pub part: String,
    /// The pod label with the group's number.
    pub label: &'static str,
    /// Number of the first group in the label.
    pub offset: usize,
    /// Prefix of the pods' names, followed by the numbers of group and pod.
    pub prefix: String,
    /// Number of the first pod of each group; `None` for a single pod without a number.
    pub first: Option<usize>,
}

impl Replicas {
    /// Parts of a LeaderWorkerSet.
    pub const LEADER: &str = "leader";
    pub const WORKER: &str = "worker";

    /// The label's value for a group, counted from 0.
    pub fn group(&self, group: usize) -> String {
        (self.offset + group).to_string()
    }
}

/// The object that determines the size of a gang.
#[derive(Clone, Debug)]
pub(super) enum MadeBy {
    Job(workloads::Job),
    JobSet(workloads::JobSet),
    LeaderWorkerSet(workloads::LeaderWorkerSet),
}

/// Why a manifest creates no pods.
#[derive(Clone, Debug)]
pub(super) enum Obstacle {
    /// The manifest is invalid.
    Refused(String),
    /// The manifest is valid, but not simulated.
    LeftOut(String),
}

impl Manifest {
    fn new(kind: &'static str, made_by: ObjectMeta, template: PodTemplateSpec, count: Option<i32>) -> Self {
        let PodTemplateSpec { metadata, spec } = template;
        let ObjectMeta { labels, annotations, .. } = metadata.unwrap_or_default();
        let ObjectMeta { name, namespace, uid, owner_references, .. } = made_by;
        let metadata = ObjectMeta {
            name,
            namespace,
            uid,
            owner_references,
            labels,
            annotations,
            ..ObjectMeta::default()
        };
        Self {
            kind,
            origin: String::new(),
            pod: Pod { metadata, spec, status: None },
            count: 0,
            duration: None,
            ends: None,
            replicas: None,
            made_by: None,
            obstacle: None,
        }
        .counted("replicas", count)
    }

    /// Sets the number of pods; the default is 1, as in Kubernetes for all these kinds. `field` names the setting in errors.
    fn counted(mut self, field: &str, count: Option<i32>) -> Self {
        self.count = self.number(field, count);
        self
    }

    /// The value of a field, which must not be negative.
    fn number(&mut self, field: &str, number: Option<i32>) -> usize {
        let number = number.unwrap_or(1);
        usize::try_from(number).unwrap_or_else(|_| {
            self.obstacle = Some(Obstacle::Refused(format!("{field} is {number}; it must be 0 or more")));
            0
        })
    }

    /// Total number of pods.
    pub(super) fn total(&self) -> usize {
        self.replicas.as_ref().map_or(self.count, |replicas| replicas.count.saturating_mul(self.count))
    }
}

impl From<Pod> for Manifest {
    fn from(pod: Pod) -> Self {
        let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        Self {
            kind: "Pod",
            origin: String::new(),
            pod,
            count: 1,
            duration: deadline.and_then(seconds),
            ends: None,
            replicas: None,
            made_by: None,
            obstacle: None,
        }
    }
}

impl From<Deployment> for Manifest {
    fn from(Deployment { metadata, spec, .. }: Deployment) -> Self {
        Self::new("Deployment", metadata, spec.template, spec.replicas)
    }
}

impl From<ReplicaSet> for Manifest {
    fn from(ReplicaSet { metadata, spec, .. }: ReplicaSet) -> Self {
        Self::new("ReplicaSet", metadata, spec.template.unwrap_or_default(), spec.replicas)
    }
}

impl From<StatefulSet> for Manifest {
    fn from(StatefulSet { metadata, spec, .. }: StatefulSet) -> Self {
        Self::new("StatefulSet", metadata, spec.template, spec.replicas)
    }
}

impl From<Job> for Manifest {
    /// All pods running at once, up to the Job's deadline. Pods created after some of them have ended cannot be predicted.
    fn from(Job { metadata, spec, status }: Job) -> Self {
        let spec = spec.unwrap_or_default();
        let status = status.unwrap_or_default();
        let is_over = status.conditions.iter().flatten().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        let number = |count: Option<i32>| count.and_then(|count| u32::try_from(count).ok());
        let job = workloads::Job {
            metadata: ObjectMeta {
                uid: metadata.uid.clone().or_else(|| metadata.name.clone()),
                ..metadata.clone()
            },
            spec: workloads::JobSpec {
                completion_mode: spec.completion_mode,
                completions: number(spec.completions),
                parallelism: number(spec.parallelism),
                ..workloads::JobSpec::default()
            },
            // In the simulation, none of its pods exist yet.
            status: workloads::JobStatus::default(),
        };
        let of_pod = spec.template.spec.as_ref().and_then(|pod| pod.active_deadline_seconds);
        let deadline = [spec.active_deadline_seconds, of_pod].into_iter().flatten().min();
        let mut made = Self::new("Job", metadata, spec.template, Some(0));
        made.count = made.number("parallelism", spec.parallelism);
        if spec.completions.is_some() {
            let succeeded = usize::try_from(status.succeeded.unwrap_or(0)).unwrap_or(0);
            let left = made.number("completions", spec.completions).saturating_sub(succeeded);
            made.count = made.count.min(left);
        }
        if is_over {
            made.count = 0;
        }
        if spec.suspend == Some(true) {
            made.obstacle = Some(Obstacle::LeftOut("it is suspended".to_owned()));
        }
        let ends = ends(status.start_time.as_ref(), spec.active_deadline_seconds);
        Self { duration: deadline.and_then(seconds), ends, made_by: Some(MadeBy::Job(job)), ..made }
    }
}

impl From<CronJob> for Manifest {
    /// One run of its Job, starting at once.
    fn from(CronJob { metadata, spec, .. }: CronJob) -> Self {
        let labels = spec.job_template.metadata.and_then(|metadata| metadata.labels);
        let job = Job {
            metadata: ObjectMeta { labels, ..metadata },
            spec: spec.job_template.spec,
            ..Job::default()
        };
        let mut made = Self { kind: "CronJob", ..job.into() };
        if spec.suspend == Some(true) {
            made.obstacle = Some(Obstacle::LeftOut("it is suspended".to_owned()));
        }
        made
    }
}

/// The time `seconds` after `began`.
pub(in crate::fleet) fn ends(began: Option<&Time>, seconds: Option<i64>) -> Option<Timestamp> {
    let duration = self::seconds(seconds?)?;
    began?.0.checked_add(SignedDuration::try_from(duration).ok()?).ok()
}

/// A time above 0.
fn seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}
