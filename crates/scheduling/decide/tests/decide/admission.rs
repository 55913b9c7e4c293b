//! Kueue's Workloads with our AdmissionCheck: planned before their pods exist.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tessera_api::kueue::KeptRoom;
use tessera_cluster::Kind;
use tessera_cluster::kueue::{AdmissionCheck, ResourceFlavor, Workload};
use tessera_decide::{Intent, Observation, Time, WorkloadReference};

use crate::gangs::member;
use crate::leader::leader;
use crate::objects::*;

fn time(seconds: u64) -> String {
    Timestamp::from_second(seconds as i64).unwrap().to_string()
}

fn template(count: usize) -> Value {
    json!({ "metadata": { "name": format!("t{count}"), "namespace": "team" }, "spec": { "spec": { "devices": {
        "requests": [{ "name": "gpus", "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count } }] } } } })
}

/// Kueue's side of the check.
struct Kueue {
    fed: Fed,
    workload: Value,
    version: u32,
}

/// A Workload of so many pods with so many cards each, with quota since now.
fn workload(name: &str, pods: usize, cards: usize) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": time(900) },
        "spec": { "podSets": [{ "name": "main", "count": pods, "template": {
            "metadata": {}, "spec": {
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
                "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": format!("t{cards}") }] } } }] },
        "status": {
            "conditions": [],
            "admissionChecks": [
                { "name": "other", "state": "Pending", "message": "", "lastTransitionTime": time(900) },
                { "name": "plan", "state": "Pending", "message": "", "lastTransitionTime": time(900) }],
        },
    })
}

impl Kueue {
    fn start(nodes: &[(&str, usize)], workload: Value) -> Self {
        Self::over(leader(nodes), workload)
    }

    fn over(mut fed: Fed, workload: Value) -> Self {
        for count in [1, 2] {
            fed.apply(read::<k8s_openapi::api::resource::v1::ResourceClaimTemplate>(template(count)).into());
        }
        for (name, controller) in [("plan", "gpu.tessera.dev/plan"), ("other", "example.com/other")] {
            let check = json!({ "metadata": { "name": name }, "spec": { "controllerName": controller } });
            fed.apply(read::<AdmissionCheck>(check).into());
        }
        let mut kueue = Kueue { fed, workload, version: 1 };
        kueue.see();
        kueue
    }

    /// The controller sees the Workload in a new version.
    fn see(&mut self) {
        self.version += 1;
        self.workload["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.fed.apply(read::<Workload>(self.workload.clone()).into());
    }

    fn reserves_quota(&mut self) {
        let reserved = json!({ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": time(self.fed.now.as_secs()) });
        self.workload["status"]["conditions"] = json!([reserved]);
        self.see();
    }

    fn takes_quota_back(&mut self) {
        self.workload["status"]["conditions"] = json!([]);
        self.see();
    }

    /// The answers of this round; no other intents are expected.
    fn answers(&mut self) -> Vec<(WorkloadReference, Vec<Value>, Option<Option<String>>)> {
        let intents = self.fed.decide().into_iter();
        let answers = intents.filter_map(|intent| match intent {
            Intent::Answer { workload, checks, room } => Some((workload, checks, room)),
            _ => None,
        });
        answers.collect()
    }

    /// Carries out the answer of this round, and returns our check.
    fn answered(&mut self) -> Option<Value> {
        let (workload, checks, room) = self.answers().pop()?;
        assert_eq!(workload.resource_version, self.version.to_string());
        if let Some(room) = room {
            self.workload["metadata"]["annotations"] = json!({ "gpu.tessera.dev/room": room });
        }
        self.workload["status"]["admissionChecks"] = json!(checks);
        let observed = Observation::Answered { workload, is_done: true };
        self.fed.decider.observe(self.fed.now, observed).unwrap();
        self.see();
        assert_eq!(checks[0]["message"], "", "another controller's check stays as it is");
        Some(checks[1].clone())
    }

    fn state(&mut self) -> Option<String> {
        Some(self.answered()?["state"].as_str().unwrap().to_owned())
    }

    /// Whether another pod gets a card, given back at once.
    fn others_fit(&mut self, name: &str) -> bool {
        self.fed.versioned(name, "gpu", 1, 5);
        self.fed.apply_pod(pod(name));
        let fits = self.fed.allocates().iter().any(|(pod, ..)| pod == name);
        self.fed.delete(Kind::Pod, name);
        self.fed.delete(Kind::ResourceClaim, &format!("{name}-gpus"));
        fits
    }

    /// A pod of the admitted Workload.
    fn makes_pod(&mut self, number: usize, of: usize, cards: usize) {
        let mut pod = member("train", number, of);
        pod["metadata"]["annotations"] =
            self.workload["status"]["admissionChecks"][1]["podSetUpdates"][0]["annotations"].clone();
        self.fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", cards, 5);
        self.fed.apply_pod(pod);
    }
}

#[test]
fn nothing_is_answered_before_quota_is_reserved_or_for_checks_of_others() {
    let mut kueue = Kueue::start(&[("a", 2)], workload("train", 2, 1));
    assert!(kueue.answers().is_empty());
    kueue.reserves_quota();
    kueue.workload["status"]["admissionChecks"][1]["name"] = json!("third");
    kueue.see();
    assert!(kueue.answers().is_empty());
    kueue.workload["status"]["admissionChecks"][1]["name"] = json!("plan");
    kueue.workload["status"]["conditions"].as_array_mut().unwrap().push(json!({ "type": "Finished",
        "status": "True", "reason": "r", "message": "", "lastTransitionTime": time(900) }));
    kueue.see();
    assert!(kueue.answers().is_empty(), "it has ended");
}

#[test]
fn what_fits_is_ready_and_its_room_is_its_own_until_its_pods_come() {
    let mut kueue = Kueue::start(&[("a", 1), ("b", 1), ("c", 1)], workload("train", 2, 1));
    kueue.reserves_quota();
    let check = kueue.answered().unwrap();
    assert_eq!(check["state"], "Ready", "{check}");
    assert_eq!(check["lastTransitionTime"], time(1_000));
    let annotations = &check["podSetUpdates"][0]["annotations"];
    assert_eq!(annotations["gpu.tessera.dev/room-of"], "uid-train/main");
    let room = kueue.workload["metadata"]["annotations"]["gpu.tessera.dev/room"].as_str().unwrap();
    let room = KeptRoom::decode(room).unwrap();
    assert_eq!((room.places.len(), room.until), (2, time(1_600).parse().unwrap()));
    assert!(kueue.answers().is_empty(), "answered once");
    assert!(kueue.others_fit("first"), "a card is left");
    kueue.fed.versioned("keeps", "gpu", 1, 5);
    kueue.fed.apply_pod(pod("keeps"));
    assert_eq!(kueue.fed.allocates().len(), 1);
    assert!(!kueue.others_fit("second"), "the others are kept");
    for number in 0..2 {
        kueue.makes_pod(number, 2, 1);
    }
    let allocated = kueue.fed.allocates();
    let nodes: Vec<&str> = allocated.iter().map(|(_, node, _)| node.as_str()).collect();
    assert_eq!(allocated.len(), 2, "{allocated:?}");
    assert!(room.places.iter().all(|place| nodes.contains(&place.node.as_str())), "{allocated:?} {room:?}");
}

/// Pods of a Job without a gang come one after the other.
#[test]
fn each_pod_takes_one_place() {
    let mut kueue = Kueue::start(&[("a", 2)], workload("train", 2, 1));
    kueue.reserves_quota();
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
    kueue.makes_pod(0, 1, 1);
    assert_eq!(kueue.fed.allocates().len(), 1);
    assert!(!kueue.others_fit("other"));
    let mut second = member("train", 1, 1);
    second["metadata"]["labels"] = json!({});
    second["metadata"]["annotations"] = json!({ "gpu.tessera.dev/room-of": "uid-train/main" });
    kueue.fed.versioned("train-1", "gpu", 1, 5);
    kueue.fed.apply_pod(second);
    assert_eq!(kueue.fed.allocates().len(), 1);
}

#[test]
fn without_room_it_is_pending_then_asked_again_after_growing_pauses() {
    let mut kueue = Kueue::start(&[("a", 1), ("b", 1)], workload("train", 2, 1));
    kueue.fed.delete(Kind::Node, "b");
    kueue.reserves_quota();
    let check = kueue.answered().unwrap();
    assert_eq!(check["state"], "Pending");
    assert!(check["message"].as_str().unwrap().contains("1 of 2 pods that it needs fit now"), "{check}");
    assert!(kueue.others_fit("other"), "nothing is kept for it");
    kueue.fed.now = Time::from_secs(1_599);
    assert_eq!(kueue.state(), None);
    assert!(kueue.fed.decider.wake().unwrap() <= Time::from_secs(1_600));
    for (retries, pause) in [(0, 60), (1, 120), (5, 1_920), (9, 3_600), (70, 3_600)] {
        kueue.fed.now += Time::from_secs(601);
        kueue.workload["status"]["admissionChecks"][1]["retryCount"] = json!(retries);
        kueue.see();
        let check = kueue.answered().unwrap();
        assert_eq!((&check["state"], &check["requeueAfterSeconds"]), (&json!("Retry"), &json!(pause)));
        assert!(check["message"].as_str().unwrap().contains("1 of 2 pods"), "{check}");
        assert_eq!(kueue.state(), None, "Kueue is next");
        kueue.workload["status"]["admissionChecks"][1]["state"] = json!("Pending");
        kueue.takes_quota_back();
        assert_eq!(kueue.state(), None);
        kueue.reserves_quota();
        assert_eq!(kueue.state().as_deref(), Some("Pending"), "a new plan has its time");
    }
    kueue.fed.apply(node("b"));
    assert_eq!(kueue.state().as_deref(), Some("Ready"), "room came");
}

#[test]
fn room_is_given_back_with_the_quota_the_workload_and_by_time() {
    type Ends = fn(&mut Kueue);
    let ends: [(&str, Ends); 4] = [
        ("quota", Kueue::takes_quota_back),
        ("deleted", |kueue| {
            let workload = Observation::Deleted(Kind::Workload, key("train"));
            kueue.fed.decider.observe(kueue.fed.now, workload).unwrap();
        }),
        ("time, once admitted", |kueue| {
            let admitted = json!({ "type": "Admitted", "status": "True", "reason": "r", "message": "",
                "lastTransitionTime": time(1_000) });
            kueue.workload["status"]["conditions"].as_array_mut().unwrap().push(admitted);
            kueue.see();
            kueue.fed.decide();
            kueue.fed.now += Time::from_secs(600);
        }),
        ("the check", |kueue| kueue.fed.delete(Kind::AdmissionCheck, "plan")),
    ];
    for (what, end) in ends {
        let mut kueue = Kueue::start(&[("a", 2)], workload("train", 2, 1));
        kueue.reserves_quota();
        assert_eq!(kueue.state().as_deref(), Some("Ready"));
        assert!(!kueue.others_fit("before"), "{what}");
        end(&mut kueue);
        assert!(kueue.others_fit("after"), "{what}");
    }
}

/// Kueue may wait for checks of others.
#[test]
fn what_is_not_admitted_in_time_is_planned_anew() {
    let mut kueue = Kueue::start(&[("a", 2)], workload("train", 2, 1));
    kueue.reserves_quota();
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
    kueue.fed.now += Time::from_secs(600);
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
    let room = kueue.workload["metadata"]["annotations"]["gpu.tessera.dev/room"].as_str().unwrap();
    assert_eq!(KeptRoom::decode(room).unwrap().until, time(2_200).parse().unwrap());
    assert!(!kueue.others_fit("other"));
}

#[test]
fn a_new_leader_finds_the_room_and_what_was_taken_of_it() {
    let mut kueue = Kueue::start(&[("a", 1), ("b", 1)], workload("train", 2, 1));
    kueue.reserves_quota();
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
    let mut next = Kueue::over(leader(&[("a", 1), ("b", 1)]), kueue.workload.clone());
    assert!(!next.others_fit("other"));
    let mut taken = allocated(claim("train-0", "gpu", 1), "a", &[card(0)]);
    taken["metadata"]["resourceVersion"] = json!("7");
    let mut again = leader(&[("a", 1), ("b", 1)]);
    again.apply_claim(taken.clone());
    let mut next = Kueue::over(again, kueue.workload.clone());
    next.fed.decide();
    next.fed.delete(Kind::ResourceClaim, "train-0-gpus");
    assert!(next.others_fit("other"), "the pod that had it is gone");
}

#[test]
fn a_write_that_fails_keeps_nothing_and_is_tried_again() {
    let mut kueue = Kueue::start(&[("a", 2)], workload("train", 2, 1));
    kueue.reserves_quota();
    let (workload, ..) = kueue.answers().pop().unwrap();
    assert!(kueue.answers().is_empty(), "one at a time");
    assert!(!kueue.others_fit("other"), "kept at once");
    kueue.fed.decider.observe(kueue.fed.now, Observation::Answered { workload, is_done: false }).unwrap();
    assert!(kueue.others_fit("another"));
    kueue.fed.now += Time::from_secs(11);
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
}

/// Kueue evicts running jobs for a Retry.
#[test]
fn a_job_that_runs_already_is_ready_without_more_room() {
    let mut kueue = Kueue::start(&[("a", 1)], workload("train", 2, 1));
    kueue.reserves_quota();
    let mut admitted = kueue.workload["status"]["conditions"][0].clone();
    admitted["type"] = json!("Admitted");
    kueue.workload["status"]["conditions"].as_array_mut().unwrap().push(admitted);
    kueue.see();
    kueue.fed.now += Time::from_secs(700);
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
    assert_eq!(kueue.workload["metadata"]["annotations"], Value::Null);
}

/// The pods will have the node selector of the assigned flavor.
#[test]
fn nodes_are_those_of_the_flavor() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.apply(labelled("b", json!({ "kubernetes.io/hostname": "b", "pool": "other" })));
    let flavor = json!({ "metadata": { "name": "other" }, "spec": { "nodeLabels": { "pool": "other" } } });
    fed.apply(read::<ResourceFlavor>(flavor).into());
    let mut kueue = Kueue::over(fed, workload("train", 2, 1));
    let assignment = json!({ "name": "main", "flavors": { "gpu": "other" }, "count": 2 });
    kueue.workload["status"]["admission"] = json!({ "clusterQueue": "q", "podSetAssignments": [assignment] });
    kueue.reserves_quota();
    assert_eq!(kueue.state().as_deref(), Some("Pending"), "one node has the label");
    kueue.workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(1);
    kueue.see();
    kueue.fed.now += Time::from_secs(30);
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
    let room = kueue.workload["metadata"]["annotations"]["gpu.tessera.dev/room"].as_str().unwrap();
    assert_eq!(KeptRoom::decode(room).unwrap().places[0].node, "b");
}

#[test]
fn pods_without_managed_cards_are_not_held_back() {
    let mut plain = workload("train", 2, 1);
    plain["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = json!([]);
    let mut steered_fleet = Fed::with_nodes(&[("s", 1)]);
    steered_fleet.apply(node("a"));
    slices("a", 1, managed()).into_iter().for_each(|slice| steered_fleet.apply(slice));
    steered_fleet.now = Time::from_secs(1_000);
    steered_fleet.decider.lead(steered_fleet.now, "one");
    steered_fleet.decide();
    steered_fleet.listed();
    let mut kueue = Kueue::over(steered_fleet, plain);
    kueue.reserves_quota();
    let check = kueue.answered().unwrap();
    assert_eq!(check["state"], "Ready");
    assert!(check["podSetUpdates"].is_null() && kueue.workload["metadata"]["annotations"].is_null());
}

#[test]
fn before_the_list_of_workloads_is_complete_nothing_is_answered() {
    let mut kueue = Kueue::start(&[("a", 2)], workload("train", 2, 1));
    kueue.reserves_quota();
    kueue.fed.decider.set_unlisted(&[Kind::AdmissionCheck].into());
    assert!(kueue.answers().is_empty());
    kueue.fed.decider.set_unlisted(&[].into());
    assert_eq!(kueue.state().as_deref(), Some("Ready"));
}
