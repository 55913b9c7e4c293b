//! Extended resources in the limits of pods, turned into claims by the policy.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::conversion::{CONVERTED, OPT_IN_LABEL, OPT_IN_VALUE, template_name};
use tessera_api::steering;
use tokio::time::Instant;

use crate::support::{LONG, cluster, template};

const CONVERTED_TOO: &str = "conversion-gated";
const ONLY_CONVERTED: &str = "conversion";
const ONLY_GATED: &str = "conversion-native";
const NEITHER: &str = "conversion-neither";

const VALUES: [&str; 6] = [
    r#"driverName="conversion.example.com""#,
    "extendedResourceNames.enabled=true",
    r#"extendedResourceNames.mig={"strategy": "mixed", "profiles": ["1g.10gb+me"]}"#,
    "managed.convertExtendedResources.enabled=true",
    r#"managed.convertExtendedResources.names=["example.com/Card_a"]"#,
    r#"managed.schedulerNames=["volcano"]"#,
];

const POLICIES: [&str; 4] = [
    "--show-only=templates/conversion-policy.yaml",
    "--show-only=templates/steering-policy.yaml",
    "--namespace",
    "conversion",
];

fn container(name: &str, limits: Value) -> Value {
    json!({"name": name, "image": "i", "resources": {"limits": limits}})
}

fn pod(init_containers: Value, containers: Value) -> Value {
    json!({"metadata": {"generateName": "p-"}, "spec": {"initContainers": init_containers, "containers": containers}})
}

fn simple(limits: Value) -> Value {
    pod(json!([]), json!([container("train", limits)]))
}

/// The pod as the API server would store it. A new namespace gets its service account after a moment.
async fn admitted(client: &Client, namespace: &str, pod: &Value) -> Pod {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let pod = serde_json::from_value(pod.clone()).expect("a pod");
    let begin = Instant::now();
    loop {
        match pods.create(&dry_run, &pod).await {
            Ok(pod) => return pod,
            Err(error) => assert!(begin.elapsed() < LONG, "never accepted: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Templates of the pod's claims, by claim.
fn claims(pod: &Pod) -> BTreeMap<String, String> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims
        .map(|claim| (claim.name.clone(), claim.resource_claim_template_name.clone().unwrap_or_default()))
        .collect()
}

/// Claims used by each container, and its remaining limits and requests.
fn uses(pod: &Pod) -> Vec<(String, Vec<String>, Vec<String>)> {
    let spec = pod.spec.as_ref().expect("a spec");
    let of_container = |container: &Container| {
        let resources = container.resources.clone().unwrap_or_default();
        let claims = resources.claims.into_iter().flatten().map(|claim| claim.name).collect();
        let amounts = resources.limits.into_iter().chain(resources.requests).flatten();
        let left = amounts.map(|(name, amount)| format!("{name}={}", amount.0)).collect();
        (container.name.clone(), claims, left)
    };
    spec.init_containers.iter().flatten().chain(&spec.containers).map(of_container).collect()
}

fn used(container: &str, claims: &[&str], left: &[&str]) -> (String, Vec<String>, Vec<String>) {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    (container.to_owned(), owned(claims), owned(left))
}

fn is_gated(pod: &Pod) -> bool {
    let mut gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.any(|gate| gate.name == steering::GATE)
}

#[tokio::test]
async fn limits_become_claims_where_somebody_opted_in() {
    let cluster = cluster().await;
    let policies = template(&VALUES, &POLICIES).await.expect("rendered");
    cluster.kubectl_with_input(&["create", "--filename=-"], &policies).await.expect("created");
    let claims_label = format!("{OPT_IN_LABEL}={OPT_IN_VALUE}");
    let gate_label = format!("{}={}", steering::OPT_IN_LABEL, steering::OPT_IN_VALUE);
    for (namespace, labels) in [
        (CONVERTED_TOO, vec![&claims_label, &gate_label]),
        (ONLY_CONVERTED, vec![&claims_label]),
        (ONLY_GATED, vec![&gate_label]),
        (NEITHER, vec![]),
    ] {
        cluster.kubectl(&["create", "namespace", namespace]).await.expect("created");
        for label in labels {
            cluster.kubectl(&["label", "namespace", namespace, label]).await.expect("labelled");
        }
    }
    let client = cluster.client().await.expect("a client");
    let one = simple(json!({"nvidia.com/gpu": "4"}));
    let begin = Instant::now();
    // New policies work after a moment.
    loop {
        let pod = admitted(&client, CONVERTED_TOO, &one).await;
        if is_gated(&pod) && !claims(&pod).is_empty() {
            break;
        }
        assert!(begin.elapsed() < LONG, "the policies never work: {pod:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for (namespace, is_converted, is_held_back) in [
        (CONVERTED_TOO, true, true),
        (ONLY_CONVERTED, true, false),
        (ONLY_GATED, false, true),
        (NEITHER, false, false),
    ] {
        let pod = admitted(&client, namespace, &one).await;
        assert_eq!(!claims(&pod).is_empty(), is_converted, "{namespace}");
        assert_eq!(pod.labels().contains_key(CONVERTED), is_converted, "{namespace}");
        assert_eq!(is_gated(&pod), is_held_back, "{namespace}");
    }

    for amount in [json!("4"), json!(4), json!("4000m")] {
        let pod = admitted(&client, ONLY_CONVERTED, &simple(json!({"nvidia.com/gpu": amount}))).await;
        let expected = [("nvidia-com-gpu-0".to_owned(), template_name("nvidia.com/gpu", 4))];
        assert_eq!(claims(&pod), expected.into(), "{amount}");
        assert_eq!(uses(&pod), [used("train", &["nvidia-com-gpu-0"], &[])]);
        let written = pod.annotations().get(CONVERTED).map(String::as_str);
        assert_eq!(written, Some(r#"{"train": "nvidia.com/gpu: 4"}"#));
    }
    for (what, change) in [
        ("none", simple(json!({"nvidia.com/gpu": 0}))),
        ("nothing", simple(json!({"memory": "1Gi"}))),
        ("a name that no class has", simple(json!({"example.com/other": 1}))),
        ("another scheduler", with(one.clone(), json!({"schedulerName": "other"}))),
        ("a node", with(one.clone(), json!({"nodeName": "somewhere"}))),
    ] {
        assert!(claims(&admitted(&client, ONLY_CONVERTED, &change).await).is_empty(), "{what}");
    }
    let of_volcano = with(one.clone(), json!({"schedulerName": "volcano"}));
    assert!(!claims(&admitted(&client, ONLY_CONVERTED, &of_volcano).await).is_empty());

    kept_beside(&client).await;
    shared_between_containers(&client).await;
    cluster.kubectl_with_input(&["delete", "--filename=-"], &policies).await.expect("deleted");
}

fn with(mut pod: Value, spec: Value) -> Value {
    pod["spec"].as_object_mut().expect("a spec").extend(spec.as_object().expect("a spec").clone());
    pod
}

/// A claim of the user's, other limits, labels and annotations stay.
async fn kept_beside(client: &Client) {
    let mut train = container(
        "train",
        json!({"nvidia.com/gpu": 1, "example.com/Card_a": 2, "nvidia.com/mig-1g.10gb.me": 3, "cpu": "1"}),
    );
    train["resources"]["claims"] = json!([{"name": "nic"}]);
    let mut pod = pod(json!([]), json!([container("log", json!({"cpu": "1"})), train]));
    pod["spec"]["resourceClaims"] = json!([{"name": "nic", "resourceClaimTemplateName": "nic"}]);
    pod["metadata"]["labels"] = json!({"app": "a"});
    pod["metadata"]["annotations"] = json!({"note": "a"});
    let pod = admitted(client, ONLY_CONVERTED, &pod).await;
    let expected = [
        ("nic", "nic"),
        ("nvidia-com-gpu-1", "nvidia.com-gpu-1"),
        ("example-com-card-a-1", "example.com-card-a-2"),
        ("nvidia-com-mig-1g-10gb-me-1", "nvidia.com-mig-1g.10gb.me-3"),
    ];
    assert_eq!(claims(&pod), expected.map(|(claim, made)| (claim.to_owned(), made.to_owned())).into());
    let left = ["cpu=1", "cpu=1"];
    let all = ["nic", "example-com-card-a-1", "nvidia-com-gpu-1", "nvidia-com-mig-1g-10gb-me-1"];
    assert_eq!(uses(&pod), [used("log", &[], &left), used("train", &all, &left)]);
    assert_eq!(pod.labels()["app"], "a");
    assert_eq!(pod.annotations()["note"], "a");
}

/// As kube-scheduler shares devices between containers: those of its tests, and one of all kinds.
async fn shared_between_containers(client: &Client) {
    let gpus = |name: &str, count: i64| container(name, json!({"nvidia.com/gpu": count}));
    let sidecar = |name: &str, count: i64| {
        let mut container = gpus(name, count);
        container["restartPolicy"] = "Always".into();
        container
    };
    let templates = |counts: &[(usize, i64)]| -> BTreeMap<String, String> {
        let one = |(place, count): &(usize, i64)| {
            (format!("nvidia-com-gpu-{place}"), template_name("nvidia.com/gpu", *count))
        };
        counts.iter().map(one).collect()
    };
    let claim = |place: usize| format!("nvidia-com-gpu-{place}");
    for (what, pod, made, places) in [
        ("fewer", pod(json!([gpus("a", 1)]), json!([gpus("b", 4)])), vec![(1, 4)], vec![vec![1], vec![1]]),
        (
            "more",
            pod(json!([gpus("a", 6)]), json!([gpus("b", 4)])),
            vec![(0, 2), (1, 4)],
            vec![vec![1, 0], vec![1]],
        ),
        (
            "a sidecar keeps its own",
            pod(json!([sidecar("a", 1)]), json!([gpus("b", 1)])),
            vec![(0, 1), (1, 1)],
            vec![vec![0], vec![1]],
        ),
        (
            "not of a sidecar before",
            pod(json!([sidecar("a", 1), gpus("b", 1)]), json!([gpus("c", 1)])),
            vec![(0, 1), (2, 1)],
            vec![vec![0], vec![2], vec![2]],
        ),
        (
            "all",
            pod(
                json!([gpus("a", 8), gpus("b", 2), sidecar("c", 1), gpus("d", 7)]),
                json!([container("e", json!({})), gpus("f", 4), gpus("g", 1)]),
            ),
            vec![(0, 2), (2, 1), (5, 4), (6, 1)],
            vec![vec![2, 5, 6, 0], vec![2, 5], vec![2], vec![5, 6, 0], vec![], vec![5], vec![6]],
        ),
    ] {
        let pod = admitted(client, ONLY_CONVERTED, &pod).await;
        assert_eq!(claims(&pod), templates(&made), "{what}");
        let uses: Vec<Vec<String>> = uses(&pod).into_iter().map(|(_, claims, _)| claims).collect();
        let expected: Vec<Vec<String>> =
            places.iter().map(|places| places.iter().map(|place| claim(*place)).collect()).collect();
        assert_eq!(uses, expected, "{what}");
    }
}

#[tokio::test]
async fn the_chart_converts_when_it_is_told_to() {
    let only = ["--show-only=templates/conversion-policy.yaml"];
    let without = template(&[], &only).await;
    assert!(without.is_err_and(|error| error.to_string().contains("could not find template")));
    let everywhere = [VALUES[1], VALUES[3], "managed.convertExtendedResources.allNamespaces=true"];
    let policy = template(&everywhere, &only).await.expect("rendered");
    assert!(policy.contains("key: gpu.tessera.dev/claims, operator: NotIn, values: [disabled]"), "{policy}");
    for (values, says) in [
        (vec![VALUES[3]], "no DeviceClass of the chart has an extended resource name"),
        (
            vec![VALUES[3], r#"managed.convertExtendedResources.names=["a.b/c", "a-b/c"]"#],
            "claims of a.b/c and a-b/c would have the same names",
        ),
        (
            vec![
                VALUES[3],
                r#"managed.convertExtendedResources.names=["much-too-long.example.com/one-that-is-even-longer-than-that"]"#,
            ],
            "is too long",
        ),
    ] {
        let error = template(&values, &only).await.expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    }
    for (more, is_there) in [(VALUES[3], true), ("managed.enabled=true", false)] {
        let chart = template(&[VALUES[1], more], &[]).await.expect("rendered");
        assert_eq!(chart.contains("--convert-extended-resources"), is_there);
    }
}
