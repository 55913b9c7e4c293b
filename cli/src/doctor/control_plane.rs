//! Feature gates of the API server, the controller, policies and clocks.

use tessera_api::gpu_pool::Allocation;

use super::{Facts, Finding, error, warning};
use crate::api_server::Controller;

/// A feature gate of kube-apiserver needed by the driver. Docs: docs/installing.md.
struct Gate {
    name: &'static str,
    /// The missing function without the gate.
    without: &'static str,
}

const GATES: [Gate; 6] = [
    gate("DynamicResourceAllocation", "ResourceClaims and ResourceSlices do not exist"),
    gate("DRAPartitionableDevices", "no MIG partitions are offered"),
    gate("DRAConsumableCapacity", "no shares of cards are offered"),
    gate("DRADeviceTaints", "cards of managed pools are not offered, and sick cards are not tainted"),
    gate("DRAAdminAccess", "claims with admin access do not work"),
    gate("DRAExtendedResource", "pods that ask for nvidia.com/gpu get no devices of DeviceClasses"),
];

const fn gate(name: &'static str, without: &'static str) -> Gate {
    Gate { name, without }
}

/// Allowed difference of clocks, in seconds.
const CLOCKS: i64 = 30;

/// Problems of the control plane.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(live) = facts.live else { return Vec::new() };
    let mut found = Vec::new();
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
            "the policy for plugins has no binding: a plugin's token may publish devices for other nodes",
            "set admissionPolicy.enabled in the chart",
        ));
    }
    if let Some(clock) = live.clock.filter(|clock| clock.abs() > CLOCKS) {
        found.push(warning(
            "clock",
            format!("the API server's clock differs from this machine's by {} s", clock.abs()),
            "times printed by kubectl gpu are wrong by this difference; set one of the clocks",
        ));
    }
    found
}

/// A controller without leadership, if there is work for one.
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
            format!("no controller runs, but there are Steered or Managed GpuPools: {wait}"),
            "kubectl scale deployment -l app.kubernetes.io/component=controller --replicas=2 in the chart's namespace, or install the chart with controller.enabled; kubectl gpu ungate lets gated pods go",
        )),
        Controller::Absent => Some(error(
            "controller",
            format!("no controller leads: {wait}"),
            "see the log of its pods: kubectl logs -l app.kubernetes.io/component=controller",
        )),
        Controller::Silent { holder, seconds } => Some(error(
            "controller",
            format!("{holder} leads but has not renewed its Lease for {seconds} s: {wait}"),
            "see its pod; another replica takes over once this one is gone",
        )),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use tessera_cluster::{Key, Objects};

    use super::*;
    use crate::doctor::Live;
    use crate::doctor::published::Published;

    fn told(live: &Live) -> Vec<String> {
        let mut objects = Objects::default();
        for component in ["controller", "kubelet-plugin"] {
            let pod = serde_json::json!({ "metadata": { "name": component, "labels": {
                "app.kubernetes.io/name": "tessera", "app.kubernetes.io/component": component } } });
            let pod = serde_json::from_value(pod).unwrap();
            objects.pods.insert(Key::new("tessera-system", component), std::sync::Arc::new(pod));
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
    fn each_trouble_of_the_control_plane_is_told() {
        let well = || Live {
            gates: Some([("DRADeviceTaints".to_owned(), true)].into()),
            controller: Some(Controller::Leading { holder: "a".to_owned() }),
            policies: Some(vec!["tessera-kubelet-plugin".to_owned()]),
            clock: Some(3),
            ..Live::default()
        };
        assert_eq!(told(&well()), [""; 0]);
        assert_eq!(told(&Live::default()), [""; 0], "what may not be read is not wrong");
        for (live, says) in [
            (
                Live { gates: Some([("DRADeviceTaints".to_owned(), false)].into()), ..well() },
                "DRADeviceTaints is off: cards of managed pools are not offered, and sick cards are not tainted; start",
            ),
            (Live { controller: Some(Controller::Absent), ..well() }, "no controller leads"),
            (
                Live {
                    controller: Some(Controller::Silent { holder: "a".to_owned(), seconds: 300 }),
                    ..well()
                },
                "300 s",
            ),
            (
                Live { policies: Some(vec!["tessera-configuration".to_owned()]), ..well() },
                "the policy for plugins has no binding",
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
            let key = Key::cluster("main");
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
        assert!(told.len() == 1 && told[0].starts_with("no controller runs"), "{told:?}");
        assert_eq!(of_allocation("Native"), [""; 0], "an earlier installation's Lease is no trouble");
    }
}
