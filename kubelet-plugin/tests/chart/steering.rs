//! Pods gated by the installed policy, and their release by an uninstallation.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tessera_api::steering::{GATE, OPT_IN_LABEL, OPT_IN_VALUE};
use tokio::time::Instant;

use crate::support::{LONG, cluster, connect, template};

const NAMESPACE: &str = "steering";
/// Without managed allocation: another test has a release with managed allocation.
const RELEASE: [&str; 4] = [
    "--namespace",
    NAMESPACE,
    "--set",
    "driverName=steering.example.com,crds.install=false,managed.enabled=false",
];
const OPTED_IN: &str = "steering-opted-in";
const OTHER: &str = "steering-other";

fn pod(change: Value) -> Pod {
    let mut pod =
        json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    merge(&mut pod, change);
    serde_json::from_value(pod).expect("a pod")
}

fn merge(known: &mut Value, change: Value) {
    match change {
        Value::Object(change) => change.into_iter().for_each(|(key, value)| merge(&mut known[key], value)),
        change => *known = change,
    }
}

/// A pod with a claim of a template.
fn claiming(change: Value) -> Pod {
    let mut with_claim =
        json!({"spec": {"resourceClaims": [{"name": "card", "resourceClaimTemplateName": "t"}]}});
    merge(&mut with_claim, change);
    pod(with_claim)
}

fn with_limit(kind: &str, name: &str) -> Pod {
    let container = json!({"name": "x", "image": "i", "resources": {"limits": {name: "1"}}});
    let mut pod = pod(json!({}));
    let container = serde_json::from_value(container).expect("a container");
    let spec = pod.spec.as_mut().expect("a spec");
    match kind {
        "init" => spec.init_containers = Some(vec![container]),
        _ => spec.containers.push(container),
    }
    pod
}

/// The gates added to the pod by the API server, without storing the pod.
async fn gates(client: &Client, namespace: &str, pod: &Pod) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    gates_of(&pods.create(&dry_run, pod).await.expect("accepted"))
}

fn gates_of(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.map(|gate| gate.name.clone()).collect()
}

/// A policy that changes every pod in the opted-in namespace, so earlier policies are invoked again.
async fn another_policy(name: &str) {
    let policies = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["pods"]}]},
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    format!("Object{{metadata: Object.metadata{{annotations: {{{name:?}: \"seen\"}}}}}}")}}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "matchResources": {"namespaceSelector":
                {"matchLabels": {"kubernetes.io/metadata.name": OPTED_IN}}}}}]});
    let arguments = ["create", "--filename=-"];
    cluster().await.kubectl_with_input(&arguments, &policies.to_string()).await.expect("created");
}

#[tokio::test]
async fn pods_that_ask_for_devices_wait_where_somebody_opted_in_and_only_there() {
    let cluster = cluster().await;
    let chart = crate::support::chart();
    let install = [vec!["install", "tessera", &chart, "--create-namespace"], RELEASE.to_vec()].concat();
    cluster.helm(&install).await.expect("installed");
    for namespace in [OPTED_IN, OTHER] {
        cluster.kubectl(&["create", "namespace", namespace]).await.expect("created");
    }
    let label = format!("{OPT_IN_LABEL}={OPT_IN_VALUE}");
    cluster.kubectl(&["label", "namespace", OPTED_IN, &label]).await.expect("labelled");
    another_policy("a-policy").await;
    another_policy("z-policy").await;
    let client = cluster.client().await.expect("a client");

    // New namespaces get their service account, and new policies work, after a moment.
    let labelled = claiming(json!({"metadata": {"labels": {OPT_IN_LABEL: OPT_IN_VALUE}}}));
    let begin = Instant::now();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (namespace, pod, annotations) in [(OPTED_IN, claiming(json!({})), 2), (OTHER, labelled.clone(), 0)] {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        loop {
            let created = pods.create(&dry_run, &pod).await;
            let is_ready = created.as_ref().is_ok_and(|pod| {
                gates_of(pod) == [GATE]
                    && pod.metadata.annotations.as_ref().map_or(0, |all| all.len()) == annotations
            });
            if is_ready {
                break;
            }
            assert!(begin.elapsed() < LONG, "the policy never works: {created:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    let is_gated = async |namespace: &str, pod: &Pod| match gates(&client, namespace, pod).await.as_slice() {
        [] => false,
        [gate] if gate == GATE => true,
        gates => panic!("{gates:?}"),
    };
    for (what, pod) in [
        ("a claim", claiming(json!({}))),
        ("a claim, by both labels", labelled),
        ("an extended resource", with_limit("main", "nvidia.com/gpu")),
        ("of an init container", with_limit("init", "nvidia.com/mig-1g.10gb")),
        ("of a class", with_limit("main", "deviceclass.resource.kubernetes.io/gpu.tessera.dev")),
    ] {
        assert!(is_gated(OPTED_IN, &pod).await, "{what}");
    }
    for (what, pod) in [
        ("no device", pod(json!({}))),
        ("no device, but limits", with_limit("main", "memory")),
        ("a claim, and a node", claiming(json!({"spec": {"nodeName": "somewhere"}}))),
        ("a claim, and another scheduler", claiming(json!({"spec": {"schedulerName": "other"}}))),
    ] {
        assert!(!is_gated(OPTED_IN, &pod).await, "{what}");
    }
    assert!(!is_gated(OTHER, &claiming(json!({}))).await, "not opted in");
    let refused = claiming(json!({"metadata": {"labels": {OPT_IN_LABEL: "disabled"}}}));
    assert!(!is_gated(OTHER, &refused).await, "another value");
    for label in [json!({"gpu.tessera.dev/group": "train"}), json!({"gpu.tessera.dev/gang": "enabled"})] {
        let of_a_gang = claiming(json!({"metadata": {"labels": label}}));
        assert!(is_gated(OTHER, &of_a_gang).await, "a pod of a gang");
    }
    let queued = claiming(json!({"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}));
    let both = gates(&client, OPTED_IN, &queued).await;
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both.iter().any(|gate| gate == GATE));

    ungated_before_the_end(&client).await;
}

/// The hook's rights are enough for its Job.
async fn ungated_before_the_end(client: &Client) {
    let cluster = cluster().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), OPTED_IN);
    let waiting = pods.create(&PostParams::default(), &with_limit("main", "nvidia.com/gpu")).await;
    let waiting = waiting.expect("created");
    assert_eq!(gates_of(&waiting), [GATE]);

    let hook =
        ["--show-only=templates/steering-ungate.yaml", "--namespace", NAMESPACE, "--name-template=tessera"];
    let chart = crate::support::chart();
    let hook = [&["template", &chart, "--kube-version=1.36.3"], &hook[..]].concat();
    let hook = cluster.helm(&hook).await.expect("rendered");
    cluster.kubectl_with_input(&["create", "--filename=-"], &hook).await.expect("created");
    let config = cluster.service_account_config(NAMESPACE, "tessera-controller-ungate", None).await;
    let account = connect(config.expect("a token")).await;
    let bindings =
        ["namespace", "pod", "gang", "group"].map(|by| format!("{NAMESPACE}-tessera-steering-by-{by}"));
    tessera_controller::ungate::run(account, &bindings).await.expect("lifted");
    let name = waiting.metadata.name.expect("a name");
    assert_eq!(gates_of(&pods.get(&name).await.expect("there")), [""; 0]);
    let begin = Instant::now();
    while !gates(client, OPTED_IN, &claiming(json!({}))).await.is_empty() {
        assert!(begin.elapsed() < LONG, "new pods still wait");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.kubectl_with_input(&["delete", "--filename=-"], &hook).await.expect("deleted");

    // No kubelet runs the hook here.
    let uninstall = ["uninstall", "tessera", "--no-hooks", "--namespace", NAMESPACE, "--wait"];
    cluster.helm(&uninstall).await.expect("uninstalled");
    for policy in ["a-policy", "z-policy"] {
        for kind in ["mutatingadmissionpolicy", "mutatingadmissionpolicybinding"] {
            cluster.kubectl(&["delete", kind, policy]).await.expect("deleted");
        }
    }
    let policies =
        cluster.kubectl(&["get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "-o", "name"]);
    let policies = policies.await.expect("listed");
    assert!(!policies.contains("/steering-tessera"), "something is left: {policies}");
}

#[tokio::test]
async fn another_scheduler_can_be_the_one_whose_pods_are_held_back() {
    let only = ["--show-only=templates/steering-policy.yaml"];
    let policy = template(&[r#"steering.schedulerName="volcano""#], &only).await.expect("rendered");
    assert!(policy.contains(r#"object.spec.schedulerName in ["", "volcano"]"#), "{policy}");
}
