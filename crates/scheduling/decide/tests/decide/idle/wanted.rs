//! Idle pods make room for pods that wait, and those made in their place take nothing back.

use tessera_decide::PodReference;

use super::*;
use crate::gangs::preemption::{evicted, nominated, with_priority};

const GRACE: Time = Time::from_secs(600);

fn giving(cards: usize) -> Fed {
    let mut fed = leader(&[("a", cards)]);
    let idle = json!({ "action": "WhenWanted", "graceSeconds": 600 });
    let pool = json!({ "pool": "main", "allocation": "Managed", "idle": idle });
    slices("a", cards, pool).into_iter().for_each(|slice| fed.apply(slice));
    fed
}

/// A pod of a ReplicaSet that uses its card.
fn replica(name: &str) -> Value {
    let mut pod = owned(name, "apps/v1", "ReplicaSet");
    pod["spec"]["priority"] = json!(1_000);
    pod
}

/// The pod in its place.
fn successor(name: &str) -> Value {
    let mut pod = replica(name);
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    pod["status"]["phase"] = json!("Pending");
    pod["metadata"]["creationTimestamp"] = json!("1970-01-01T01:00:00Z");
    pod
}

impl Fed {
    /// `idle`: pods with a card each that use none, of a priority above all others.
    fn replicas(&mut self, idle: &[&str]) {
        for (number, name) in idle.iter().enumerate() {
            self.apply_pod(replica(name));
            super::idle(self, name, number);
        }
    }

    fn wants(&mut self, name: &str, cards: usize) {
        self.versioned(name, "gpu", cards, 5);
        let mut pod = ungated(name);
        with_priority(0)(&mut pod);
        self.apply_pod(pod);
    }

    /// The nominations of now are written; returns the intents of the next look.
    fn nominates(&mut self) -> Vec<Intent> {
        let intents = self.acts();
        assert_eq!(evicted(&intents), [""; 0]);
        assert!(nominated(self, &intents) > 0, "{intents:?}");
        self.acts()
    }

    /// The pods evicted once the grace is over.
    fn evicts(&mut self) -> Vec<String> {
        self.nominates();
        self.now += GRACE - Time::from_secs(1);
        assert_eq!(evicted(&self.acts()), [""; 0], "before the grace is over");
        self.now += Time::from_secs(1);
        evicted(&self.acts())
    }

    fn reason(&self, pod: &str) -> &'static str {
        self.decider.reason_of(&key(pod)).expect("a reason").kind()
    }

    fn ends(&mut self, pod: &str) {
        self.delete(Kind::Pod, pod);
        self.delete(Kind::ResourceClaim, &format!("{pod}-gpus"));
    }

    /// The pod `q` waits, and gets the card of the idle pod `p`, in whose place `p2` is made.
    fn gives_way() -> Self {
        let mut fed = giving(1);
        fed.replicas(&["p"]);
        fed.wants("q", 1);
        assert_eq!(fed.evicts(), ["p"]);
        fed.ends("p");
        fed.versioned("p2", "gpu", 1, 5);
        fed.apply_pod(successor("p2"));
        fed
    }
}

/// The annotations of the Note, written.
fn noted(fed: &mut Fed, intents: &[Intent]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for intent in intents {
        let Intent::Note { pod, idle_evicted: Some(uid), .. } = intent else { continue };
        let object = fed.decider.cluster().objects().pods[&pod.key].clone();
        let mut object = serde_json::to_value(object.as_ref()).unwrap();
        object["metadata"]["annotations"] = json!({ "gpu.tessera.dev/idle-evicted": uid });
        fed.apply_pod(object);
        found.push((pod.key.name.clone(), uid.clone()));
    }
    found
}

fn allocated(intents: &[Intent]) -> Vec<&str> {
    let found = intents.iter().filter_map(|intent| match intent {
        Intent::Allocate { pod, .. } => Some(&*pod.key.name),
        _ => None,
    });
    found.collect()
}

/// The pods that get devices now; these are written.
fn allocated_pods(fed: &mut Fed) -> Vec<String> {
    let intents = fed.acts();
    fed.written(&intents);
    allocated(&intents).into_iter().map(str::to_owned).collect()
}

#[test]
fn an_idle_pod_is_told_and_evicted_for_one_of_lower_priority() {
    let mut fed = giving(1);
    fed.replicas(&["p"]);
    assert_eq!(fed.acts(), [], "nobody waits");
    fed.wants("q", 1);
    let intents = fed.nominates();
    assert_eq!(told_and_evicted(&intents), (vec!["p"], vec![]));
    let Some(Intent::Tell { message, .. }) = intents.first() else { panic!("{intents:?}") };
    assert!(message.contains("It is evicted for team/q, which waits, at 00:26:40 UTC"), "{message}");
    assert_eq!(fed.reason("q"), "Preempting");
    let due = fed.now + GRACE;
    while fed.now < due {
        assert_eq!(told_and_evicted(&fed.acts()), (vec![], vec![]), "once");
        fed.now = fed.decider.wake().unwrap().min(due);
    }
    let intents = fed.acts();
    let Some(Intent::Evict { pod, why }) = intents.first() else { panic!("{intents:?}") };
    assert_eq!((pod.key.name.as_str(), evicted(&intents).len()), ("p", 1));
    assert!(why.contains("now to team/q, and claim p-gpus: below 5% since noon"), "{why}");
}

#[test]
fn only_as_few_as_needed_and_only_idle_ones_go() {
    let mut fed = giving(4);
    fed.replicas(&["p0", "p1", "p2"]);
    fed.apply_pod(replica("busy"));
    held(&mut fed, "busy", 3, "False", "InUse");
    fed.wants("q", 2);
    assert_eq!(fed.evicts().len(), 2);
    let mut fed = giving(2);
    fed.replicas(&["p"]);
    fed.apply_pod(replica("busy"));
    held(&mut fed, "busy", 1, "False", "InUse");
    fed.wants("q", 2);
    assert_eq!(nominated_of(&mut fed), 0, "it would not fit");
}

fn nominated_of(fed: &mut Fed) -> usize {
    let intents = fed.acts();
    nominated(fed, &intents)
}

/// One group of lower priority and an idle one go together.
#[test]
fn idle_pods_go_with_those_of_lower_priority() {
    let mut fed = giving(2);
    fed.replicas(&["p"]);
    let mut low = replica("low");
    with_priority(-1)(&mut low);
    fed.apply_pod(low);
    held(&mut fed, "low", 1, "False", "InUse");
    fed.wants("q", 2);
    assert_eq!(fed.evicts(), ["low", "p"], "both after the grace");
}

#[test]
fn nobody_is_evicted_who_computes_again_or_keeps_its_devices_or_is_no_longer_wanted() {
    for case in ["computes", "keeps", "gone", "native"] {
        let mut fed = giving(1);
        fed.replicas(&["p"]);
        fed.wants("q", 1);
        assert_eq!(told_and_evicted(&fed.nominates()).0, ["p"]);
        let mut kept = replica("p");
        kept["metadata"]["annotations"] = json!({ "gpu.tessera.dev/idle": "keep" });
        match case {
            "computes" => held(&mut fed, "p", 0, "False", "InUse"),
            "keeps" => fed.apply_pod(kept),
            "gone" => fed.ends("q"),
            _ => {
                let pool = json!({ "pool": "main", "allocation": "Managed", "idle": { "action": "Tell" } });
                slices("a", 1, pool).into_iter().for_each(|slice| fed.apply(slice));
            }
        }
        for _ in 0..70 {
            fed.now += Time::from_secs(10);
            let intents = fed.acts();
            assert_eq!(told_and_evicted(&intents), (vec![], vec![]), "{case}");
            nominated(&mut fed, &intents);
        }
        let objects = fed.decider.cluster().objects();
        let is_nominated = |key: &str| {
            objects
                .pods
                .get(&Key::new("team", key))
                .is_some_and(|pod| pod.metadata.annotations.as_ref().is_some_and(|all| !all.is_empty()))
        };
        assert!(!is_nominated("q"), "{case}");
        // Idle again, and wanted: told anew.
        if case == "computes" {
            idle(&mut fed, "p", 0);
            assert_eq!(told_and_evicted(&fed.nominates()).0, ["p"]);
        }
    }
}

#[test]
fn a_pod_that_may_not_keep_its_devices_goes() {
    let mut fed = giving(1);
    let idle = json!({ "action": "Evict", "graceSeconds": 600, "mayKeep": false });
    let pool = json!({ "pool": "main", "allocation": "Managed", "idle": idle });
    slices("a", 1, pool).into_iter().for_each(|slice| fed.apply(slice));
    let mut kept = replica("p");
    kept["metadata"]["annotations"] = json!({ "gpu.tessera.dev/idle": "keep" });
    fed.apply_pod(kept);
    super::idle(&mut fed, "p", 0);
    fed.wants("q", 1);
    assert_eq!(fed.evicts(), ["p"], "Evict includes WhenWanted");
}

#[test]
fn an_idle_gang_goes_as_a_whole_or_stays() {
    for is_busy in [false, true] {
        let mut fed = giving(2);
        for number in 0..2 {
            fed.apply_pod(running(member("g", number, 2)));
            idle(&mut fed, &format!("g-{number}"), number);
        }
        if is_busy {
            held(&mut fed, "g-1", 1, "False", "InUse");
        }
        fed.wants("q", 1);
        if is_busy {
            assert_eq!(nominated_of(&mut fed), 0);
        } else {
            assert_eq!(fed.evicts(), ["g-0", "g-1"]);
        }
    }
}

#[test]
fn the_pod_made_in_its_place_waits_while_others_do() {
    let mut fed = Fed::gives_way();
    let intents = fed.acts();
    assert_eq!(noted(&mut fed, &intents), [("p2".to_owned(), "uid-p".to_owned())]);
    assert_eq!(allocated(&intents), ["q"], "the free card is of the one that waited");
    assert_eq!(fed.reason("p2"), "IdleEvicted");
    fed.written(&intents);
    fed.bound(ungated("q"), "a");
    // Of a higher priority than all others, it asks nobody to go.
    for _ in 0..10 {
        fed.now += Time::from_secs(30);
        assert_eq!(told_and_evicted(&fed.acts()), (vec![], vec![]));
        assert_eq!(fed.reason("p2"), "IdleEvicted");
    }
    // Another waits when the card becomes free: it goes first.
    fed.wants("r", 1);
    fed.acts();
    fed.ends("q");
    assert_eq!(allocated_pods(&mut fed), ["r"]);
    fed.bound(ungated("r"), "a");
    fed.ends("r");
    fed.now += Time::from_secs(10);
    assert_eq!(allocated_pods(&mut fed), ["p2"], "nobody else waits");
}

#[test]
fn its_owner_lets_it_go_on() {
    let mut fed = Fed::gives_way();
    let intents = fed.acts();
    noted(&mut fed, &intents);
    fed.written(&intents);
    fed.bound(ungated("q"), "a");
    let mut resumed = successor("p2");
    resumed["metadata"]["annotations"] =
        json!({ "gpu.tessera.dev/idle-evicted": "uid-p", "gpu.tessera.dev/idle": "resume" });
    fed.apply_pod(resumed);
    fed.now += Time::from_secs(60);
    assert_eq!(nominated_of(&mut fed), 1, "as any other pod it preempts");
}

/// The eviction is known from the nomination, and later from the annotation.
#[test]
fn a_new_leader_holds_the_pod_back_too() {
    let mut fed = giving(1);
    fed.replicas(&["p"]);
    fed.wants("q", 1);
    fed.evicts();
    let objects = fed.decider.cluster().objects();
    let asker = serde_json::to_value(objects.pods[&key("q")].as_ref()).unwrap();
    for is_annotated in [false, true] {
        let mut next = giving(1);
        next.now = fed.now;
        next.versioned("q", "gpu", 1, 5);
        next.versioned("p2", "gpu", 1, 5);
        let mut pod = successor("p2");
        if is_annotated {
            next.apply_pod(ungated("q"));
            pod["metadata"]["annotations"] = json!({ "gpu.tessera.dev/idle-evicted": "uid-p" });
        } else {
            next.apply_pod(asker.clone());
        }
        next.apply_pod(pod);
        let intents = next.acts();
        assert_eq!(noted(&mut next, &intents).len(), usize::from(!is_annotated));
        assert_eq!(next.reason("p2"), "IdleEvicted", "{is_annotated}");
    }
}

/// A nomination that was withdrawn evicted nobody: a pod that its owner made for another reason is as any other.
#[test]
fn nobody_is_held_back_for_a_pod_that_was_not_evicted() {
    let mut fed = giving(1);
    fed.replicas(&["p"]);
    fed.wants("q", 1);
    fed.nominates();
    held(&mut fed, "p", 0, "False", "InUse");
    fed.now += Time::from_secs(10);
    let intents = fed.acts();
    assert!(matches!(intents.first(), Some(Intent::Nominate { nomination: None, .. })), "{intents:?}");
    nominated(&mut fed, &intents);
    fed.ends("p");
    fed.versioned("p2", "gpu", 1, 5);
    fed.apply_pod(successor("p2"));
    let intents = fed.acts();
    assert_eq!(noted(&mut fed, &intents), []);
}

/// An eviction that was refused evicted nobody either; one whose answer was lost did, if the pod goes soon.
#[test]
fn nobody_is_held_back_for_a_pod_whose_eviction_was_refused() {
    for is_lost in [false, true] {
        let mut fed = giving(1);
        fed.replicas(&["p"]);
        fed.wants("q", 1);
        assert_eq!(fed.evicts(), ["p"]);
        let pod = PodReference { key: key("p"), uid: "uid-p".to_owned() };
        fed.decider.observe(fed.now, Observation::Evicted { pod, is_done: false }).unwrap();
        let intents = fed.acts();
        let withdrawn = intents.first();
        assert!(matches!(withdrawn, Some(Intent::Nominate { nomination: None, .. })), "{intents:?}");
        nominated(&mut fed, &intents);
        if !is_lost {
            fed.now += Time::from_secs(31);
            let intents = fed.acts();
            nominated(&mut fed, &intents);
        }
        fed.ends("p");
        fed.versioned("p2", "gpu", 1, 5);
        fed.apply_pod(successor("p2"));
        let intents = fed.acts();
        assert_eq!(noted(&mut fed, &intents).len(), usize::from(is_lost));
    }
}
