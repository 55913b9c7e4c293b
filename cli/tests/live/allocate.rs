//! `allocate` foretells what kube-scheduler then does, `explain` says why a pod waits and why a claim got its device.

use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};
use tessera_harness::{PodState, shared};

use crate::{LIMIT, run};

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

/// The API server takes opaque parameters of 10 KiB, however deep they are nested and whatever text is in them.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_cannot_be_read_keeps_nobody_from_seeing_the_others_and_its_pod_says_so() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let depth = 4_000;
    let deep: String = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let client = cluster.client().await.unwrap();
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let odd = [deep.as_bytes(), br#""\ud800""#, b"\"\xff\""];
    for (number, parameters) in odd.into_iter().enumerate() {
        let mut hostile = claim(&format!("hostile-{number}"), 1);
        // kube-scheduler reads it: its pod must not get a card that another test counts on.
        hostile["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!("of-nobody");
        hostile["spec"]["devices"]["config"] =
            json!([{ "opaque": { "driver": "cli.tessera.dev", "parameters": { "odd": "HERE" } } }]);
        let text = hostile.to_string();
        let (before, after) = text.split_once("\"HERE\"").unwrap();
        let body = [before.as_bytes(), parameters, after.as_bytes()].concat();
        let request = http::Request::post(path).header("content-type", "application/json");
        // The answer has the claim, which no client of ours reads.
        let _ = client.request_text(request.body(body).unwrap()).await;
    }
    cluster.apply(&claim("odd-neighbour", 1).to_string()).await.unwrap();
    cluster.apply(&pod("hostile-1").to_string()).await.unwrap();
    let (_, said, _) = run(&cluster.kubeconfig(), &["explain", "claim/odd-neighbour"]).await;
    assert!(said.contains("odd-neighbour"), "{said}");
    for number in 0..odd.len() {
        let warning = format!("ResourceClaim default/hostile-{number} cannot be read");
        assert!(said.contains(&warning), "{warning} is missing in:\n{said}");
    }
    let (_, said, _) = run(&cluster.kubeconfig(), &["explain", "pod/hostile-1"]).await;
    assert!(said.contains("its ResourceClaim default/hostile-1 cannot be read"), "{said}");
    let (code, said, _) = run(&cluster.kubeconfig(), &["explain", "claim/hostile-1"]).await;
    assert!(code == 2 && said.contains("hostile-1 cannot be read"), "{said}");
    cluster.kubectl(&["delete", "pod", "hostile-1", "--grace-period=0", "--force"]).await.unwrap();
    let all = ["delete", "resourceclaim", "hostile-0", "hostile-1", "hostile-2", "odd-neighbour"];
    cluster.kubectl(&all).await.unwrap();
}
