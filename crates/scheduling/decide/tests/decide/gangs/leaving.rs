//! Terminating pods: their devices count as free soon only if the pods really end soon.

use serde_json::json;

use crate::gangs::preemption::{running, urgent, victims, with_priority};
use crate::gangs::queue::at;
use crate::leader::leader;
use crate::objects::*;

/// A pod's grace period ends at its deletionTimestamp, which is long past for a stuck pod.
#[test]
fn who_ends_much_later_or_never_shields_nobody_from_preemption() {
    for (ends, expected) in [(1_030, &[][..]), (1_000_000, &["stays"]), (800, &["stays"])] {
        let mut fed = leader(&[("a", 1), ("b", 1)]);
        let node = running(&mut fed, "ends", 1, with_priority(0));
        running(&mut fed, "stays", 1, with_priority(0));
        let mut ending = pod("ends");
        ending["metadata"]["deletionTimestamp"] = at(ends);
        ending["spec"]["schedulingGates"] = json!([]);
        ending["spec"]["nodeName"] = json!(node);
        fed.apply_pod(ending);
        urgent(&mut fed, 1);
        assert_eq!(victims(&mut fed), expected, "ends at {ends}");
    }
}
