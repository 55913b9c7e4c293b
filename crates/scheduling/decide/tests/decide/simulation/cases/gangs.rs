//! Gangs of Jobs and PodGroups: their pods finish, grow in number, are held back together, or wait long for victims to end.

use serde_json::{Value, json};
use tessera_api::gang::{OPT_IN_LABEL, OPT_IN_VALUE};
use tessera_cluster::Kind;
use tessera_cluster::workloads::{Job, PodGroup};
use tessera_decide::Time;

use super::{Act, gated, labelled, must_be_bound, nobody_may_be_evicted, with};
use crate::objects;
use crate::simulation::api_server::{Server, Surroundings, node_name};
use crate::simulation::kubernetes::TAKES_ITS_GRACE;
use crate::simulation::scene;

/// A Job that opts in to gangs, with its completed indexes.
fn apply_job(around: &mut Surroundings, server: &mut Server, pods: usize, completed: &str) {
    let job = json!({
        "metadata": { "name": "j", "namespace": "team", "uid": "job-j",
            "labels": { OPT_IN_LABEL: OPT_IN_VALUE } },
        "spec": { "completionMode": "Indexed", "completions": pods, "parallelism": pods },
        "status": { "completedIndexes": completed },
    });
    server.apply(around, objects::read::<Job>(job));
}

/// The Job's pod of this index.
fn of_job(index: usize) -> Value {
    let pod = gated(&format!("j-{index}"), "two");
    let pod = with(
        pod,
        "/metadata/ownerReferences",
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-j", "controller": true }]),
    );
    with(pod, "/metadata/labels", json!({ "batch.kubernetes.io/job-completion-index": index.to_string() }))
}

fn set_phase(around: &mut Surroundings, server: &mut Server, name: &str, phase: &str) {
    around.note(|| format!("{name} has {phase}"));
    server.update_pod(around, &objects::key(name), |pod| {
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    });
}

/// A finished index still counts as done after its pod is gone; a failed index is retried.
pub fn finished() -> Vec<(f32, Act)> {
    vec![
        (124.0, Act::Do(|around, server| apply_job(around, server, 2, ""))),
        (125.0, Act::Create(of_job(0))),
        (125.0, Act::Create(of_job(1))),
        (160.0, Act::Do(|around, server| must_be_bound(around, server, "j-0"))),
        (160.0, Act::Do(|around, server| must_be_bound(around, server, "j-1"))),
        (161.0, Act::Do(|around, server| set_phase(around, server, "j-0", "Succeeded"))),
        (162.0, Act::Do(|around, server| apply_job(around, server, 2, "0"))),
        (165.0, Act::Delete("j-0")),
        (170.0, Act::Do(|around, server| set_phase(around, server, "j-1", "Failed"))),
        (172.0, Act::Delete("j-1")),
        (173.0, Act::Create(of_job(1))),
        (240.0, Act::Do(|around, server| must_be_bound(around, server, "j-1"))),
        (240.0, Act::Do(|around, server| nobody_may_be_evicted(around, server))),
    ]
}

/// The original gang stays whole, and the added pod waits.
pub fn growth() -> Vec<(f32, Act)> {
    vec![
        (124.0, Act::Do(|around, server| apply_job(around, server, 2, ""))),
        (125.0, Act::Create(of_job(0))),
        (125.0, Act::Create(of_job(1))),
        (125.0, Act::Create(gated("in-the-way", "two"))),
        (160.0, Act::Do(|around, server| must_be_bound(around, server, "j-0"))),
        (170.0, Act::Do(|around, server| apply_job(around, server, 3, ""))),
        (171.0, Act::Create(of_job(2))),
        (
            500.0,
            Act::Do(|around, server| {
                nobody_may_be_evicted(around, server);
                must_be_bound(around, server, "j-0");
                must_be_bound(around, server, "j-1");
            }),
        ),
    ]
}

/// A pod without devices takes all processors of each node. Of lower priority, it is told as in the way and stays; once one is gone, the
/// pod with managed cards is served.
pub fn without_devices() -> Vec<(f32, Act)> {
    fn filler(name: &str, node: &str) -> Value {
        let pod = scene::pod(name, false, json!([]));
        let pod = with(pod, "/spec/containers/0/resources/requests/cpu", json!("7900m"));
        with(pod, "/spec/nodeName", json!(node))
    }
    let urgent = with(gated("urgent", "two"), "/spec/priority", json!(5));
    let urgent = with(urgent, "/spec/containers/0/resources/requests/cpu", json!("1"));
    vec![
        (120.0, Act::Create(filler("fills-a", "a"))),
        (120.0, Act::Create(filler("fills-b", "b"))),
        (120.0, Act::Create(filler("fills-c", "c"))),
        (125.0, Act::Create(urgent)),
        (
            250.0,
            Act::Do(|around, server| {
                nobody_may_be_evicted(around, server);
                let is_bound = server.pod(&objects::key("urgent")).and_then(node_name).is_some();
                if is_bound {
                    around.violated(|| "urgent is bound, though no node has the processors".to_owned());
                }
            }),
        ),
        (251.0, Act::Delete("fills-b")),
        (350.0, Act::Do(|around, server| must_be_bound(around, server, "urgent"))),
    ]
}

fn apply_pod_group(around: &mut Surroundings, server: &mut Server) {
    let group = json!({
        "metadata": { "name": "group", "namespace": "team", "uid": "group" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 2 } } },
    });
    server.apply(around, objects::read::<PodGroup>(group));
}

/// Since Kubernetes 1.37 one gate holds back all pods of a PodGroup: two of three would do, and the third finds no room.
pub fn pod_group() -> Vec<(f32, Act)> {
    let of_group =
        |name: &str| with(gated(name, "two"), "/spec/schedulingGroup", json!({ "podGroupName": "group" }));
    vec![
        (123.0, Act::Create(gated("in-the-way", "two"))),
        (124.0, Act::Do(apply_pod_group)),
        (125.0, Act::Create(of_group("p-0"))),
        (125.0, Act::Create(of_group("p-1"))),
        (125.0, Act::Create(of_group("p-2"))),
        (
            300.0,
            Act::Do(|around, server| {
                let is_bound = |name: &&str| server.pod(&objects::key(name)).and_then(node_name).is_some();
                let count = ["p-0", "p-1", "p-2"].iter().filter(|name| is_bound(name)).count();
                if count < 2 {
                    around.violated(|| format!("{count} of 3 pods of a PodGroup run, and two would do"));
                }
            }),
        ),
    ]
}

/// Devices freed early by one victim stay reserved until the other has ended, half an hour later.
pub fn grace() -> Vec<(f32, Act)> {
    let victim = |name: &str, seconds: u32| {
        let pod = with(gated(name, "two"), "/spec/terminationGracePeriodSeconds", json!(seconds));
        labelled(pod, TAKES_ITS_GRACE)
    };
    let other = with(gated("other", "two"), "/spec/priority", json!(2));
    let gang = crate::simulation::jobs::Job { priority: 1, ..scene::gang("g", 2, "two") };
    vec![
        (125.0, Act::Create(victim("short", 5))),
        (125.0, Act::Create(victim("long", 1_800))),
        (125.0, Act::Create(other)),
        (150.0, Act::Make(gang)),
        (200.0, Act::Create(gated("intruder", "one"))),
        (
            1_900.0,
            Act::Do(|around, server| {
                if server.pod(&objects::key("intruder")).and_then(node_name).is_some() {
                    around.violated(|| "intruder has what was kept for a gang".to_owned());
                }
                if server.get(Kind::Pod, &objects::key("long")).is_none() {
                    around.violated(|| "long has ended early".to_owned());
                }
            }),
        ),
        (
            2_100.0,
            Act::Do(|around, server| {
                for name in ["g-0", "g-1"] {
                    if server.pod(&objects::key(name)).and_then(node_name).is_none() {
                        around.violated(|| format!("{name} waits, for which others were evicted"));
                    }
                }
            }),
        ),
    ]
}

/// One pod never ends, and the gang needs all nodes: these are kept for a while, and not for ever.
pub fn in_vain() -> Vec<(f32, Act)> {
    vec![
        (
            118.0,
            Act::Do(|around, server| {
                around.placement.reserve_after = Some(Time::from_secs(20));
                super::NODES.iter().for_each(|node| scene::publish(around, server, node, "Managed"));
            }),
        ),
        (125.0, Act::Create(gated("endless", "one"))),
        (130.0, Act::Make(scene::gang("g", 3, "two"))),
        (200.0, Act::Create(gated("small", "one"))),
        (
            86_400.0,
            Act::Do(|around, server| {
                if server.pod(&objects::key("small")).and_then(node_name).is_some() {
                    around.violated(|| "small has what was kept for a gang".to_owned());
                }
            }),
        ),
        (86_700.0, Act::Do(|around, server| must_be_bound(around, server, "small"))),
    ]
}
