//! The policy for writers of the controller's annotations on pods.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tessera_api::device_status::EVICTIONS_ANNOTATION;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_api::managed::{NOMINATION_ANNOTATION, REFUSED_NODES_ANNOTATION};

use super::{RELEASE, member, refused, user};
use crate::support::{cluster, connect};

const OURS: [&str; 4] =
    [NOMINATION_ANNOTATION, REFUSED_NODES_ANNOTATION, EVICTIONS_ANNOTATION, FORMED_ANNOTATION];
const NODE: &str = "managed-annotations";

fn annotated(key: &str, value: Value) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), RELEASE)
}

async fn create(client: &Client, annotations: Value, is_tried: bool) -> Result<Pod, kube::Error> {
    let pod = json!({"metadata": {"generateName": "noted-", "annotations": annotations},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}});
    let parameters = PostParams { dry_run: is_tried, ..PostParams::default() };
    pods(client).create(&parameters, &serde_json::from_value(pod).expect("a pod")).await
}

async fn change(client: &Client, pod: &str, change: &Value) -> Result<Pod, kube::Error> {
    pods(client).patch(pod, &PatchParams::default(), &Patch::Merge(change)).await
}

async fn change_status(client: &Client, pod: &str, change: &Value) -> Result<Pod, kube::Error> {
    pods(client).patch_status(pod, &PatchParams::default(), &Patch::Merge(change)).await
}

/// Whether somebody who must not write them can: the policy does not work yet.
pub async fn foreign_is_admitted(administrator: &Client) -> bool {
    match create(administrator, json!({NOMINATION_ANNOTATION: "mine"}), true).await {
        Ok(_) => true,
        // A new namespace has no service account for its pods yet.
        Err(error) => error.to_string().contains("serviceaccount"),
    }
}

pub async fn only_the_controller_writes_them(administrator: &Client) {
    let alice = user("alice").await;
    let account = format!("{RELEASE}-tessera-controller");
    let controller = cluster().await.service_account_config(RELEASE, &account, None).await.expect("a token");
    let controller = connect(controller).await;
    cluster().await.add_node_object(NODE).await.expect("a node");
    let kubelet = member(&format!("system:node:{NODE}"), &["system:nodes"]).await;

    let pod = create(&alice, json!({"example.com/of": "alice"}), false).await.expect("created").name_any();
    for key in OURS {
        let says = |who: &str| format!("only Tessera's controller writes {key} on pods, not {who}");
        for (client, who) in [(&alice, "alice"), (administrator, "admin")] {
            refused(create(client, json!({key: "mine"}), false).await, who, &says(who));
            refused(change(client, &pod, &annotated(key, json!("mine"))).await, who, &says(who));
            refused(change_status(client, &pod, &annotated(key, json!("mine"))).await, who, &says(who));
        }
        refused(
            change_status(&kubelet, &pod, &annotated(key, json!("mine"))).await,
            "kubelet",
            &says("system:node:"),
        );
        // Other subresources do not take annotations.
        for subresource in ["ephemeralcontainers", "resize"] {
            let patch = Patch::Strategic(annotated(key, json!("mine")));
            let answer =
                pods(&alice).patch_subresource(subresource, &pod, &PatchParams::default(), &patch).await;
            assert!(answer.is_ok_and(|pod| !pod.annotations().contains_key(key)), "{subresource} {key}");
        }
        let written = change(&controller, &pod, &annotated(key, json!("ours"))).await.expect("written");
        assert_eq!(written.annotations()[key], "ours");
        refused(change(&alice, &pod, &annotated(key, json!("mine"))).await, "changed", &says("alice"));
    }
    let all = json!({NOMINATION_ANNOTATION: "mine", EVICTIONS_ANNOTATION: "mine"});
    let says = format!("writes {NOMINATION_ANNOTATION}, {EVICTIONS_ANNOTATION} on pods, not alice");
    refused(create(&alice, all, false).await, "two of them", &says);

    // The controller's annotations are in nobody's way.
    change(
        &alice,
        &pod,
        &json!({"metadata": {"labels": {"a": "b"}, "annotations": {"example.com/of": "me"}}}),
    )
    .await
    .expect("changed");
    let running = json!({"status": {"phase": "Running"}});
    let seen = change_status(&kubelet, &pod, &running).await.expect("the kubelet's status");
    assert_eq!(seen.status.and_then(|status| status.phase).as_deref(), Some("Running"));
    let mut known = pods(&alice).get(&pod).await.expect("there");
    known.labels_mut().insert("c".to_owned(), "d".to_owned());
    pods(&alice).replace(&pod, &PostParams::default(), &known).await.expect("replaced");

    // Removing them is permitted too.
    for key in OURS {
        change(&alice, &pod, &annotated(key, Value::Null)).await.expect("taken away");
    }
    let left = pods(&alice).get(&pod).await.expect("there");
    assert_eq!(left.annotations().keys().collect::<Vec<_>>(), ["example.com/of"]);
    pods(&alice).delete(&pod, &DeleteParams::default()).await.expect("deleted");
}
