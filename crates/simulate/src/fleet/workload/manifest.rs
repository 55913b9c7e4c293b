//! What makes pods: a Deployment, a StatefulSet, a ReplicaSet, a Job, a CronJob, a JobSet, a LeaderWorkerSet, or a Pod by itself.

mod sets;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tessera_cluster::workloads;

pub use sets::{JobSet, LeaderWorkerSet};

/// What makes pods that are alike.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// `Deployment`, for example.
    pub kind: &'static str,
    /// Where it is from, as `jobs.yaml, line 12`; empty for what is from a cluster.
    pub origin: String,
    /// One of the pods, with name, namespace, uid and owner of what makes it.
    pub pod: Pod,
    /// How many, of each replica if there are replicas; 0 for none.
    pub count: usize,
    /// How long each runs; `None` for ever.
    pub duration: Option<Duration>,
    /// Of a Job that began: when its pods must be gone.
    pub(in crate::fleet) ends: Option<Timestamp>,
    /// Of what makes pods in groups, how many groups.
    pub(super) replicas: Option<Replicas>,
    /// What makes the pods a gang.
    pub(super) made_by: Option<MadeBy>,
    /// Why there are none of them.
    pub(super) obstacle: Option<Obstacle>,
}

/// Groups of pods that are alike: Jobs of a JobSet, replicas of a LeaderWorkerSet.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    /// How many.
    pub count: usize,
    /// What tells them from other groups of the same thing: the name of their Jobs, or whether it is the leaders.
    pub part: String,
    /// The label of a pod that has the number of its group.
    pub label: &'static str,
    /// The number of the first group there.
    pub offset: usize,
    /// Pods are called so, with the number of the group, and their own.
    pub prefix: String,
    /// The number of the first pod of each; `None` where there is a single one, without a number.
    pub first: Option<usize>,
}

impl Replicas {
    /// The parts of a LeaderWorkerSet.
    pub const LEADER: &str = "leader";
    pub const WORKER: &str = "worker";

    /// What the label says of a group, counted from 0.
    pub fn group(&self, group: usize) -> String {
        (self.offset + group).to_string()
    }
}

/// What tells how large a gang is.
#[derive(Clone, Debug)]
pub(super) enum MadeBy {
    Job(workloads::Job),
    JobSet(workloads::JobSet),
    LeaderWorkerSet(workloads::LeaderWorkerSet),
}

/// Why there are no pods of a manifest.
#[derive(Clone, Debug)]
pub(super) enum Obstacle {
    /// It cannot be.
    Refused(String),
    /// It can, and is not simulated.
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

    /// With so many pods; 1 is Kubernetes' default of all these kinds. `field` says so.
    fn counted(mut self, field: &str, count: Option<i32>) -> Self {
        self.count = self.number(field, count);
        self
    }

    /// What a field says, which must not be negative.
    fn number(&mut self, field: &str, number: Option<i32>) -> usize {
        let number = number.unwrap_or(1);
        usize::try_from(number).unwrap_or_else(|_| {
            self.obstacle = Some(Obstacle::Refused(format!("{field} is {number}; it must be 0 or more")));
            0
        })
    }

    /// Number of all its pods.
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
    /// All pods that it has at once, to its deadline. What it makes when some of them have ended, nobody can tell.
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
            },
            // In the simulation, all of its pods are still to come.
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
    /// One run of its Job, at once.
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

/// When something that began then has had so many seconds.
pub(in crate::fleet) fn ends(began: Option<&Time>, seconds: Option<i64>) -> Option<Timestamp> {
    let duration = self::seconds(seconds?)?;
    began?.0.checked_add(SignedDuration::try_from(duration).ok()?).ok()
}

/// A time above 0.
fn seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}
