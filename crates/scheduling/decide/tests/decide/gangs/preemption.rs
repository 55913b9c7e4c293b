//! Pods of lower priority make room.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tessera_api::managed::{REFUSED_NODES_ANNOTATION, RefusedNodes};
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::{member, steps};
use crate::leader::leader;
use crate::objects::*;

/// A pod running on a node with `cards` cards given by the controller. Returns the node.
pub fn running(fed: &mut Fed, name: &str, cards: usize, change: impl Fn(&mut Value)) -> String {
    fed.versioned(name, "gpu", cards, 5);
    let mut pod = pod(name);
    change(&mut pod);
    fed.apply_pod(pod.clone());
    let intents = fed.decide();
    fed.written(&intents);
    let Some(Intent::Allocate { node, .. }) = intents.first() else { panic!("{intents:?}") };
    fed.bound(pod, node);
    node.clone()
}

pub fn with_priority(priority: i32) -> impl Fn(&mut Value) {
    move |pod| pod["spec"]["priority"] = json!(priority)
}

/// Adds a pod of priority 10 asking for `cards` cards.
pub fn urgent(fed: &mut Fed, cards: usize) {
    fed.versioned("urgent", "gpu", cards, 5);
    let mut pod = pod("urgent");
    pod["spec"]["priority"] = json!(10);
    fed.apply_pod(pod);
}

/// Applies the nominations as written and observed. Returns their number.
pub fn nominated(fed: &mut Fed, intents: &[Intent]) -> usize {
    let mut count = 0;
    for intent in intents {
        let Intent::Nominate { pod, nomination } = intent else { continue };
        let found = fed.decider.cluster().objects().pods[&pod.key].clone();
        let mut found = serde_json::to_value(found.as_ref()).unwrap();
        let text = nomination.as_ref().map(|nomination| nomination.encode());
        found["metadata"]["annotations"] = json!({});
        if let Some(text) = text {
            found["metadata"]["annotations"]["gpu.tessera.dev/nomination"] = json!(text);
            count += 1;
        }
        fed.apply_pod(found);
    }
    count
}

pub fn evicted(intents: &[Intent]) -> Vec<String> {
    let mut pods: Vec<String> = intents
        .iter()
        .filter_map(|intent| match intent {
            Intent::Evict { pod, .. } => Some(pod.key.name.clone()),
            _ => None,
        })
        .collect();
    pods.sort();
    pods
}

/// The victims of the urgent pod: nominated, then evicted.
pub fn victims(fed: &mut Fed) -> Vec<String> {
    let intents = fed.decide();
    assert_eq!(evicted(&intents), [""; 0], "evicted before the nomination was seen");
    nominated(fed, &intents);
    evicted(&fed.decide())
}

#[test]
fn the_nomination_is_seen_before_anybody_is_evicted() {
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "low", 2, with_priority(0));
    urgent(&mut fed, 1);
    let intents = fed.decide();
    let nominations: Vec<&Intent> =
        intents.iter().filter(|intent| matches!(intent, Intent::Nominate { .. })).collect();
    let [Intent::Nominate { nomination: Some(nomination), .. }] = nominations.as_slice() else {
        panic!("{intents:?}")
    };
    assert_eq!((nomination.node.as_str(), nomination.devices.len()), ("a", 1));
    // Nothing else happens until the nomination is observed.
    assert_eq!(fed.decide(), []);
    nominated(&mut fed, &intents);
    assert_eq!(evicted(&fed.decide()), ["low"]);
    // The eviction is not repeated at once, and the victim's devices are not free until deallocated.
    assert_eq!(evicted(&fed.decide()), [""; 0]);
    fed.delete(Kind::Pod, "low");
    assert_eq!(fed.allocates(), []);
    fed.delete(Kind::ResourceClaim, "low-gpus");
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn what_becomes_free_is_for_the_one_that_is_nominated() {
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "low", 2, with_priority(0));
    urgent(&mut fed, 2);
    assert_eq!(victims(&mut fed), ["low"]);
    // Another pod arrives meanwhile, with a higher priority than the victim's but not than the urgent pod's.
    fed.versioned("other", "gpu", 1, 5);
    let mut other = pod("other");
    other["spec"]["priority"] = json!(10);
    other["metadata"]["creationTimestamp"] = json!("2030-01-01T00:00:00Z");
    fed.apply_pod(other);
    fed.delete(Kind::Pod, "low");
    fed.delete(Kind::ResourceClaim, "low-gpus");
    let allocated: Vec<String> = fed.allocates().into_iter().map(|(pod, ..)| pod).collect();
    assert_eq!(allocated, ["urgent"]);
}

/// A nomination counts from its decision, whether or not already observed on its pod.
#[test]
fn two_that_are_planned_at_once_do_not_count_on_the_same_victim() {
    let nominated_to = |fed: &mut Fed| -> Vec<String> {
        let node = |intent: &Intent| match intent {
            Intent::Nominate { nomination: Some(nomination), .. } => Some(nomination.node.clone()),
            _ => None,
        };
        let mut nodes: Vec<String> = fed.decide().iter().filter_map(node).collect();
        nodes.sort();
        nodes
    };
    for (nodes, expected) in [(&[("a", 1)][..], &["a"][..]), (&[("a", 1), ("b", 1)], &["a", "b"])] {
        let mut fed = leader(nodes);
        for (node, _) in nodes {
            running(&mut fed, &format!("low-{node}"), 1, with_priority(0));
        }
        for name in ["one", "two"] {
            fed.versioned(name, "gpu", 1, 5);
            let mut pod = pod(name);
            pod["spec"]["priority"] = json!(10);
            fed.apply_pod(pod);
        }
        assert_eq!(nominated_to(&mut fed), expected);
        // Neither nomination was observed. Nothing changes for a while, then both are planned anew.
        assert_eq!(nominated_to(&mut fed), [""; 0]);
        fed.now += Time::from_secs(11);
        assert_eq!(nominated_to(&mut fed), expected);
    }
}

#[test]
fn what_is_nominated_no_longer_is_for_others_at_once() {
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "low", 1, with_priority(0));
    running(&mut fed, "stays", 1, with_priority(0));
    urgent(&mut fed, 2);
    assert_eq!(victims(&mut fed), ["low", "stays"]);
    fed.delete(Kind::Pod, "low");
    fed.delete(Kind::ResourceClaim, "low-gpus");
    fed.versioned("small", "gpu", 1, 5);
    let mut small = pod("small");
    small["spec"]["preemptionPolicy"] = json!("Never");
    fed.apply_pod(small);
    assert_eq!(fed.allocates(), []);
    // The nomination ends (10 min plus the victims' grace of 30 s) without its devices becoming free.
    fed.now += Time::from_secs(631);
    assert_eq!(fed.allocates().len(), 1);
}

/// The pod still carries its nomination.
#[test]
fn who_has_devices_keeps_nothing_else() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    running(&mut fed, "high", 1, with_priority(20));
    fed.versioned("train-0", "gpu", 1, 5);
    let mut first = member("train", 0, 2);
    first["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("1");
    first["spec"]["priority"] = json!(10);
    fed.apply_pod(first);
    assert_eq!(victims(&mut fed), ["low"]);
    // Meanwhile there is room elsewhere.
    fed.delete(Kind::Pod, "high");
    fed.delete(Kind::ResourceClaim, "high-gpus");
    let intents = fed.decide();
    fed.written(&intents);
    let [Intent::Allocate { node, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    let lifts = fed.decide();
    fed.written(&lifts);
    let lifted =
        serde_json::to_value(fed.decider.cluster().objects().pods[&key("train-0")].as_ref()).unwrap();
    assert!(lifted["metadata"]["annotations"]["gpu.tessera.dev/nomination"].is_string());
    fed.bound(lifted, node);
    fed.now += Time::from_secs(11);
    fed.decide();
    fed.delete(Kind::Pod, "low");
    fed.delete(Kind::ResourceClaim, "low-gpus");
    fed.versioned("other", "gpu", 1, 5);
    fed.apply_pod(pod("other"));
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn nobody_of_the_same_priority_or_by_a_pod_that_never_preempts() {
    let mut fed = leader(&[("a", 1)]);
    running(&mut fed, "same", 1, with_priority(10));
    urgent(&mut fed, 1);
    assert!(fed.decide().iter().all(|intent| matches!(intent, Intent::Tell { .. })));
    let mut fed = leader(&[("a", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    fed.versioned("urgent", "gpu", 1, 5);
    let mut pod = pod("urgent");
    pod["spec"]["priority"] = json!(10);
    pod["spec"]["preemptionPolicy"] = json!("Never");
    fed.apply_pod(pod);
    assert!(fed.decide().iter().all(|intent| matches!(intent, Intent::Tell { .. })));
}

#[test]
fn only_where_it_fits_then() {
    let mut fed = leader(&[("a", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    urgent(&mut fed, 2);
    assert!(fed.decide().iter().all(|intent| matches!(intent, Intent::Tell { .. })));
}

#[test]
fn the_lowest_priority_then_no_gang_then_the_fewest_pods_then_the_youngest() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "one", 1, with_priority(1));
    running(&mut fed, "two", 1, with_priority(2));
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["one"]);

    let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    fed.written(&lifts);
    for intent in &intents {
        let Intent::Allocate { pod, node, .. } = intent else { continue };
        let number = pod.key.name.strip_prefix("train-").unwrap().parse().unwrap();
        fed.bound(member("train", number, 2), node);
    }
    running(&mut fed, "single", 1, with_priority(0));
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["single"]);
    fed.delete(Kind::Pod, "single");
    fed.delete(Kind::ResourceClaim, "single-gpus");

    // One pod with two cards rather than two pods.
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    let node = running(&mut fed, "both", 2, with_priority(0));
    let first = running(&mut fed, "first", 1, with_priority(0));
    assert_ne!(node, first);
    running(&mut fed, "second", 1, with_priority(0));
    urgent(&mut fed, 2);
    assert_eq!(victims(&mut fed), ["both"]);

    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let created =
        |time: &'static str| move |pod: &mut Value| pod["metadata"]["creationTimestamp"] = json!(time);
    running(&mut fed, "young", 1, created("2026-01-02T00:00:00Z"));
    running(&mut fed, "old", 1, created("2026-01-01T00:00:00Z"));
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["young"]);
}

#[test]
fn one_pod_of_a_gang_costs_all_of_it() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    assert_eq!(steps(&lifts).1.len(), 2);
    fed.written(&lifts);
    for intent in &intents {
        let Intent::Allocate { pod, node, .. } = intent else { continue };
        let number = pod.key.name.strip_prefix("train-").unwrap().parse().unwrap();
        fed.bound(member("train", number, 2), node);
    }
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["train-0", "train-1"]);
}

#[test]
fn a_gang_preempts_for_all_of_its_pods_or_for_none() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    running(&mut fed, "high", 1, with_priority(20));
    let gang = |fed: &mut Fed, size| {
        for number in 0..size {
            let mut pod = member("train", number, size);
            pod["spec"]["priority"] = json!(10);
            fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
            fed.apply_pod(pod);
        }
    };
    gang(&mut fed, 2);
    assert!(fed.decide().iter().all(|intent| matches!(intent, Intent::Tell { .. })));
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    running(&mut fed, "lower", 1, with_priority(-1));
    gang(&mut fed, 2);
    assert_eq!(victims(&mut fed), ["low", "lower"]);
}

/// With a disruption budget, another pod has to go, or none.
#[test]
fn a_refused_eviction_is_taken_for_an_answer() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "first", 1, with_priority(0));
    running(&mut fed, "second", 1, with_priority(1));
    urgent(&mut fed, 1);
    let intents = fed.decide();
    nominated(&mut fed, &intents);
    let intents = fed.decide();
    assert_eq!(evicted(&intents), ["first"]);
    let Some(Intent::Evict { pod, .. }) =
        intents.iter().find(|intent| matches!(intent, Intent::Evict { .. }))
    else {
        panic!("{intents:?}")
    };
    fed.decider.observe(fed.now, Observation::Evicted { pod: pod.clone(), is_done: false }).unwrap();
    fed.now += Time::from_secs(11);
    let intents = fed.decide();
    assert_eq!(evicted(&intents), [""; 0]);
    assert_eq!(nominated(&mut fed, &intents), 0);
    assert_eq!(victims(&mut fed), ["second"]);
}

fn budget(allowed: u32) -> tessera_cluster::Object {
    let budget = json!({ "metadata": { "name": "keep", "namespace": "team" },
        "spec": { "selector": { "matchLabels": { "app": "kept" } } },
        "status": { "disruptionsAllowed": allowed } });
    read::<tessera_cluster::workloads::DisruptionBudget>(budget).into()
}

#[test]
fn whom_a_disruption_budget_keeps_stays_and_that_is_told() {
    let kept = |priority| {
        move |pod: &mut Value| {
            pod["spec"]["priority"] = json!(priority);
            pod["metadata"]["labels"] = json!({ "app": "kept" });
        }
    };
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "kept", 1, kept(0));
    running(&mut fed, "other", 1, with_priority(5));
    fed.apply(budget(0));
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["other"]);

    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "one", 1, kept(0));
    running(&mut fed, "two", 1, kept(0));
    fed.apply(budget(1));
    urgent(&mut fed, 2);
    // The budget allows one eviction, but both would be needed.
    let intents = fed.decide();
    assert!(intents.iter().all(|intent| matches!(intent, Intent::Tell { .. })), "{intents:?}");
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "one", 1, kept(0));
    running(&mut fed, "two", 1, kept(0));
    fed.apply(budget(1));
    urgent(&mut fed, 2);
    let intents = fed.decide();
    let told = intents.iter().find_map(|intent| match intent {
        Intent::Tell { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert!(told.is_some_and(|told| told.contains("PodDisruptionBudget")), "{intents:?}");
}

/// The claim becomes free once all of its pods are gone, and only once.
#[test]
fn pods_that_share_a_claim_go_together() {
    let mut fed = leader(&[("a", 1)]);
    let mut named = allocated(claim("any", "gpu", 1), "a", &[card(0)]);
    named["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "7",
        "annotations": { "gpu.tessera.dev/controller-epoch": "one" } });
    let open = {
        let mut open = named.clone();
        open["status"] = json!({});
        open
    };
    let users =
        ["one", "two"].map(|name| json!({ "resource": "pods", "name": name, "uid": format!("uid-{name}") }));
    named["status"]["reservedFor"] = json!(users);
    fed.apply_claim(named);
    for name in ["one", "two"] {
        let mut pod = pod(name);
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["nodeName"] = json!("a");
        pod["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "named" }]);
        fed.apply_pod(pod);
    }
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["one", "two"]);
    fed.delete(Kind::Pod, "one");
    assert_eq!(fed.allocates(), []);
    fed.delete(Kind::Pod, "two");
    fed.apply_claim(open);
    assert_eq!(fed.allocates().len(), 1);
}

/// The next leader finds the nomination on the pod and continues.
#[test]
fn the_next_leader_goes_on_with_what_is_nominated() {
    let mut fed = leader(&[("a", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    urgent(&mut fed, 1);
    let intents = fed.decide();
    nominated(&mut fed, &intents);
    fed.decider.follow();
    fed.now += Time::from_secs(1);
    fed.decider.lead(fed.now, "one");
    fed.decide();
    fed.listed();
    assert_eq!(evicted(&fed.decide()), ["low"]);
}

/// Two nodes become free half an hour apart, within the victims' grace periods.
#[test]
fn what_is_nominated_outlives_the_grace_of_its_victims() {
    let grace = |seconds: i64| {
        move |pod: &mut Value| {
            pod["spec"]["terminationGracePeriodSeconds"] = json!(seconds);
            pod["spec"]["priority"] = json!(0);
        }
    };
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "short", 1, grace(5));
    let node = running(&mut fed, "long", 1, grace(1_800));
    for number in 0..2 {
        let mut pod = member("train", number, 2);
        pod["spec"]["priority"] = json!(10);
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(pod);
    }
    assert_eq!(victims(&mut fed), ["long", "short"]);
    fed.delete(Kind::Pod, "short");
    fed.delete(Kind::ResourceClaim, "short-gpus");
    let mut ending = pod("long");
    grace(1_800)(&mut ending);
    ending["spec"]["schedulingGates"] = json!([]);
    ending["spec"]["nodeName"] = json!(node);
    ending["metadata"]["deletionTimestamp"] = crate::gangs::queue::at(2_800);
    fed.apply_pod(ending);
    fed.versioned("other", "gpu", 1, 5);
    fed.apply_pod(pod("other"));
    while fed.now < Time::from_secs(2_790) {
        fed.now += Time::from_secs(10);
        let intents = fed.decide();
        let acts = |intent: &&Intent| !matches!(intent, Intent::Tell { .. });
        assert_eq!(intents.iter().find(acts), None, "at {:?}", fed.now);
    }
    fed.delete(Kind::Pod, "long");
    fed.delete(Kind::ResourceClaim, "long-gpus");
    let pods: Vec<String> = fed.allocates().into_iter().map(|(pod, ..)| pod).collect();
    assert_eq!(pods, ["train-0", "train-1"]);
}

/// The budget counts the pod that is ending already, so that one more may go.
#[test]
fn a_budget_is_not_used_up_by_a_pod_that_is_ending() {
    let kept = |priority| {
        move |pod: &mut Value| {
            pod["spec"]["priority"] = json!(priority);
            pod["metadata"]["labels"] = json!({ "app": "kept" });
        }
    };
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let node = running(&mut fed, "ends", 1, kept(0));
    let other = running(&mut fed, "stays", 1, kept(1));
    let found = fed.decider.cluster().objects().pods[&key("ends")].clone();
    let mut ending = serde_json::to_value(found.as_ref()).unwrap();
    ending["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:17:00Z");
    fed.apply_pod(ending);
    fed.apply(budget(1));
    fed.versioned("urgent", "gpu", 1, 5);
    let mut urgent = pod("urgent");
    urgent["spec"]["priority"] = json!(10);
    urgent["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": other });
    fed.apply_pod(urgent);
    assert_ne!(node, other);
    assert_eq!(victims(&mut fed), ["stays"]);
}

/// kube-scheduler refuses the gang's pods for a reason that nobody foresees: eviction would hardly help.
#[test]
fn a_gang_that_many_nodes_refuse_evicts_nobody() {
    for (refused, expected) in [(0, 2), (4, 0)] {
        let nodes = ["a", "b", "c", "d", "e", "f"];
        let mut fed = leader(&nodes.map(|node| (node, 1)));
        for node in nodes {
            running(&mut fed, &format!("low-{node}"), 1, with_priority(0));
        }
        let mut by = RefusedNodes::default();
        for node in &nodes[..refused] {
            by.refuse((*node).to_owned(), Timestamp::from_second(fed.now.as_secs() as i64 + 300).unwrap());
        }
        for number in 0..2 {
            fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
            let mut pod = member("train", number, 2);
            pod["spec"]["priority"] = json!(10);
            pod["metadata"]["annotations"] =
                json!({ REFUSED_NODES_ANNOTATION: by.encode().unwrap_or_default() });
            fed.apply_pod(pod);
        }
        let intents = fed.decide();
        assert_eq!(nominated(&mut fed, &intents), expected, "{intents:?}");
    }
}
