//! GpuPools, from the API server to the publication, readable and unreadable.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{NodeReport, node_report};
use tessera_harness::{Cluster, ClusterOptions};

use crate::node::{Node, cluster};
use crate::plugin::{LONG, Plugin};

/// How many devices of each type, by pool.
type Published = BTreeMap<(String, Option<String>), usize>;

async fn published(node: &Node) -> Published {
    let mut published = Published::new();
    for device in node.slices().await.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()) {
        let attributes = device.attributes.unwrap();
        let text = |name: &str| attributes.get(name).and_then(|attribute| attribute.string.clone());
        *published.entry((text("type").unwrap(), text("gpuPool"))).or_default() += 1;
    }
    published
}

async fn until(node: &Node, plugin: &Plugin, expected: &[(&str, Option<&str>, usize)]) {
    let expected: Published = expected
        .iter()
        .map(|(kind, pool, count)| ((kind.to_string(), pool.map(|pool| node.pool_name(pool))), *count))
        .collect();
    let since = Instant::now();
    loop {
        let now = published(node).await;
        if now == expected {
            return;
        }
        assert!(since.elapsed() < LONG, "{now:?} instead of {expected:?}: {}", plugin.log_text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The report, once as wanted.
pub async fn report(node: &Node, wanted: impl Fn(&NodeReport) -> bool) -> NodeReport {
    let since = Instant::now();
    loop {
        let slices = node.slices().await;
        let annotations = slices.iter().filter_map(|slice| slice.metadata.annotations.as_ref());
        let reports: Vec<&String> =
            annotations.filter_map(|annotations| annotations.get(node_report::ANNOTATION)).collect();
        assert!(reports.len() <= 1, "only one slice has it");
        if let [report] = reports[..] {
            let report: NodeReport = serde_json::from_str(report).unwrap();
            if wanted(&report) {
                return report;
            }
            assert!(since.elapsed() < LONG, "{report:?}");
        }
        assert!(since.elapsed() < LONG, "no report");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn slices(replicas: u32) -> Value {
    json!({"wholeCards": false, "partitioning": {"mode": "None"}, "sharing": {"timeSlicing": {"replicas": replicas}}})
}

#[tokio::test]
async fn a_pool_is_made_changed_and_removed_while_a_claim_holds_a_card() {
    let node = Node::new("pools", "t4").await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    let cards = node.machine.cards().len();
    until(&node, &plugin, &[("gpu", None, cards)]).await;

    node.pool("a", json!({"allocation": "Steered"})).await;
    until(&node, &plugin, &[("gpu", Some("a"), cards)]).await;
    let a = node.pool_name("a");
    let told = report(&node, |report| report.cards.values().all(|card| card.pool.as_ref() == Some(&a))).await;
    assert_eq!(told.cards.len(), cards);
    assert!(told.cards.values().all(|card| card.allocation == tessera_api::gpu_pool::Allocation::Steered));

    let held = node.devices().await.remove(0);
    let claim = node.claim(&[&held]).await;
    registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    // The first pool decides; the other is reported as outranked.
    node.pool("b", json!({"priority": 1, "offer": slices(4)})).await;
    let told = report(&node, |report| report.cards.values().any(|card| !card.waits_for.is_empty())).await;
    assert!(told.cards.values().all(|card| card.outranked == [a.clone()]), "{told:?}");
    let waits: Vec<&String> = told.cards.values().flat_map(|card| &card.waits_for).collect();
    assert_eq!(waits, [&held]);
    // The card was given out without counters: its time-slices come when the claim ends.
    assert_eq!(cards, 1);
    until(&node, &plugin, &[("gpu", Some("a"), 1)]).await;

    cluster().await.kubectl(&["delete", "gpupool", &node.pool_name("b")]).await.unwrap();
    until(&node, &plugin, &[("gpu", Some("a"), cards)]).await;
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    cluster().await.kubectl(&["delete", "gpupool", &a]).await.unwrap();
    until(&node, &plugin, &[("gpu", None, cards)]).await;
    plugin.terminate().await;
}

#[tokio::test]
async fn without_a_pool_cards_are_partitioned_from_1_37_on() {
    let node = Node::new("unasked", "hgx-h100-80gb").await;
    let kubernetes = node.client.apiserver_version().await.unwrap().git_version;
    let is_older = KubernetesVersion::of(&kubernetes).unwrap().counters_cost_every_node();
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    let told = report(&node, |report| report.kubernetes.is_some()).await;
    assert_eq!((told.kubernetes.as_ref(), told.advice.is_some()), (Some(&kubernetes), is_older));
    let partitions = |now: &Published| now.get(&("mig".to_owned(), None)).copied().unwrap_or_default();
    let now = published(&node).await;
    assert_eq!((now[&("gpu".to_owned(), None)], partitions(&now) > 0), (8, !is_older));
    assert_eq!(plugin.log_text().contains("no GpuPool selects them"), is_older);
    let counters = node.slices().await.into_iter().filter_map(|slice| slice.spec.shared_counters);
    assert_eq!(counters.count(), usize::from(!is_older));

    // A claim of a whole card keeps the card whole when a pool offers partitions of all cards.
    let only_whole = json!({"offer": {"partitioning": {"mode": "None"}}});
    node.pool("all", only_whole).await;
    until(&node, &plugin, &[("gpu", Some("all"), 8)]).await;
    let devices = node.devices().await;
    let claim = node.claim(&[&devices[0]]).await;
    registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    node.pool("all", json!({"offer": {"partitioning": {"profiles": ["7g.80gb"]}}})).await;
    until(&node, &plugin, &[("gpu", Some("all"), 8), ("mig", Some("all"), 7)]).await;
    assert_eq!(node.tainted().await.len(), 1);
    let told = report(&node, |report| report.cards.values().any(|card| !card.waits_for.is_empty())).await;
    assert_eq!(told.cards.values().flat_map(|card| &card.waits_for).collect::<Vec<_>>(), [&devices[0]]);
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    until(&node, &plugin, &[("gpu", Some("all"), 8), ("mig", Some("all"), 8)]).await;
    assert_eq!(node.tainted().await, []);
    plugin.terminate().await;
}

#[tokio::test]
async fn of_a_card_held_whole_one_partition_is_published_until_the_claim_ends() {
    let node = Node::new("of-held", "hgx-h100-80gb").await;
    node.pool("all", json!({"offer": {"partitioning": {"profiles": ["3g.40gb"], "ofHeldCards": "First"}}}))
        .await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    until(&node, &plugin, &[("gpu", Some("all"), 8), ("mig", Some("all"), 16)]).await;
    let generation = node.slices().await[0].spec.pool.generation;
    let card = node.devices().await.remove(0);
    let claim = node.claim(&[&card]).await;
    registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    until(&node, &plugin, &[("gpu", Some("all"), 8), ("mig", Some("all"), 15)]).await;
    assert_eq!(node.tainted().await, []);
    assert_eq!(node.slices().await[0].spec.pool.generation, generation, "one slice is written");
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    until(&node, &plugin, &[("gpu", Some("all"), 8), ("mig", Some("all"), 16)]).await;
    plugin.terminate().await;
}

#[tokio::test]
async fn an_expression_that_fails_takes_no_card_and_is_told_without_a_new_generation() {
    let node = Node::new("selectors", "t4").await;
    node.pool("all", json!({})).await;
    let plugin = node.plugin(None);
    let _registered = node.register().await;
    plugin.ready().await;
    let cards = node.machine.cards().len();
    until(&node, &plugin, &[("gpu", Some("all"), cards)]).await;
    let generation = node.slices().await[0].spec.pool.generation;

    let expression = r#"device.attributes["gpu.tessera.dev"].nothing == 1"#;
    node.pool("wrong", json!({"priority": 1, "cards": expression})).await;
    let wrong = node.pool_name("wrong");
    let told = report(&node, |report| report.pools.contains_key(&wrong)).await;
    assert!(told.pools[&wrong].error.as_ref().unwrap().contains("nothing"), "{told:?}");
    until(&node, &plugin, &[("gpu", Some("all"), cards)]).await;
    assert_eq!(node.slices().await[0].spec.pool.generation, generation, "an annotation is no part of a pool");
    plugin.terminate().await;
}

/// A kubeconfig like the cluster's, of a user with all rights except on pools.
async fn without_pools(node: &Node) -> String {
    let user = format!("no-pools-{}", node.name);
    let rules = json!([
        {"apiGroups": ["", "resource.k8s.io", "events.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": user}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": user}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    for object in [role, binding] {
        cluster().await.apply(&object.to_string()).await.unwrap();
    }
    let mut config = kube::config::Kubeconfig::read_from(cluster().await.kubeconfig()).unwrap();
    for named in &mut config.auth_infos {
        named.auth_info.get_or_insert_default().impersonate = Some(user.clone());
    }
    let path = node.directory().join("no-pools");
    fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
    path.display().to_string()
}

fn with(mut arguments: Vec<String>, option: &str, value: &str) -> Vec<String> {
    let position = arguments.iter().position(|argument| argument == option).unwrap();
    arguments[position + 1] = value.to_owned();
    arguments
}

#[tokio::test]
async fn what_was_known_last_holds_over_restarts() {
    let node = Node::new("known", "t4").await;
    let cards = node.machine.cards().len();
    let file = node.kubelet_directory().join("plugins").join(crate::node::DRIVER).join("gpu-pools.json");
    let forbidden = with(node.arguments(), "--kubeconfig", &without_pools(&node).await);
    node.pool("slices", json!({"offer": slices(3)})).await;

    // Never known: nothing is published.
    let plugin = Plugin::start(node.directory(), &forbidden);
    plugin.logged("cannot read GpuPools: nothing is published yet").await;
    plugin.ready_line("[-] GpuPools known: ").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(node.devices().await, [""; 0]);
    plugin.terminate().await;

    let plugin = node.plugin(None);
    let registered = node.register().await;
    until(&node, &plugin, &[("timeslice", Some("slices"), cards)]).await;
    plugin.terminate().await;
    drop(registered);

    // Changed while the plugin is away, and then not readable.
    node.pool("slices", json!({})).await;
    let plugin = Plugin::start(node.directory(), &forbidden);
    plugin.logged("cannot read GpuPools: what was known last holds").await;
    plugin.ready_line("[+] ResourceSlices published").await;
    // Told, and no reason to take the node out of service.
    plugin.ready_line("[+] GpuPools known: ").await;
    assert!(
        plugin.get("/readyz").1.contains("gpupools.gpu.tessera.dev is forbidden"),
        "{}",
        plugin.get("/readyz").1
    );
    until(&node, &plugin, &[("timeslice", Some("slices"), cards)]).await;
    plugin.terminate().await;

    // No API server at all.
    let nowhere = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                   contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n\
                   current-context: c\n";
    let kubeconfig = node.directory().join("nowhere");
    fs::write(&kubeconfig, nowhere).unwrap();
    let away = with(node.arguments(), "--kubeconfig", kubeconfig.to_str().unwrap());
    let plugin = Plugin::start(node.directory(), &away);
    plugin.logged(&node.pool_name("slices")).await;
    plugin.terminate().await;

    // Unreadable content counts as unknown, and the API server's answer replaces it.
    fs::write(&file, "{").unwrap();
    let plugin = Plugin::start(node.directory(), &forbidden);
    plugin.logged("the last known GpuPools cannot be read").await;
    plugin.logged("cannot read GpuPools: nothing is published yet").await;
    assert_eq!(published(&node).await.values().sum::<usize>(), cards, "what is published stays");
    plugin.terminate().await;
    let plugin = node.plugin(None);
    until(&node, &plugin, &[("gpu", Some("slices"), cards)]).await;
    assert!(serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap()["pools"].is_object());
    plugin.terminate().await;
}

/// A cluster of its own: the others' has the kind.
#[tokio::test]
async fn without_the_kind_there_are_no_pools_and_later_the_last_known_hold() {
    cluster().await;
    let own = Cluster::start(ClusterOptions::scheduler_tier(0)).await.unwrap();
    let node = Node::of(&own, "kind", "t4").await;
    let cards = node.machine.cards().len();
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    until(&node, &plugin, &[("gpu", None, cards)]).await;
    plugin.ready_line("[+] GpuPools known: the cluster has no kind GpuPool").await;

    node.pool_in(&own, "slices", json!({"offer": slices(3)})).await;
    until(&node, &plugin, &[("timeslice", Some("slices"), cards)]).await;
    plugin
        .until("no trouble", || plugin.get("/readyz").1.lines().any(|line| line == "[+] GpuPools known"))
        .await;
    plugin.terminate().await;
    drop(registered);

    own.kubectl(&["delete", "crd", "gpupools.gpu.tessera.dev"]).await.unwrap();
    let plugin = node.plugin(None);
    plugin.logged("cannot read GpuPools: what was known last holds").await;
    plugin.ready_line("[+] ResourceSlices published").await;
    until(&node, &plugin, &[("timeslice", Some("slices"), cards)]).await;
    plugin.terminate().await;
}
