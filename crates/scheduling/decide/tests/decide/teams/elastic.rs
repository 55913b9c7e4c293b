//! Gangs that go on without some of their pods.

use serde_json::json;

use super::*;

/// A gang of four pods that needs this many, each with a card, in a team with this guarantee; another team is to have two cards.
fn gang(guaranteed: u32, min: usize) -> Fed {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(guaranteed, None));
    for number in 0..4 {
        fed.ask_in("nlp", &format!("g-{number}"), "gpu", 1, |pod| {
            pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/group": "g",
                "gpu.tessera.dev/group-size": "4", "gpu.tessera.dev/group-min": min.to_string() });
            // As if the gate had been removed: nothing but devices is missing.
            pod["spec"]["schedulingGates"] = json!([]);
        });
    }
    assert_eq!(fed.start().len(), 4);
    fed.pass(100);
    fed
}

fn ask(fed: &mut Fed, name: &str, count: usize) {
    fed.ask_in("vision", name, "gpu", count, |_| {});
}

#[test]
fn a_gang_gives_the_pods_back_that_it_does_not_need() {
    let mut fed = gang(2, 2);
    let mut gone = Vec::new();
    for name in ["v1", "v2"] {
        ask(&mut fed, name, 1);
        fed.pass(20);
        let victims = fed.takes();
        assert_eq!(victims.len(), 1);
        fed.end("nlp", &victims[0]);
        assert_eq!(fed.start(), [name]);
        gone.extend(victims);
    }
    gone.sort();
    assert_eq!(gone, ["g-2", "g-3"], "the last by rank");
    // Those that it needs are within the guarantee, and nobody calls the gang broken.
    ask(&mut fed, "v3", 1);
    for _ in 0..4 {
        fed.pass(200);
        assert_eq!(fed.takes(), [""; 0]);
    }
}

#[test]
fn several_go_for_one() {
    let mut fed = gang(2, 1);
    ask(&mut fed, "v1", 2);
    assert_eq!(fed.takes(), ["g-2", "g-3"]);
}

/// More than it can lose costs all of it, if nothing of it is guaranteed.
#[test]
fn a_gang_that_cannot_lose_enough_goes_as_a_whole() {
    for (guaranteed, expected) in [(0, 4), (3, 0)] {
        let mut fed = gang(guaranteed, 3);
        ask(&mut fed, "v1", 2);
        assert_eq!(fed.takes().len(), expected, "guaranteed: {guaranteed}");
    }
}

/// What a gang does not need is borrowed before pods of lower priority that came later, unless the gang does not borrow.
#[test]
fn surplus_is_borrowed_first() {
    for (borrow, expected) in [("true", "g-2"), ("false", "n1")] {
        let mut fed = teams(4, &["vision", "nlp"]);
        fed.quota("vision", cards(1, None));
        fed.quota("nlp", cards(3, None));
        for number in 0..3 {
            fed.ask_in("nlp", &format!("g-{number}"), "gpu", 1, |pod| {
                pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/group": "g",
                    "gpu.tessera.dev/group-size": "3", "gpu.tessera.dev/group-min": "2",
                    "gpu.tessera.dev/borrow": borrow });
                pod["spec"]["priority"] = json!(10);
                pod["spec"]["schedulingGates"] = json!([]);
            });
        }
        assert_eq!(fed.start().len(), 3);
        fed.ask_in("nlp", "n1", "gpu", 1, |pod| {
            pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:15:00Z");
        });
        assert_eq!(fed.start(), ["n1"]);
        fed.pass(100);
        ask(&mut fed, "v1", 1);
        assert_eq!(fed.takes(), [expected]);
    }
}

/// Inside the team priority costs the whole gang.
#[test]
fn priority_preempts_the_whole_gang() {
    let mut fed = gang(4, 1);
    fed.ask_in("nlp", "urgent", "gpu", 1, |pod| pod["spec"]["priority"] = json!(10));
    assert_eq!(fed.takes().len(), 4);
}
