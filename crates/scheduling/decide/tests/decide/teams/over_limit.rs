//! Priority inside a team that is at its limit.

use super::*;

fn urgent(pod: &mut Value) {
    pod["spec"]["priority"] = json!(10);
}

/// A parent with a limit, and its children with their guarantees.
fn family(fed: &mut Fed, limit: u32, children: &[(&str, u32)]) {
    let parent = json!({ "metadata": { "name": "research" }, "spec": {
        "amounts": [{ "name": "all", "unit": "Cards", "limit": limit }] } });
    fed.apply(read::<GpuQuota>(parent).into());
    for (child, guaranteed) in children {
        let mut spec = cards(*guaranteed, None);
        spec["parent"] = json!("research");
        fed.quota(child, spec);
    }
}

#[test]
fn priority_preempts_inside_a_team_at_its_limit_while_cards_are_free() {
    let mut fed = teams(8, &["vision", "nlp"]);
    fed.quota("vision", cards(0, Some(3)));
    fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
    fed.ask_in("vision", "v1", "gpu", 1, |pod| pod["spec"]["priority"] = json!(5));
    fed.ask_in("vision", "v2", "gpu", 2, |_| {});
    assert_eq!(fed.start().len(), 3);
    fed.pass(100);
    fed.ask_in("vision", "equal", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
    fed.end("vision", "equal");
    fed.ask_in("vision", "v3", "gpu", 1, urgent);
    assert_eq!(fed.takes(), ["v2"]);
    assert_eq!(fed.why("vision", "v3").0, "Preempting");
    fed.ask_in("vision", "later", "gpu", 1, urgent);
    assert_eq!(fed.takes(), [""; 0], "v2 leaves enough for both");
    fed.end("vision", "v2");
    let mut started = fed.start();
    started.sort();
    assert_eq!(started, ["later", "v3"]);
}

/// The devices of the victims may be on nodes of which the group gets nothing.
#[test]
fn as_few_go_as_the_limit_asks_for() {
    let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
    fed.namespace("vision", "vision");
    fed.quota("vision", cards(0, Some(1)));
    for name in ["half", "other"] {
        fed.ask_in("vision", name, "half", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.ask_in("vision", "whole", "gpu", 1, urgent);
    assert_eq!(fed.takes(), ["half", "other"]);
}

/// A pod that is gone may leave its devices a moment later: nobody else goes for them.
#[test]
fn devices_of_a_pod_that_is_gone_are_waited_for() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", cards(0, Some(2)));
    for name in ["v1", "v2"] {
        fed.ask_in("vision", name, "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.ask_in("vision", "v3", "gpu", 1, urgent);
    let victims = fed.takes();
    assert_eq!(victims.len(), 1);
    let gone = Key::new("vision", &victims[0]);
    fed.decider.observe(fed.now, Observation::Deleted(Kind::Pod, gone)).unwrap();
    for _ in 0..3 {
        fed.pass(20);
        assert_eq!(fed.takes(), [""; 0]);
    }
    fed.end("vision", &victims[0]);
    assert_eq!(fed.start(), ["v3"]);
}

/// A limit lowered by mistake evicts nobody at once.
#[test]
fn nobody_goes_for_a_limit_within_a_minute_of_its_change() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", cards(0, Some(3)));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.pass(100);
    fed.quota("vision", cards(0, Some(2)));
    fed.ask_in("vision", "v2", "gpu", 1, urgent);
    assert_eq!(fed.takes(), [""; 0]);
    fed.pass(70);
    assert_eq!(fed.takes(), ["v1"]);
}

#[test]
fn a_guarantee_is_delivered_under_the_parents_limit() {
    let mut fed = teams(4, &["vision", "nlp"]);
    family(&mut fed, 2, &[("vision", 1), ("nlp", 0)]);
    for name in ["n1", "n2"] {
        fed.ask_in("nlp", name, "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let victims = fed.takes();
    assert_eq!(victims.len(), 1);
    fed.end("nlp", &victims[0]);
    assert_eq!(fed.start(), ["v1"]);
    fed.ask_in("vision", "v2", "gpu", 1, urgent);
    fed.pass(20);
    assert_eq!(fed.takes(), ["v1"], "beyond the guarantee only its own go");
}

/// What is guaranteed to the sibling stays.
#[test]
fn a_sibling_within_its_guarantee_keeps_its_devices() {
    let mut fed = teams(4, &["vision", "nlp", "web"]);
    family(&mut fed, 2, &[("vision", 1), ("nlp", 2)]);
    fed.quota("web", cards(0, None));
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    fed.ask_in("web", "w1", "gpu", 1, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, urgent);
    assert_eq!(fed.takes(), [""; 0], "others under no such limit do not help");
    assert_eq!(fed.why("vision", "v1").0, "TeamLimit");
}

/// A gang of which two pods are needed preempts for two.
#[test]
fn a_gang_preempts_for_the_pods_that_it_needs() {
    let mut fed = teams(8, &["vision"]);
    fed.quota("vision", cards(0, Some(3)));
    for name in ["v1", "v2", "v3"] {
        fed.ask_in("vision", name, "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 3);
    fed.pass(100);
    for number in 0..2 {
        fed.ask_in("vision", &format!("g-{number}"), "gpu", 1, |pod| {
            urgent(pod);
            pod["metadata"]["labels"] =
                json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "2" });
        });
    }
    assert_eq!(fed.takes().len(), 2);
}

/// On a full fleet, too, a group that asks for more than its team has left stands in nobody's way.
#[test]
fn a_group_that_asks_for_more_than_is_left_keeps_no_place() {
    let gang = |fed: &mut Fed, size: usize| {
        for number in 0..size {
            fed.ask_in("vision", &format!("g{size}-{number}"), "gpu", 1, |pod| {
                pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/group": format!("g{size}"),
                    "gpu.tessera.dev/group-size": size.to_string() });
            });
        }
    };
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(0, Some(3)));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.ask_in("vision", "v2", "gpu", 2, |_| {});
    fed.ask_in("vision", "half", "half", 1, |_| {});
    fed.ask_in("vision", "one", "gpu", 1, |_| {});
    gang(&mut fed, 2);
    fed.decide();
    for (name, kind) in [("v2", "TeamLimit"), ("half", "NoNode"), ("one", "NoNode"), ("g2-0", "TeamLimit")] {
        assert_eq!(fed.why("vision", name).0, kind, "{name}");
    }
}
