//! What `kubectl gpu simulate` says is what happens: histories that are simulated and then played on a real control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::Object;
use tessera_fakes::poll;
use tessera_harness::Cluster;
use tessera_simulate::PolicyName;
use tessera_simulate::Random;
use tessera_simulate::fleet::{Demands, Fleet, ListReader, Pods, Run, RunReport, Workload};

use crate::instance::Instance;
use crate::managed::{allocation, claims};
use crate::{fleet, pods};

/// Kinds of pods: name, what each asks for, and how much that is of a card.
const KINDS: [(&str, &str, f64); 8] = [
    ("one", "1", 1.0),
    ("two", "2", 2.0),
    ("four", "4", 4.0),
    ("small", "1g.10gb", 1.0 / 7.0),
    ("medium", "2g.20gb", 2.0 / 7.0),
    ("half", "3g.40gb", 3.0 / 7.0),
    ("notebook", "15%", 0.15),
    ("service", "40%", 0.4),
];

/// Time between two arrivals.
const EVERY: u64 = 10;

/// Pods of a history.
const PODS: u64 = 30;

/// Pods that arrive together, where they do.
const TOGETHER: usize = 5;

/// A card, which makes no difference, and what sums of parts are inexact by.
const A_CARD: f64 = 1.0 + 1e-6;

/// A pod's node and devices.
type Place = (String, BTreeSet<String>);

fn machines() -> Fleet {
    let groups = ["2xdgx-h100,cards=4", "1xdgx-a100,cards=2,mig=on"].map(|group| group.parse().unwrap());
    Fleet::new(&groups).unwrap()
}

/// So many pods of kinds by chance that come and go.
fn history(seed: u64, count: u64, fleet: &Fleet) -> Workload {
    let mut random = Random::new(seed);
    let mut lines = "name,gpu,at,duration\n".to_owned();
    for number in 0..count {
        let (name, kind, _) = KINDS[random.below(KINDS.len())];
        // Five seconds between any arrival and any end.
        let duration = 5 + EVERY * (2 + random.below(10) as u64);
        writeln!(lines, "{name}{number},{kind},{}s,{duration}s", EVERY * number).unwrap();
    }
    let mut reader = ListReader::default();
    lines.lines().for_each(|line| reader.line(line).unwrap());
    Workload::of_list(&reader.finish().unwrap(), fleet)
}

fn simulate(fleet: &Fleet, workload: &Workload, at: Option<Duration>) -> RunReport {
    let demands = &Demands::of(fleet, workload);
    Run { fleet, workload, demands, at, wishes: &[] }.run(PolicyName::Tessera, 1, |_| ())
}

/// Where each pod was.
fn places(fleet: &Fleet, workload: &Workload, report: &RunReport) -> BTreeMap<String, Place> {
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for card in report.holdings.cards(fleet) {
        for holder in card.holders {
            let name = workload.pods[holder.pod].name.clone();
            let place = places.entry(name).or_insert_with(|| (card.node.to_owned(), BTreeSet::new()));
            place.1.insert(holder.device.clone());
        }
    }
    places
}

/// The nodes with what their plugins would publish, the classes, and a template for the claim of each kind of pod.
async fn lay_out(fleet: &Fleet, workload: &Workload) -> fleet::Turn {
    let cluster = fleet::cluster(&[]).await;
    let mut manifests: Vec<Value> = fleet
        .objects(Allocation::Managed)
        .map(|object| match object {
            Object::Node(node) => {
                let mut node = json!(node);
                node["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
                node
            }
            Object::ResourceSlice(slice) => json!(slice),
            Object::DeviceClass(class) => json!(class),
            other => panic!("{other:?}"),
        })
        .collect();
    manifests.extend(workload.shapes.iter().enumerate().map(|(number, shape)| {
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": format!("shape-{number}"), "namespace": "default" },
            "spec": { "spec": shape.claims[0].1 } })
    }));
    fleet::apply(&cluster, &manifests).await;
    cluster
}

async fn create(cluster: &Cluster, workload: &Workload, pod: usize) {
    let pod = &workload.pods[pod];
    let template = format!("shape-{}", pod.shape);
    let manifest = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": pod.name, "namespace": "default" },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": template }] } });
    cluster.create_pod(manifest).await.unwrap();
}

/// Where each claim's pod is.
async fn real_places(claims: &Api<ResourceClaim>) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for claim in claims.list(&ListParams::default()).await.unwrap() {
        let Some(results) = allocation(&claim).and_then(|all| all.devices.as_ref()?.results.as_ref()) else {
            continue;
        };
        let owner = claim.metadata.owner_references.as_ref().unwrap()[0].name.clone();
        let devices = results.iter().map(|result| result.device.clone()).collect();
        places.insert(owner, (results[0].pool.clone(), devices));
    }
    places
}

/// Where each arrival is bound before the next: every node and every device is what was said.
#[tokio::test(flavor = "multi_thread")]
async fn every_placement_is_what_the_simulation_said() {
    let machines = machines();
    // The first in which nobody waits.
    let nobody_waits = |workload: &Workload| {
        let report = simulate(&machines, workload, None);
        let mut pods = report.pods.iter().zip(&workload.pods);
        pods.all(|(outcome, pod)| outcome.placed.is_some_and(|(at, _)| at == pod.at))
    };
    let workload = (1..100).map(|seed| history(seed, PODS, &machines)).find(nobody_waits).unwrap();
    let cluster = lay_out(&machines, &workload).await;
    let controller = Instance::start(&cluster.kubeconfig(), "replay");
    let claims = claims(&cluster).await;
    let api: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    for (place, pod) in workload.pods.iter().enumerate() {
        let ended = |other: &&Pods| {
            let end = other.duration.map(|duration| other.at + duration);
            end.is_some_and(|end| end < pod.at && end + Duration::from_secs(EVERY) > pod.at)
        };
        for other in workload.pods.iter().filter(ended) {
            api.delete(&other.name, &DeleteParams::default()).await.unwrap();
            poll::until_async("its claim is gone", async || {
                !real_places(&claims).await.contains_key(&other.name)
            })
            .await;
        }
        create(&cluster, &workload, place).await;
        let node = pods::node(&cluster, &pod.name).await;
        let said = places(&machines, &workload, &simulate(&machines, &workload, Some(pod.at)));
        let real = real_places(&claims).await;
        assert_eq!(real, said, "after {}", pod.name);
        assert_eq!(node, real[&pod.name].0);
    }
    fleet::delete_workloads(&cluster).await;
    all_at_once(&cluster, &machines, workload.clone()).await;
    fleet::delete_workloads(&cluster).await;
    come_and_go(&cluster, &machines, workload).await;
    controller.terminate();
}

/// What a pod of this name asks for, in cards.
fn cards(name: &str) -> f64 {
    KINDS.iter().find(|(kind, ..)| name.starts_with(kind)).unwrap().2
}

/// More than fits arrives faster than it is placed: who is placed may differ, hardly how much.
async fn all_at_once(cluster: &Cluster, machines: &Fleet, mut workload: Workload) {
    for pod in &mut workload.pods {
        (pod.at, pod.duration) = (Duration::ZERO, None);
    }
    let said = places(machines, &workload, &simulate(machines, &workload, None));
    assert!(said.len() < workload.pods.len(), "not all of them fit: {said:?}");
    for pod in 0..workload.pods.len() {
        create(cluster, &workload, pod).await;
    }
    let total = |places: &BTreeMap<String, Place>| places.keys().map(|name| cards(name)).sum::<f64>();
    let claims = claims(cluster).await;
    // What the loop knows of the demand when it decides depends on how fast pods arrive.
    poll::until_async("as much is placed, but for a card", async || {
        total(&real_places(&claims).await) > total(&said) - A_CARD
    })
    .await;
    // Whoever else would still be placed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let real = real_places(&claims).await;
    assert!(total(&real) < total(&said) + A_CARD, "really {real:?}, said {said:?}");
}

/// Several arrive at a time, in random order, and stay for a random time from when they are placed; more is asked for than fits. Who is
/// placed when may differ, hardly how much is allocated over the whole history.
async fn come_and_go(cluster: &Cluster, machines: &Fleet, mut workload: Workload) {
    let mut random = Random::new(17);
    random.shuffle(&mut workload.pods);
    let mut stays: BTreeMap<String, usize> = BTreeMap::new();
    let at = |step: usize| Duration::from_secs(EVERY) * u32::try_from(step).unwrap();
    for (number, pod) in workload.pods.iter_mut().enumerate() {
        let stay = 1 + random.below(3);
        stays.insert(pod.name.clone(), stay);
        (pod.at, pod.duration) = (at(number / TOGETHER), Some(at(stay)));
    }
    let steps = workload.pods.len().div_ceil(TOGETHER) + 2;
    let report = simulate(machines, &workload, None);
    let is_there = |pod: &Pods, placed: Duration, step: usize| {
        placed <= at(step) && at(step) < placed + pod.duration.unwrap_or(Duration::MAX)
    };
    let said = |step: usize| -> f64 {
        let pods = report.pods.iter().zip(&workload.pods);
        let there = pods
            .filter(|(outcome, pod)| outcome.placed.is_some_and(|(placed, _)| is_there(pod, placed, step)));
        there.map(|(_, pod)| cards(&pod.name)).sum()
    };
    let waited = report.pods.iter().zip(&workload.pods);
    let waited =
        waited.filter(|(outcome, pod)| outcome.placed.is_none_or(|(placed, _)| placed > pod.at)).count();
    assert!(waited > 3, "only {waited} wait");
    let claims = claims(cluster).await;
    let api: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    // When pods that are placed leave.
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    let mut totals = Vec::new();
    for step in 0..steps {
        let over: Vec<String> =
            ends.iter().filter(|(_, end)| **end == step).map(|(name, _)| name.clone()).collect();
        for name in &over {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        for (place, _) in workload.pods.iter().enumerate().filter(|(_, pod)| pod.at == at(step)) {
            create(cluster, &workload, place).await;
        }
        let there = settled(&claims, &over, said(step)).await;
        for name in there.keys() {
            ends.entry(name.clone()).or_insert(step + stays[name]);
        }
        totals.push((said(step), there.keys().map(|name| cards(name)).sum::<f64>()));
    }
    let (said, real) = totals.iter().fold((0.0, 0.0), |sum, total| (sum.0 + total.0, sum.1 + total.1));
    let difference = (said - real).abs() / steps as f64;
    assert!(difference < 0.5, "in cards, {difference} on average; said and real: {totals:?}");
}

/// Where pods are once none of these is left, and nobody else is placed: soon when as much is as was said, in cards.
async fn settled(claims: &Api<ResourceClaim>, over: &[String], said: f64) -> BTreeMap<String, Place> {
    let mut last = real_places(claims).await;
    let (begin, mut since) = (Instant::now(), Instant::now());
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "of {over:?} some stay: {last:?}");
        let all: f64 = last.keys().map(|name| cards(name)).sum();
        let is_clean = !over.iter().any(|name| last.contains_key(name));
        let quiet = if all > said - 0.5 { Duration::from_millis(300) } else { Duration::from_secs(2) };
        if is_clean && since.elapsed() > quiet {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = real_places(claims).await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}
