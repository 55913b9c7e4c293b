//! Pods that kube-scheduler does not bind, for a reason unrelated to the node, and pods for another scheduler.

use serde_json::json;

use super::{Act, gated, labelled, must_be_bound, open, with};
use crate::objects;
use crate::simulation::jobs::Job;
use crate::simulation::scene;
use crate::simulation::scheduler::FAILS_TO_BIND;

fn must_all_be_bound(names: [&'static str; 2]) -> [(f32, Act); 2] {
    let act = |name| match name {
        "good" => Act::Do(|around, server| must_be_bound(around, server, "good")),
        _ => Act::Do(|around, server| must_be_bound(around, server, "better")),
    };
    names.map(|name| (300.0, act(name)))
}

/// Devices of pods never bound are freed and allocated to other pods.
pub fn never_bound() -> Vec<(f32, Act)> {
    let never = |name| labelled(gated(name, "two"), FAILS_TO_BIND);
    let create = [never("never-1"), never("never-2"), never("never-3")].map(|pod| (125.0, Act::Create(pod)));
    let others = [(150.0, Act::Create(gated("good", "two"))), (150.0, Act::Create(open("better", "two")))];
    create.into_iter().chain(others).chain(must_all_be_bound(["good", "better"])).collect()
}

/// The same for a gang.
pub fn gang_never_bound() -> Vec<(f32, Act)> {
    let gang = Job { size: 3, min: 3, is_never_bound: true, ..scene::gang("g", 3, "two") };
    let others = [
        (125.0, Act::Make(gang)),
        (150.0, Act::Create(gated("good", "two"))),
        (150.0, Act::Create(open("better", "two"))),
    ];
    others.into_iter().chain(must_all_be_bound(["good", "better"])).collect()
}

/// Pods for an unknown scheduler get no managed device, since nobody binds them.
pub fn foreign() -> Vec<(f32, Act)> {
    let foreign = |pod| with(pod, "/spec/schedulerName", json!("nobody"));
    let pods = [open("foreign-1", "two"), gated("foreign-2", "two"), open("foreign-3", "two")];
    let create = pods.map(|pod| (125.0, Act::Create(foreign(pod))));
    let others = [
        (140.0, Act::Create(gated("good", "two"))),
        (140.0, Act::Create(open("better", "two"))),
        (
            180.0,
            Act::Do(|around, server| {
                must_be_bound(around, server, "good");
                must_be_bound(around, server, "better");
                for name in ["foreign-1", "foreign-2", "foreign-3"] {
                    let pod = server.pod(&objects::key(name));
                    let asked = pod.and_then(|pod| crate::simulation::oracle::asked(server.view(), pod));
                    if asked.into_iter().flatten().any(|asked| asked.allocation().is_some()) {
                        around.violated(|| format!("{name} has devices, and nobody places it"));
                    }
                }
            }),
        ),
    ];
    create.into_iter().chain(others).collect()
}
