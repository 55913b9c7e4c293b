//! Kueue in front of managed pools: settings with which jobs are never admitted or evicted while they wait, and namespaces whose jobs are
//! ordered twice, by Kueue and by the team of a GpuQuota.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;
use tessera_api::gpu_pool::{Allocation, GpuPool};
use tessera_api::gpu_quota::GpuQuota;
use tessera_cluster::Key;

use super::{Facts, Finding, warning};

/// A namespace with LocalQueues of Kueue, selected by a GpuQuota.
#[derive(Debug, PartialEq, Eq)]
pub struct QueuedTwice {
    /// The namespace.
    pub namespace: String,
    /// Names of the LocalQueues.
    pub queues: BTreeSet<String>,
    /// Name of the first GpuQuota selecting the namespace.
    pub quota: String,
}

/// Gates with which Kueue 0.19 and newer looks for free devices itself.
const LOOKING_GATES: [&str; 2] = ["KueueDRADeviceFeasibility", "KueueDRAIntegrationDeviceTaints"];

/// What of Kueue's Configuration and arguments concerns managed pools.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KueueSettings {
    /// Those of [`LOOKING_GATES`] that are on.
    gates: Vec<&'static str>,
    /// Timeout of `waitForPodsReady`, if that is on.
    pods_ready_within: Option<SignedDuration>,
}

impl KueueSettings {
    /// Reads the Configuration and the program's arguments; `None` if it is no YAML.
    pub fn read(configuration: &str, arguments: &[String]) -> Option<Self> {
        let configuration: Value = serde_saphyr::from_str(configuration).ok()?;
        let of_arguments = arguments.iter().filter_map(|argument| argument.strip_prefix("--feature-gates="));
        let of_arguments: Vec<&str> = of_arguments.flat_map(|gates| gates.split(',')).collect();
        let is_on = |gate: &&str| {
            configuration["featureGates"][gate] == true || of_arguments.contains(&&*format!("{gate}=true"))
        };
        let wait = &configuration["waitForPodsReady"];
        // Its v1beta1 has a switch, and five minutes by default.
        let is_waiting = wait.is_object()
            && (wait["enable"] == true || configuration["apiVersion"] != "config.kueue.x-k8s.io/v1beta1");
        let timeout = wait["timeout"].as_str().unwrap_or("5m").parse().ok().filter(|_| is_waiting);
        let gates = LOOKING_GATES.into_iter().filter(is_on).collect();
        Some(KueueSettings { gates, pods_ready_within: timeout })
    }

    fn findings(&self, pools: &BTreeMap<Key, GpuPool>) -> Vec<Finding> {
        let mut managed =
            pools.iter().filter(|(_, pool)| pool.spec.allocation == Allocation::Managed).peekable();
        let mut found = Vec::new();
        if managed.peek().is_some() && !self.gates.is_empty() {
            found.push(warning(
                "Kueue",
                format!(
                    "admits no job for managed cards: with {} their taint makes them unusable",
                    self.gates.join(", ")
                ),
                "turn these feature gates of Kueue off: the controller looks for free cards (docs/kueue.md)",
            ));
        }
        let soon = |pool: &GpuPool| {
            let reserve_after = i64::from(pool.spec.placement.reserve_after_seconds);
            let within = self.pods_ready_within.filter(|within| within.as_secs() < reserve_after)?;
            Some((within, reserve_after))
        };
        for (name, (within, reserve_after)) in
            managed.filter_map(|(key, pool)| Some((&key.name, soon(pool)?)))
        {
            found.push(warning(
                format!("GpuPool {name}"),
                format!(
                    "Kueue evicts jobs whose pods are not ready after {within:#} (waitForPodsReady), and nodes are kept for a gang \
                     after {reserve_after} s"
                ),
                "let waitForPodsReady.timeout be longer than the pool's placement.reserveAfterSeconds (docs/kueue.md)",
            ));
        }
        found
    }
}

impl QueuedTwice {
    /// The namespaces of these queues that a quota selects.
    pub fn of(
        queues: &[DynamicObject],
        namespaces: &[Namespace],
        quotas: &BTreeMap<Key, GpuQuota>,
    ) -> Vec<Self> {
        let mut found = Vec::new();
        for namespace in namespaces {
            let name = namespace.name_any();
            let of_namespace =
                queues.iter().filter(|queue| queue.metadata.namespace.as_deref() == Some(&*name));
            let queues: BTreeSet<String> = of_namespace.map(DynamicObject::name_any).collect();
            let labels = namespace.labels();
            let quota = quotas.iter().find(|(_, quota)| quota.spec.selects_namespace(labels));
            if let Some((quota, _)) = quota.filter(|_| !queues.is_empty()) {
                found.push(QueuedTwice { namespace: name, queues, quota: quota.name.clone() });
            }
        }
        found
    }
}

/// Such namespaces, and settings.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let all = facts.live.into_iter().flat_map(|live| &live.queued_twice);
    let finding = |QueuedTwice { namespace, queues, quota }: &QueuedTwice| {
        let queues = queues.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        warning(
            format!("namespace {namespace}"),
            format!("two queues order its jobs: Kueue's ({queues}), and the one of GpuQuota {quota}"),
            "let one of them order: a job that Kueue admits may still wait for its team's turn or limit; with Kueue, give the \
             GpuQuota limits alone (docs/gpu-quotas.md)",
        )
    };
    let settings = facts.live.and_then(|live| live.kueue.as_ref()).zip(facts.pools);
    let of_settings = settings.into_iter().flat_map(|(settings, pools)| settings.findings(pools));
    all.map(finding).chain(of_settings).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tessera_api::gpu_pool::GpuPoolSpec;

    use super::*;

    fn pools(allocation: Allocation) -> BTreeMap<Key, GpuPool> {
        let spec = GpuPoolSpec { allocation, ..GpuPoolSpec::default() };
        [(Key::cluster("main"), GpuPool::new("main", spec))].into()
    }

    #[test]
    fn settings_are_told_of_managed_pools_alone() {
        let on = [
            "--config=c".to_owned(),
            "--feature-gates=A=true,KueueDRAIntegrationDeviceTaints=true".to_owned(),
        ];
        let off = ["--feature-gates=KueueDRADeviceFeasibility=false".to_owned()];
        for (configuration, arguments, gates, waits) in [
            ("featureGates: {KueueDRADeviceFeasibility: true}", &[][..], true, false),
            ("featureGates: {KueueDRADeviceFeasibility: false}", &off, false, false),
            ("{}", &on, true, false),
            ("waitForPodsReady: {timeout: 9m59s}", &[], false, true),
            ("waitForPodsReady: {timeout: 10m}", &[], false, false),
            ("waitForPodsReady: {timeout: 1h30m0s}", &[], false, false),
            ("apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady: {enable: true}", &[], false, true),
            ("apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady: {timeout: 1m}", &[], false, false),
        ] {
            let settings = KueueSettings::read(configuration, arguments).unwrap();
            let found = settings.findings(&pools(Allocation::Managed));
            let about: Vec<&str> = found.iter().map(|finding| &*finding.about).collect();
            let expected = [("Kueue", gates), ("GpuPool main", waits)];
            let expected: Vec<&str> =
                expected.into_iter().filter_map(|(about, is)| is.then_some(about)).collect();
            assert_eq!(about, expected, "{configuration}");
            assert!(settings.findings(&pools(Allocation::Native)).is_empty(), "{configuration}");
        }
    }

    #[test]
    fn only_namespaces_with_both_are_told() {
        let namespace = |name: &str, team: &str| -> Namespace {
            let metadata = json!({ "name": name, "labels": { "team": team } });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let queue = |namespace: &str| -> DynamicObject {
            let metadata = json!({ "name": "train", "namespace": namespace });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let quota = json!({ "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuQuota", "metadata": { "name": "vision" },
            "spec": { "namespaceSelector": { "matchLabels": { "team": "vision" } } } });
        let quotas = [(Key::cluster("vision"), serde_json::from_value(quota).unwrap())].into();
        let namespaces = [namespace("v1", "vision"), namespace("v2", "vision"), namespace("n1", "nlp")];
        let found = QueuedTwice::of(&[queue("v1"), queue("n1")], &namespaces, &quotas);
        let both = QueuedTwice {
            namespace: "v1".to_owned(),
            queues: ["train".to_owned()].into(),
            quota: "vision".to_owned(),
        };
        assert_eq!(found, [both]);
    }
}
