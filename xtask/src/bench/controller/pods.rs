//! Starts pods, steered and native in turn, and sees when they get on.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_harness::Cluster;

const GATE: &str = tessera_api::steering::GATE;

/// The longest wait for all pods.
const PATIENCE: Duration = Duration::from_secs(120);

/// When a pod got on, counted from its creation.
pub struct Started {
    /// When our gate was gone; `None` for a native pod.
    pub lifted: Option<Duration>,
    /// When it had its node.
    pub bound: Duration,
}

/// Starts so many pods of each kind and waits until all are bound.
pub async fn start(cluster: &Cluster, prefix: &str, count: usize, pause: Duration) -> Result<Vec<Started>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
    let from = pods.list_metadata(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut events = pods.watch(&WatchParams::default().timeout(290), &from).await?.boxed();
    let mut created: HashMap<String, Instant> = HashMap::new();
    let mut lifted: HashMap<String, Duration> = HashMap::new();
    let mut started = Vec::new();
    let making = async {
        let mut created = HashMap::new();
        for number in 0..2 * count {
            let steered = number % 2 == 0;
            let name = format!("{prefix}-{}-{number}", if steered { "steered" } else { "native" });
            created.insert(name.clone(), Instant::now());
            pods.create(&PostParams::default(), &pod(&name, steered)?).await?;
            tokio::time::sleep(pause).await;
        }
        anyhow::Ok(created)
    };
    let mut seen: Vec<(Instant, Pod)> = Vec::new();
    let mut making = Box::pin(making);
    let mut is_made = false;
    let end = Instant::now() + PATIENCE + pause * u32::try_from(2 * count).unwrap_or(u32::MAX);
    while started.len() < 2 * count {
        tokio::select! {
            made = &mut making, if !is_made => {
                created = made?;
                is_made = true;
            }
            event = events.try_next() => match event? {
                Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => seen.push((Instant::now(), pod)),
                Some(_) => {}
                None => bail!("the watch of pods ended"),
            },
            () = tokio::time::sleep_until(end.into()) => {
                bail!("only {} of {} pods are bound", started.len(), 2 * count);
            }
        }
        if !is_made {
            // Only then is it known when each was created.
            continue;
        }
        for (at, pod) in seen.drain(..) {
            let name = pod.name_any();
            let Some(begun) = created.get(&name).copied() else { continue };
            let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten()).count();
            if gates == 0 && name.contains("steered") {
                lifted.entry(name.clone()).or_insert(at - begun);
            }
            if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                started.push(Started { lifted: lifted.get(&name).copied(), bound: at - begun });
                created.remove(&name);
            }
        }
    }
    Ok(started)
}

fn pod(name: &str, steered: bool) -> Result<Pod> {
    let gates = if steered { json!([{ "name": GATE }]) } else { json!([]) };
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "schedulingGates": gates,
            "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "one" }],
        },
    }))
    .context("a pod")
}
