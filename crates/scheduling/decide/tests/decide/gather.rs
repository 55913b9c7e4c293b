//! Pods that make room by moving.

mod limits;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tessera_api::managed::Nomination;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::member;
use crate::gangs::preemption::{evicted, nominated};
use crate::objects::*;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn time(seconds: u64) -> Value {
    json!(Timestamp::from_second(seconds as i64).unwrap().to_string())
}

/// A pool whose pods may move, with further fields of its placement.
fn moving(further: Value) -> Value {
    let mut placement = json!({ "gather": { "mode": "Move" } });
    placement.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    json!({ "pool": "main", "allocation": "Managed", "placement": placement })
}

/// A leader, in the second day of its term, over these nodes of two cards each. Each has one card in use, by a pod of its name that
/// runs for two hours.
fn scattered_on(nodes: &[&str], pool: &Value, change: impl Fn(&mut Value)) -> Fed {
    let mut fed = Fed::with_nodes(&[]);
    for name in nodes {
        fed.apply(node(name));
        slices(name, 2, pool.clone()).into_iter().for_each(|slice| fed.apply(slice));
    }
    fed.now = Time::from_secs(1_000);
    fed.decider.lead(fed.now, "one");
    assert_eq!(fed.decide(), [Intent::ListClaims]);
    fed.listed();
    fed.now += Time::from_secs(DAY);
    for name in nodes {
        fed.runs(name, name, name, &change);
    }
    fed.now += Time::from_secs(2 * HOUR);
    fed
}

fn scattered(pool: &Value, change: impl Fn(&mut Value)) -> Fed {
    scattered_on(&["a", "b"], pool, change)
}

fn owned(pod: &mut Value, owner: &str) {
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner,
        "uid": format!("owner-{owner}"), "controller": true }]);
}

impl Fed {
    /// A movable pod of the owner that runs from now with the first card of the node.
    fn runs(&mut self, name: &str, owner: &str, node: &str, change: impl Fn(&mut Value)) {
        let mut held = allocated(claim(name, "gpu", 1), node, &[card(0)]);
        held["metadata"]["resourceVersion"] = json!("5");
        held["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
        held["status"]["reservedFor"] =
            json!([{ "resource": "pods", "name": name, "uid": format!("uid-{name}") }]);
        self.apply_claim(held);
        let mut pod = pod(name);
        owned(&mut pod, owner);
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/movable": "true" });
        pod["metadata"]["creationTimestamp"] = time(self.now.as_secs());
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
        pod["status"]["startTime"] = time(self.now.as_secs());
        change(&mut pod);
        self.apply_pod(pod);
    }

    /// Adds a pod that waits for two cards, and has done so for as long.
    fn waits(&mut self, name: &str, seconds: u64) {
        self.versioned(name, "gpu", 2, 5);
        let mut pod = pod(name);
        pod["metadata"]["creationTimestamp"] = time(self.now.as_secs() - seconds);
        self.apply_pod(pod);
    }

    /// The nominations written now.
    fn plans(&mut self) -> (Vec<Intent>, Vec<Nomination>) {
        let intents = self.decide();
        let plans = intents.iter().filter_map(|intent| match intent {
            Intent::Nominate { nomination, .. } => nomination.clone(),
            _ => None,
        });
        let plans = plans.collect();
        (intents, plans)
    }

    /// Who is evicted for the waiting pods, once their plan is seen.
    fn moved(&mut self) -> Vec<String> {
        let (intents, _) = self.plans();
        assert_eq!(evicted(&intents), [""; 0], "evicted before the plan was seen");
        nominated(self, &intents);
        evicted(&self.decide())
    }

    fn is_gone(&mut self, pod: &str) {
        self.delete(Kind::Pod, pod);
        self.delete(Kind::ResourceClaim, &format!("{pod}-gpus"));
    }

    /// The owner's next pod.
    fn succeeds(&mut self, name: &str, owner: &str) {
        self.versioned(name, "gpu", 1, 5);
        let mut pod = pod(name);
        owned(&mut pod, owner);
        pod["metadata"]["creationTimestamp"] = time(self.now.as_secs());
        self.apply_pod(pod);
    }

    fn budget(&mut self, allowed: u32) {
        let budget = json!({ "metadata": { "name": "b", "namespace": "team" },
            "spec": { "selector": { "matchLabels": { "gpu.tessera.dev/movable": "true" } } },
            "status": { "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2 } });
        self.apply(read::<tessera_cluster::workloads::DisruptionBudget>(budget).into());
    }
}

fn as_it_is(_: &mut Value) {}

fn usual() -> Fed {
    scattered(&moving(json!({})), as_it_is)
}

#[test]
fn a_pod_moves_for_one_that_waited_and_its_successor_has_its_place() {
    let mut fed = usual();
    fed.waits("big", 600);
    let (intents, plans) = fed.plans();
    let [plan] = plans.as_slice() else { panic!("{intents:?}") };
    let [planned] = plan.moves.as_slice() else { panic!("{plan:?}") };
    let (from, to) = (plan.node.as_str(), planned.node.as_str());
    assert_ne!(from, to);
    assert_eq!((planned.pod.as_str(), planned.devices.len()), (&*format!("team/{from}/uid-{from}"), 1));
    // The place is taken from now on, whoever else comes.
    fed.versioned("small", "gpu", 1, 5);
    fed.apply_pod(pod("small"));
    assert_eq!(fed.allocates(), []);
    nominated(&mut fed, &intents);
    let acts = fed.decide();
    assert_eq!(evicted(&acts), [from]);
    let why = acts.iter().find_map(|intent| match intent {
        Intent::Evict { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert!(why.unwrap().contains("moved so that team/big fits; its successor has room on"));
    let (from, to) = (from.to_owned(), to.to_owned());
    fed.is_gone(&from);
    fed.succeeds("next", &from);
    let mut allocated = fed.allocates();
    allocated.sort();
    let places: Vec<(&str, &str)> = allocated.iter().map(|(pod, node, _)| (&**pod, &**node)).collect();
    assert_eq!(places, [("big", &*from), ("next", &*to)]);
}

#[test]
fn nobody_moves_before_the_time_or_without_leave() {
    let none = json!({ "gather": { "mode": "None" } });
    let without = |field: &'static str| move |pod: &mut Value| pod["metadata"][field] = Value::Null;
    let pools = [
        ("not long enough", moving(json!({})), 300),
        ("mode None", moving(none), 600),
        ("no gather", managed(), 600),
        ("strict", moving(json!({ "queue": "Strict" })), 600),
        ("runtime", moving(json!({ "gather": { "mode": "Move", "minRuntimeSeconds": 7201 } })), 600),
    ];
    for (what, pool, waited) in pools {
        let mut fed = scattered(&pool, as_it_is);
        fed.waits("big", waited);
        assert_eq!(fed.moved(), [""; 0], "{what}");
    }
    for field in ["labels", "ownerReferences"] {
        let mut fed = scattered(&moving(json!({})), without(field));
        fed.waits("big", 600);
        assert_eq!(fed.moved(), [""; 0], "{field}");
    }
    let unknown_job = |pod: &mut Value| pod["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
    let mut fed = scattered(&moving(json!({})), unknown_job);
    fed.waits("big", 600);
    assert_eq!(fed.moved(), [""; 0], "a Job that is not known");
    // A wait that becomes long enough needs no other event.
    let mut fed = usual();
    fed.waits("big", 300);
    fed.decide();
    fed.now += Time::from_secs(300);
    assert_eq!(fed.moved().len(), 1);
}

#[test]
fn a_gang_is_not_torn_apart() {
    let gang = |pod: &mut Value| {
        let labels = json!({ "gpu.tessera.dev/movable": "true", "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "2" });
        pod["metadata"]["labels"] = labels;
    };
    let mut fed = scattered(&moving(json!({})), gang);
    fed.waits("big", 600);
    assert_eq!(fed.moved(), [""; 0]);
}

#[test]
fn a_gang_waits_for_moves_too() {
    let mut fed = scattered_on(&["a", "b", "c", "d"], &moving(json!({})), as_it_is);
    for number in 0..2 {
        let mut pod = member("g", number, 2);
        fed.versioned(&format!("g-{number}"), "gpu", 2, 5);
        pod["metadata"]["creationTimestamp"] = time(fed.now.as_secs() - 600);
        fed.apply_pod(pod);
    }
    let moved = fed.moved();
    assert_eq!(moved.len(), 2, "{moved:?}");
    moved.iter().for_each(|pod| fed.is_gone(pod));
    assert_eq!(fed.allocates().len(), 2);
}

#[test]
fn nobody_moves_once_the_waiting_pod_is_gone() {
    let mut fed = usual();
    fed.waits("big", 600);
    let (intents, plans) = fed.plans();
    assert_eq!(plans.len(), 1);
    nominated(&mut fed, &intents);
    fed.is_gone("big");
    assert_eq!(evicted(&fed.decide()), [""; 0]);
    // Both free cards are free again.
    for name in ["one", "two"] {
        fed.versioned(name, "gpu", 1, 5);
        fed.apply_pod(pod(name));
    }
    assert_eq!(fed.allocates().len(), 2);
}

#[test]
fn nobody_moves_whose_successor_lost_its_place() {
    let mut fed = usual();
    fed.waits("big", 600);
    let (intents, plans) = fed.plans();
    nominated(&mut fed, &intents);
    // A write of an earlier leader arrives late.
    let place = &plans[0].moves[0];
    fed.apply_claim(allocated(claim("late", "gpu", 1), &place.node, &place.devices));
    let intents = fed.decide();
    assert_eq!(evicted(&intents), [""; 0]);
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Nominate { nomination: None, .. })));
}

#[test]
fn a_new_leader_goes_on_with_the_plan() {
    let mut fed = usual();
    fed.waits("big", 600);
    let (intents, _) = fed.plans();
    nominated(&mut fed, &intents);
    let old = std::mem::replace(&mut fed.decider, tessera_decide::Decider::new(DRIVER, share_ids()));
    fed.apply(class());
    fed.apply(half_class());
    // Pods and claims come before the slices.
    let objects = old.cluster().objects();
    for claim in objects.claims.values() {
        fed.apply(claim.as_ref().clone().into());
    }
    for pod in objects.pods.values() {
        fed.apply(pod.as_ref().clone().into());
    }
    let now = std::mem::replace(&mut fed.now, Time::ZERO);
    for name in ["a", "b"] {
        fed.apply(node(name));
        slices(name, 2, moving(json!({}))).into_iter().for_each(|slice| fed.apply(slice));
    }
    fed.now = now;
    // Nobody behind it gets the place meanwhile.
    fed.versioned("small", "gpu", 1, 5);
    let mut small = pod("small");
    small["metadata"]["creationTimestamp"] = time(fed.now.as_secs());
    fed.apply_pod(small);
    fed.decider.lead(fed.now, "one");
    fed.decide();
    fed.listed();
    let mut gone = Vec::new();
    for _ in 0..3 {
        let intents = fed.decide();
        assert!(!intents.iter().any(|intent| matches!(intent, Intent::Allocate { .. })), "{intents:?}");
        gone.extend(evicted(&intents));
    }
    let [gone] = gone.as_slice() else { panic!("{gone:?}") };
    fed.is_gone(gone);
    fed.succeeds("next", gone);
    let allocated: Vec<String> = fed.allocates().into_iter().map(|(pod, ..)| pod).collect();
    assert!(allocated.contains(&"big".to_owned()) && allocated.contains(&"next".to_owned()), "{allocated:?}");
}

/// Another term over the scattered pods, with a pod that waits.
fn led_anew(fed: &mut Fed) {
    fed.decider.follow();
    fed.decider.lead(fed.now, "two");
    fed.decide();
    fed.listed();
    fed.waits("big", 600);
    // A run long enough to be worth the loss of pods that have run for days.
    let big = fed.decider.cluster().objects().pods[&key("big")].clone();
    let mut big = serde_json::to_value(big.as_ref()).unwrap();
    big["spec"]["activeDeadlineSeconds"] = json!(30 * DAY);
    fed.apply_pod(big);
    for name in ["a-gpus", "b-gpus", "big-gpus"] {
        let claim = fed.decider.cluster().objects().claims[&key(name)].clone();
        let mut claim = serde_json::to_value(claim.as_ref()).unwrap();
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "two" });
        fed.apply_claim(claim);
    }
}

#[test]
fn a_new_leader_plans_no_moves_in_its_first_hour() {
    let mut fed = usual();
    fed.now += Time::from_secs(DAY);
    led_anew(&mut fed);
    assert_eq!(fed.moved(), [""; 0]);
    fed.now += Time::from_secs(HOUR);
    assert_eq!(fed.moved().len(), 1);
}

#[test]
fn a_new_leader_leaves_owners_of_young_pods_alone_for_a_day() {
    let mut fed = usual();
    led_anew(&mut fed);
    fed.now += Time::from_secs(2 * HOUR);
    assert_eq!(fed.moved(), [""; 0]);
    fed.now += Time::from_secs(DAY);
    assert_eq!(fed.moved().len(), 1);
}

#[test]
fn a_disruption_budget_keeps_a_pod_and_releases_the_place() {
    let mut fed = usual();
    fed.budget(0);
    fed.waits("big", 600);
    assert_eq!(fed.moved(), [""; 0]);
    // It changed its mind after the plan.
    let mut fed = usual();
    fed.budget(1);
    fed.waits("big", 600);
    let (intents, plans) = fed.plans();
    assert_eq!(plans.len(), 1);
    nominated(&mut fed, &intents);
    fed.budget(0);
    let intents = fed.decide();
    assert_eq!(evicted(&intents), [""; 0]);
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Nominate { nomination: None, .. })));
    nominated(&mut fed, &intents);
    fed.versioned("small", "gpu", 1, 5);
    fed.apply_pod(pod("small"));
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_refused_eviction_ends_the_plan_and_counts_as_no_move() {
    let only_a = |pod: &mut Value| {
        if pod["metadata"]["name"] != "a" {
            pod["metadata"]["labels"] = Value::Null;
        }
    };
    let mut fed = scattered(&moving(json!({})), only_a);
    fed.waits("big", 600);
    let (intents, _) = fed.plans();
    nominated(&mut fed, &intents);
    let intents = fed.decide();
    let sent = intents.iter().find_map(|intent| match intent {
        Intent::Evict { pod, .. } => Some(pod.clone()),
        _ => None,
    });
    fed.decider.observe(fed.now, Observation::Evicted { pod: sent.unwrap(), is_done: false }).unwrap();
    fed.now += Time::from_secs(30);
    let intents = fed.decide();
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Nominate { nomination: None, .. })));
    nominated(&mut fed, &intents);
    fed.now += Time::from_secs(1_200);
    assert_eq!(fed.moved().len(), 1);
}

#[test]
fn no_owner_moves_twice_in_a_day_and_no_more_pods_than_an_hour_allows() {
    for (per_hour, owner, later, moves) in [
        (1, "x", 1_000, 0),
        (2, "x", 1_000, 1),
        (1, "x", 2 * HOUR, 1),
        (2, "", 2 * HOUR, 0),
        (2, "", DAY + 1, 1),
    ] {
        let pool = moving(json!({ "gather": { "mode": "Move", "perHour": per_hour } }));
        let mut fed = scattered(&pool, as_it_is);
        fed.waits("big", 600);
        let moved = fed.moved();
        let [first] = moved.as_slice() else { panic!("{moved:?}") };
        let other = if first == "a" { "b" } else { "a" };
        fed.is_gone(first);
        fed.is_gone("big");
        fed.is_gone(other);
        // The plan and its places have ended.
        fed.now += Time::from_secs(later);
        fed.decide();
        fed.now -= Time::from_secs(2 * HOUR);
        let owner = if owner.is_empty() { first.clone() } else { owner.to_owned() };
        for (name, node) in [("c", "a"), ("d", "b")] {
            fed.runs(name, &owner, node, as_it_is);
        }
        fed.now += Time::from_secs(2 * HOUR);
        fed.waits("large", 600);
        assert_eq!(fed.moved().len(), moves, "{per_hour} an hour, owner {owner}, {later} s later");
    }
}

#[test]
fn a_place_ends_with_its_plan() {
    let mut fed = usual();
    fed.waits("big", 600);
    let moved = fed.moved();
    fed.is_gone(&moved[0]);
    fed.versioned("small", "gpu", 1, 5);
    fed.apply_pod(pod("small"));
    let places = |fed: &mut Fed| fed.allocates().into_iter().map(|(pod, ..)| pod).collect::<Vec<_>>();
    assert_eq!(places(&mut fed), ["big"]);
    // No successor came.
    fed.now = fed.decider.wake().unwrap().max(fed.now + Time::from_secs(700));
    assert_eq!(places(&mut fed), ["small"]);
}

/// The eviction was done, and the answer lost.
#[test]
fn an_eviction_without_an_answer_keeps_the_plan_until_the_pod_is_seen() {
    let mut fed = usual();
    fed.waits("big", 600);
    let (intents, _) = fed.plans();
    nominated(&mut fed, &intents);
    let intents = fed.decide();
    let sent = intents.iter().find_map(|intent| match intent {
        Intent::Evict { pod, .. } => Some(pod.clone()),
        _ => None,
    });
    let sent = sent.unwrap();
    fed.decider.observe(fed.now, Observation::Evicted { pod: sent.clone(), is_done: false }).unwrap();
    fed.now += Time::from_secs(10);
    assert_eq!(fed.decide().len(), 0);
    fed.is_gone(&sent.key.name);
    fed.succeeds("next", &sent.key.name);
    fed.now += Time::from_secs(60);
    assert_eq!(fed.allocates().len(), 2);
}

#[test]
fn a_budget_that_keeps_movers_is_named_until_the_next_search() {
    let mut fed = usual();
    fed.budget(0);
    fed.waits("big", 600);
    let why = |fed: &Fed| fed.decider.waiting().map(|(_, why)| why.to_owned()).collect::<String>();
    for _ in 0..3 {
        fed.decide();
        let told = "pods that may move stay: PodDisruptionBudget team/b allows no eviction now";
        assert!(why(&fed).contains(told), "{}", why(&fed));
        fed.now += Time::from_secs(10);
    }
    fed.budget(1);
    fed.now += Time::from_secs(300);
    let (_, plans) = fed.plans();
    assert_eq!(plans.len(), 1);
    assert!(!why(&fed).contains("Budget"), "{}", why(&fed));
    // No budget is named for pods that stay in any case.
    let pool = moving(json!({ "gather": { "mode": "Move", "minRuntimeSeconds": 7201 } }));
    let mut fed = scattered(&pool, as_it_is);
    fed.budget(0);
    fed.waits("big", 600);
    fed.decide();
    assert!(!why(&fed).contains("Budget"), "{}", why(&fed));
}

#[test]
fn a_pool_that_lets_pods_move_now_helps_those_that_wait_already() {
    let mut fed = scattered(&managed(), as_it_is);
    fed.waits("big", 600);
    assert_eq!(fed.moved(), [""; 0]);
    for name in ["a", "b"] {
        slices(name, 2, moving(json!({}))).into_iter().for_each(|slice| fed.apply(slice));
    }
    assert_eq!(fed.moved().len(), 1);
}

/// Another pod that waits for longer does not get the place.
#[test]
fn a_place_is_kept_again_when_the_devices_of_its_pod_were_not_written() {
    let mut fed = usual();
    fed.waits("big", 600);
    let (intents, plans) = fed.plans();
    let (from, to) = (plans[0].node.clone(), plans[0].moves[0].node.clone());
    fed.versioned("small", "gpu", 1, 5);
    fed.apply_pod(pod("small"));
    nominated(&mut fed, &intents);
    assert_eq!(evicted(&fed.decide()), [&*from]);
    fed.is_gone(&from);
    fed.succeeds("next", &from);
    let intents = fed.decide();
    let refused = intents.iter().find_map(|intent| match intent {
        Intent::Allocate { pod, claims, .. } if pod.key.name == "next" => {
            Some((pod.clone(), claims[0].claim.clone()))
        }
        _ => None,
    });
    let (next, claim) = refused.unwrap();
    let why = "a policy".to_owned();
    let refused = Observation::ClaimRefused { claim, pod: Some(next.clone()), why };
    fed.decider.observe(fed.now, refused).unwrap();
    let carried = Observation::Carried { pod: next, is_done: false, versions: Vec::new() };
    fed.decider.observe(fed.now, carried).unwrap();
    assert_eq!(fed.allocates(), [], "not the other pod");
    fed.versioned("next", "gpu", 1, 6);
    fed.now += Time::from_secs(60);
    let places: Vec<(String, String)> =
        fed.allocates().into_iter().map(|(pod, node, _)| (pod, node)).collect();
    assert_eq!(places, [("next".to_owned(), to)]);
}
