//! Jobs whose pods start together: the Job controller recreates each pod until the Job is deleted.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tessera_api::gang::{GROUP_LABEL, GROUP_MIN_LABEL, GROUP_SIZE_LABEL, WHEN_PARTIAL_LABEL};
use tessera_api::steering::GATE;
use tessera_cluster::Key;
use tessera_decide::Time;

use super::api_server::{Server, Surroundings};
use super::kubernetes;
use super::scheduler::FAILS_TO_BIND;
use crate::objects;

/// Most Jobs at a time.
const MOST: usize = 2;

/// Claim templates for pods of Jobs.
const TEMPLATES: [&str; 3] = ["one", "two", "half"];

/// A Job.
#[derive(Debug, Clone)]
pub struct Job {
    pub name: String,
    pub namespace: &'static str,
    pub uid: String,
    pub size: usize,
    pub min: usize,
    pub template: &'static str,
    pub is_kept: bool,
    pub priority: i32,
    /// Its pods are never bound.
    pub is_never_bound: bool,
}

/// All Jobs, with their users and controller.
#[derive(Debug, Default)]
pub struct Jobs {
    jobs: Vec<Job>,
    made: usize,
    next: Time,
}

impl Job {
    fn pod(&self, number: usize) -> Key {
        Key::new(self.namespace, format!("{}-{number}", self.name))
    }
}

impl Jobs {
    /// Users create and delete Jobs.
    pub fn act(&mut self, around: &mut Surroundings, server: &mut Server) {
        if self.next > around.now {
            return;
        }
        self.next = around.now + around.between(2_000, 20_000);
        if self.jobs.len() == MOST || (!self.jobs.is_empty() && around.percent(30)) {
            let place = around.rng.usize(0..self.jobs.len());
            let job = self.jobs.remove(place);
            delete(around, server, &job);
            return;
        }
        self.made += 1;
        let size = around.rng.usize(2..=4);
        let min = if around.percent(25) { around.rng.usize(1..=size) } else { size };
        let job = Job {
            name: format!("g{}", self.made),
            namespace: around.namespace(self.made),
            uid: format!("job-{}", server.next_uid()),
            size,
            min,
            template: TEMPLATES[around.rng.usize(0..TEMPLATES.len())],
            is_kept: around.percent(15),
            priority: if around.percent(20) { 1 } else { 0 },
            is_never_bound: false,
        };
        around.note(|| format!("made {job:?}"));
        self.jobs.push(job);
    }

    /// Adds a Job from a scene.
    pub fn make(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// The Job controller creates missing pods.
    pub fn step(&self, around: &mut Surroundings, server: &mut Server) {
        for job in &self.jobs {
            for number in 0..job.size {
                let key = job.pod(number);
                if server.pod(&key).is_none() && around.percent(40) {
                    create(around, server, job, &key, number);
                }
            }
        }
    }
}

fn create(around: &mut Surroundings, server: &mut Server, job: &Job, key: &Key, number: usize) {
    let now = Timestamp::from_second(i64::try_from(around.now.as_secs()).unwrap()).unwrap();
    let mut labels = json!({
        GROUP_LABEL: job.name,
        GROUP_SIZE_LABEL: job.size.to_string(),
        GROUP_MIN_LABEL: job.min.to_string(),
        "batch.kubernetes.io/job-completion-index": number.to_string(),
    });
    if job.is_kept {
        labels[WHEN_PARTIAL_LABEL] = json!("Keep");
    }
    if job.is_never_bound {
        labels[FAILS_TO_BIND] = json!("yes");
    }
    let pod = json!({
        "metadata": { "name": key.name, "namespace": key.namespace, "uid": format!("u{}", server.next_uid()),
            "labels": labels, "creationTimestamp": now.to_string(),
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid,
                "controller": true }] },
        "spec": {
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "50m" } } }],
            "schedulingGates": [{ "name": GATE }],
            "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": job.template }],
            "priority": job.priority,
        },
        "status": { "phase": "Pending" },
    });
    around.note(|| format!("the controller of {} made {}", job.name, key.name));
    server.apply(around, objects::read::<Pod>(pod));
}

fn delete(around: &mut Surroundings, server: &mut Server, job: &Job) {
    around.note(|| format!("deleting Job {}", job.name));
    for number in 0..job.size {
        kubernetes::delete_pod(around, server, &job.pod(number));
    }
}
