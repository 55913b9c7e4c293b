//! Writes permitted to a plugin by the installed policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceSlice};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_inventory::pool::{Contents, Slice};
use tessera_publish::{Desired, PublishOptions, Publisher};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::support::{LONG, chart, cluster, connect};

const NAMESPACE: &str = "policy";
const DRIVER: &str = "policy.example.com";
const ACCOUNT: &str = "tessera-kubelet-plugin";

/// The slice written by a plugin on `node`, modified by `change`.
fn slice(node: &str, change: impl FnOnce(&mut Value)) -> ResourceSlice {
    let mut slice = json!({
        "metadata": {"name": format!("{node}-{DRIVER}-x")},
        "spec": {"driver": DRIVER, "nodeName": node, "devices": [{"name": "a"}],
            "pool": {"name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 1}},
    });
    change(&mut slice);
    serde_json::from_value(slice).expect("a slice")
}

#[tokio::test]
async fn a_plugin_writes_slices_of_its_own_node_driver_and_pool_only() {
    let cluster = cluster().await;
    let values = format!("driverName={DRIVER},controller.enabled=false,admissionPolicy.publishers={{admin}}");
    let chart = chart();
    let install =
        ["install", "tessera", &chart, "--namespace", NAMESPACE, "--create-namespace", "--set", &values];
    let notes = cluster.helm(&install).await.expect("installed");
    assert!(notes.contains(&format!("spec.driver={DRIVER}")), "{notes}");
    let version = cluster.client().await.expect("a client").apiserver_version().await.expect("a version");
    let is_older = KubernetesVersion::of(&version.git_version).expect("a version").counters_cost_every_node();
    assert_eq!(notes.contains("From some 50\nnodes with partitions or shares"), is_older, "{notes}");

    // The pod of the plugin on each node, as made by the DaemonSet.
    for node in ["policy-a", "policy-b"] {
        cluster.add_node_object(node).await.expect("a node");
    }
    let administrator = cluster.client().await.expect("a client");
    let pods: Api<Pod> = Api::namespaced(administrator.clone(), NAMESPACE);
    let pod = serde_json::from_value(json!({"metadata": {"name": "plugin"}, "spec": {"nodeName": "policy-a",
        "serviceAccountName": ACCOUNT, "containers": [{"name": "c", "image": "i"}]}}));
    let pod = pods.create(&PostParams::default(), &pod.expect("a pod")).await.expect("created");
    let uid = pod.metadata.uid.expect("a uid");
    let bound =
        cluster.service_account_config(NAMESPACE, ACCOUNT, Some(("plugin", &uid))).await.expect("a token");
    let plugin = connect(bound).await;
    let slices: Api<ResourceSlice> = Api::all(plugin.clone());
    let dry_run = PostParams { dry_run: true, field_manager: None };

    // A new policy takes a moment to work.
    let begin = Instant::now();
    let foreign = slice("policy-b", |_| {});
    while slices.create(&dry_run, &foreign).await.is_ok() {
        assert!(begin.elapsed() < LONG, "the policy never works");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    slices.create(&dry_run, &slice("policy-a", |_| {})).await.expect("its own slice is permitted");

    let refused = async |what: &str, slice: &ResourceSlice, says: &str| {
        let error = slices.create(&dry_run, slice).await.expect_err(what).to_string();
        assert!(error.contains("ValidatingAdmissionPolicy") && error.contains(says), "{what}: {error}");
    };
    refused("another node", &foreign, "runs on node policy-a").await;
    refused(
        "another driver",
        &slice("policy-a", |slice| slice["spec"]["driver"] = json!("gpu.nvidia.com")),
        DRIVER,
    )
    .await;
    refused(
        "another pool",
        &slice("policy-a", |slice| slice["spec"]["pool"]["name"] = json!("policy-b")),
        "spec.pool.name",
    )
    .await;
    refused(
        "another's name",
        &slice("policy-a", |slice| slice["metadata"]["name"] = json!("policy-b-x")),
        "metadata.name",
    )
    .await;
    let without_node = |slice: &mut Value| slice["spec"].as_object_mut().expect("a spec").remove("nodeName");
    let all_nodes = slice("policy-a", |slice| {
        without_node(slice);
        slice["spec"]["allNodes"] = json!(true);
    });
    refused("all nodes", &all_nodes, "runs on node policy-a").await;
    let selected = slice("policy-a", |slice| {
        without_node(slice);
        slice["spec"]["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["policy-a"]}]}]});
    });
    refused("a node selector", &selected, "runs on node policy-a").await;
    let each_device = slice("policy-a", |slice| {
        without_node(slice);
        slice["spec"]["perDeviceNodeSelection"] = json!(true);
        slice["spec"]["devices"] = json!([{"name": "a", "nodeName": "policy-a"}]);
    });
    refused("selection by device", &each_device, "runs on node policy-a").await;

    // Slices of others can be neither changed nor deleted; leftovers of an older version may be deleted.
    let all: Api<ResourceSlice> = Api::all(administrator);
    let name = "policy-b-policy.example.com-x";
    all.create(&PostParams::default(), &foreign).await.expect("created by the administrator");
    let change = PatchParams::default();
    let error = slices
        .replace(name, &PostParams::default(), &{
            let mut slice = all.get(name).await.expect("there");
            slice.spec.pool.generation = 9;
            slice
        })
        .await
        .expect_err("another node's");
    assert!(error.to_string().contains("runs on node policy-a"), "{error}");
    let error = slices.patch(name, &change, &Patch::Merge(json!({}))).await.expect_err("no right to patch");
    assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    let error = slices.delete(name, &DeleteParams::default()).await.expect_err("another node's");
    assert!(error.to_string().contains("runs on node policy-a"), "{error}");
    // A slice of another driver on the plugin's own node, and a slice to be moved there.
    let nic = slice("policy-a", |slice| {
        slice["metadata"]["name"] = json!("policy-a-nic");
        slice["spec"]["driver"] = json!("nic.example.com");
    });
    let nic = all.create(&PostParams::default(), &nic).await.expect("created by the administrator");
    let error = slices.delete("policy-a-nic", &DeleteParams::default()).await.expect_err("another driver's");
    assert!(error.to_string().contains(DRIVER), "{error}");
    let error =
        slices.replace("policy-a-nic", &PostParams::default(), &nic).await.expect_err("another driver's");
    assert!(error.to_string().contains(DRIVER), "{error}");
    for (name, taken) in [(name, &foreign), ("policy-a-nic", &nic)] {
        let mut taken = taken.clone();
        taken.metadata = all.get(name).await.expect("there").metadata;
        taken.spec = slice("policy-a", |_| {}).spec;
        slices.replace(name, &PostParams::default(), &taken).await.expect_err("neither becomes its own");
    }
    let everything = slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    assert!(matches!(everything, Err(kube::Error::Api(status)) if status.code == 403));
    let old = slice("policy-a", |slice| {
        slice["metadata"]["name"] = json!("policy-old");
        slice["spec"]["pool"]["name"] = json!("policy-a");
    });
    let as_plugin =
        PostParams { field_manager: Some("tessera-kubelet-plugin".to_owned()), ..PostParams::default() };
    all.create(&as_plugin, &old).await.expect("created in the older version's name");

    // Everybody else with all rights: of this driver's slices only those without statements about devices, and deleting.
    let somebody = ["--as=somebody", "--as-group=system:masters"];
    let as_somebody = async |arguments: &[&str], input: String| {
        cluster
            .kubectl_with_input(&[arguments, &somebody].concat(), &input)
            .await
            .map_err(|error| error.to_string())
    };
    let as_somebody = &as_somebody;
    let creates = |driver: &str| {
        let mut slice =
            serde_json::to_value(slice("policy-a", |slice| slice["spec"]["driver"] = json!(driver)));
        let slice = slice.as_mut().expect("JSON");
        slice["apiVersion"] = json!("resource.k8s.io/v1");
        slice["kind"] = json!("ResourceSlice");
        as_somebody(&["create", "--dry-run=server", "-f", "-"], slice.to_string())
    };
    creates("nic.example.com").await.expect("another driver's");
    let error = creates(DRIVER).await.expect_err("not the plugin");
    assert!(error.contains("not somebody") && error.contains("admissionPolicy.publishers"), "{error}");
    let patches = |patch: Value| {
        let patch = format!("--patch={patch}");
        async move { as_somebody(&["patch", "resourceslice", name, "--type=merge", &patch], String::new()).await }
    };
    patches(json!({"metadata": {"labels": {"a": "b"}}})).await.expect("nothing about devices");
    for patch in [
        json!({"spec": {"devices": [{"name": "b"}]}}),
        json!({"metadata": {"annotations": {"gpu.tessera.dev/node-report": "{}"}}}),
    ] {
        let error = patches(patch).await.expect_err("devices, or the report");
        assert!(error.contains("not somebody"), "{error}");
    }
    as_somebody(&["delete", "resourceslice", "policy-a-nic", name], String::new()).await.expect("deleted");

    // A token without a pod names no node.
    let unbound = cluster.service_account_config(NAMESPACE, ACCOUNT, None).await.expect("a token");
    let unbound: Api<ResourceSlice> = Api::all(connect(unbound).await);
    let error = unbound.create(&dry_run, &slice("policy-a", |_| {})).await.expect_err("no node").to_string();
    assert!(error.contains("names no node"), "{error}");

    // The role and the policy permit every request of the publisher.
    let directory = tempfile::tempdir().expect("a directory");
    let publisher = Publisher::new(
        plugin,
        PublishOptions {
            driver_name: DRIVER.to_owned(),
            node_name: "policy-a".to_owned(),
            lock_directory: directory.path().to_owned(),
            instance: uid,
        },
    );
    let device =
        |name: &str| k8s_openapi::api::resource::v1::Device { name: name.to_owned(), ..Default::default() };
    let pool = |devices: &[&str]| {
        let contents = Contents::of_devices(&devices.iter().map(|name| device(name)).collect::<Vec<_>>());
        let slices = vec![Slice { name_suffix: "1-cards-0000".to_owned(), contents }];
        Some(Arc::new(Desired { slices, annotations: BTreeMap::new() }))
    };
    let (pools, receiver) = watch::channel(pool(&["a"]));
    let (mut status, stop) = (publisher.status(), CancellationToken::new());
    let task = tokio::spawn(publisher.run(receiver, stop.clone()));
    for devices in [1, 2] {
        let published = status.wait_for(|status| status.in_sync && status.devices == devices);
        let published = tokio::time::timeout(LONG, published).await;
        let published = published.expect("published").expect("running").clone();
        assert_eq!((published.failures, published.last_error), (0, None));
        pools.send_replace(pool(&["a", "b"]));
    }
    assert!(
        all.get_opt("policy-old").await.expect("an answer").is_none(),
        "an older version's slice is deleted"
    );
    stop.cancel();
    task.await.expect("no panic");

    cluster.helm(&["uninstall", "tessera", "--namespace", NAMESPACE, "--wait"]).await.expect("uninstalled");
    let left = cluster
        .kubectl(&[
            "get",
            "validatingadmissionpolicies,clusterroles,deviceclasses",
            "-l",
            "app.kubernetes.io/instance=tessera",
            "-o",
            "name",
        ])
        .await
        .expect("listed");
    assert_eq!(left, "", "nothing is left");
}
