//! `failRequestsGreaterThanOne`: who asks for several shares of cards by one request is refused.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{LONG, cluster, objects, template};

const DRIVER: &str = "one.example.com";
const POLICY: &str = "--show-only=templates/one-share-policy.yaml";

fn tried() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// A request of a claim for so many devices of a class.
fn request(class: &str, count: i64) -> Value {
    json!({"name": "card", "exactly": {"deviceClassName": class, "count": count}})
}

/// A container with this limit of an extended resource.
fn asking(name: &str, resource: &str, amount: &str) -> Value {
    json!({"name": name, "image": "i", "resources": {"limits": {resource: amount}}})
}

#[tokio::test]
async fn only_the_classes_that_are_meant_have_the_label() {
    let values = |more: &'static str| {
        [r#"driverName="one.example.com""#, "extendedResourceNames.enabled=true", "crds.install=false", more]
    };
    let labelled = async |more: &'static str| -> Vec<String> {
        let text = template(&values(more), &[]).await.expect("rendered");
        let text = cluster()
            .await
            .kubectl_with_input(&["create", "--dry-run=client", "--output=json", "--filename=-"], &text);
        let label = format!("{DRIVER}/one-per-request");
        let mut names: Vec<String> = objects(&text.await.expect("parsed"))
            .iter()
            .filter(|object| object["metadata"]["labels"][&label] == "true")
            .map(|object| object["metadata"]["name"].as_str().expect("a name").to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(labelled("sharing.timeSlicing.failRequestsGreaterThanOne=false").await, [""; 0]);
    assert_eq!(
        labelled("sharing.timeSlicing.failRequestsGreaterThanOne=true").await,
        ["nvidia.com-gpu.shared.one.example.com", "timeslice.one.example.com"]
    );
    assert_eq!(labelled("sharing.mps.failRequestsGreaterThanOne=true").await, ["mps.one.example.com"]);
    let without = template(&[], &[POLICY]).await;
    assert!(without.is_err_and(|error| error.to_string().contains("could not find template")));
}

#[tokio::test]
async fn several_shares_for_one_request_are_refused() {
    let values = [r#"driverName="one.example.com""#, "sharing.mps.failRequestsGreaterThanOne=true"];
    let manifests = template(&values, &[POLICY, "--namespace", "one-share"]).await.expect("rendered");
    let cluster = cluster().await;
    let client = cluster.client().await.expect("a client");
    // A class of somebody's own, as `kubectl gpu migrate` makes one.
    let class = json!({"metadata": {"name": "one-share", "labels": {"one.example.com/one-per-request": "true"}}, "spec": {
        "extendedResourceName": "example.com/share", "selectors": [{"cel": {"expression": "device.driver == 'one.example.com'"}}]}});
    let classes: Api<DeviceClass> = Api::all(client.clone());
    classes
        .create(&PostParams::default(), &serde_json::from_value(class).expect("a class"))
        .await
        .expect("created");
    cluster.kubectl_with_input(&["create", "--filename=-"], &manifests).await.expect("created");

    let claim = async |devices: Value| {
        let claim = json!({"metadata": {"generateName": "c-"}, "spec": {"devices": devices}});
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
        let claim = serde_json::from_value(claim).expect("a claim");
        claims.create(&tried(), &claim).await.map(drop).map_err(|error| error.to_string())
    };
    let begin = Instant::now();
    let refusal = loop {
        match claim(json!({"requests": [request("one-share", 2)]})).await {
            Ok(()) => assert!(begin.elapsed() < LONG, "the policy never works"),
            Err(refusal) => break refusal,
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    let says = "request card asks for several devices of one-share: they are shares of cards, of which one request gets one";
    assert!(refusal.contains(says), "{refusal}");

    let alternatives = |count: i64| {
        let first = json!({"name": "a", "deviceClassName": "other"});
        let second = json!({"name": "b", "deviceClassName": "one-share", "count": count});
        json!({"requests": [{"name": "card", "firstAvailable": [first, second]}]})
    };
    let mut all = request("one-share", 1);
    all["exactly"] = json!({"deviceClassName": "one-share", "allocationMode": "All"});
    let mut other = request("other", 3);
    other["name"] = "other".into();
    for refused in [alternatives(2), json!({"requests": [other, all]})] {
        let refusal = claim(refused.clone()).await.expect_err("refused");
        assert!(refusal.contains(says), "{refused}: {refusal}");
    }
    let mut second = request("one-share", 1);
    second["name"] = "second".into();
    for right in [
        json!({"requests": [request("one-share", 1), second]}),
        json!({"requests": [request("other", 3)]}),
        alternatives(1),
        json!({}),
    ] {
        claim(right.clone()).await.unwrap_or_else(|error| panic!("{right}: {error}"));
    }
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), "default");
    let devices = json!({"requests": [request("one-share", 2)]});
    let of_two = json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": devices}}});
    let of_two = serde_json::from_value(of_two).expect("a template");
    let refusal = templates.create(&tried(), &of_two).await.expect_err("refused").to_string();
    assert!(refusal.contains(says), "{refusal}");

    let pod = async |spec: Value| {
        let pod = json!({"metadata": {"generateName": "p-"}, "spec": spec});
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        let pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&tried(), &pod).await.map(drop).map_err(|error| error.to_string())
    };
    let implicit = "deviceclass.resource.kubernetes.io/one-share";
    for refused in [
        json!({"containers": [asking("other", "example.com/other", "4"), asking("train", "example.com/share", "2")]}),
        json!({"containers": [asking("train", implicit, "2")]}),
        json!({"containers": [{"name": "b", "image": "i"}], "initContainers": [asking("train", "example.com/share", "2")]}),
    ] {
        let refusal = pod(refused.clone()).await.expect_err("refused");
        let says = "container train asks for more than one example.com/share: they are shares of cards";
        assert!(refusal.contains(says), "{refused}: {refusal}");
    }
    for right in [
        json!({"containers": [asking("train", "example.com/share", "1")]}),
        json!({"containers": [asking("train", "example.com/other", "2")]}),
        json!({"containers": [{"name": "plain", "image": "i"}]}),
    ] {
        pod(right.clone()).await.unwrap_or_else(|error| panic!("{right}: {error}"));
    }
    cluster.kubectl_with_input(&["delete", "--filename=-"], &manifests).await.expect("deleted");
    classes.delete("one-share", &DeleteParams::default()).await.expect("deleted");
}
