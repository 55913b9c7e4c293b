//! A rolling update of a LeaderWorkerSet in a cluster with exactly as many cards as its groups use.

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_cluster::workloads::LeaderWorkerSet;
use tessera_decide::{Intent, Time};

use crate::gangs::queue::at;
use crate::gangs::steps;
use crate::leader::leader;
use crate::objects::*;

/// A pod of a group of two, with this revision of the template.
fn of_group(group: u32, worker: u32, revision: &str) -> Value {
    let leader = format!("serve-{group}");
    let name = if worker == 0 { leader } else { format!("{leader}-{worker}") };
    let mut pod = pod(&name);
    pod["metadata"]["labels"] = json!({
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": group.to_string(),
        "leaderworkerset.sigs.k8s.io/worker-index": worker.to_string(),
        "leaderworkerset.sigs.k8s.io/template-revision-hash": revision,
    });
    pod["metadata"]["annotations"] = json!({ "leaderworkerset.sigs.k8s.io/size": "2" });
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "serve",
        "uid": "set", "controller": true }]);
    pod["metadata"]["creationTimestamp"] = at(1_000);
    pod
}

fn asks(fed: &mut Fed, pod: Value) {
    fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", 1, 5);
    fed.apply_pod(pod);
}

/// A group of the first revision runs on the only two cards.
fn one_group_runs() -> Fed {
    let mut fed = leader(&[("a", 2)]);
    let set = json!({ "metadata": { "name": "serve", "namespace": "team", "uid": "lws",
        "labels": { "gpu.tessera.dev/gang": "enabled" } } });
    fed.apply(read::<LeaderWorkerSet>(set).into());
    (0..2).for_each(|worker| asks(&mut fed, of_group(0, worker, "one")));
    for _ in 0..2 {
        let intents = fed.decide();
        fed.written(&intents);
    }
    (0..2).for_each(|worker| fed.bound(of_group(0, worker, "one"), "a"));
    assert_eq!(fed.decide(), []);
    fed
}

fn gone(fed: &mut Fed, name: &str) {
    fed.delete(Kind::Pod, name);
    fed.delete(Kind::ResourceClaim, &format!("{name}-gpus"));
}

fn told(intents: &[Intent]) -> Vec<&str> {
    let told = intents.iter().filter_map(|intent| match intent {
        Intent::Tell { message, .. } => Some(message.as_str()),
        _ => None,
    });
    told.collect()
}

/// `maxSurge: 0`: the leader is replaced first. The old worker ends once garbage collection finds its leader gone.
#[test]
fn the_new_group_waits_for_its_own_worker_and_runs_when_the_old_one_is_gone() {
    let mut fed = one_group_runs();
    gone(&mut fed, "serve-0");
    asks(&mut fed, of_group(0, 0, "two"));
    assert_eq!(steps(&fed.decide()).0, [""; 0], "a worker of the revision before is not its partner");
    fed.now = Time::from_secs(1_060);
    let intents = fed.decide();
    assert!(matches!(told(&intents).as_slice(), [why] if why.contains("1 of 2 pods exist")), "{intents:?}");
    gone(&mut fed, "serve-0-1");
    asks(&mut fed, of_group(0, 1, "two"));
    let intents = fed.decide();
    assert_eq!(steps(&intents).0, ["serve-0", "serve-0-1"]);
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()).1, ["serve-0", "serve-0-1"]);
}

/// `maxSurge: 1`: an extra group is created first, and the old group stays until the new one is ready.
#[test]
fn a_group_more_than_there_are_cards_for_is_told_so_at_once() {
    let mut fed = one_group_runs();
    (0..2).for_each(|worker| asks(&mut fed, of_group(1, worker, "two")));
    let intents = fed.decide();
    let told = told(&intents);
    assert!(
        matches!(told.as_slice(), [why] if why.contains("gang serve-1: 0 of 2 pods that it needs fit now")),
        "{intents:?}"
    );
    // No pod is evicted for the extra group.
    assert_eq!(intents.len(), 1, "{intents:?}");
    // The group runs once there is another card for each of its pods, or the old group goes.
    gone(&mut fed, "serve-0");
    gone(&mut fed, "serve-0-1");
    assert_eq!(steps(&fed.decide()).0, ["serve-1", "serve-1-1"]);
}
