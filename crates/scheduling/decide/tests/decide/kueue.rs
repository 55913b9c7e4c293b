//! Pods that Kueue admitted.

use serde_json::{Value, json};
use tessera_cluster::workloads::Job;

use crate::gangs::member;
use crate::gangs::preemption::{running, victims, with_priority};
use crate::gangs::queue::{ask_at, at, who};
use crate::leader::leader;
use crate::objects::*;

fn queued(pod: &mut Value, queue: &str) {
    pod["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] = json!(queue);
}

/// Asks for a card with priority 10.
fn urgent(fed: &mut Fed, name: &str, second: u64, queue: Option<&str>) {
    ask_at(fed, name, 1, second, |pod| {
        with_priority(10)(pod);
        if let Some(queue) = queue {
            queued(pod, queue);
        }
    });
}

/// Two nodes with a card each, held by pods of two queues; that of `vision` would go first.
fn two_queues() -> Fed {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    for (name, priority) in [("vision", -1), ("nlp", 0)] {
        running(&mut fed, name, 1, |pod| {
            with_priority(priority)(pod);
            queued(pod, name);
        });
    }
    fed
}

#[test]
fn victims_are_of_the_same_queue() {
    for (queue, expected) in [
        (Some("nlp"), &["nlp"][..]),
        (Some("vision"), &["vision"]),
        (Some("speech"), &[][..]),
        (None, &["vision"]),
    ] {
        let mut fed = two_queues();
        urgent(&mut fed, "urgent", 50, queue);
        assert_eq!(victims(&mut fed), expected, "{queue:?}");
    }
}

/// What one learns of victims in a round is not known of another queue.
#[test]
fn a_pod_of_a_queue_without_victims_hides_none_of_another() {
    let mut fed = two_queues();
    urgent(&mut fed, "nobody", 40, Some("speech"));
    urgent(&mut fed, "urgent", 50, Some("nlp"));
    assert_eq!(victims(&mut fed), ["nlp"]);
}

/// Made anew at 30, for a Job of 5; the other pod is of 20.
#[test]
fn a_job_that_is_admitted_again_keeps_its_age() {
    for (size, is_queued) in [(1, true), (2, true), (2, false)] {
        let mut fed = leader(&[("a", 2)]);
        let metadata =
            json!({ "name": "train", "namespace": "team", "uid": "job-train", "creationTimestamp": at(5) });
        fed.apply(read::<Job>(json!({ "metadata": metadata, "spec": { "parallelism": size } })).into());
        ask_at(&mut fed, "other", 2, 20, |_| {});
        for number in 0..size {
            let of_gang = member("train", number, size);
            ask_at(&mut fed, &format!("train-{number}"), 2 / size, 30, |pod| {
                pod["metadata"]["ownerReferences"] = of_gang["metadata"]["ownerReferences"].clone();
                if size > 1 {
                    pod["metadata"]["labels"] = of_gang["metadata"]["labels"].clone();
                }
                if is_queued {
                    queued(pod, "vision");
                }
            });
        }
        // Pods of a Job that is no gang come one after the other: each has its own age.
        let first = if is_queued && size > 1 { "train-0" } else { "other" };
        assert_eq!(who(&mut fed).first().map(String::as_str), Some(first), "{size} {is_queued}");
    }
}

/// A gang that runs and asks for more pods has its first start's age, as without Kueue.
#[test]
fn once_it_runs_the_age_is_that_of_its_pods() {
    let mut fed = leader(&[("a", 2)]);
    let metadata =
        json!({ "name": "train", "namespace": "team", "uid": "job-train", "creationTimestamp": at(5) });
    fed.apply(read::<Job>(json!({ "metadata": metadata, "spec": { "parallelism": 2 } })).into());
    let mut first = member("train", 0, 2);
    let mut second = member("train", 1, 2);
    for pod in [&mut first, &mut second] {
        queued(pod, "vision");
        pod["metadata"]["creationTimestamp"] = at(30);
    }
    for pod in [&first, &second] {
        fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", 1, 5);
        fed.apply_pod(pod.clone());
    }
    let intents = fed.decide();
    fed.written(&intents);
    fed.bound(first, "a");
    fed.bound(second, "a");
    // One is lost, and made anew after another pod came.
    fed.delete(tessera_cluster::Kind::Pod, "train-1");
    fed.delete(tessera_cluster::Kind::ResourceClaim, "train-1-gpus");
    ask_at(&mut fed, "other", 1, 20, |_| {});
    ask_at(&mut fed, "train-1", 1, 40, |pod| {
        let of_gang = member("train", 1, 2);
        pod["metadata"]["labels"] = of_gang["metadata"]["labels"].clone();
        pod["metadata"]["ownerReferences"] = of_gang["metadata"]["ownerReferences"].clone();
        queued(pod, "vision");
    });
    assert_eq!(who(&mut fed), ["other"]);
}
