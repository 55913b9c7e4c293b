//! The gate of steering: who lifts it, and `ungate`.

use serde_json::{Value, json};
use tessera_harness::shared;

use crate::run;

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
    assert!(said.contains("no pod in namespace cli-ungate has the gate"), "{said}");
}

/// Only a pod that the controller made wait is resumed.
#[tokio::test(flavor = "multi_thread")]
async fn resumes_pods_made_in_place_of_idle_ones() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let namespace = "cli-resume";
    cluster.create_namespace(namespace).await.unwrap();
    let mut held = gated_pod("held", namespace, &[tessera_api::steering::GATE]);
    held["metadata"]["annotations"] =
        json!({ "gpu.tessera.dev/idle-evicted": "uid", "gpu.tessera.dev/idle": "keep" });
    let other = gated_pod("other", namespace, &[tessera_api::steering::GATE]);
    cluster.apply(&format!("{held}\n---\n{other}")).await.unwrap();
    let resume = ["resume", "pod/held", "other", "none", "-n", namespace];
    let (code, said, _) = run(&cluster.kubeconfig(), &resume).await;
    let there_is_none = "it does not exist, or was not made in place of an idle pod\n";
    let expected = format!(
        "pod cli-resume/held: resumed\npod cli-resume/other: {there_is_none}pod cli-resume/none: {there_is_none}"
    );
    assert_eq!((code, said), (1, expected));
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(cluster.client().await.unwrap(), namespace);
    let annotation = async |name: &str| {
        let all = pods.get(name).await.unwrap().metadata.annotations.unwrap_or_default();
        all.get("gpu.tessera.dev/idle").cloned()
    };
    assert_eq!((annotation("held").await.as_deref(), annotation("other").await), (Some("resume"), None));
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
    // The Lease has the name of the installation: that of another is found by the controller's pod that holds it.
    cluster.kubectl(&["delete", "lease", "tessera-controller", "-n", namespace]).await.unwrap();
    let lease = |name: &str, holder: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now },
        })
    };
    let labels = json!({ "app.kubernetes.io/name": "tessera", "app.kubernetes.io/component": "controller" });
    let mut pod = gated_pod("gpus-controller-0", namespace, &["example.com/none"]);
    pod["metadata"]["labels"] = labels;
    cluster.apply(&format!("{}\n---\n{pod}", lease("other", "somebody"))).await.unwrap();
    let (_, said, _) = run(&kubeconfig, &explain).await;
    assert!(said.contains("no controller leads"), "{said}");
    cluster.apply(&lease("gpus-controller", "gpus-controller-0").to_string()).await.unwrap();
    let (_, said, _) = run(&kubeconfig, &explain).await;
    assert!(said.contains("the controller runs: gpus-controller-0 leads"), "{said}");
    let (code, said, _) = run(&kubeconfig, &["top", "--once"]).await;
    assert!(
        code == 2 && said.contains("the leader, pod gpus-controller-0, has no port named fleet"),
        "{said}"
    );
}
