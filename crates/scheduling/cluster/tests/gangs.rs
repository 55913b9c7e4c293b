//! The gang of a pod, from objects as written by users and completed by their controllers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_cluster::gang::{self, GangError, Membership, WhenPartial};
use tessera_cluster::workloads::{Job, JobSet, LeaderWorkerSet, PodGroup};
use tessera_cluster::{Key, Objects};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn pod(name: &str, labels: Value) -> Value {
    json!({ "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}"), "labels": labels } })
}

fn owned(mut pod: Value, kind: &str, name: &str, uid: &str) -> Value {
    pod["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "batch/v1", "kind": kind, "name": name, "uid": uid, "controller": true }]);
    pod
}

fn of(objects: &Objects, pod: Value) -> Result<Option<Membership>, GangError> {
    gang::of_pod(objects, &read::<Pod>(pod))
}

fn key(name: &str) -> Key {
    Key::new("team", name)
}

#[test]
fn a_pod_without_any_label_is_of_none() {
    assert_eq!(of(&Objects::default(), pod("p", json!({}))), Ok(None));
}

#[test]
fn pods_that_name_their_gang_are_one_by_owner() {
    let objects = Objects::default();
    let labels = json!({ "gpu.tessera.dev/group": "train", "gpu.tessera.dev/group-size": "4",
        "gpu.tessera.dev/group-min": "2", "gpu.tessera.dev/group-when-partial": "Keep" });
    let member =
        |name, uid| of(&objects, owned(pod(name, labels.clone()), "Job", "train", uid)).unwrap().unwrap();
    let (first, other) = (member("train-0", "one"), member("train-10", "one"));
    assert_eq!((first.size, first.min, first.when_partial), (4, 2, WhenPartial::Keep));
    assert_eq!(first.gang, other.gang);
    assert!(first.rank < other.rank && other.rank.pod == 10);
    // A later Job of the same name.
    assert_ne!(first.gang, member("train-0", "two").gang);
}

#[test]
fn wrong_values_are_named() {
    for (labels, words) in [
        (json!({ "gpu.tessera.dev/group": "g" }), "not gpu.tessera.dev/group-size"),
        (json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "0" }), "from 1 to 4096"),
        (json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "4097" }), "from 1 to 4096"),
        (json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "-1" }), "from 1 to 4096"),
        (
            json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "2", "gpu.tessera.dev/group-min": "3" }),
            "needs 3 pods",
        ),
    ] {
        let error = of(&Objects::default(), pod("p", labels)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Labels set by the Job controller of Kubernetes 1.36 on a pod of an Indexed Job.
fn of_a_job(labels: Value) -> Value {
    let mut all = json!({
        "batch.kubernetes.io/controller-uid": "job-uid",
        "batch.kubernetes.io/job-completion-index": "3",
        "batch.kubernetes.io/job-name": "train",
    });
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    owned(pod("train-3-x7k2p", all), "Job", "train", "job-uid")
}

fn job(labels: Value, spec: Value) -> Objects {
    let job: Job = read(json!({ "metadata": { "name": "train", "namespace": "team", "uid": "job-uid",
        "labels": labels }, "spec": spec }));
    Objects { jobs: [(key("train"), job)].into(), ..Objects::default() }
}

#[test]
fn an_indexed_job_that_opts_in_is_a_gang() {
    let indexed = json!({ "completionMode": "Indexed", "completions": 8, "parallelism": 8 });
    let opted_in = json!({ "gpu.tessera.dev/gang": "enabled" });
    for (on_job, on_pod) in [(opted_in.clone(), json!({})), (json!({}), opted_in.clone())] {
        let member = of(&job(on_job, indexed.clone()), of_a_job(on_pod)).unwrap().unwrap();
        assert_eq!((member.size, member.min, member.rank.pod), (8, 8, 3));
        assert_eq!((member.gang.to_string().as_str(), member.gang.owner.as_str()), ("team/train", "job-uid"));
    }
    assert_eq!(of(&job(json!({}), indexed.clone()), of_a_job(json!({}))), Ok(None));
    let single = json!({ "completionMode": "Indexed", "completions": 1, "parallelism": 1 });
    assert_eq!(of(&job(opted_in.clone(), single), of_a_job(json!({}))), Ok(None));
    for spec in [
        json!({ "completions": 8, "parallelism": 8 }),
        json!({ "completionMode": "Indexed", "completions": 8, "parallelism": 4 }),
    ] {
        assert_eq!(of(&job(opted_in.clone(), spec), of_a_job(json!({}))), Err(GangError::NotIndexed));
    }
    // The watch of Jobs may lag. Another Job of the same name does not count.
    let late = of(&Objects::default(), of_a_job(opted_in.clone())).unwrap_err();
    assert!(matches!(late, GangError::NotYet { kind: "Job", .. }), "{late}");
    let mut another = job(opted_in.clone(), indexed);
    another.jobs.get_mut(&key("train")).unwrap().metadata.uid = Some("other".to_owned());
    assert!(of(&another, of_a_job(opted_in)).is_err());
}

/// A user's JobSet of a driver and two times four workers.
fn job_set(spec: Value) -> Objects {
    let mut all = json!({ "replicatedJobs": [
        { "name": "driver", "template": { "spec": { "parallelism": 1, "completions": 1 } } },
        { "name": "workers", "replicas": 2, "template": { "spec": {
            "completionMode": "Indexed", "parallelism": 4, "completions": 4, "backoffLimit": 0 } } },
    ] });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let set: JobSet = read(json!({ "metadata": { "name": "pretrain", "namespace": "team", "uid": "set-uid",
        "labels": { "gpu.tessera.dev/gang": "enabled" } }, "spec": all }));
    Objects { job_sets: [(key("pretrain"), set)].into(), ..Objects::default() }
}

/// Labels set by the JobSet controller (v0.10) on a pod.
fn of_a_job_set(job: &str, global: u32, attempt: u32) -> Value {
    let labels = json!({
        "batch.kubernetes.io/job-completion-index": "1",
        "batch.kubernetes.io/job-name": format!("pretrain-{job}-0"),
        "jobset.sigs.k8s.io/job-global-index": global.to_string(),
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/jobset-name": "pretrain",
        "jobset.sigs.k8s.io/jobset-uid": "set-uid",
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/restart-attempt": attempt.to_string(),
    });
    owned(pod(&format!("pretrain-{job}-0-1-abcde"), labels), "Job", &format!("pretrain-{job}-0"), "a-job")
}

#[test]
fn a_job_set_is_a_gang_at_each_attempt() {
    let objects = job_set(json!({}));
    let member = |job, global, attempt| of(&objects, of_a_job_set(job, global, attempt)).unwrap().unwrap();
    let (driver, worker) = (member("driver", 0, 0), member("workers", 2, 0));
    assert_eq!((driver.size, worker.size), (9, 9));
    assert_eq!(driver.gang, worker.gang);
    assert!(driver.rank < worker.rank);
    assert_ne!(worker.gang, member("workers", 2, 1).gang);
}

#[test]
fn a_job_set_that_starts_in_order_is_a_gang_for_each_of_its_jobs() {
    for spec in [
        json!({ "startupPolicy": { "startupPolicyOrder": "InOrder" } }),
        json!({ "replicatedJobs": [
            { "name": "driver", "template": { "spec": {} } },
            { "name": "workers", "replicas": 2, "template": { "spec": { "parallelism": 4 } },
                "dependsOn": [{ "name": "driver", "status": "Ready" }] } ] }),
    ] {
        let objects = job_set(spec);
        let size = |job| of(&objects, of_a_job_set(job, 0, 0)).unwrap().unwrap().size;
        assert_eq!((size("driver"), size("workers")), (1, 8));
    }
}

fn leader_worker_set(spec: Value) -> Objects {
    let set: LeaderWorkerSet =
        read(json!({ "metadata": { "name": "serve", "namespace": "team", "uid": "lws-uid",
        "labels": { "gpu.tessera.dev/gang": "enabled" } }, "spec": spec }));
    Objects { leader_worker_sets: [(key("serve"), set)].into(), ..Objects::default() }
}

/// Labels set by the LeaderWorkerSet controller (v0.7) on a pod. Workers belong to a StatefulSet owned by the leader.
fn of_a_leader_worker_set(replica: u32, worker: u32) -> Value {
    let name = if worker == 0 { format!("serve-{replica}") } else { format!("serve-{replica}-{worker}") };
    let labels = json!({
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": replica.to_string(),
        "leaderworkerset.sigs.k8s.io/group-key": "689ad1eda5dad36e3db9d94bad5fa2ad1a5eaaed",
        "leaderworkerset.sigs.k8s.io/worker-index": worker.to_string(),
        "leaderworkerset.sigs.k8s.io/template-revision-hash": "79f8b9d7b4",
    });
    let mut pod = pod(&name, labels);
    pod["metadata"]["annotations"] = json!({ "leaderworkerset.sigs.k8s.io/size": "4" });
    let uid = if worker == 0 { "leaders" } else { "workers" };
    owned(pod, "StatefulSet", &name, uid)
}

#[test]
fn each_replica_of_a_leader_worker_set_is_a_gang() {
    let objects = leader_worker_set(json!({ "replicas": 2, "leaderWorkerTemplate": { "size": 4 } }));
    let member = |replica, worker| of(&objects, of_a_leader_worker_set(replica, worker)).unwrap().unwrap();
    let (leader, worker) = (member(0, 0), member(0, 3));
    assert_eq!((leader.size, leader.gang.name.as_str()), (4, "serve-0"));
    assert_eq!(leader.gang, worker.gang);
    assert!(leader.rank < worker.rank);
    assert_ne!(leader.gang, member(1, 0).gang);
    // A rolling update makes another group with the same number.
    let mut updated = of_a_leader_worker_set(0, 0);
    updated["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/template-revision-hash"] = json!("5d8c7b9f64");
    assert_ne!(leader.gang, of(&objects, updated).unwrap().unwrap().gang);
    let refused = leader_worker_set(json!({ "startupPolicy": "LeaderReady" }));
    assert_eq!(of(&refused, of_a_leader_worker_set(0, 0)), Err(GangError::LeaderReady));
}

#[test]
fn a_pod_group_with_a_gang_policy_is_a_gang() {
    let group = |policy: Value| {
        let group: PodGroup = read(json!({ "metadata": { "name": "g", "namespace": "team", "uid": "group" },
            "spec": { "schedulingPolicy": policy } }));
        Objects { pod_groups: [(key("g"), group)].into(), ..Objects::default() }
    };
    let mut pod = pod("p-0", json!({}));
    pod["spec"] = json!({ "containers": [], "schedulingGroup": { "podGroupName": "g" } });
    let member = of(&group(json!({ "gang": { "minCount": 3 } })), pod.clone()).unwrap().unwrap();
    assert_eq!((member.min, member.gang.name.as_str()), (3, "g"));
    assert_eq!(of(&group(json!({ "basic": {} })), pod.clone()), Ok(None));
    assert!(of(&Objects::default(), pod).is_err());
}

/// Where the feature gate WorkloadWithJob is on, the Job controller makes a PodGroup of the basic policy for each Job.
#[test]
fn a_pod_group_of_the_basic_policy_does_not_hide_the_gang_of_its_job() {
    let mut objects = job(
        json!({ "gpu.tessera.dev/gang": "enabled" }),
        json!({ "completionMode": "Indexed", "completions": 8, "parallelism": 8 }),
    );
    let group: PodGroup = read(json!({ "metadata": { "name": "g", "namespace": "team", "uid": "group" },
        "spec": { "schedulingPolicy": { "basic": {} } } }));
    objects.pod_groups = [(key("g"), group)].into();
    let mut pod = of_a_job(json!({}));
    pod["spec"] = json!({ "containers": [], "schedulingGroup": { "podGroupName": "g" } });
    assert_eq!(of(&objects, pod).unwrap().unwrap().gang.name, "train");
}

/// A group named by the pods of a Job, JobSet or LeaderWorkerSet with too few pods at once.
#[test]
fn a_group_that_can_never_be_complete_is_refused_at_once() {
    let labels = |min: &str| json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "8", "gpu.tessera.dev/group-min": min });
    let named = |mut pod: Value, min: &str| {
        pod["metadata"]["labels"].as_object_mut().unwrap().extend(labels(min).as_object().unwrap().clone());
        pod
    };
    let two_of_eight = job(json!({}), json!({ "completions": 8, "parallelism": 2 }));
    let error = of(&two_of_eight, named(of_a_job(json!({})), "8")).unwrap_err();
    assert_eq!(error, GangError::TooFewAtOnce { kind: "Job", min: 8, pods: 2 });
    assert!(error.to_string().contains("its Job makes only 2 at once"), "{error}");
    assert!(of(&two_of_eight, named(of_a_job(json!({})), "2")).unwrap().is_some());
    // The Job may not have been observed yet.
    assert!(of(&Objects::default(), named(of_a_job(json!({})), "8")).unwrap().is_some());
    let set = job_set(
        json!({ "replicatedJobs": [{ "name": "workers", "replicas": 2, "template": { "spec": { "parallelism": 3 } } }] }),
    );
    let error = of(&set, named(of_a_job_set("workers", 0, 0), "8")).unwrap_err();
    assert_eq!(error, GangError::TooFewAtOnce { kind: "JobSet", min: 8, pods: 6 });
    assert!(of(&set, named(of_a_job_set("workers", 0, 0), "6")).unwrap().is_some());
    let leader_first = leader_worker_set(json!({ "startupPolicy": "LeaderReady" }));
    assert_eq!(of(&leader_first, named(of_a_leader_worker_set(0, 0), "8")), Err(GangError::LeaderReady));
    assert!(of(&leader_first, named(of_a_leader_worker_set(0, 0), "1")).unwrap().is_some());
}

#[test]
fn the_pod_or_its_owner_says_how_long_the_gang_may_run_in_part() {
    const NAME: &str = "gpu.tessera.dev/group-partial-timeout-seconds";
    let mut objects = Objects::default();
    let mut annotated = of_a_job(json!({}));
    let timeout = |objects: &Objects, pod: &Value| gang::partial_timeout(objects, &read::<Pod>(pod.clone()));
    assert_eq!(timeout(&objects, &annotated), None);
    let job = json!({ "metadata": { "name": "train", "namespace": "team", "annotations": { NAME: "600" } } });
    objects.jobs.insert(key("train"), read::<Job>(job));
    assert_eq!(timeout(&objects, &annotated), Some(600));
    for (value, expected) in [("60", 60), ("0", 600), ("700000", 600), ("a minute", 600)] {
        annotated["metadata"]["annotations"] = json!({ NAME: value });
        assert_eq!(timeout(&objects, &annotated), Some(expected), "{value}");
    }
}

/// Number of pods that a gang of `size` runs with. `started`: for each pod without a gate the number written on it, and the second of
/// its allocation; `gated`: the second of creation of each pod with a gate.
fn formed_by(size: usize, started: &[(u32, i64)], gated: &[i64]) -> usize {
    let at = |second: i64| k8s_openapi::jiff::Timestamp::from_second(second).unwrap().to_string();
    let mut objects = Objects::default();
    let mut pods: Vec<Pod> = Vec::new();
    for (place, (number, second)) in started.iter().enumerate() {
        let name = format!("claim-{place}");
        let claim = json!({ "metadata": { "name": name, "namespace": "team" }, "spec": {},
            "status": { "allocation": { "allocationTimestamp": at(*second) } } });
        objects.claims.insert(key(&name), Arc::new(read(claim)));
        let mut pod = pod(&format!("started-{place}"), json!({}));
        pod["metadata"]["annotations"] = json!({ tessera_api::gang::FORMED_ANNOTATION: number.to_string() });
        pod["spec"] =
            json!({ "containers": [], "resourceClaims": [{ "name": "gpus", "resourceClaimName": name }] });
        pods.push(read(pod));
    }
    for (place, second) in gated.iter().enumerate() {
        let mut pod = pod(&format!("gated-{place}"), json!({}));
        pod["metadata"]["creationTimestamp"] = json!(at(*second));
        pod["spec"] =
            json!({ "containers": [], "schedulingGates": [{ "name": tessera_api::steering::GATE }] });
        pods.push(read(pod));
    }
    gang::formed_by(&objects, size, pods.iter())
}

#[test]
fn a_gang_has_grown_when_all_of_its_pods_lost_their_gates() {
    let two = [(2, 10), (2, 10)];
    let and = |added: &[(u32, i64)]| [two.as_slice(), added].concat();
    assert_eq!(formed_by(4, &two, &[20, 20]), 2);
    assert_eq!(formed_by(4, &and(&[(4, 30), (4, 30)]), &[]), 4);
    // The gate of a pod stays.
    assert_eq!(formed_by(4, &and(&[(4, 30)]), &[20]), 2);
    assert_eq!(formed_by(4, &and(&[(4, 30)]), &[30]), 2);
    // A pod that lost its gate was lost, and made anew.
    assert_eq!(formed_by(4, &and(&[(4, 30)]), &[40]), 4);
    assert_eq!(formed_by(4, &and(&[(4, 30), (4, 50)]), &[40]), 4);
    // Others found no room, and are not counted by the number.
    assert_eq!(formed_by(6, &and(&[(4, 30), (4, 30)]), &[20, 20]), 4);
    // It never ran as a whole.
    assert_eq!(formed_by(2, &[(2, 30)], &[20]), 2);
}
