//! Pods, Jobs and a Deployment that come and go.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tessera_api::steering::GATE;
use tessera_harness::Cluster;

use crate::{fleet, pods};

/// Somebody else's gate.
pub const OTHER_GATE: &str = "example.com/queue";

/// Pods of their own that there are at once, and Jobs.
const MOST_PODS: usize = 12;
const MOST_JOBS: usize = 2;

/// How long a pod that is to be deleted on its way may wait for its gate's end.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

const PAUSE: Duration = Duration::from_millis(40);

/// Goes on until `stop`; what is there then stays. One pod keeps the other gate.
pub async fn come_and_go(cluster: &Cluster, stop: &AtomicBool) {
    let api: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let (mut kept, mut queued, mut jobs) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    deployment(cluster, 3).await;
    for number in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("p{number}");
        let pod = pods::pod(&name, [1, 2, 1, 4, 1][number % 5]);
        match number % 8 {
            // Deleted before anybody looked at it.
            0 => {
                cluster.create_pod(pod).await.unwrap();
                delete(&api, &name).await;
            }
            // Deleted on its way: its gate is lifted, and it may be bound.
            1 | 5 => {
                cluster.create_pod(pod).await.unwrap();
                until_lifted(&api, &name).await;
                delete(&api, &name).await;
            }
            // Somebody else's gate is lifted later than those of pods that came after it.
            2 | 6 => {
                let mut pod = pod;
                pod["spec"]["schedulingGates"].as_array_mut().unwrap().push(json!({ "name": OTHER_GATE }));
                cluster.create_pod(pod).await.unwrap();
                queued.push_back(name);
                if queued.len() > 1 {
                    let name: String = queued.pop_front().unwrap();
                    lift_other(&api, &name).await;
                    kept.push_back(name);
                }
            }
            3 => {
                let name = format!("j{number}");
                job(cluster, &name, 3, 1).await;
                jobs.push_back(name);
                if jobs.len() > MOST_JOBS {
                    cluster.kubectl(&["delete", "job", &jobs.pop_front().unwrap()]).await.unwrap();
                }
            }
            7 => deployment(cluster, [6, 1, 9, 3][number / 8 % 4]).await,
            _ => {
                cluster.create_pod(pod).await.unwrap();
                kept.push_back(name);
            }
        }
        if kept.len() > MOST_PODS {
            delete(&api, &kept.pop_front().unwrap()).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A Job of so many pods with so many cards each, at once.
pub async fn job(cluster: &Cluster, name: &str, count: usize, cards: usize) {
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "parallelism": count, "completions": count,
            "template": { "metadata": { "labels": { "app": name } }, "spec": pods::spec(cards) } },
    });
    fleet::apply(cluster, &[job]).await;
}

/// A Deployment of so many pods with two cards each.
async fn deployment(cluster: &Cluster, replicas: usize) {
    fleet::apply(cluster, &[pods::deployment("serve", replicas, 2)]).await;
}

async fn delete(api: &Api<Pod>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until our gate is lifted; not long, as there may be no room, or no controller.
async fn until_lifted(api: &Api<Pod>, name: &str) {
    let end = Instant::now() + ON_ITS_WAY;
    while Instant::now() < end && has_gate(&api.get(name).await.unwrap(), GATE) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn has_gate(pod: &Pod, name: &str) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == name)
}

async fn lift_other(api: &Api<Pod>, name: &str) {
    let patch = json!({ "spec": { "schedulingGates": [{ "$patch": "delete", "name": OTHER_GATE }] } });
    api.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}
