//! The cluster that all tests share, one after the other, and nodes with published cards, all in one pool.

use std::fmt::Debug;
use std::ops::Deref;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ResourceQuota};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, CustomResourceExt as _, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::gpu_pool::GpuPool;
use tessera_api::gpu_quota::GpuQuota;
use tessera_api::{managed, node_report};
use tessera_fakes::poll;
use tessera_harness::{Cluster, ClusterOptions};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub const DRIVER: &str = "gpu.tessera.dev";
const NAMESPACE: &str = "default";

/// The cluster, for one test at a time: nodes, cards and who leads concern all of it.
pub struct Turn {
    cluster: &'static Cluster,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Turn {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

/// One for all tests, with PodGroups and DeviceTaintRules, which kube-scheduler knows as well.
async fn shared() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        let mut options = ClusterOptions::scheduler_tier(0);
        options.extra = options.kubernetes.with_all_kinds();
        options.helm = true;
        Cluster::start(options).await.unwrap()
    };
    CLUSTER.get_or_init(start).await
}

/// The cluster without anything of an earlier test, with the kind GpuPool, the class `gpu` and templates of claims for
/// so many cards: `gpus-4`.
pub async fn cluster(counts: &[usize]) -> Turn {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = Turn { _turn: TURN.lock().await, cluster: shared().await };
    let crds = [GpuPool::crd(), GpuQuota::crd()].map(|crd| serde_json::to_value(crd).unwrap());
    apply(&turn, &crds).await;
    let kinds = ["crd/gpupools.gpu.tessera.dev", "crd/gpuquotas.gpu.tessera.dev"];
    let kinds = ["wait", "--for=condition=Established", kinds[0], kinds[1], "--timeout=60s"];
    // kubectl fails at once where a kind has no conditions yet.
    poll::until_async("the kinds are served", async || turn.kubectl(&kinds).await.is_ok()).await;
    // Whatever the test before left, also where it failed.
    let client = turn.client().await.unwrap();
    delete_all(Api::<MutatingWebhookConfiguration>::all(client.clone())).await;
    delete_all(Api::<ValidatingWebhookConfiguration>::all(client.clone())).await;
    delete_all(Api::<MutatingAdmissionPolicyBinding>::all(client.clone())).await;
    delete_all(Api::<ResourceQuota>::namespaced(client.clone(), NAMESPACE)).await;
    turn.kubectl(&["label", "namespace", NAMESPACE, "gpu.tessera.dev/claims-"]).await.unwrap();
    delete_workloads(&turn).await;
    turn.kubectl(&["delete", "devicetaintrules", "--all"]).await.unwrap();
    delete_all(Api::<ResourceClaimTemplate>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<Lease>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<Event>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<Node>::all(client.clone())).await;
    delete_all(Api::<ResourceSlice>::all(client.clone())).await;
    delete_all(Api::<DeviceClass>::all(client.clone())).await;
    delete_all(Api::<GpuPool>::all(client.clone())).await;
    delete_all(Api::<GpuQuota>::all(client)).await;
    let whole = format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'");
    let mut manifests = vec![json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": whole } }] },
    })];
    manifests.extend(counts.iter().map(|count| template(*count)));
    apply(&turn, &manifests).await;
    turn
}

/// [`cluster`] with nodes `n00`, `n01`, … with so many cards each, in a steered pool.
pub async fn start(nodes: usize, cards: usize) -> Turn {
    start_with(nodes, cards, "Steered").await
}

/// As [`start`], with another allocation of the pool.
pub async fn start_with(nodes: usize, cards: usize, allocation: &str) -> Turn {
    let cluster = cluster(&[1, cards / 2, cards]).await;
    for number in 0..nodes {
        cluster.add_node_object(&node_name(number)).await.unwrap();
    }
    publish(&cluster, nodes, cards, allocation).await;
    cluster
}

/// Publishes the cards of these nodes, also with another allocation than before.
pub async fn publish(cluster: &Cluster, nodes: usize, cards: usize, allocation: &str) {
    let slices: Vec<Value> =
        (0..nodes).flat_map(|number| slices(&node_name(number), cards, allocation)).collect();
    apply(cluster, &slices).await;
}

/// The node's report says this of all of its cards, as its plugin would.
pub async fn report(cluster: &Cluster, node: usize, field: &str, value: &Value) {
    let slices: Api<ResourceSlice> = Api::all(cluster.client().await.unwrap());
    let slice = format!("{}-0-counters", node_name(node));
    let found = slices.get(&slice).await.unwrap();
    let mut report: Value = serde_json::from_str(&found.annotations()[node_report::ANNOTATION]).unwrap();
    for card in report["cards"].as_object_mut().unwrap().values_mut() {
        card[field] = value.clone();
    }
    let annotations = json!({ node_report::ANNOTATION: report.to_string() });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    slices.patch(&slice, &PatchParams::default(), &patch).await.unwrap();
}

/// Name of a node.
pub fn node_name(number: usize) -> String {
    format!("n{number:02}")
}

/// Deletes what makes pods, then pods and their claims, and waits until they are gone.
pub async fn delete_workloads(cluster: &Cluster) {
    let client = cluster.client().await.unwrap();
    delete_all(Api::<Deployment>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<StatefulSet>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<ReplicaSet>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<Job>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<Pod>::namespaced(client.clone(), NAMESPACE)).await;
    delete_all(Api::<ResourceClaim>::namespaced(client, NAMESPACE)).await;
}

async fn delete_all<K>(api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    poll::until_async(&format!("no {} is left", K::plural(&())), async || {
        // Again and again: a controller may just have made another.
        // No kubelet ends a pod.
        let at_once = DeleteParams::background().grace_period(0);
        api.delete_collection(&at_once, &ListParams::default()).await.unwrap();
        api.list_metadata(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
}

pub async fn apply(cluster: &Cluster, manifests: &[Value]) {
    let text: Vec<String> = manifests.iter().map(Value::to_string).collect();
    cluster.apply(&text.join("\n---\n")).await.unwrap();
}

fn template(count: usize) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": format!("gpus-{count}"), "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "gpus", "exactly": { "deviceClassName": "gpu", "count": count } }] } } },
    })
}

fn slices(node: &str, cards: usize, allocation: &str) -> [Value; 2] {
    let taints = match allocation {
        "Managed" => json!([{ "key": managed::TAINT_KEY, "effect": "NoSchedule" }]),
        _ => json!([]),
    };
    let card = |number: usize| format!("gpu-{:02x}-00", number + 1);
    let slice = |suffix: &str, annotations: Value, contents: Value| {
        let mut spec = json!({
            "driver": DRIVER,
            "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 },
        });
        spec.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": format!("{node}-{suffix}"), "annotations": annotations },
            "spec": spec,
        })
    };
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let set =
        |number: usize| json!({ "name": format!("{}-counter-set", card(number)), "counters": counters });
    let device = |number: usize| {
        json!({
            "name": card(number),
            "taints": taints,
            "attributes": { "type": { "string": "gpu" }, "gpuPool": { "string": "main" } },
            "capacity": { "memory": { "value": "80Gi" } },
            "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
        })
    };
    let in_pool = json!({ "pool": "main", "allocation": allocation });
    let reported: serde_json::Map<String, Value> =
        (0..cards).map(|number| (format!("0000:{:02x}:00.0", number + 1), in_pool.clone())).collect();
    let report = json!({ "cards": reported, "otherPairs": "SYS" }).to_string();
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report }),
            json!({ "sharedCounters": (0..cards).map(set).collect::<Vec<_>>() }),
        ),
        slice("1-cards", json!({}), json!({ "devices": (0..cards).map(device).collect::<Vec<_>>() })),
    ]
}
