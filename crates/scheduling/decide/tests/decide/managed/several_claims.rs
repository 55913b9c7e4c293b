//! Pods with more than one claim, whose devices are written one claim after the other.

use super::*;
use tessera_cluster::AllocationExt;
use tessera_decide::PodReference;

const CLAIMS: [&str; 2] = ["p-gpus", "p-more"];

fn two_claims() -> serde_json::Value {
    let mut pod = ungated("p");
    pod["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimTemplateName": "t" },
        { "name": "more", "resourceClaimTemplateName": "t" }]);
    pod["status"]["resourceClaimStatuses"] = json!([{ "name": "gpus", "resourceClaimName": CLAIMS[0] },
        { "name": "more", "resourceClaimName": CLAIMS[1] }]);
    pod
}

impl Fed {
    /// One of the claims, with these devices of node `a`.
    fn one_of_two(&mut self, name: &str, version: u32, devices: &[String]) {
        let bare = claim("p", "gpu", 1);
        let mut claim = if devices.is_empty() { bare } else { allocated(bare, "a", devices) };
        claim["metadata"]["name"] = json!(name);
        claim["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        claim["metadata"]["resourceVersion"] = json!(version.to_string());
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
        self.apply_claim(claim);
    }
}

/// kube-scheduler tries the pod while only the first claim has devices, and deallocates them. `is_seen`: the loop observes the
/// claim allocated in between.
fn given_again(is_seen: bool) {
    let mut fed = leader(&[("a", 2)]);
    CLAIMS.iter().for_each(|name| fed.one_of_two(name, 5, &[]));
    fed.apply_pod(two_claims());
    let intents = fed.decide();
    let [Intent::Allocate { claims, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    let devices: Vec<String> =
        claims.iter().map(|claim| claim.allocation.results()[0].device.clone()).collect();
    if is_seen {
        fed.one_of_two(CLAIMS[0], 7, &devices[..1]);
    }
    fed.one_of_two(CLAIMS[0], 8, &[]);
    fed.one_of_two(CLAIMS[1], 10, &devices[1..]);
    assert_eq!(fed.decide(), [], "it is still being written");
    let reference = PodReference { key: key("p"), uid: "uid-p".to_owned() };
    let versions = vec![(key(CLAIMS[0]), "7".to_owned()), (key(CLAIMS[1]), "10".to_owned())];
    fed.decider.observe(fed.now, Observation::Carried { pod: reference, is_done: true, versions }).unwrap();
    let intents = fed.decide();
    let [Intent::Allocate { claims, node, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!(node, "a", "it did not refuse the node");
    let keys: Vec<_> = claims.iter().map(|claim| claim.claim.key.name.as_str()).collect();
    assert_eq!(keys, CLAIMS[..1]);
}

#[test]
fn what_was_taken_back_before_all_of_it_was_there_is_given_again() {
    given_again(true);
}

#[test]
fn what_was_taken_back_before_it_was_seen_is_given_again() {
    given_again(false);
}
