//! The chart's objects for Prometheus and Grafana.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tessera_harness::promql::{Scrape, alerts};

use crate::support::{accepted, chart, cluster, of_component, only, template};

const MONITOR: &str = "metrics.podMonitor.enabled=true";

/// The kind is unknown to this API server, so only the rendered objects are checked.
#[tokio::test]
async fn pod_monitors_find_the_pods_and_keep_the_labels_of_claims() {
    let value =
        r#"metrics.podMonitor={"enabled": true, "interval": "15s", "labels": {"release": "prometheus"}}"#;
    let text = template(&[value], &["--show-only=templates/metrics.yaml"]).await.expect("rendered");
    let monitors: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let all = accepted(&template(&[], &[]).await.expect("rendered")).await;
    for (component, kind) in [("kubelet-plugin", "DaemonSet"), ("controller", "Deployment")] {
        let monitors = of_component(&monitors, component);
        let monitor = only(&monitors, "PodMonitor");
        assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
        let of_program = of_component(&all, component);
        let pods = &only(&of_program, kind)["spec"];
        assert_eq!(monitor["spec"]["selector"], pods["selector"]);
        let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
        assert_eq!((&endpoint["path"], &endpoint["interval"]), (&json!("/metrics"), &json!("15s")));
        let ports = pods["template"]["spec"]["containers"][0]["ports"].as_array().expect("ports");
        assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{endpoint}");
        assert_eq!(endpoint["honorLabels"], true);
        if component == "kubelet-plugin" {
            assert_eq!(endpoint["relabelings"][0]["targetLabel"], "node");
        }
    }
}

/// A release that would fail half-way reports the missing kind before; rendering without a cluster goes on.
#[tokio::test]
async fn a_cluster_without_the_kind_is_told_what_to_do() {
    let chart = chart();
    let install = ["install", "monitored", &chart, "--namespace", "monitored", "--dry-run=server"];
    cluster().await.helm(&[&install[..], &["--set", "crds.install=false"]].concat()).await.expect("without");
    let error = cluster().await.helm(&[&install[..], &["--set", MONITOR]].concat()).await;
    let error = error.expect_err("no such kind").to_string();
    assert!(error.contains("metrics.podMonitor.enabled") && error.contains("Prometheus Operator"), "{error}");
    template(&[MONITOR], &[]).await.expect("rendered without a cluster");
}

#[tokio::test]
async fn each_dashboard_is_a_config_map_that_the_sidecar_finds() {
    let value = r#"metrics.grafanaDashboards={"enabled": true, "annotations": {"grafana_folder": "GPUs"},
        "namespace": "kube-system"}"#;
    let objects = accepted(&template(&[value], &[]).await.expect("rendered")).await;
    let is_dashboard = |object: &&Value| object["metadata"]["labels"]["grafana_dashboard"] != Value::Null;
    let maps: Vec<&Value> =
        objects.iter().filter(|object| object["kind"] == "ConfigMap").filter(is_dashboard).collect();
    let mut uids = Vec::new();
    for map in &maps {
        let metadata = &map["metadata"];
        assert_eq!(metadata["labels"]["grafana_dashboard"], "1");
        assert_eq!(metadata["annotations"]["grafana_folder"], "GPUs");
        assert_eq!(metadata["namespace"], "kube-system");
        let files = map["data"].as_object().expect("files");
        let [file] = files.values().collect::<Vec<_>>()[..] else { panic!("{map}") };
        let dashboard: Value = serde_json::from_str(file.as_str().expect("text")).expect("JSON");
        uids.push(dashboard["uid"].as_str().expect("a uid").to_owned());
    }
    uids.sort();
    assert_eq!(uids, ["tessera-fleet", "tessera-node", "tessera-team"]);
    let without = template(&[], &[]).await.expect("rendered");
    assert!(!without.contains("grafana_dashboard"), "off by default");
}

/// mps-host has sockets on the disk, and no network.
#[tokio::test]
async fn mps_host_needs_no_network() {
    let values = ["networkPolicy.enabled=true", "sharing.mps.enabled=true"];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let own = of_component(&objects, "mps-host");
    let policy = &only(&own, "NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!((&policy["ingress"], &policy["egress"]), (&Value::Null, &Value::Null), "nobody");
    assert_eq!(policy["podSelector"], only(&own, "DaemonSet")["spec"]["selector"]);
}

/// No part runs without requests and a priority, or beside the quotas of a namespace.
#[tokio::test]
async fn every_pod_has_resources_and_a_priority() {
    let objects = accepted(&template(&["sharing.mps.enabled=true"], &[]).await.expect("rendered")).await;
    let pods: Vec<&Value> = objects
        .iter()
        .filter(|object| ["DaemonSet", "Deployment", "Job"].iter().any(|kind| object["kind"] == *kind))
        .collect();
    assert_eq!(pods.len(), 4, "plugin, mps-host, controller, and the Job of an uninstallation");
    for object in pods {
        let pod = &object["spec"]["template"]["spec"];
        let name = &object["metadata"]["name"];
        let priority = pod["priorityClassName"].as_str().expect("a priority");
        assert!(["system-node-critical", "system-cluster-critical"].contains(&priority), "{name}");
        let requests = &pod["containers"][0]["resources"]["requests"];
        assert!(requests["cpu"].is_string() && requests["memory"].is_string(), "{name}: {requests}");
    }
}

/// What a fleet tells each minute for five hours: a claim that does nothing beside a busy one, a full queue, a card that hangs, and a
/// budget near its end.
fn troubled(begin: u64) -> Vec<Scrape> {
    let mut scrapes = Vec::new();
    for at in (begin..=begin + 5 * 3600).step_by(60) {
        let mut scrape = |node: &str, text: &str| {
            let labels = BTreeMap::from([("node".to_owned(), node.to_owned())]);
            scrapes.push(Scrape {
                at,
                content_type: "text/plain; version=0.0.4".to_owned(),
                text: text.to_owned(),
                labels,
            });
        };
        let claim = |name: &str, uuid: &str, device: &str, activity: f64| {
            let labels = format!(
                "namespace=\"n\",pod=\"{name}\",claim=\"{name}\",UUID=\"{uuid}\",device=\"{device}\""
            );
            format!(
                "tessera_claim_sm_activity_ratio{{{labels}}} {activity}\ntessera_claim_sm_granted_ratio{{{labels}}} 0.5\n\
                 tessera_claim_memory_granted_mib{{{labels}}} 1\n"
            )
        };
        let shared =
            claim("idle", "GPU-1", "gpu-01-00-mps", 0.01) + &claim("busy", "GPU-1", "gpu-01-00-mps", 0.48);
        scrape(
            "a",
            &format!(
                "{shared}{}tessera_gpu_sm_activity_ratio{{UUID=\"GPU-1\"}} 0.97\ntessera_gpu_sm_activity_ratio{{UUID=\"GPU-2\"}} 1\n\
             tessera_cards_not_answering 0\ntessera_last_complete_look_timestamp_seconds {at}\n",
                claim("alone", "GPU-2", "gpu-02-00", 0.5),
            ),
        );
        scrape(
            "b",
            &format!("tessera_cards_not_answering 1\ntessera_last_complete_look_timestamp_seconds {at}\n"),
        );
        scrape(
            "c",
            &format!("tessera_cards_not_answering 0\ntessera_last_complete_look_timestamp_seconds {begin}\n"),
        );
        scrape(
            "controller",
            &format!(
                "tessera_controller_oldest_waiting_pod_timestamp_seconds {begin}\n\
             tessera_controller_quota_gpu_hours{{quota=\"vision\"}} 950\ntessera_controller_quota_budget_gpu_hours{{quota=\"vision\"}} 1000\n\
             tessera_controller_quota_gpu_hours{{quota=\"nlp\"}} 10\ntessera_controller_quota_budget_gpu_hours{{quota=\"nlp\"}} 1000\n\
             tessera_controller_quota_gpu_hours{{quota=\"none\"}} 10\ntessera_controller_quota_budget_gpu_hours{{quota=\"none\"}} 0\n",
            ),
        );
    }
    scrapes
}

/// By Prometheus' own rule engine.
#[tokio::test]
async fn alerts_fire_for_what_they_name_and_for_nothing_else() {
    let value = r#"metrics.prometheusRules={"enabled": true, "labels": {"release": "prometheus"}}"#;
    let text = template(&[value], &["--show-only=templates/alerts.yaml"]).await.expect("rendered");
    let rules: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let [rule] = &rules[..] else { panic!("{text}") };
    assert_eq!(
        (&rule["kind"], &rule["metadata"]["labels"]["release"]),
        (&json!("PrometheusRule"), &json!("prometheus"))
    );
    let begin = 1_790_000_000;
    let fired = alerts(&troubled(begin), &rule["spec"].to_string(), 60).await.expect("evaluated");
    let label = |labels: &BTreeMap<String, String>, name: &str| labels.get(name).cloned().unwrap_or_default();
    let mut found: Vec<(String, String, u64)> = fired
        .iter()
        .map(|alert| {
            let what = ["claim", "UUID", "quota", "node"].map(|name| label(&alert.labels, name));
            let what = what.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
            (label(&alert.labels, "alertname"), what, (alert.at - begin) / 60)
        })
        .collect();
    found.sort();
    let wanted = [
        ("TesseraBudgetNearEnd", "vision", 0),
        ("TesseraCardOut", "b", 5),
        ("TesseraCardOut", "c", 16),
        ("TesseraClaimUnused", "idle", 120),
        ("TesseraQueueOld", "", 246),
        ("TesseraSharedCardBusy", "GPU-1", 30),
    ];
    assert_eq!(found, wanted.map(|(alert, what, at)| (alert.to_owned(), what.to_owned(), at)));
    for alert in &fired {
        assert!(
            alert.annotations.values().all(|text| !text.contains("{{") && !text.contains("error")),
            "{alert:?}"
        );
    }
    assert!(!template(&[], &[]).await.expect("rendered").contains("PrometheusRule"), "off by default");
}
