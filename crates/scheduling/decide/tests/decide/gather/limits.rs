//! Moves within the limits of teams, in Kueue's queues, and by their loss.

use serde_json::{Value, json};
use tessera_cluster::GpuQuota;

use super::*;

impl Fed {
    /// A team of the namespace `team`, with this limit in cards.
    fn limit(&mut self, cards: u32) {
        let namespace = json!({ "metadata": { "name": "team", "labels": { "team": "team" } } });
        self.apply(read::<k8s_openapi::api::core::v1::Namespace>(namespace).into());
        let quota = json!({ "metadata": { "name": "team" }, "spec": {
            "namespaceSelector": { "matchLabels": { "team": "team" } },
            "amounts": [{ "name": "cards", "unit": "Cards", "limit": cards }], "minRuntimeSeconds": 0 } });
        self.apply(read::<GpuQuota>(quota).into());
        self.decide();
        self.now += Time::from_secs(120);
    }
}

/// Pods moved for such a waiting pod.
fn moved_for(mut fed: Fed, change: impl Fn(&mut Value)) -> Vec<String> {
    fed.versioned("big", "gpu", 2, 5);
    let mut pod = pod("big");
    pod["metadata"]["creationTimestamp"] = time(fed.now.as_secs() - 600);
    change(&mut pod);
    fed.apply_pod(pod);
    fed.moved()
}

#[test]
fn those_who_moved_count_to_their_teams_limit_again() {
    for (limit, moves) in [(4, 1), (3, 0)] {
        let mut fed = usual();
        fed.limit(4);
        fed.waits("big", 600);
        let (intents, plans) = fed.plans();
        assert_eq!(plans.len(), 1);
        nominated(&mut fed, &intents);
        // Without the moving pod the waiting one would have room in three.
        fed.limit(limit);
        assert_eq!(evicted(&fed.decide()).len(), moves, "limit {limit}");
    }
}

#[test]
fn a_team_takes_nothing_of_its_limit_that_a_moved_pod_comes_back_for() {
    for (limit, others) in [(5, &[][..]), (6, &["small"])] {
        let mut fed = scattered_on(&["a", "b", "c"], &moving(json!({})), as_it_is);
        fed.limit(limit);
        fed.waits("big", 600);
        let moved = fed.moved();
        let [moved] = moved.as_slice() else { panic!("{moved:?}") };
        fed.is_gone(moved);
        let allocated: Vec<String> = fed.allocates().into_iter().map(|(pod, ..)| pod).collect();
        assert_eq!(allocated, ["big"]);
        // A card is free, and of five the team has two and three.
        fed.versioned("small", "gpu", 1, 5);
        fed.apply_pod(pod("small"));
        let allocated: Vec<String> = fed.allocates().into_iter().map(|(pod, ..)| pod).collect();
        assert_eq!(allocated, others, "limit {limit}");
        fed.succeeds("next", moved);
        assert_eq!(fed.allocates().len(), 1, "limit {limit}: the successor");
    }
}

#[test]
fn who_moves_is_of_the_same_queue_of_kueue_or_of_none() {
    let queued = |queue: &'static str| {
        move |pod: &mut Value| {
            if !queue.is_empty() {
                pod["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] = json!(queue);
            }
        }
    };
    for (waiting, moving_one, moves) in
        [("nlp", "vision", 0), ("nlp", "nlp", 1), ("nlp", "", 1), ("", "vision", 1), ("", "", 1)]
    {
        let fed = scattered(&moving(json!({})), queued(moving_one));
        let moved = moved_for(fed, queued(waiting));
        assert_eq!(moved.len(), moves, "{moving_one} for {waiting}");
    }
}

/// Two hours of a card are lost.
#[test]
fn nobody_moves_who_loses_more_than_a_tenth_of_what_is_gained() {
    for (deadline, moves) in [(10 * HOUR, 1), (10 * HOUR - 1, 0)] {
        let moved = moved_for(usual(), |pod| pod["spec"]["activeDeadlineSeconds"] = json!(deadline));
        assert_eq!(moved.len(), moves, "{deadline}");
    }
    // Two cards of a day, where nobody knows.
    for (later, moves) in [(2 * HOUR, 1), (3 * HOUR, 0)] {
        let mut fed = usual();
        fed.now += Time::from_secs(later);
        fed.waits("big", 600);
        assert_eq!(fed.moved().len(), moves, "{later} s later");
    }
}
