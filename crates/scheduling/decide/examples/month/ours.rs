//! The controller's decision loop, with an API server and a kube-scheduler acting at once.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{ClaimAllocation, Decider, Intent, Observation, PodReference};

use crate::objects::{self, DRIVER, read};
use crate::{Job, Policy};

/// Start of the month, when all cards are known.
const BEGIN: u64 = 3_600;

/// The decision loop over a simulated cluster.
pub struct Ours<'j> {
    jobs: &'j [Job],
    decider: Decider,
    now: u64,
    /// Number of bound pods of each waiting job.
    bound: BTreeMap<usize, usize>,
}

impl<'j> Ours<'j> {
    /// A loop over `nodes` nodes of a pool with this placement.
    pub fn new(jobs: &'j [Job], nodes: usize, placement: &Value) -> Self {
        let mut shares = 0_u64;
        let share_id = move || {
            shares += 1;
            format!("00000000-0000-4000-8000-{shares:012x}")
        };
        let decider = Decider::new(DRIVER, share_id).with_handover(Duration::ZERO);
        let mut ours = Ours { jobs, decider, now: BEGIN, bound: BTreeMap::new() };
        ours.apply(read::<DeviceClass>(objects::class()));
        for number in 0..nodes {
            let name = format!("node-{number:02}");
            let node = json!({ "metadata": { "name": name },
                "status": { "allocatable": { "cpu": "192", "memory": "2Ti", "pods": "110" } } });
            ours.apply(read::<Node>(node));
            for slice in objects::slices(&name, placement) {
                ours.apply(read::<ResourceSlice>(slice));
            }
        }
        ours.decider.lead(ours.time(), "one");
        ours.decider.decide(ours.time());
        ours.observe(Observation::ClaimsListed { asked_at: ours.time() });
        ours
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.now)
    }

    fn observe(&mut self, observation: Observation) {
        self.decider.observe(self.time(), observation).expect("a good object");
    }

    fn apply(&mut self, object: impl Into<Object>) {
        self.observe(Observation::Applied(Box::new(object.into())));
    }

    fn timestamp(&self) -> Value {
        json!(Timestamp::from_second(self.now as i64).unwrap().to_string())
    }

    fn pod(&self, job: usize, number: usize) -> Value {
        let Job { pods, limit, .. } = self.jobs[job];
        let mut pod = objects::member(&format!("j{job:05}"), number, pods);
        if pods == 1 {
            pod["metadata"]["labels"] = json!({});
        }
        pod["metadata"]["creationTimestamp"] = self.timestamp();
        pod["spec"]["activeDeadlineSeconds"] = json!(limit);
        pod
    }

    fn come(&mut self, job: usize) {
        self.bound.insert(job, 0);
        for number in 0..self.jobs[job].pods {
            let pod = self.pod(job, number);
            let claim = objects::claim(pod["metadata"]["name"].as_str().unwrap(), self.jobs[job].cards);
            self.apply(read::<ResourceClaim>(claim));
            self.apply(read::<Pod>(pod));
        }
    }

    fn end(&mut self, job: usize) {
        for number in 0..self.jobs[job].pods {
            let pod = format!("j{job:05}-{number}");
            let claim = Key::new("n", format!("{pod}-c"));
            self.observe(Observation::Deleted(Kind::Pod, Key::new("n", pod)));
            self.observe(Observation::Deleted(Kind::ResourceClaim, claim));
        }
    }

    /// Writes the allocations. If the gate is lifted, kube-scheduler binds the pod.
    fn carry(&mut self, pod: PodReference, node: &str, claims: Vec<ClaimAllocation>, lifts_gate: bool) {
        let mut versions: Vec<(Key, String)> = Vec::new();
        for ClaimAllocation { claim, allocation } in claims {
            let mut found = self.claim(&claim.key);
            found["metadata"]["resourceVersion"] = json!("2");
            found["status"]["allocation"] = serde_json::to_value(allocation).unwrap();
            found["status"]["allocation"]["allocationTimestamp"] = self.timestamp();
            self.apply(read::<ResourceClaim>(found));
            versions.push((claim.key, "2".to_owned()));
        }
        if lifts_gate {
            let mut claim = self.claim(&pod.key.with_name(format!("{}-c", pod.key.name)));
            claim["status"]["reservedFor"] =
                json!([{ "resource": "pods", "name": pod.key.name, "uid": pod.uid }]);
            self.apply(read::<ResourceClaim>(claim));
            let found = self.decider.cluster().objects().pods[&pod.key].clone();
            let mut bound = serde_json::to_value(found.as_ref()).unwrap();
            bound["spec"]["schedulingGates"] = json!([]);
            bound["spec"]["nodeName"] = json!(node);
            bound["status"]["phase"] = json!("Running");
            bound["status"]["startTime"] = self.timestamp();
            self.apply(read::<Pod>(bound));
            let job = pod.key.name[1..6].parse::<usize>().unwrap();
            *self.bound.get_mut(&job).expect("a job that waits") += 1;
        }
        self.observe(Observation::Carried { pod, is_done: true, versions });
    }

    fn claim(&self, key: &Key) -> Value {
        serde_json::to_value(self.decider.cluster().objects().claims[key].as_ref()).unwrap()
    }
}

impl Policy for Ours<'_> {
    fn step(&mut self, now: u64, came: &[usize], ended: &[usize]) -> Vec<usize> {
        self.now = BEGIN + now;
        ended.iter().for_each(|job| self.end(*job));
        came.iter().for_each(|job| self.come(*job));
        loop {
            let mut is_idle = true;
            for intent in self.decider.decide(self.time()) {
                match intent {
                    Intent::Allocate { pod, node, claims, lifts_gate, .. } => {
                        is_idle = false;
                        self.carry(pod, &node, claims, lifts_gate);
                    }
                    Intent::Tell { .. } => {}
                    Intent::ListClaims => {
                        self.observe(Observation::ClaimsListed { asked_at: self.time() });
                    }
                    other => panic!("nothing goes wrong here: {other:?}"),
                }
            }
            if is_idle {
                break;
            }
        }
        let started: Vec<usize> = self
            .bound
            .iter()
            .filter(|(job, bound)| **bound == self.jobs[**job].pods)
            .map(|(job, _)| *job)
            .collect();
        self.bound.retain(|job, _| !started.contains(job));
        started
    }

    fn wake(&self) -> Option<u64> {
        let wake = self.decider.wake()?;
        // Round up to the next second, so time advances.
        Some(wake.as_secs().max(self.now) + 1 - BEGIN)
    }
}
