//! Lasting faults and actors, each in a small scene of its own: objects refusing every write, pods never bound, pods ending late.
//! None of them may hold up other pods.

mod clocks;
mod gangs;
mod refused;
mod verdicts;

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_decide::Time;

use super::api_server::{Server, Surroundings, node_name};
use super::bug::Bug;
use super::faults::Plan;
use super::play::{self, Ended};
use super::scene::{self, Act, Stage};
use crate::objects;

/// Three nodes with two managed cards each.
const NODES: [&str; 3] = ["a", "b", "c"];

/// A scene, and the end of its run.
struct Case {
    name: &'static str,
    acts: fn() -> Vec<(f32, Act)>,
    until: Time,
}

impl Case {
    const fn new(name: &'static str, until: u64, acts: fn() -> Vec<(f32, Act)>) -> Self {
        Case { name, acts, until: Time::from_secs(until) }
    }
}

/// All cases.
const CASES: [Case; 14] = [
    Case::new("a claim refuses every write", 500, refused::claim),
    Case::new("a pod refuses every write", 900, refused::pod),
    Case::new("a claim is named twice", 500, refused::named_twice),
    Case::new("a pod is never bound", 700, verdicts::never_bound),
    Case::new("a gang is never bound", 700, verdicts::gang_never_bound),
    Case::new("a foreign scheduler", 500, verdicts::foreign),
    Case::new("a finished pod is deleted", 500, gangs::finished),
    Case::new("a gang grows", 600, gangs::growth),
    Case::new("gates of a PodGroup", 500, gangs::pod_group),
    Case::new("victims with 5 s and 1,800 s of grace", 2_200, gangs::grace),
    Case::new("nodes are kept for a gang in vain", 86_800, gangs::in_vain),
    Case::new("pods without devices are in the way", 500, gangs::without_devices),
    Case::new("a kind that never lists", 500, clocks::never_lists),
    Case::new("a node's clock is behind", 900, clocks::behind),
];

fn run(case: &Case, bug: Option<Bug>, with_log: bool) -> Ended {
    let mut around = Surroundings::new(0, Some(Plan::of(&[])), bug, with_log);
    let mut server = Server::with_kinds(&[Kind::Job, Kind::JobSet, Kind::PodGroup]);
    scene::apply_templates(&mut around, &mut server);
    for node in NODES {
        server.apply(&mut around, objects::node(node));
        scene::publish(&mut around, &mut server, node, "Managed");
    }
    play::until(case.until, around, server, Stage::new((case.acts)()))
}

#[test]
fn cases_end_well() {
    let only = std::env::var("SIMULATION_CASE").unwrap_or_default();
    let mut wrong = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        let violation = run(case, None, false).violation;
        println!("{}: {}", case.name, violation.as_deref().unwrap_or("ends well"));
        if let Some(violation) = violation {
            if !only.is_empty() {
                println!("{}", run(case, None, true).log.join("\n"));
            }
            wrong.push(format!("{}: {violation}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn cases_find_planted_bugs() {
    let mut missed = Vec::new();
    for (bug, name) in Bug::OF_CASES {
        let case = CASES.iter().find(|case| case.name == name).expect("there is such a case");
        match run(case, Some(bug), false).violation {
            Some(violation) => println!("{bug:?}: {name}: {violation}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Checks that the pod is bound, and is the first of its name.
fn must_be_bound(around: &mut Surroundings, server: &Server, name: &str) {
    let pod = server.pod(&objects::key(name));
    let is_first = pod.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(&format!("uid-{name}")));
    if !is_first || pod.and_then(node_name).is_none() {
        around.violated(|| format!("{name} should be bound by now"));
    }
}

fn nobody_may_be_evicted(around: &mut Surroundings, server: &Server) {
    if server.evictions > 0 {
        around.violated(|| format!("{} pods were evicted", server.evictions));
    }
}

/// A pod with our gate and a claim of its own.
fn gated(name: &str, template: &str) -> Value {
    scene::pod(name, true, scene::of(template))
}

/// A pod without a gate.
fn open(name: &str, template: &str) -> Value {
    scene::pod(name, false, scene::of(template))
}

/// The value with another field set at the path.
fn with(mut value: Value, path: &str, what: Value) -> Value {
    let (parent, name) = path.rsplit_once('/').expect("a path begins with a slash");
    value.pointer_mut(parent).expect("there is such a parent")[name] = what;
    value
}

fn labelled(pod: Value, label: &str) -> Value {
    let mut labels = pod["metadata"]["labels"].clone();
    labels[label] = json!("yes");
    with(pod, "/metadata/labels", labels)
}

/// Creates a claim for pods to reference by name.
fn named_claim(around: &mut Surroundings, server: &mut Server, name: &str, annotations: Value) {
    let mut claim = objects::claim("any", "gpu", 1);
    claim["metadata"] = json!({ "name": name, "namespace": "team", "uid": name, "annotations": annotations });
    server.apply(around, objects::read::<k8s_openapi::api::resource::v1::ResourceClaim>(claim));
}
