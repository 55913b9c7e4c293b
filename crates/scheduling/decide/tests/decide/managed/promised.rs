//! Devices being written: how long they count as taken, and for whom.

use serde_json::json;
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::leader::leader;
use crate::objects::*;

fn carried(fed: &mut Fed, pod: &str, is_done: bool) {
    let reference = PodReference { key: key(pod), uid: format!("uid-{pod}") };
    let versions = if is_done { vec![(key(&format!("{pod}-gpus")), "9".to_owned())] } else { Vec::new() };
    fed.decider.observe(fed.now, Observation::Carried { pod: reference, is_done, versions }).unwrap();
}

fn ask(fed: &mut Fed, name: &str) {
    fed.versioned(name, "gpu", 1, 5);
    fed.apply_pod(pod(name));
}

fn epochs(intents: &[Intent]) -> Vec<&str> {
    let epochs = intents.iter().filter_map(|intent| match intent {
        Intent::Fence { epoch, .. } => Some(epoch.as_str()),
        _ => None,
    });
    epochs.collect()
}

/// The watch may deliver only the later claim.
#[test]
fn devices_for_a_claim_that_was_made_anew_are_free() {
    let mut fed = leader(&[("a", 1)]);
    ask(&mut fed, "p");
    assert_eq!(fed.allocates().len(), 1);
    let mut anew = claim("p", "gpu", 1);
    anew["metadata"]["uid"] = json!("another");
    anew["metadata"]["resourceVersion"] = json!("5");
    fed.apply_claim(anew);
    ask(&mut fed, "other");
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn the_answer_for_one_pod_says_nothing_of_another() {
    let mut fed = leader(&[("a", 2)]);
    ask(&mut fed, "p");
    ask(&mut fed, "q");
    assert_eq!(fed.allocates().len(), 2);
    carried(&mut fed, "p", true);
    assert_eq!(epochs(&fed.decide()), [""; 0], "the other is still being written");
    carried(&mut fed, "q", false);
    assert_eq!(epochs(&fed.decide()), ["one#1"]);
}

/// Each attempt writes a different text: a no-op write would keep the resourceVersion, and the first write could still arrive.
#[test]
fn a_settling_write_that_failed_is_made_anew_after_a_pause_with_another_text() {
    let mut fed = leader(&[("a", 1)]);
    ask(&mut fed, "p");
    fed.allocates();
    carried(&mut fed, "p", false);
    assert_eq!(epochs(&fed.decide()), ["one#1"]);
    assert_eq!(epochs(&fed.decide()), [""; 0], "it is under way");
    let failed = Observation::ClaimsWritten { claims: vec![key("p-gpus")], is_done: false };
    fed.decider.observe(fed.now, failed).unwrap();
    assert_eq!(epochs(&fed.decide()), [""; 0], "not at once");
    ask(&mut fed, "other");
    assert_eq!(fed.allocates(), [], "it may have arrived");
    assert_eq!(fed.decider.wake(), Some(fed.now + Time::from_secs(1)), "the pause of its pod");
    fed.now += Time::from_secs(2);
    assert_eq!(epochs(&fed.decide()), ["one#2"]);
}

/// The devices arrived after all.
#[test]
fn what_is_seen_with_devices_is_not_settled() {
    let mut fed = leader(&[("a", 1)]);
    ask(&mut fed, "p");
    fed.allocates();
    carried(&mut fed, "p", false);
    let mut got = allocated(claim("p", "gpu", 1), "a", &[card(0)]);
    got["metadata"]["resourceVersion"] = json!("9");
    got["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    fed.apply_claim(got);
    assert_eq!(epochs(&fed.decide()), [""; 0]);
}
