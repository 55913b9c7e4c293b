//! The Grafana dashboards of the chart, held to what plugin and controller tell: Prometheus' own code reads the metrics and
//! evaluates every query, and each must find something.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use tessera_harness::host::Channel;
use tessera_harness::installation;
use tessera_harness::promql::{Answer, Scrape, evaluate};
use tessera_workspace as workspace;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::program::program;
use crate::stage::{Scene, Stage, cards, eventually, partition, play};

/// Seconds between two evaluations.
const STEP: u32 = 1;
/// What Grafana puts in for `$__rate_interval` where Prometheus scrapes every 15 s: four times that.
const RATE_INTERVAL: &str = "60s";

/// The dashboards by the names of their files.
fn dashboards() -> BTreeMap<String, Value> {
    let folder = workspace::root().join("charts/tessera/files/dashboards");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = files.map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let dashboard = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, dashboard)
    });
    read.collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What Grafana needs of a dashboard: identities that are there once, and the data source by its variable.
#[test]
fn dashboards_are_whole() {
    let all = dashboards();
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), ["fleet.json", "node.json", "team.json"]);
    let mut uids = BTreeSet::new();
    for (name, dashboard) in &all {
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        assert!(text(&dashboard["uid"]) && text(&dashboard["title"]), "{name}");
        assert!(dashboard["schemaVersion"].is_u64(), "{name}");
        assert_eq!(dashboard["id"], json!(null), "{name}: Grafana numbers it");
        assert!(uids.insert(dashboard["uid"].as_str()), "{name}: its uid is taken");
        let variables = list(&dashboard["templating"]["list"]);
        let kind = |variable: &Value| (variable["name"].clone(), variable["type"].clone());
        assert_eq!(kind(&variables[0]), (json!("datasource"), json!("datasource")), "{name}");
        assert_eq!(variables[0]["query"], "prometheus", "{name}");
        let mut ids = BTreeSet::new();
        let mut places = BTreeSet::new();
        for panel in list(&dashboard["panels"]) {
            let what = format!("{name}: {}", panel["title"]);
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{what}: its id is taken");
            let place = &panel["gridPos"];
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| place[side].as_u64().unwrap());
            assert!(x + w <= 24, "{what}: beyond the right edge");
            let cells = (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y)));
            assert!(cells.into_iter().all(|cell| places.insert(cell)), "{what}: over another panel");
            if panel["type"] == "row" {
                continue;
            }
            assert!(text(&panel["title"]) && !list(&panel["targets"]).is_empty(), "{what}");
            let mut letters = BTreeSet::new();
            for target in list(&panel["targets"]) {
                let source = json!({"type": "prometheus", "uid": "${datasource}"});
                assert_eq!(target["datasource"], source, "{what}");
                assert!(letters.insert(target["refId"].as_str().unwrap()), "{what}");
            }
        }
    }
}

/// A query with its place.
struct Query {
    place: String,
    text: String,
    /// The labels that what it finds must have, since legends or variables name them.
    labels: Vec<String>,
}

/// Queries of panels, and of variables.
fn queries(dashboards: &BTreeMap<String, Value>) -> Vec<Query> {
    let mut queries = Vec::new();
    for (name, dashboard) in dashboards {
        let mut values = vec![("$__rate_interval", RATE_INTERVAL)];
        for variable in list(&dashboard["templating"]["list"]) {
            if variable["type"] == "query" {
                let place = format!("{name}: variable {}", variable["name"]);
                let text = variable["query"]["query"].as_str().unwrap();
                let inner = text.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
                let (metric, label) = inner.unwrap().split_once(", ").unwrap();
                queries.push(Query { place, text: metric.to_owned(), labels: vec![label.to_owned()] });
            }
        }
        values.extend([("$node", ".*"), ("$namespace", ".*")]);
        for panel in list(&dashboard["panels"]) {
            for target in list(&panel["targets"]) {
                let mut text = target["expr"].as_str().unwrap().to_owned();
                for (variable, value) in &values {
                    text = text.replace(variable, value);
                }
                assert!(!text.contains('$'), "{name}: {}: {text}: an unknown variable", panel["title"]);
                let legend = target["legendFormat"].as_str().unwrap();
                let labels =
                    legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap().to_owned());
                let place = format!("{name}: {}: {text}", panel["title"]);
                queries.push(Query { place, text, labels: labels.collect() });
            }
        }
    }
    queries
}

impl Stage {
    /// What all pods of Tessera with metrics tell now, with the labels that the chart's PodMonitors give them.
    async fn scrape(&self) -> Vec<Scrape> {
        let pods: Api<Pod> = Api::namespaced(self.client().await, installation::NAMESPACE);
        let mut scrapes = Vec::new();
        for (component, port) in [("kubelet-plugin", 9475), ("controller", 9476)] {
            let selector = format!("app.kubernetes.io/component={component}");
            for pod in pods.list(&ListParams::default().labels(&selector)).await.unwrap() {
                let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.clone()) else { continue };
                let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
                let (content_type, text) = self.get(&format!("{ip}:{port}"), "/metrics").await;
                let mut labels = BTreeMap::from([
                    ("namespace".to_owned(), installation::NAMESPACE.to_owned()),
                    ("pod".to_owned(), pod.name_any()),
                    ("instance".to_owned(), format!("{ip}:{port}")),
                ]);
                if component == "kubelet-plugin" {
                    labels.insert("node".to_owned(), pod.spec.unwrap().node_name.unwrap());
                }
                scrapes.push(Scrape { at, content_type, text, labels });
            }
        }
        scrapes
    }

    /// The content's type, and the content.
    async fn get(&self, address: &str, path: &str) -> (String, String) {
        let mut stream = self.node().host().dial(Channel::Tcp(address.to_owned())).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-type").then(|| value.trim().to_owned())
        };
        (head.lines().find_map(header).unwrap(), body.to_owned())
    }
}

impl Scene {
    /// A pod with a program on each of these claims' devices, steered.
    async fn steered(&self, name: &str, templates: &[&str]) {
        let programs: Vec<Value> = templates
            .iter()
            .map(|template| program(template, &[template], &["--allocate-mib", "512", "--hold"]))
            .collect();
        let claims: Vec<Value> = templates
            .iter()
            .map(|template| json!({"name": template, "resourceClaimTemplateName": template}))
            .collect();
        self.apply(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"gpu.tessera.dev/steering": "enabled"}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "volumes": [{"name": "machine", "hostPath": {"path": installation::MACHINE}}],
                "containers": programs, "resourceClaims": claims},
        }))
        .await;
        self.ready(name).await;
    }

    /// What the program on this claim's card used, told by NVML to the plugin, by that to the controller, and by that to
    /// `kubectl gpu advise`, is advice for something smaller.
    async fn is_advised(&self, claim: &str) {
        let program = workspace::build_packages(&["kubectl-gpu"]).unwrap().join("kubectl-gpu");
        let row = eventually("advice on what was seen twice", async || {
            let output = tokio::process::Command::new(&program)
                .args([
                    "advise",
                    "--namespace",
                    &self.namespace,
                    "--min-observed",
                    "1s",
                    "-o",
                    "json",
                    "--kubeconfig",
                ])
                .arg(self.stage.cluster.kubeconfig())
                .output()
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let report: Value = serde_json::from_slice(&output.stdout).ok()?;
            let of_claim = |row: &&Value| row["claim"].as_str().is_some_and(|name| name.starts_with(claim));
            let row = list(&report["claims"]).iter().find(of_claim)?;
            (row["verdict"] != "notEnoughSeen" && row["verdict"] != "notMeasured").then(|| row.clone())
        })
        .await;
        assert_eq!((&row["verdict"], &row["has"]["kind"]), (&json!("change"), &json!("card")), "{row:#}");
        // What the program allocates, and its context.
        let peak = row["memoryPeakMib"].as_u64().unwrap();
        assert!((512..4096).contains(&peak), "{row:#}");
        assert!(row["to"]["worth"].as_f64().unwrap() <= 0.25 && row["manifest"].is_string(), "{row:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboards_finds_something() {
    play("every_query_of_the_dashboards_finds_something", async |scene| {
        let stage = scene.stage;
        scene
            .apply(json!({
                "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuQuota", "metadata": {"name": "dashboards"},
                "spec": {"amounts": [{"name": "cards", "unit": "Cards", "guaranteed": 1}], "budget": {"gpuHours": 1000}},
            }))
            .await;
        scene.template("card", &[cards("card", 1)]).await;
        scene.template("part", &[partition("part", "1g.10gb")]).await;
        scene.steered("first", &["card", "part"]).await;
        let mut scrapes = stage.scrape().await;
        // Scrapes are told apart by their second. What happens between two of them is what rates tell.
        tokio::time::sleep(Duration::from_secs(1)).await;
        scene.steered("second", &["part"]).await;
        eventually("the claims' use to be told", async || {
            let told = stage.scrape().await;
            let own = |line: &&str| line.contains(&format!("namespace=\"{}\"", scene.namespace));
            let series = |name: &str| {
                let lines = told.iter().flat_map(|scrape| scrape.text.lines());
                lines.filter(|line| line.starts_with(name)).filter(own).count()
            };
            scrapes.extend(told.clone());
            let is_told = series("tessera_claim_sm_activity_ratio{") == 3
                && series("tessera_claim_memory_used_mib{") == 3
                && told.iter().any(|scrape| scrape.text.contains("tessera_controller_quota_gpu_hours{"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            is_told.then_some(())
        })
        .await;
        scrapes.extend(stage.scrape().await);

        let queries = queries(&dashboards());
        let texts: Vec<String> = queries.iter().map(|query| query.text.clone()).collect();
        let answers = evaluate(&scrapes, &texts, STEP).await.unwrap();
        let mut wrong = Vec::new();
        for (Query { place, labels, .. }, Answer { series, error }) in queries.iter().zip(answers) {
            if !error.is_empty() {
                wrong.push(format!("{place}: {error}"));
            } else if series.is_empty() {
                wrong.push(format!("{place}: nothing"));
            } else if let Some(label) =
                labels.iter().find(|label| !series.iter().any(|series| series.contains_key(*label)))
            {
                wrong.push(format!("{place}: nothing with the label {label}"));
            }
        }
        assert!(wrong.is_empty() && texts.len() > 50, "{}", wrong.join("\n"));

        // Whose claim it is stays the claim's, whoever told it.
        let own = vec![format!("tessera_claim_sm_granted_ratio{{namespace=\"{}\"}}", scene.namespace)];
        let answers = evaluate(&scrapes, &own, STEP).await.unwrap();
        let pods: BTreeSet<&str> = answers[0].series.iter().map(|series| &*series["pod"]).collect();
        assert_eq!(pods, BTreeSet::from(["first", "second"]));
        scene.is_advised("first-card-").await;
        for pod in ["first", "second"] {
            scene.delete_pod(pod).await;
        }
    })
    .await;
}
