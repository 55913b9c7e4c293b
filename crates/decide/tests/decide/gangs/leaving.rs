//! Pods that are ending: what they hold counts as free soon only where that is true.

use serde_json::json;

use crate::gangs::preemption::{running, urgent, victims, with_priority};
use crate::gangs::queue::at;
use crate::leader::leader;
use crate::objects::*;

/// The end of a pod's grace is its deletionTimestamp: long ago for one that is stuck.
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
