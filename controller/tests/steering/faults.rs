//! Managed pools while nothing can be relied on: requests of the controller are refused, late or lost, or their answers, watches
//! end, and the leader is cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Config, ResourceExt as _};
use serde_json::json;
use tempfile::NamedTempFile;
use tessera_fakes::poll;
use tessera_fakes::proxy::Proxy;
use tessera_harness::Cluster;
use tokio::task::JoinHandle;

use crate::instance::Instance;
use crate::managed::{claims, ungated};
use crate::{fleet, pods};

/// So long the leader is cut off: longer than its Lease.
const CUT_OFF: Duration = Duration::from_secs(20);
/// So long faults happen before that, and after it.
const FAULTS: Duration = Duration::from_secs(4);

/// A controller behind a proxy of its own.
struct Replica {
    name: &'static str,
    proxy: Proxy,
    instance: Instance,
    _kubeconfig: NamedTempFile,
}

impl Replica {
    async fn start(cluster: &Cluster, name: &'static str) -> Self {
        let direct = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let direct = Config::from_custom_kubeconfig(direct, &KubeConfigOptions::default()).await.unwrap();
        let proxy = Proxy::before(direct).await;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "proxy", "cluster": { "server": proxy.url() } }],
            "users": [{ "name": "nobody", "user": {} }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "nobody" } }],
            "current-context": "proxy",
        });
        let mut file = NamedTempFile::new().unwrap();
        write!(file, "{kubeconfig}").unwrap();
        let instance = Instance::start(file.path(), name);
        Replica { name, proxy, instance, _kubeconfig: file }
    }
}

/// Looks at every state of the claims, in order.
struct Audit {
    found: Arc<Mutex<Found>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Found {
    violations: Vec<String>,
    /// How often a claim got devices.
    allocations: usize,
    devices: BTreeMap<String, BTreeSet<String>>,
}

fn devices_of(claim: &ResourceClaim) -> BTreeSet<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.iter().flat_map(|allocation| allocation.devices.iter());
    let results = results.flat_map(|all| all.results.iter().flatten());
    results.map(|result| format!("{}/{}", result.pool, result.device)).collect()
}

impl Found {
    fn see(&mut self, claim: &ResourceClaim) {
        let (name, devices) = (claim.name_any(), devices_of(claim));
        for (other, taken) in self.devices.iter().filter(|(other, _)| **other != name) {
            if let Some(device) = taken.intersection(&devices).next() {
                self.violations.push(format!("{name} and {other} have {device}"));
            }
        }
        let had = self.devices.insert(name, devices.clone()).unwrap_or_default();
        self.allocations += usize::from(had.is_empty() && !devices.is_empty());
    }
}

impl Audit {
    async fn start(cluster: &Cluster) -> Self {
        let found = Arc::new(Mutex::new(Found::default()));
        let (shared, claims) = (Arc::clone(&found), claims(cluster).await);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(claims, watcher::Config::default()));
            while let Ok(Some(event)) = events.try_next().await {
                let mut found = shared.lock().unwrap();
                match event {
                    watcher::Event::Init => found.devices.clear(),
                    watcher::Event::InitApply(claim) | watcher::Event::Apply(claim) => found.see(&claim),
                    watcher::Event::Delete(claim) => drop(found.devices.remove(&claim.name_any())),
                    watcher::Event::InitDone => {}
                }
            }
        });
        Audit { found, task }
    }

    /// What it has found; its watch must have seen it all.
    fn end(self) -> Found {
        assert!(!self.task.is_finished(), "the watch of claims broke off");
        self.task.abort();
        std::mem::take(&mut *self.found.lock().unwrap())
    }
}

fn job(name: &str, count: usize, cards: usize, is_gated: bool) -> serde_json::Value {
    let mut spec = pods::spec(cards);
    if !is_gated {
        spec["schedulingGates"] = json!([]);
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "parallelism": count, "completions": count,
            "template": { "metadata": { "labels": { "app": name } }, "spec": spec } },
    })
}

fn with_named(pod: &str, claim: &str) -> [serde_json::Value; 2] {
    let claim_object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": claim, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "gpus", "exactly": { "deviceClassName": "gpu" } }] } },
    });
    let mut user = ungated(pod, 1);
    user["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": claim }]);
    [claim_object, user]
}

/// `STEERING_FAULTS_SEED` asks for other faults.
fn seed() -> u64 {
    std::env::var("STEERING_FAULTS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_card_has_two_owners_whatever_fails() {
    let cluster = fleet::start_with(6, 4, "Managed").await;
    let audit = Audit::start(&cluster).await;
    let replicas = [Replica::start(&cluster, "first").await, Replica::start(&cluster, "second").await];
    pods::run(&cluster, "before", 1).await;

    for (number, replica) in (0..).zip(&replicas) {
        replica.proxy.misbehave(2 * seed() + number);
    }
    // 19 cards of 24: wherever the others are, there is a node with two for the last that asks for two.
    let mut two_claims = ungated("two-claims", 1);
    two_claims["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimTemplateName": "gpus-1" },
        { "name": "more", "resourceClaimTemplateName": "gpus-1" }]);
    let mut all = vec![job("open", 6, 1, false), job("gated", 4, 2, true), two_claims];
    all.extend(with_named("stays", "kept"));
    all.extend(with_named("goes", "left"));
    fleet::apply(&cluster, &all).await;
    tokio::time::sleep(FAULTS / 2).await;
    cluster.delete_pod("default", "goes").await.unwrap();
    tokio::time::sleep(FAULTS / 2).await;
    let leader = cluster
        .kubectl(&["get", "lease", "tessera-controller", "-o", "jsonpath={.spec.holderIdentity}"])
        .await
        .unwrap();
    let cut_off = replicas.iter().position(|replica| replica.name == leader).expect("one of them leads");
    replicas[cut_off].proxy.cut_off();
    // The other one has something left to do.
    fleet::apply(&cluster, &[job("late", 1, 1, false)]).await;
    tokio::time::sleep(CUT_OFF).await;
    replicas[cut_off].proxy.misbehave(2 * seed() + 2);
    tokio::time::sleep(FAULTS).await;
    replicas.iter().for_each(|replica| replica.proxy.behave());

    for (app, count) in [("open", 6), ("gated", 4), ("late", 1)] {
        pods::nodes_of_app(&cluster, app, count).await;
    }
    for name in ["two-claims", "stays"] {
        pods::node(&cluster, name).await;
    }
    // What is allocated is used, and nothing else.
    let api = claims(&cluster).await;
    poll::until_async("nothing is allocated that nobody has reserved", async || {
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let is_reserved = |claim: &ResourceClaim| {
            claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten()).next().is_some()
        };
        all.iter().all(|claim| is_reserved(claim) != devices_of(claim).is_empty())
    })
    .await;
    let all = api.list(&ListParams::default()).await.unwrap().items;
    let devices: Vec<String> = all.iter().flat_map(devices_of).collect();
    assert_eq!(devices.len(), 19, "{devices:?}");
    let found = audit.end();
    let met: Vec<_> = replicas.iter().map(|replica| (replica.name, replica.proxy.met())).collect();
    println!("seed {}: {} allocations; {met:?}", seed(), found.allocations);
    assert_eq!(found.violations, Vec::<String>::new(), "seed {}", seed());
    for (name, met) in met {
        assert!(met.values().sum::<usize>() > 0, "no request of {name} met a fault");
    }
    for replica in replicas {
        replica.instance.terminate();
    }
}

#[test]
fn the_audit_finds_a_second_owner() {
    let claim = |name: &str, device: &str| -> ResourceClaim {
        let results =
            json!([{ "request": "gpus", "driver": fleet::DRIVER, "pool": "n00", "device": device }]);
        let object = json!({ "metadata": { "name": name }, "spec": {},
            "status": { "allocation": { "devices": { "results": results } } } });
        serde_json::from_value(object).unwrap()
    };
    let mut found = Found::default();
    found.see(&claim("one", "gpu-01-00"));
    found.see(&claim("two", "gpu-02-00"));
    found.see(&claim("one", "gpu-01-00"));
    assert_eq!((found.violations.len(), found.allocations), (0, 2));
    found.see(&claim("three", "gpu-02-00"));
    assert_eq!(found.violations, ["three and two have n00/gpu-02-00"]);
}
