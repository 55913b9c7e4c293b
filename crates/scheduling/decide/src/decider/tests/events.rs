//! Events without an effect, or about other objects, cause no work.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use tessera_cluster::workloads::Job;

use super::*;

const JOBS: usize = 30;
const PODS: usize = 10;

/// The Job of this number: `of` a JobSet, with its completed indexes in `completed`.
fn job(number: usize, of: Option<&str>, completed: Option<&str>, version: u32) -> Job {
    let labels = of.map(|set| json!({ "jobset.sigs.k8s.io/jobset-name": set }));
    read(json!({
        "metadata": { "name": format!("job-{number}"), "namespace": "n", "uid": format!("job-{number}"), "labels": labels,
            "resourceVersion": version.to_string() },
        "spec": { "parallelism": PODS, "completions": PODS },
        "status": { "active": version, "completedIndexes": completed },
    }))
}

/// A waiting pod of the Job.
fn pod_of(job: usize, number: usize, set: Option<&str>) -> Pod {
    let mut pod = pod(&format!("job-{job}-{number}"), 1, None);
    pod["metadata"]["labels"] = set.map_or(json!({}), |set| json!({ "jobset.sigs.k8s.io/jobset-name": set }));
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": format!("job-{job}"),
        "uid": format!("job-{job}"), "controller": true }]);
    read(pod)
}

fn with_jobs(set: Option<&str>) -> Scene {
    let mut scene = Scene::with_nodes(1, Way::Native);
    for number in 0..JOBS {
        scene.apply(job(number, set, None, 1));
        (0..PODS).for_each(|pod| scene.apply(pod_of(number, pod, set)));
    }
    scene.decider.decide(Time::ZERO);
    scene
}

#[test]
fn of_many_jobs_that_are_as_before_nothing_is_looked_at() {
    let mut scene = with_jobs(None);
    (0..JOBS).for_each(|number| scene.apply(job(number, None, None, 2)));
    assert_eq!(scene.decider.state.waits.due().len(), 0);
    scene.apply(job(3, None, Some("0"), 3));
    assert_eq!(scene.decider.state.waits.due().len(), PODS);
    assert!(scene.decider.state.waits.due().iter().all(|pod| pod.name.starts_with("job-3-")));
}

/// A Job's completions change the remaining size of its whole gang.
#[test]
fn what_a_job_of_a_job_set_says_is_about_all_of_its_pods() {
    let mut scene = with_jobs(Some("set"));
    scene.apply(job(3, Some("set"), Some("0"), 2));
    assert_eq!(scene.decider.state.waits.due().len(), JOBS * PODS);
}

#[test]
fn pods_that_are_gone_are_of_no_job() {
    let mut scene = with_jobs(Some("set"));
    for number in 0..JOBS {
        (0..PODS).for_each(|pod| scene.end(&format!("job-{number}-{pod}")));
    }
    assert_eq!(format!("{:?}", scene.decider.state.workload_pods), format!("{:?}", WorkloadPods::default()));
}

fn claimed(name: &str, volume: Option<&str>, phase: &str) -> PersistentVolumeClaim {
    read(json!({ "metadata": { "name": name, "namespace": "n" }, "spec": { "volumeName": volume },
        "status": { "phase": phase } }))
}

fn volume(name: &str, zone: &str) -> PersistentVolume {
    let terms = json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] }]);
    read(json!({ "metadata": { "name": name },
        "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } }))
}

#[test]
fn volumes_of_others_rank_no_node_anew() {
    let mut scene = Scene::with_nodes(2, Way::Native);
    let mut waiting = pod("waits", 1, None);
    waiting["spec"]["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "own" } },
        { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }]);
    scene.apply(read::<Pod>(waiting));
    scene.decider.decide(Time::ZERO);
    let mut changes = |object: Object| {
        let before = scene.decider.state.world.fleet.now();
        scene.apply(object);
        scene.decider.state.world.fleet.now() > before
    };
    for number in 0..10 {
        assert!(!changes(claimed(&format!("other-{number}"), None, "Pending").into()));
        assert!(!changes(volume(&format!("other-{number}"), "z").into()));
        assert!(!changes(claimed(&format!("other-{number}"), Some("other-0"), "Bound").into()));
    }
    assert!(changes(claimed("own", None, "Pending").into()));
    assert!(!changes(claimed("own", None, "Lost").into()), "nothing is read of its status");
    assert!(changes(claimed("own", Some("v"), "Bound").into()));
    assert!(changes(volume("v", "z").into()));
    assert!(!changes(volume("v", "z").into()));
    assert!(changes(volume("v", "y").into()));
    assert!(changes(claimed("waits-scratch", Some("w"), "Bound").into()));
}

/// As in a cluster creating nodes for each job, for months.
#[test]
fn names_of_nodes_that_came_and_went_leave_no_slots() {
    for way in [Way::Native, Way::Managed] {
        let mut scene = Scene::with_nodes(2, way);
        let before = scene.decider.state.world.fleet.len();
        for number in 10..60 {
            let objects = node(number, way);
            for object in &objects {
                scene.apply(object.clone());
            }
            for object in objects.iter().rev() {
                let observation = Observation::Deleted(object.kind(), Key::from(object.metadata()));
                scene.decider.observe(Time::ZERO, observation).unwrap();
            }
        }
        assert_eq!(scene.decider.state.world.fleet.len(), before + 1, "{way:?}");
        assert_eq!(
            scene.decider.state.world.fleet.nodes().filter(|node| !node.name.is_empty()).count(),
            before,
            "{way:?}"
        );
    }
}

/// Findings about a node must not apply to another reusing its index.
#[test]
fn a_node_that_gets_the_number_of_another_is_ranked_for_itself() {
    let mut scene = Scene::with_nodes(0, Way::Native);
    node(1, Way::Native).into_iter().for_each(|object| scene.apply(object));
    scene.ask("large", 2, 30);
    let demand = scene.demand("large");
    // The first node has 32 processors, the second 16.
    assert_eq!(scene.ranking(&demand, None).0.len(), 1);
    for object in node(1, Way::Native).iter().rev() {
        let observation = Observation::Deleted(object.kind(), Key::from(object.metadata()));
        scene.decider.observe(Time::ZERO, observation).unwrap();
    }
    node(3, Way::Native).into_iter().for_each(|object| scene.apply(object));
    assert_eq!(scene.decider.state.world.fleet.len(), 1);
    assert_eq!(scene.ranking(&demand, None).0.len(), 0);
}

/// A look would lift its nomination, and judge its node twice.
#[test]
fn a_pod_that_waits_for_its_victims_is_looked_at_when_its_node_changes() {
    let mut scene = full(3, 10);
    scene.ask("waits", 0, 1);
    let planned = scene.decider.decide(Time::ZERO).into_iter().find_map(|intent| match intent {
        Intent::Nominate { nomination, .. } => nomination,
        _ => None,
    });
    let mut nominated = pod("waits", 1, None);
    nominated["metadata"]["annotations"] =
        json!({ tessera_api::managed::NOMINATION_ANNOTATION: planned.unwrap().encode() });
    scene.apply(read::<Pod>(nominated));
    let intents = scene.decider.decide(Time::ZERO);
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Evict { .. })), "{intents:?}");
    let judged = |scene: &mut Scene, changed: usize| {
        let before = scene.decider.state.world.rankings.judged();
        node(changed, Way::Managed).into_iter().for_each(|object| scene.apply(object));
        scene.decider.decide(Time::ZERO);
        scene.decider.state.world.rankings.judged() - before
    };
    judged(&mut scene, 2);
    assert_eq!([(); 2].map(|()| judged(&mut scene, 2)), [1, 1], "the node that changed");
    judged(&mut scene, 0);
    assert_eq!(judged(&mut scene, 2), 2, "its own once more, after the look");
}
