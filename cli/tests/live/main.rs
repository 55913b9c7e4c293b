//! Against a real control plane: `allocate` foretells what kube-scheduler then does, `explain` says why a pod waits and
//! why a claim got its device.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};
use tessera_harness::{PodState, shared};

const LIMIT: Duration = Duration::from_secs(180);

async fn run(kubeconfig: &Path, arguments: &[&str]) -> (i32, String, Value) {
    let output: Output = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let said = format!("{text}{}", String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), said, value)
}

fn slice(node: &str) -> Value {
    let device =
        |name: &str, memory: u32| json!({ "name": name, "attributes": { "memoryMiB": { "int": memory } } });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": "cli-live" },
        "spec": {
            "driver": "cli.tessera.dev",
            "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [device("small", 16000), device("large-1", 80000), device("large-2", 80000)],
        },
    })
}

fn claim(name: &str, count: u32) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": {
            "deviceClassName": "cli-live",
            "count": count,
            "selectors": [{ "cel": {
                "expression": "device.attributes[\"cli.tessera.dev\"].memoryMiB >= 40000",
            } }],
        } }] } },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimName": name }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn foretells_and_explains_what_the_scheduler_does() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("cli-live").await.unwrap();
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "cli-live" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"cli.tessera.dev\"" } }] },
    });
    let documents = |all: &[Value]| all.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    cluster.apply(&documents(&[slice("cli-live"), class])).await.unwrap();
    let kubeconfig = cluster.kubeconfig();

    // Before anything is created: claim and pod from a file, the rest from the cluster.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.yaml");
    std::fs::write(&file, documents(&[claim("first", 1), pod("first")])).unwrap();
    let arguments = ["allocate", "pod/first", "-o", "json", "-f", file.to_str().unwrap()];
    let (code, said, foretold) = run(&kubeconfig, &arguments).await;
    assert_eq!(code, 0, "{said}");
    let nodes = foretold[0]["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["node"] == "cli-live").unwrap();
    let foretold = &node["claims"][0]["allocation"];
    assert_eq!(foretold["devices"]["results"][0]["device"], "large-1", "{said}");

    cluster.apply(&std::fs::read_to_string(&file).unwrap()).await.unwrap();
    cluster.wait_for_pod("default", "first", PodState::Scheduled, LIMIT).await.unwrap();
    let claims: kube::Api<ResourceClaim> = kube::Api::default_namespaced(cluster.client().await.unwrap());
    let real = claims.get("first").await.unwrap().status.unwrap().allocation.unwrap();
    let mut real = serde_json::to_value(real).unwrap();
    // The scheduler adds the time, which no dry run can know.
    real.as_object_mut().unwrap().remove("allocationTimestamp");
    assert_eq!(*foretold, real, "kube-scheduler did something else");

    let (code, said, _) = run(&kubeconfig, &["explain", "claim/first"]).await;
    assert_eq!(code, 0, "{said}");
    for part in ["has its devices", "for pod/first", "large-1", "memoryMiB >= 40000", "the same devices"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }

    // The cards of that node are no cards of Tessera's: they have other names.
    let (code, said, _) = run(&kubeconfig, &["topology", "cli-live"]).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("no cards are published for node cli-live"), "{said}");

    // One card is left, two are asked for.
    cluster.apply(&documents(&[claim("second", 2), pod("second")])).await.unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::default_namespaced(cluster.client().await.unwrap());
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let conditions = pods.get("second").await.unwrap().status.unwrap().conditions.unwrap_or_default();
        if conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable")) {
            break;
        }
        assert!(std::time::Instant::now() < end, "kube-scheduler never said that it does not fit");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (code, said, _) = run(&kubeconfig, &["allocate", "pod/second"]).await;
    assert_eq!(code, 1, "{said}");
    let (code, said, _) = run(&kubeconfig, &["explain", "pod/second"]).await;
    assert_eq!(code, 1, "{said}");
    for part in [
        "wants 2 of class cli-live: 1 of 3 devices free",
        "in use by default/first",
        "claim default/first (pod first) ends: cli-live",
        "asks for 1 instead of 2",
        "kube-scheduler says: ",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    println!("{said}");

    let expression =
        "device.driver == 'cli.tessera.dev' && device.attributes['cli.tessera.dev'].memoryMiB > 20000";
    let (code, said, _) = run(&kubeconfig, &["cel", expression]).await;
    assert_eq!(code, 0, "{said}");
    // Other tests have devices too.
    assert!(said.contains("\n2 of "), "{said}");
}

/// The API server takes opaque parameters of 10 KiB, however deep they are nested.
#[tokio::test(flavor = "multi_thread")]
async fn one_claim_s_deep_parameters_keep_nobody_from_seeing_the_others() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let depth = 4_000;
    let deep: String = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let mut hostile = claim("hostile", 1);
    hostile["spec"]["devices"]["config"] =
        json!([{ "opaque": { "driver": "cli.tessera.dev", "parameters": { "deep": "HERE" } } }]);
    let text = hostile.to_string().replace("\"HERE\"", &deep);
    let client = cluster.client().await.unwrap();
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request_text(request.body(text.into_bytes()).unwrap()).await.unwrap();
    cluster.apply(&claim("deep-neighbour", 1).to_string()).await.unwrap();
    let (_, said, _) = run(&cluster.kubeconfig(), &["explain", "claim/deep-neighbour"]).await;
    for part in ["deep-neighbour", "nested too deeply"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    cluster.kubectl(&["delete", "resourceclaim", "hostile", "deep-neighbour"]).await.unwrap();
}

/// A pod that asks for `cli.example.com/card: 2` as it asks for CPU: what is foretold is the claim that kube-scheduler
/// makes.
#[tokio::test(flavor = "multi_thread")]
async fn foretells_the_claim_of_an_extended_resource() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("cli-extended").await.unwrap();
    let devices: Vec<Value> = (1..=3).map(|index| json!({ "name": format!("card-{index}") })).collect();
    let documents = [
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": "cli-extended" },
            "spec": {
                "driver": "extended.tessera.dev",
                "nodeName": "cli-extended",
                "pool": { "name": "cli-extended", "generation": 1, "resourceSliceCount": 1 },
                "devices": devices,
            },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": { "name": "cli-extended" },
            "spec": {
                "extendedResourceName": "cli.example.com/card",
                "selectors": [{ "cel": { "expression": "device.driver == \"extended.tessera.dev\"" } }],
            },
        }),
    ];
    let text = documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    cluster.apply(&text).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let pod = |name: &str, count: u32| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "containers": [
                { "name": "a", "image": "none", "resources": { "limits": { "cli.example.com/card": count.to_string() } } },
            ] },
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.json");
    std::fs::write(&file, pod("extended", 2).to_string()).unwrap();
    let arguments = ["allocate", "pod/extended", "-o", "json", "-f", file.to_str().unwrap()];
    let (code, said, foretold) = run(&kubeconfig, &arguments).await;
    assert_eq!(code, 0, "{said}");
    let nodes = foretold[0]["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["node"] == "cli-extended").unwrap();
    let foretold = node["claims"][0]["allocation"].clone();

    cluster.apply(&std::fs::read_to_string(&file).unwrap()).await.unwrap();
    cluster.wait_for_pod("default", "extended", PodState::Scheduled, LIMIT).await.unwrap();
    let client = cluster.client().await.unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client.clone());
    let status = pods.get("extended").await.unwrap().status.unwrap();
    let made =
        status.extended_resource_claim_status.expect("kube-scheduler made a claim").resource_claim_name;
    let claims: kube::Api<ResourceClaim> = kube::Api::default_namespaced(client);
    let real = claims.get(&made).await.unwrap().status.unwrap().allocation.unwrap();
    let mut real = serde_json::to_value(real).unwrap();
    real.as_object_mut().unwrap().remove("allocationTimestamp");
    assert_eq!(foretold, real, "kube-scheduler did something else");

    let (code, said, _) = run(&kubeconfig, &["explain", "pod/extended"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("has its devices") && said.contains("card-1") && said.contains("card-2"), "{said}");

    // One is left. A name nobody provides is told.
    std::fs::write(&file, pod("extended-more", 2).to_string()).unwrap();
    let (code, said, _) =
        run(&kubeconfig, &["explain", "pod/extended-more", "-f", file.to_str().unwrap()]).await;
    assert_eq!(code, 1, "{said}");
    for part in ["wants 2 of class cli-extended: 1 of 3 devices free", "(pod extended) ends: cli-extended"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    let unknown =
        pod("extended-unknown", 1).to_string().replace("cli.example.com/card", "cli.example.com/cord");
    std::fs::write(&file, unknown).unwrap();
    let (code, said, _) =
        run(&kubeconfig, &["explain", "pod/extended-unknown", "-f", file.to_str().unwrap()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("did you mean cli.example.com/card?"), "{said}");
}

/// Someone who may read little is told what is missing, and gets what can be answered.
#[tokio::test(flavor = "multi_thread")]
async fn says_which_right_is_missing() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("cli-rights").await.unwrap();
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": "cli-rights" },
        "spec": {
            "driver": "rights.tessera.dev",
            "nodeName": "cli-rights",
            "pool": { "name": "cli-rights", "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "only" }],
        },
    });
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "cli-rights" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"rights.tessera.dev\"" } }] },
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "cli-rights" } });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": "mine", "namespace": "cli-rights" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": "cli-rights" } }] } },
    });
    let role = |kind: &str, resources: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": "cli-rights", "namespace": if kind == "Role" { Some("cli-rights") } else { None } },
            "rules": [{ "apiGroups": ["", "resource.k8s.io"], "resources": resources, "verbs": ["list"] }],
        })
    };
    let binding = |kind: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"),
            "metadata": { "name": "cli-rights", "namespace": if kind == "Role" { Some("cli-rights") } else { None } },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "cli-rights" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader" }],
        })
    };
    let documents = |all: &[Value]| all.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    cluster.apply(&documents(&[namespace, slice, class, claim])).await.unwrap();
    // The administrator's file, acting for somebody else.
    let folder = tempfile::tempdir().unwrap();
    let reader = folder.path().join("reader.kubeconfig");
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    config["users"][0]["user"]["as"] = "reader".into();
    std::fs::write(&reader, config.to_string()).unwrap();

    let explain = ["explain", "claim/mine", "-n", "cli-rights"];
    let (code, said, _) = run(&reader, &explain).await;
    assert_eq!(code, 2, "{said}");
    for part in
        ["you may not list resourceslices.resource.k8s.io", "ClusterRole", "User \"reader\" cannot list"]
    {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }

    let of_cluster = ["resourceslices", "deviceclasses"];
    let of_namespace = ["resourceclaims", "pods"];
    let roles = [role("ClusterRole", &of_cluster), role("Role", &of_namespace)];
    cluster
        .apply(&documents(&[&roles[..], &[binding("ClusterRole"), binding("Role")]].concat()))
        .await
        .unwrap();
    // The API server's authorizer reads its own cache.
    let end = std::time::Instant::now() + LIMIT;
    let said = loop {
        let (code, said, _) = run(&reader, &explain).await;
        if code == 0 && !said.contains("or of namespace cli-rights: devices") {
            break said;
        }
        assert!(std::time::Instant::now() < end, "{said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for part in [
        "claim/mine: fits now",
        "cli-rights: only for card",
        "you may not list nodes of the whole cluster: the nodes are those that slices name",
        "devices that claims outside namespace cli-rights hold count as free",
        "resourceclaimtemplates.resource.k8s.io, of the whole cluster or of namespace cli-rights",
        "only pods of namespace cli-rights are known",
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    // Of a selector alone, slices are all that is needed.
    let (code, said, _) = run(&reader, &["cel", "device.driver == 'rights.tessera.dev'"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("warning"), "{said}");
}

fn gated_pod(name: &str, namespace: &str, gates: &[&str]) -> Value {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({ "name": gate })).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "schedulingGates": gates, "containers": [{ "name": "c", "image": "none" }] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn lifts_the_gate_and_leaves_those_of_others() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let (namespace, ours, other) = ("cli-ungate", tessera_api::steering::GATE, "example.com/quota");
    cluster.create_namespace(namespace).await.unwrap();
    let documents = [
        gated_pod("one", namespace, &[ours]),
        gated_pod("two", namespace, &[other, ours]),
        gated_pod("three", namespace, &[ours]),
        gated_pod("free", namespace, &[other]),
    ];
    cluster.apply(&documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(cluster.client().await.unwrap(), namespace);
    let gates = async |name: &str| -> Vec<String> {
        let spec = pods.get(name).await.unwrap().spec.unwrap();
        spec.scheduling_gates.into_iter().flatten().map(|gate| gate.name).collect()
    };

    // A dry run changes nothing.
    let all = ["ungate", "--all", "-n", namespace];
    let (code, said, _) = run(&kubeconfig, &[&all[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    for pod in ["one", "two", "three"] {
        assert!(said.contains(&format!("pod cli-ungate/{pod}: gate would be lifted")), "{said}");
    }
    assert!(!said.contains("free"), "{said}");
    assert_eq!(gates("one").await, [ours]);

    // By name: what has none, or is not there, is said of that pod alone.
    let (code, said, _) = run(&kubeconfig, &["ungate", "one", "pod/free", "-n", namespace]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("pod cli-ungate/one: gate lifted\n"), "{said}");
    assert!(said.contains(&format!("pod cli-ungate/free: has no gate {ours}")), "{said}");
    assert!(gates("one").await.is_empty());
    let (code, said, _) = run(&kubeconfig, &["ungate", "missing", "two", "-n", namespace]).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("pod cli-ungate/two: gate lifted; it still waits for example.com/quota"), "{said}");
    assert!(said.contains("error: pod cli-ungate/missing: "), "{said}");
    assert_eq!(gates("two").await, [other]);

    // All that is left; then nothing is.
    let (code, said, _) = run(&kubeconfig, &all).await;
    assert_eq!((code, said.as_str()), (0, "pod cli-ungate/three: gate lifted\n"));
    assert!(gates("three").await.is_empty());
    assert_eq!(gates("free").await, [other]);
    let (code, said, _) = run(&kubeconfig, &all).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no pod of namespace cli-ungate has the gate"), "{said}");
}

/// A gated pod is told who lifts the gate: nobody here, until somebody holds the Lease, who then says why it waits.
#[tokio::test(flavor = "multi_thread")]
async fn explains_who_lifts_the_gate() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let namespace = "cli-gated";
    cluster.create_namespace(namespace).await.unwrap();
    let gated = gated_pod("gated", namespace, &[tessera_api::steering::GATE]);
    cluster.apply(&gated.to_string()).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let explain = ["explain", "pod/gated", "-n", namespace];
    let (_, said, _) = run(&kubeconfig, &explain).await;
    assert!(said.contains("no controller leads") && said.contains("`kubectl gpu ungate`"), "{said}");

    let client = cluster.client().await.unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(client, namespace);
    let uid = pods.get("gated").await.unwrap().metadata.uid.unwrap();
    let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "tessera-controller", "namespace": namespace },
        "spec": { "holderIdentity": "controller-0", "leaseDurationSeconds": 15, "renewTime": now },
    });
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": "gated.1", "namespace": namespace },
        "regarding": { "apiVersion": "v1", "kind": "Pod", "name": "gated", "namespace": namespace, "uid": uid },
        "eventTime": now,
        "action": "Steering",
        "reason": "NotSteered",
        "note": "0 of 3 nodes have two cards",
        "type": "Warning",
        "reportingController": "gpu.tessera.dev/controller",
        "reportingInstance": "controller-0",
    });
    cluster.apply(&format!("{lease}\n---\n{event}")).await.unwrap();
    let (_, said, _) = run(&kubeconfig, &explain).await;
    for part in ["the controller runs: controller-0 leads", "NotSteered: 0 of 3 nodes have two cards"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn says_what_is_known_of_pools() {
    use kube::CustomResourceExt as _;
    use tessera_api::gpu_pool::{GpuPool, GpuPoolSpec};

    let cluster = shared::scheduler_tier().await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let (code, said, _) = run(&kubeconfig, &["pools"]).await;
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("the CustomResourceDefinition gpupools.gpu.tessera.dev is not installed"),
        "{said}"
    );

    cluster.apply(&serde_json::to_string(&GpuPool::crd()).unwrap()).await.unwrap();
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/gpupools.gpu.tessera.dev"]).await.unwrap();
    let pools: kube::Api<GpuPool> = kube::Api::all(cluster.client().await.unwrap());
    let pool = GpuPool::new("cli-pool", GpuPoolSpec { priority: 7, ..GpuPoolSpec::default() });
    let made = pools.create(&kube::api::PostParams::default(), &pool).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["pools"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cli-pool") && said.contains("no controller has written a status"), "{said}");

    let status = json!({ "status": {
        "observedGeneration": made.metadata.generation,
        "nodes": 1, "cards": 4, "offered": 4, "allocated": "1.50", "unallocatable": "0.00",
        "conditions": [{ "type": "Ready", "status": "True", "reason": "AsWanted",
            "message": "decides on 4 cards of 1 nodes", "lastTransitionTime": "2026-11-20T10:00:00Z" }],
    } });
    let parameters = kube::api::PatchParams::default();
    pools.patch_status("cli-pool", &parameters, &kube::api::Patch::Merge(&status)).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["pools", "cli-pool"]).await;
    assert_eq!(code, 0, "{said}");
    for part in ["cli-pool: AsWanted", "priority 7", "claims hold 1.50", "no node reports cards of it"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    let changed = json!({ "spec": { "priority": 8 } });
    pools.patch("cli-pool", &parameters, &kube::api::Patch::Merge(&changed)).await.unwrap();
    let (code, said, listed) = run(&kubeconfig, &["pools", "-o", "json"]).await;
    assert_eq!(code, 1, "{said}");
    assert_eq!(listed[0]["known"], json!({ "status": "old", "observed": 1, "generation": 2 }), "{said}");
}

/// The slices of one node are asked for alone; claims of all namespaces say who holds what.
#[tokio::test(flavor = "multi_thread")]
async fn shows_the_cards_of_a_node() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let slice = |node: &str, report: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": node,
                "annotations": { tessera_api::node_report::ANNOTATION: report.to_string() },
            },
            "spec": {
                "driver": "cards.tessera.dev",
                "nodeName": node,
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
                "devices": [{ "name": "gpu-07-00" }, { "name": "gpu-0f-00" }],
            },
        })
    };
    let report = json!({
        "cards": { "0000:07:00.0": {}, "0000:0f:00.0": { "pool": "training" } },
        "links": [["0000:07:00.0", "0000:0f:00.0", 12]],
        "otherPairs": "SYS",
    });
    let slices = [slice("cli-cards-1", report), slice("cli-cards-2", json!({}))];
    cluster.apply(&slices.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let (code, said, one) = run(&kubeconfig, &["topology", "cli-cards-1", "-o", "json"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        one["links"],
        json!([{ "cards": ["0000:07:00.0", "0000:0f:00.0"], "nvlinks": 12, "pcie": "SYS" }])
    );
    assert_eq!(one["cards"][1]["pool"], "training", "{said}");
    let (code, said, _) = run(&kubeconfig, &["topology"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cli-cards-1") && said.contains("cli-cards-2"), "{said}");
}
