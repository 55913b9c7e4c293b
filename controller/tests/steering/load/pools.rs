//! Pools that are made, changed, in conflict, unreadable and removed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use kube::{Api, CustomResourceExt as _, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_pool::{GpuPool, GpuPoolStatus, condition};
use tessera_api::{NodeReport, node_report};
use tessera_harness::Cluster;

use super::outcome::Outcome;
use crate::{fleet, plugins, pods};

async fn apply(cluster: &Cluster, name: &str, spec: Value) {
    let pool = json!({ "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool",
        "metadata": { "name": name }, "spec": spec });
    fleet::apply(cluster, &[pool]).await;
}

/// A steered pool, of the nodes of a zone or of all.
pub async fn steered(cluster: &Cluster, name: &str, priority: i32, zone: Option<&str>) {
    let labels = zone.map(|zone| json!({ "zone": zone })).unwrap_or_else(|| json!({}));
    let selector = json!({ "matchLabels": labels });
    apply(cluster, name, json!({ "priority": priority, "nodeSelector": selector, "allocation": "Steered" }))
        .await;
}

/// Three pools claim the zone `b`; that with the highest priority decides, for nodes that move into the zone, too.
pub async fn conflict(cluster: &Cluster) {
    steered(cluster, "same", 0, Some("b")).await;
    let spread = json!({ "strategy": "Spread" });
    let zone = json!({ "matchLabels": { "zone": "b" } });
    apply(
        cluster,
        "first",
        json!({ "priority": 10, "nodeSelector": zone, "allocation": "Steered",
        "placement": spread }),
    )
    .await;
    until_cards_are_in(cluster, "b in the pool of the highest priority", |zone, pool| {
        pool == if zone == "b" { "first" } else { "main" }
    })
    .await;
    cluster.kubectl(&["label", "node", "n00", "n02", "zone=b", "--overwrite"]).await.unwrap();
    apply(cluster, "first", json!({ "priority": 10, "nodeSelector": zone, "allocation": "Native" })).await;
    until_cards_are_in(cluster, "moved nodes, too", |zone, pool| {
        pool == if zone == "b" { "first" } else { "main" }
    })
    .await;
}

/// One pool's selector fails, and another is of a later version of Tessera; the controller says so of both.
pub async fn fail_and_become_unreadable(cluster: &Cluster) {
    apply(
        cluster,
        "failing",
        json!({ "priority": 20,
        "cards": "device.attributes['gpu.tessera.dev'].nothing == 1" }),
    )
    .await;
    let mut later = serde_json::to_value(GpuPool::crd()).unwrap();
    let schema = &mut later["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["later"] = json!({ "type": "boolean" });
    fleet::apply(cluster, &[later]).await;
    let end = Instant::now() + pods::LIMIT;
    let unreadable = json!({ "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool",
        "metadata": { "name": "main" },
        "spec": { "priority": 0, "nodeSelector": { "matchLabels": {} }, "allocation": "Steered", "later": true } });
    // The API server takes a moment to serve the new schema.
    while let Err(error) = cluster.apply(&unreadable.to_string()).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let last_holds = |report: &NodeReport| {
        let error =
            |pool: &str| report.pools.get(pool).and_then(|pool| pool.error.clone()).unwrap_or_default();
        error("main").contains("the last one holds") && error("failing").contains("nothing")
    };
    loop {
        let reports = reports(cluster).await;
        if reports.len() == super::NODES && reports.values().all(last_holds) {
            break;
        }
        assert!(Instant::now() < end, "{reports:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    until_status(cluster, "both errors are told", |all| {
        is(all, "main", condition::SELECTOR_FAILS) && is(all, "failing", condition::SELECTOR_FAILS)
    })
    .await;
}

/// Only `main` is left to decide, on everything, beside one that is outranked, one that selects nothing and one that fails.
pub async fn back_to_rest(cluster: &Cluster) {
    steered(cluster, "main", 0, None).await;
    steered(cluster, "nowhere", 30, Some("z")).await;
    cluster.kubectl(&["delete", "gpupool", "first"]).await.unwrap();
    until_cards_are_in(cluster, "everything in the oldest pool", |_, pool| pool == "main").await;
}

/// The status of every pool is what is so.
pub async fn say(cluster: &Cluster, outcome: &Outcome) {
    let cards = (super::NODES * plugins::CARDS) as u32;
    until_status(cluster, &format!("pools say {outcome:?}"), |all| {
        let main = &all["main"];
        let unmet: u32 = main.unmet_demand.iter().map(|shape| shape.pods).sum();
        (main.nodes, main.cards, main.offered) == (super::NODES as u32, cards, cards)
            && main.allocated == format!("{}.00", outcome.cards)
            // Those that were left to kube-scheduler wait for the same cards.
            && unmet as usize == outcome.waiting + outcome.refused
            && is(all, "main", condition::AS_WANTED)
            && is(all, "same", condition::OUTRANKED)
            && is(all, "nowhere", condition::NOTHING_SELECTED)
            && is(all, "failing", condition::SELECTOR_FAILS)
    })
    .await;
}

type Statuses = BTreeMap<String, GpuPoolStatus>;

fn is(all: &Statuses, pool: &str, reason: &str) -> bool {
    all.get(pool).is_some_and(|status| status.conditions.iter().any(|one| one.reason == reason))
}

async fn until_status(cluster: &Cluster, what: &str, wanted: impl Fn(&Statuses) -> bool) {
    let end = Instant::now() + pods::LIMIT;
    loop {
        let list: Value =
            serde_json::from_str(&cluster.kubectl(&["get", "gpupools", "-o", "json"]).await.unwrap())
                .unwrap();
        let status = |pool: &Value| {
            let status = pool.get("status").map(|status| serde_json::from_value(status.clone()).unwrap());
            (pool["metadata"]["name"].as_str().unwrap().to_owned(), status.unwrap_or_default())
        };
        let all: Statuses = list["items"].as_array().unwrap().iter().map(status).collect();
        if wanted(&all) {
            return;
        }
        assert!(Instant::now() < end, "not {what}: {all:#?}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// What each node reports.
async fn reports(cluster: &Cluster) -> BTreeMap<String, NodeReport> {
    let slices: Api<ResourceSlice> = Api::all(cluster.client().await.unwrap());
    let slices = slices.list(&ListParams::default()).await.unwrap();
    let report = |slice: ResourceSlice| {
        let text = slice.annotations().get(node_report::ANNOTATION)?.clone();
        Some((slice.spec.node_name?, serde_json::from_str(&text).unwrap()))
    };
    slices.into_iter().filter_map(report).collect()
}

/// Waits until each card that a node reports is in the pool that it should be in, by the node's zone.
pub async fn until_cards_are_in(cluster: &Cluster, what: &str, wanted: impl Fn(&str, &str) -> bool) {
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    let end = Instant::now() + pods::LIMIT;
    loop {
        let zone = |node: Node| (node.name_any(), node.labels().get("zone").cloned().unwrap_or_default());
        let zones: BTreeMap<String, String> =
            nodes.list(&ListParams::default()).await.unwrap().into_iter().map(zone).collect();
        let reports = reports(cluster).await;
        let is_wanted = |(node, report): (&String, &NodeReport)| {
            let is_in = |pool: &Option<String>| pool.as_ref().is_some_and(|pool| wanted(&zones[node], pool));
            report.cards.len() == plugins::CARDS && report.cards.values().all(|card| is_in(&card.pool))
        };
        if reports.len() == super::NODES && reports.iter().all(is_wanted) {
            return;
        }
        assert!(Instant::now() < end, "not {what}: {reports:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
