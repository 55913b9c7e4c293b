//! What makes pods: a Deployment, a StatefulSet, a ReplicaSet, a Job, or a Pod by itself.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_cluster::workloads;

/// What makes pods that are alike.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// `Deployment`, for example.
    pub kind: &'static str,
    /// Where it is from, as `jobs.yaml, line 12`; empty for what is from a cluster.
    pub origin: String,
    /// One of the pods, with name and namespace of what makes it.
    pub pod: Pod,
    /// How many; 0 for none.
    pub count: usize,
    /// How long each runs; `None` for ever.
    pub duration: Option<Duration>,
    /// Of a Job, what makes its pods a gang.
    pub(super) job: Option<workloads::Job>,
}

impl Manifest {
    fn new(kind: &'static str, made_by: ObjectMeta, template: PodTemplateSpec, count: Option<i32>) -> Self {
        let PodTemplateSpec { metadata, spec } = template;
        let ObjectMeta { labels, annotations, .. } = metadata.unwrap_or_default();
        let (name, namespace) = (made_by.name, made_by.namespace);
        let metadata = ObjectMeta { name, namespace, labels, annotations, ..ObjectMeta::default() };
        Self {
            kind,
            origin: String::new(),
            pod: Pod { metadata, spec, status: None },
            // 1 is Kubernetes' default of all these kinds.
            count: usize::try_from(count.unwrap_or(1)).unwrap_or(0),
            duration: None,
            job: None,
        }
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
            job: None,
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
    fn from(Job { metadata, spec, .. }: Job) -> Self {
        let spec = spec.unwrap_or_default();
        let number = |count: Option<i32>| count.and_then(|count| u32::try_from(count).ok());
        let job = workloads::Job {
            metadata: ObjectMeta { uid: metadata.name.clone(), ..metadata.clone() },
            spec: workloads::JobSpec {
                completion_mode: spec.completion_mode,
                completions: number(spec.completions),
                parallelism: number(spec.parallelism),
            },
        };
        let of_pod = spec.template.spec.as_ref().and_then(|pod| pod.active_deadline_seconds);
        let deadline = [spec.active_deadline_seconds, of_pod].into_iter().flatten().min();
        let at_once = spec.parallelism.unwrap_or(1);
        let count = spec.completions.map_or(at_once, |completions| completions.min(at_once));
        let count = if spec.suspend == Some(true) { 0 } else { count };
        Self {
            duration: deadline.and_then(seconds),
            job: Some(job),
            ..Self::new("Job", metadata, spec.template, Some(count))
        }
    }
}

/// A time above 0.
fn seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}
