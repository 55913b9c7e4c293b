//! Objects whose changes the API server refuses, and claims named twice by a pod.

use serde_json::json;

use super::{Act, gated, must_be_bound, named_claim, open, with};
use crate::simulation::api_server::REFUSES_WRITES;
use crate::simulation::scene;

/// No pod waits for the refusing claim, neither under this leader nor under the next.
pub fn claim() -> Vec<(f32, Act)> {
    let named = json!([{ "name": "gpus", "resourceClaimName": "refuses" }]);
    vec![
        (
            120.0,
            Act::Do(|around, server| named_claim(around, server, "refuses", json!({ REFUSES_WRITES: "" }))),
        ),
        (125.0, Act::Create(scene::pod("with-it", true, named))),
        (126.0, Act::Create(gated("before", "two"))),
        (160.0, Act::Do(|around, server| must_be_bound(around, server, "before"))),
        (161.0, Act::ControllersRestart),
        (165.0, Act::Create(open("after", "two"))),
        (260.0, Act::Do(|around, server| must_be_bound(around, server, "after"))),
    ]
}

/// The refusing pod keeps no devices from pods able to start.
pub fn pod() -> Vec<(f32, Act)> {
    let refuses = with(gated("refuses", "two"), "/metadata/annotations", json!({ REFUSES_WRITES: "" }));
    vec![
        (125.0, Act::Create(refuses)),
        (130.0, Act::Create(gated("one", "two"))),
        (130.0, Act::Create(gated("two", "two"))),
        (131.0, Act::Create(open("three", "two"))),
        (
            800.0,
            Act::Do(|around, server| {
                ["one", "two", "three"].iter().for_each(|name| must_be_bound(around, server, name));
            }),
        ),
    ]
}

/// A claim named twice gets one device, and no other claim gets the same one.
pub fn named_twice() -> Vec<(f32, Act)> {
    let twice = json!([
        { "name": "gpus", "resourceClaimName": "shared" },
        { "name": "again", "resourceClaimName": "shared" },
    ]);
    vec![
        (120.0, Act::Do(|around, server| named_claim(around, server, "shared", json!({})))),
        (125.0, Act::Create(scene::pod("twice", false, twice.clone()))),
        (125.0, Act::Create(open("one", "one"))),
        (125.0, Act::Create(open("two", "one"))),
        (125.0, Act::Create(gated("three", "one"))),
        (125.2, Act::Create(open("four", "one"))),
        (125.2, Act::Create(scene::pod("again", true, twice))),
        (125.4, Act::Create(open("five", "one"))),
        (
            200.0,
            Act::Do(|around, server| {
                for name in ["twice", "again", "one", "two", "three", "four", "five"] {
                    must_be_bound(around, server, name);
                }
            }),
        ),
    ]
}
