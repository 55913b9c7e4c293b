//! The API server, its feature gates, the controller, policies and clocks.

use std::collections::BTreeMap;

use tessera_api::gpu_pool::Allocation;

use super::{Facts, Finding, error, warning};
use crate::api_server::Controller;

/// A feature gate of kube-apiserver that the driver uses. Docs: docs/installing.md.
struct Gate {
    name: &'static str,
    /// What is missing without it.
    without: &'static str,
}

const GATES: [Gate; 6] = [
    gate("DynamicResourceAllocation", "there are no ResourceClaims and no ResourceSlices"),
    gate("DRAPartitionableDevices", "no MIG partition is offered"),
    gate("DRAConsumableCapacity", "no shares of cards are offered"),
    gate("DRADeviceTaints", "cards of managed pools are not offered, and sick cards are not tainted"),
    gate("DRAAdminAccess", "no claim can look at devices that others hold"),
    gate("DRAExtendedResource", "pods that ask for nvidia.com/gpu get no devices of DeviceClasses"),
];

const fn gate(name: &'static str, without: &'static str) -> Gate {
    Gate { name, without }
}

/// The oldest version that Tessera is tried on, and the first with everything.
const OLDEST: (u32, u32) = (1, 35);
const FULL: (u32, u32) = (1, 36);

/// A fault of kube-scheduler with devices that take counters, as ours do.
struct Fault {
    what: &'static str,
    /// Gates without which it does not show.
    gates: &'static [&'static str],
    /// The first version without it of each minor version that had it; `None` where there is none.
    mended: &'static [(u32, Option<u32>)],
}

/// Faults of kube-scheduler, from the release notes of Kubernetes 1.35.6, 1.36.2 and 1.36.3.
const FAULTS: [Fault; 3] = [
    Fault {
        what: "gives a whole card, or partitions of it, to one pod while others hold shares of it (kubernetes/kubernetes#139034)",
        gates: &["DRAPartitionableDevices", "DRAConsumableCapacity"],
        mended: &[(35, None), (36, Some(2))],
    },
    Fault {
        what: "ends at a claim with allocationMode: All, and schedules nothing any more (kubernetes/kubernetes#138882)",
        gates: &["DRAPartitionableDevices"],
        mended: &[(35, Some(6)), (36, Some(2))],
    },
    Fault {
        what: "lets pods wait for partitions and shares that are free (kubernetes/kubernetes#140663)",
        gates: &["DRAPartitionableDevices"],
        mended: &[(36, Some(3))],
    },
];

/// Seconds by which clocks may differ.
const CLOCKS: i64 = 30;

/// What is wrong with the control plane.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(live) = facts.live else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(version) = live.version.as_deref() {
        match parsed(version) {
            Some(known) if known < OLDEST => found.push(error(
                "API server",
                format!("it is {version}: the driver needs Kubernetes 1.35"),
                "upgrade the control plane",
            )),
            Some(known) if known < FULL => found.push(warning(
                "API server",
                format!("it is {version}: steering and managed pools need Kubernetes 1.36"),
                "upgrade the control plane, or leave pools Native",
            )),
            _ => {}
        }
        found.extend(faults(version, live.gates.as_ref()));
    }
    for Gate { name, without } in GATES {
        if live.gates.as_ref().and_then(|gates| gates.get(name)) == Some(&false) {
            let todo = format!(
                "start kube-apiserver, kube-scheduler, kube-controller-manager and kubelets with --feature-gates={name}=true"
            );
            found.push(warning("API server", format!("the feature gate {name} is off: {without}"), todo));
        }
    }
    found.extend(controller(facts, live.controller.as_ref()));
    if let Some(policies) = &live.policies
        && facts.pods_of("kubelet-plugin").next().is_some()
        && !policies.iter().any(|policy| policy.ends_with("kubelet-plugin"))
    {
        found.push(warning(
            "admission policy",
            "the one for plugins has no binding: a plugin's token may publish devices for other nodes",
            "set admissionPolicy.enabled in the chart",
        ));
    }
    if let Some(clock) = live.clock.filter(|clock| clock.abs() > CLOCKS) {
        found.push(warning(
            "clock",
            format!("the API server's differs from this machine's by {} s", clock.abs()),
            "times that kubectl gpu prints are off by that; set one of the clocks",
        ));
    }
    found
}

/// A controller that does not lead, where it has something to do.
fn controller(facts: &Facts<'_>, controller: Option<&Controller>) -> Option<Finding> {
    let has_pods = facts.pods_of("controller").next().is_some();
    let mut pools = facts.pools.into_iter().flatten();
    let has_work = pools.any(|(_, pool)| pool.spec.allocation != Allocation::Native)
        || facts.published.pools().any(|(_, pool)| !pool.managed.is_empty());
    let wait = "gated pods and pods for managed cards wait";
    match controller? {
        Controller::Leading { .. } => None,
        _ if !has_pods && !has_work => None,
        // Of an earlier installation a Lease is left.
        _ if !has_pods && facts.live.is_some_and(|live| live.plugins.is_some()) => Some(error(
            "controller",
            format!("no pod of one runs, and GpuPools are Steered or Managed: {wait}"),
            "kubectl scale deployment -l app.kubernetes.io/component=controller --replicas=2 in the chart's namespace, or install the chart with controller.enabled; kubectl gpu ungate lets gated pods go",
        )),
        Controller::Absent => Some(error(
            "controller",
            format!("none leads: {wait}"),
            "look at the log of its pods: kubectl logs -l app.kubernetes.io/component=controller",
        )),
        Controller::Silent { holder, seconds } => Some(error(
            "controller",
            format!("{holder} leads and has not renewed its Lease for {seconds} s: {wait}"),
            "look at its pod; another takes over when this one is gone",
        )),
    }
}

/// What kube-scheduler of this version does wrong. It is taken to be of the API server's version.
fn faults(version: &str, gates: Option<&BTreeMap<String, bool>>) -> Option<Finding> {
    let (_, minor) = parsed(version)?;
    let patch = version.split('.').nth(2)?;
    let end = patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len());
    let patch: u32 = patch[..end].parse().ok()?;
    // They are on by default since 1.36.
    let is_on = |gate: &&str| gates.and_then(|gates| gates.get(*gate)).copied().unwrap_or(minor >= FULL.1);
    let has = |fault: &&Fault| {
        let mended = fault.mended.iter().find(|(of, _)| *of == minor);
        mended.is_some_and(|(_, mended)| mended.is_none_or(|mended| patch < mended))
            && fault.gates.iter().all(is_on)
    };
    let what: Vec<&str> = FAULTS.iter().filter(has).map(|fault| fault.what).collect();
    let remedy = match minor {
        35 => {
            "upgrade to Kubernetes 1.36.3 or later; until then offer shares in a GpuPool of their own, without whole cards and partitions"
        }
        _ => "upgrade to Kubernetes 1.36.3 or later",
    };
    (!what.is_empty())
        .then(|| error("kube-scheduler", format!("that of {version} {}", what.join("; it ")), remedy))
}

/// `v1.36.3` as (1, 36).
pub(super) fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use tessera_cluster::Objects;

    use super::*;
    use crate::doctor::Live;
    use crate::doctor::published::Published;

    fn told(live: &Live) -> Vec<String> {
        let mut objects = Objects::default();
        for component in ["controller", "kubelet-plugin"] {
            let pod = serde_json::json!({ "metadata": { "name": component, "labels": {
                "app.kubernetes.io/name": "tessera", "app.kubernetes.io/component": component } } });
            let pod = serde_json::from_value(pod).unwrap();
            objects.pods.insert(("tessera-system".to_owned(), component.to_owned()), Box::new(pod));
        }
        let facts = Facts {
            objects: &objects,
            published: &Published::default(),
            pools: None,
            live: Some(live),
            driver: "gpu.tessera.dev",
            node: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let told = |finding: Finding| format!("{}: {}; {}", finding.about, finding.what, finding.todo);
        findings(&facts).into_iter().map(told).collect()
    }

    #[test]
    fn faults_of_kube_scheduler_show_with_the_gates_that_they_need() {
        let with = |version: &str, on: bool| {
            let gates = FAULTS[0].gates.iter().map(|gate| ((*gate).to_owned(), on)).collect();
            faults(version, Some(&gates)).map(|finding| finding.what)
        };
        assert!(
            with("v1.35.5", true).unwrap().contains("shares of it (kubernetes/kubernetes#139034); it ends")
        );
        assert!(!with("v1.35.6", true).unwrap().contains("138882"));
        assert_eq!(
            [with("v1.35.5", false), with("v1.36.0", false), with("v1.36.3", true)],
            [None, None, None]
        );
        assert!(
            faults("v1.35.5", None).is_none()
                && faults("v1.36.0", None).is_some()
                && faults("1.36", None).is_none()
        );
    }

    #[test]
    fn each_trouble_of_the_control_plane_is_told() {
        let well = || Live {
            version: Some("v1.36.3".to_owned()),
            gates: Some([("DRADeviceTaints".to_owned(), true)].into()),
            controller: Some(Controller::Leading { holder: "a".to_owned() }),
            policies: Some(vec!["tessera-kubelet-plugin".to_owned()]),
            clock: Some(3),
            ..Live::default()
        };
        assert_eq!(told(&well()), [""; 0]);
        assert_eq!(told(&Live::default()), [""; 0], "what may not be read is not wrong");
        for (live, says) in [
            (Live { version: Some("v1.34.7+k3s1".to_owned()), ..well() }, "needs Kubernetes 1.35"),
            (Live { version: Some("v1.35.0".to_owned()), ..well() }, "need Kubernetes 1.36"),
            (
                Live { gates: Some([("DRADeviceTaints".to_owned(), false)].into()), ..well() },
                "DRADeviceTaints is off: cards of managed pools are not offered, and sick cards are not tainted; start",
            ),
            (Live { version: Some("v1.36.1-gke.1200".to_owned()), ..well() }, "hold shares of it"),
            (Live { version: Some("v1.36.2".to_owned()), ..well() }, "that of v1.36.2 lets pods wait"),
            (Live { controller: Some(Controller::Absent), ..well() }, "none leads"),
            (
                Live {
                    controller: Some(Controller::Silent { holder: "a".to_owned(), seconds: 300 }),
                    ..well()
                },
                "300 s",
            ),
            (
                Live { policies: Some(vec!["tessera-configuration".to_owned()]), ..well() },
                "the one for plugins has no binding",
            ),
            (Live { clock: Some(-90), ..well() }, "by 90 s"),
        ] {
            let told = told(&live);
            assert!(told.len() == 1 && told[0].contains(says), "{says}: {told:?}");
        }
    }

    #[test]
    fn a_controller_at_no_replicas_is_told_where_a_pool_needs_one() {
        let of_allocation = |allocation: &str| {
            let pool = serde_json::json!({ "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool",
                "metadata": { "name": "main" }, "spec": { "allocation": allocation } });
            let key = (String::new(), "main".to_owned());
            let pools = [(key, serde_json::from_value(pool).unwrap())].into();
            let holder = "gone".to_owned();
            let live = Live {
                controller: Some(Controller::Silent { holder, seconds: 900 }),
                plugins: Some(1),
                ..Live::default()
            };
            let facts = Facts {
                objects: &Objects::default(),
                published: &Published::default(),
                pools: Some(&pools),
                live: Some(&live),
                driver: "gpu.tessera.dev",
                node: None,
                now: Timestamp::UNIX_EPOCH,
            };
            findings(&facts).into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        let told = of_allocation("Managed");
        assert!(told.len() == 1 && told[0].starts_with("no pod of one runs"), "{told:?}");
        assert_eq!(of_allocation("Native"), [""; 0], "an earlier installation's Lease is no trouble");
    }
}
