//! Idle claims, as by the plugin's rules.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::gpu_pool::IdleAction;
use tessera_api::{DeviceName, NodeReport};
use tessera_cluster::AllocationExt;

use crate::fleet::Fleet;

/// Fields of the node report in evicting pools.
const RULES: [&str; 2] = ["\"idle\":", "\"gather\":"];

/// Added to the times of pools, for grace periods of pods and pauses between looks.
const ALLOWANCE: Duration = Duration::from_secs(4 * 3_600);

/// How long after a placement pools may still evict idle or movable pods; `None` without such pools.
pub(super) fn evicts_within(fleet: &Fleet) -> Option<Duration> {
    let reports = fleet.nodes().iter().map(|node| node.report());
    let reports: BTreeSet<&str> =
        reports.filter(|report| RULES.iter().any(|rule| report.contains(rule))).collect();
    let reports = reports.into_iter().filter_map(|report| serde_json::from_str::<NodeReport>(report).ok());
    let times = reports.flat_map(|report| report.cards.into_values()).map(|card| {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let idle = card
            .idle
            .map_or(Duration::ZERO, |idle| seconds(idle.after_seconds) + seconds(idle.grace_seconds));
        let reserve = seconds(card.placement.reserve_after_seconds);
        let gather = card.placement.gather;
        let moves = gather.map_or(Duration::ZERO, |gather| seconds(gather.min_runtime_seconds) + reserve);
        idle.max(moves)
    });
    times.max().map(|time| time + ALLOWANCE)
}

/// Time from a pod's start to idleness at so many percent of use of these devices; `None` for never.
pub(super) fn idle_after(
    fleet: &Fleet,
    node: usize,
    busy: Option<u8>,
    allocations: &[AllocationResult],
) -> Option<Duration> {
    let busy = u32::from(busy?);
    let report = fleet.nodes()[node].report();
    if !report.contains(RULES[0]) {
        return None;
    }
    let report: NodeReport = serde_json::from_str(report).ok()?;
    let results = allocations.iter().flat_map(AllocationExt::results);
    let mut after: Option<Duration> = None;
    for result in results.filter(|result| result.driver == fleet.driver()) {
        let device: DeviceName = result.device.parse().ok()?;
        let idle = report.cards.get(&device.card())?.idle.as_ref()?;
        if idle.action == IdleAction::None || busy >= idle.below_percent {
            return None;
        }
        after = after.max(Some(Duration::from_secs(idle.after_seconds.into())));
    }
    after
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use crate::PolicyName;
    use crate::fleet::{Demands, Fleet, Pools, Run, RunReport, Workload};

    const HOUR: u64 = 3_600;

    /// The list on nodes of such a pool.
    fn run(nodes: &str, pool: &Value, list: &str) -> (Workload, RunReport) {
        let mut pools = Pools::default();
        pools.insert("main", None, pool).unwrap();
        let fleet = Fleet::with_pools(&[nodes.parse().unwrap()], &pools).unwrap();
        let workload = Workload::of_text(list, &fleet);
        let demands = Demands::of(&fleet, &workload);
        let run = Run { fleet: &fleet, workload: &workload, demands: &demands, at: None, wishes: &[] };
        let report = run.run_until(Duration::from_secs(24 * HOUR), PolicyName::Tessera, 1, |_| ());
        (workload, report)
    }

    /// When the pod began for the last time, in seconds, and how often it lost its devices.
    fn fate((workload, report): &(Workload, RunReport), name: &str) -> (Option<u64>, usize) {
        let place = workload.pods.iter().position(|pod| pod.name == name).unwrap();
        let outcome = &report.pods[place];
        (outcome.began.map(|began| began.as_secs()), outcome.lost.len())
    }

    /// Tolerance of a wait's end, in seconds: looks come each minute.
    fn is_soon_after(begun: Option<u64>, seconds: u64) -> bool {
        begun.is_some_and(|begun| (seconds..seconds + 180).contains(&begun))
    }

    #[test]
    fn idle_pods_make_room_and_those_in_their_place_wait() {
        let list = "name,gpu,count,at,busy\nnotebook,1,4,0,4%\njob,4,1,3h,95%\n";
        let pool = |action: &str| json!({ "allocation": "Managed", "idle": { "action": action } });
        let played = run("1xdgx-h100,cards=4", &pool("WhenWanted"), list);
        let (began, _) = fate(&played, "job-0");
        assert!(is_soon_after(began, 3 * HOUR + 600), "{began:?}");
        for number in 0..4 {
            assert_eq!(fate(&played, &format!("notebook-{number}")), (None, 1));
        }
        assert_eq!(fate(&run("1xdgx-h100,cards=4", &pool("Tell"), list), "job-0"), (None, 0));
        let busy = list.replace("4%", "5%");
        assert_eq!(fate(&run("1xdgx-h100,cards=4", &pool("WhenWanted"), &busy), "job-0"), (None, 0));
    }

    #[test]
    fn pods_move_for_one_that_waited() {
        let list = "name,gpu,at,duration,movable\na,1,0,,yes\nshort,1,1s,1h,\nb,1,2s,,yes\njob,2,2h,,\n";
        let pool =
            |mode: &str| json!({ "allocation": "Managed", "placement": { "gather": { "mode": mode } } });
        let played = run("2xdgx-h100,cards=2", &pool("Move"), list);
        let (began, _) = fate(&played, "job-0");
        assert!(is_soon_after(began, 2 * HOUR + 600), "{began:?}");
        let [(one, evicted), (other, stays)] = ["a-0", "b-0"].map(|pod| fate(&played, pod));
        assert_eq!(evicted + stays, 1);
        assert!(one.is_some() && other.is_some());
        assert_eq!(fate(&run("2xdgx-h100,cards=2", &pool("None"), list), "job-0"), (None, 0));
        let fixed = list.replace("yes", "no");
        assert_eq!(fate(&run("2xdgx-h100,cards=2", &pool("Move"), &fixed), "job-0"), (None, 0));
    }
}
