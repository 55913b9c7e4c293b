//! Small scenes, deterministic apart from the planned faults.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde_json::{Value, json};
use tessera_api::steering::GATE;
use tessera_cluster::{Key, Kind};
use tessera_decide::Time;

use super::api_server::{Server, Surroundings, node_name};
use super::faults::{Incident, SOON};
use super::jobs::{Job, Jobs};
use super::kubernetes;
use super::replica::Replica;
use super::scheduler::Scheduler;
use crate::objects;

/// Three nodes with two cards each.
const NODES: [&str; 3] = ["a", "b", "c"];
const CARDS: usize = 2;

/// A scripted act.
pub enum Act {
    Create(Value),
    Delete(&'static str),
    /// A Job whose pods start together.
    Make(Job),
    /// The pod's node is deleted for good.
    LoseNodeOf(&'static str),
    /// The node's cards become managed.
    Manage(&'static str),
    /// kube-scheduler pauses for this many seconds, and keeps its decisions.
    SchedulerStandsStill(u64),
    /// kube-scheduler observes no change of slices for this many seconds.
    SchedulerIsStale(u64),
    /// The controller observes no change of this kind for this many seconds, unless it relists.
    ControllerIsStale(Kind, u64),
    /// All replicas crash and restart soon.
    ControllersRestart,
    /// Another act, or a check.
    Do(fn(&mut Surroundings, &mut Server)),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// More pods than cards: gated and ungated, with two claims, and with a named claim. Some are deleted, and a late pod is
    /// served before the others.
    Contention,
    /// Cards allocated by kube-scheduler become managed on one node. kube-scheduler and the controller observe each other's
    /// changes late.
    Handover,
    /// A gang waits for all of its cards, gets them, and loses a node without replacement.
    Gang,
}

/// A scene being played.
pub struct Stage {
    /// Acts by time in seconds, the next one last.
    acts: Vec<(f32, Act)>,
    jobs: Jobs,
}

pub fn pod(name: &str, is_gated: bool, claims: Value) -> Value {
    let gates = if is_gated { json!([{ "name": GATE }]) } else { json!([]) };
    json!({
        "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}"), "labels": {} },
        "spec": {
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "50m" } } }],
            "schedulingGates": gates,
            "resourceClaims": claims,
        },
        "status": { "phase": "Pending" },
    })
}

/// A claim of the pod's own, made from the template.
pub fn of(template: &str) -> Value {
    json!([{ "name": "gpus", "resourceClaimTemplateName": template }])
}

fn named() -> Value {
    json!([{ "name": "gpus", "resourceClaimName": "named" }])
}

pub fn first(mut pod: Value) -> Value {
    pod["spec"]["priority"] = json!(1);
    pod
}

/// Keeps the pod off node c, whose cards kube-scheduler would allocate itself.
fn not_on_c(mut pod: Value) -> Value {
    pod["metadata"]["labels"]["dislikes"] = json!("c");
    pod
}

impl Scene {
    pub const ALL: [Scene; 3] = [Scene::Contention, Scene::Handover, Scene::Gang];

    fn acts(self) -> Vec<(f32, Act)> {
        let two = json!([{ "name": "gpus", "resourceClaimTemplateName": "one" },
            { "name": "part", "resourceClaimTemplateName": "half" }]);
        match self {
            Scene::Contention => vec![
                (125.0, Act::Create(pod("with-two-claims", false, two))),
                (125.0, Act::Create(pod("gated-with-two-cards", true, of("two")))),
                (125.0, Act::Create(pod("with-named", false, named()))),
                (127.0, Act::SchedulerStandsStill(5)),
                (134.0, Act::Create(first(pod("comes-before-others", false, of("two"))))),
                (148.0, Act::Delete("with-named")),
            ],
            Scene::Handover => vec![
                (124.0, Act::Create(not_on_c(pod("fills-one", false, of("two"))))),
                (124.0, Act::Create(not_on_c(pod("fills-another", false, of("two"))))),
                (131.5, Act::SchedulerIsStale(20)),
                (132.0, Act::Manage("c")),
                (133.0, Act::Create(pod("by-the-scheduler", false, of("one")))),
                (133.0, Act::Create(first(pod("gated", true, of("one"))))),
                (133.5, Act::ControllerIsStale(Kind::ResourceClaim, 45)),
                (166.0, Act::Delete("fills-one")),
            ],
            Scene::Gang => vec![
                (126.0, Act::Create(pod("in-the-way", false, of("one")))),
                (130.0, Act::Make(gang("g", 2, "two"))),
                (134.0, Act::Delete("in-the-way")),
                (170.0, Act::LoseNodeOf("g-1")),
            ],
        }
    }

    fn allocation(self, node: &str) -> &'static str {
        if self == Scene::Handover && node == "c" { "Native" } else { "Managed" }
    }

    /// Creates the scene's objects.
    pub fn begin(self, around: &mut Surroundings, server: &mut Server) -> Stage {
        apply_templates(around, server);
        // Unneeded objects cost runs: each write is tried with each fault.
        let nodes = if self == Scene::Gang { &NODES[..2] } else { &NODES[..] };
        for node in nodes {
            server.apply(around, objects::node(node));
            publish(around, server, node, self.allocation(node));
        }
        let mut claim = objects::claim("any", "gpu", 1);
        claim["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named" });
        if self != Scene::Gang {
            server.apply(around, objects::read::<ResourceClaim>(claim));
        }
        Stage::new(self.acts())
    }
}

/// Creates the device classes and claim templates.
pub fn apply_templates(around: &mut Surroundings, server: &mut Server) {
    server.apply(around, objects::class());
    server.apply(around, objects::half_class());
    for (name, class, count) in [("one", "gpu", 1), ("two", "gpu", 2), ("half", "half", 1)] {
        let spec = objects::claim("any", class, count)["spec"].clone();
        let template = json!({ "metadata": { "name": name, "namespace": "team" }, "spec": { "spec": spec } });
        server.apply(around, objects::read::<ResourceClaimTemplate>(template));
    }
}

/// Publishes the slices of the node.
pub fn publish(around: &mut Surroundings, server: &mut Server, node: &str, allocation: &str) {
    let mut pool = json!({ "pool": "main", "allocation": allocation });
    if let Some(after) = around.placement.reserve_after {
        pool["placement"] = json!({ "reserveAfterSeconds": after.as_secs() });
    }
    for slice in objects::slices(node, CARDS, pool) {
        server.apply(around, slice);
    }
}

impl Stage {
    /// Takes acts in order of time.
    pub fn new(mut acts: Vec<(f32, Act)>) -> Self {
        acts.reverse();
        Stage { acts, jobs: Jobs::default() }
    }

    /// Whether no acts are left.
    pub fn is_over(&self) -> bool {
        self.acts.is_empty()
    }

    pub fn step(
        &mut self,
        around: &mut Surroundings,
        server: &mut Server,
        scheduler: &mut Scheduler,
        replicas: &mut [Replica],
    ) {
        while let Some((_, act)) = self.acts.pop_if(|(at, _)| *at <= around.now.as_secs_f32()) {
            let after = |seconds: u64| around.now + Time::from_secs(seconds);
            match act {
                Act::Create(pod) => {
                    around.note(|| format!("created {pod}"));
                    server.apply(around, objects::read::<Pod>(pod));
                }
                Act::Delete(name) => {
                    around.note(|| format!("deleting {name}"));
                    kubernetes::delete_pod(around, server, &objects::key(name));
                }
                Act::Make(job) => self.jobs.make(job),
                Act::LoseNodeOf(name) => lose_node_of(around, server, name),
                Act::Manage(node) => {
                    around.note(|| format!("{node} is managed"));
                    publish(around, server, node, "Managed");
                }
                Act::SchedulerStandsStill(seconds) => scheduler.pause(after(seconds)),
                Act::SchedulerIsStale(seconds) => {
                    scheduler.stop_watching(server, Kind::ResourceSlice, after(seconds));
                }
                Act::ControllerIsStale(kind, seconds) => {
                    replicas.iter().for_each(|replica| replica.silence(server, kind, after(seconds)));
                }
                Act::ControllersRestart => {
                    replicas.iter_mut().for_each(|replica| replica.meet(around, Incident::Crash(SOON)));
                }
                Act::Do(act) => act(around, server),
            }
        }
        self.jobs.step(around, server);
    }
}

pub fn gang(name: &str, size: usize, template: &'static str) -> Job {
    let (name, uid) = (name.to_owned(), format!("job-{name}"));
    Job {
        name,
        namespace: "team",
        uid,
        size,
        min: size,
        template,
        is_kept: false,
        priority: 0,
        is_never_bound: false,
    }
}

fn lose_node_of(around: &mut Surroundings, server: &mut Server, name: &str) {
    let node = server.pod(&objects::key(name)).and_then(node_name).map(str::to_owned);
    // Faults may have kept the pod from being bound.
    let Some(node) = node else { return };
    around.note(|| format!("node {node} is gone"));
    for suffix in ["0-counters", "1-devices"] {
        server.delete(around, Kind::ResourceSlice, &Key::cluster(format!("{node}-{suffix}")));
    }
    server.delete(around, Kind::Node, &Key::cluster(node));
}
