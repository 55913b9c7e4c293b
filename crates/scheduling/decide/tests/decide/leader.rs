//! A leader over managed nodes, fed by hand.

use serde_json::json;
use tessera_cluster::AllocationExt;
use tessera_decide::{Intent, Observation, Time};

use crate::objects::*;

/// A leader over these nodes of a managed pool, with all cards handed over.
pub fn leader(nodes: &[(&str, usize)]) -> Fed {
    let mut fed = Fed::with_nodes(&[]);
    for (name, cards) in nodes {
        fed.apply(node(name));
        slices(name, *cards, managed()).into_iter().for_each(|slice| fed.apply(slice));
    }
    fed.now = Time::from_secs(1_000);
    fed.decider.lead(fed.now, "one");
    if !nodes.is_empty() {
        assert_eq!(fed.decide(), [Intent::ListClaims]);
        fed.listed();
    }
    fed
}

impl Fed {
    pub fn listed(&mut self) {
        self.decider.observe(self.now, Observation::ClaimsListed { asked_at: self.now }).unwrap();
    }

    /// A claim as stored by the API server.
    pub fn versioned(&mut self, pod: &str, class: &str, count: usize, version: u32) {
        let mut claim = claim(pod, class, count);
        claim["metadata"]["resourceVersion"] = json!(version.to_string());
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
        self.apply_claim(claim);
    }

    /// Current allocations: pod, node, devices.
    pub fn allocates(&mut self) -> Vec<(String, String, Vec<String>)> {
        let intents = self.decide();
        let allocate = |intent: &Intent| match intent {
            Intent::Allocate { pod, node, claims, .. } => {
                let results = claims.iter().flat_map(|claim| claim.allocation.results());
                let devices = results.map(|result| result.device.clone()).collect();
                Some((pod.key.name.clone(), node.clone(), devices))
            }
            _ => None,
        };
        intents.iter().filter_map(allocate).collect()
    }
}

/// The outstanding write names a resourceVersion replaced by the fence.
#[test]
fn what_the_next_leader_fenced_off_counts_as_taken_no_more() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    let intents = fed.decide();
    let [Intent::Allocate { pod, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    fed.decider.follow();
    let carried = Observation::Carried { pod: pod.clone(), is_done: false, versions: Vec::new() };
    fed.decider.observe(fed.now, carried).unwrap();
    let is_held = |fed: &Fed| {
        let cluster = fed.decider.cluster();
        cluster.inventory().devices_of_node("a").any(|device| cluster.held().holds_whole(device))
    };
    assert!(is_held(&fed));
    // First unwritten since, then written by somebody.
    for (version, is_still_held) in [("5", true), ("6", false)] {
        let mut claim = claim("p", "gpu", 1);
        claim["metadata"]["resourceVersion"] = json!(version);
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "two" });
        fed.apply_claim(claim);
        assert_eq!(is_held(&fed), is_still_held, "version {version}");
    }
}

/// A pod without the gate, like pods without opt-in.
pub fn ungated(name: &str) -> serde_json::Value {
    let mut pod = pod(name);
    pod["spec"]["schedulingGates"] = json!([]);
    pod
}
