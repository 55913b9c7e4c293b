//! Starts pods of several kinds in turn, and measures their progress.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_api::gang::{GROUP_LABEL, GROUP_SIZE_LABEL};
use tessera_harness::Cluster;

const GATE: &str = tessera_api::steering::GATE;

/// The longest wait for all pods.
const PATIENCE: Duration = Duration::from_secs(120);

/// A kind of pod.
pub struct PodKind {
    /// Its name.
    pub name: &'static str,
    /// Whether the pod has our gate.
    pub is_gated: bool,
    /// The pod's claim template for cards: see [`super::fleet::publish`].
    pub template: &'static str,
    /// Whether all pods with a common start are a gang.
    pub is_gang: bool,
}

/// On nodes of a steered pool.
pub const STEERED: [PodKind; 2] = [
    PodKind { name: "steered", is_gated: true, template: "steered", is_gang: false },
    PodKind { name: "native", is_gated: false, template: "steered", is_gang: false },
];

/// On nodes of a managed pool and as many of a native one.
pub const MANAGED: [PodKind; 3] = [
    PodKind { name: "managed", is_gated: true, template: "managed", is_gang: false },
    PodKind { name: "managed-without-gate", is_gated: false, template: "managed", is_gang: false },
    PodKind { name: "native", is_gated: false, template: "native", is_gang: false },
];

/// When a pod got on, counted from its creation.
pub struct Started {
    /// The name of its kind.
    pub kind: &'static str,
    /// Its own.
    pub name: String,
    /// When its creation was asked for.
    pub created: Instant,
    /// When our gate was removed, for gated pods.
    pub ungated: Option<Duration>,
    /// When the pod was bound.
    pub bound: Duration,
}

/// Starts so many pods of each kind and waits until all are bound.
pub async fn start(
    cluster: &Cluster,
    prefix: &str,
    kinds: &[PodKind],
    count: usize,
    pause: Duration,
) -> Result<Vec<Started>> {
    let total = kinds.len() * count;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
    let from = pods.list_metadata(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut events = pods.watch(&WatchParams::default().timeout(290), &from).await?.boxed();
    let mut created: HashMap<String, (&PodKind, Instant)> = HashMap::new();
    let mut ungated: HashMap<String, Duration> = HashMap::new();
    let mut started = Vec::new();
    let making = async {
        let mut created = HashMap::new();
        for (number, kind) in kinds.iter().cycle().take(total).enumerate() {
            let name = format!("{prefix}-{}-{number}", kind.name);
            created.insert(name.clone(), (kind, Instant::now()));
            let gang = kind.is_gang.then_some((prefix, total));
            pods.create(&PostParams::default(), &pod(&name, kind, gang)?).await?;
            tokio::time::sleep(pause).await;
        }
        anyhow::Ok(created)
    };
    let mut seen: Vec<(Instant, Pod)> = Vec::new();
    let mut making = Box::pin(making);
    let mut is_made = false;
    let end = Instant::now() + PATIENCE + pause * u32::try_from(total).unwrap_or(u32::MAX);
    while started.len() < total {
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
                bail!("only {} of {} pods are bound", started.len(), total);
            }
        }
        if !is_made {
            // Only then are all times of creation known.
            continue;
        }
        for (at, pod) in seen.drain(..) {
            let name = pod.name_any();
            let Some((kind, begun)) = created.get(&name).copied() else { continue };
            let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten()).count();
            if gates == 0 && kind.is_gated {
                ungated.entry(name.clone()).or_insert(at - begun);
            }
            if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                created.remove(&name);
                let ungated = ungated.remove(&name);
                started.push(Started { kind: kind.name, name, created: begun, ungated, bound: at - begun });
            }
        }
    }
    Ok(started)
}

/// `gang`: the name and the number of pods.
fn pod(name: &str, kind: &PodKind, gang: Option<(&str, usize)>) -> Result<Pod> {
    let labels = match gang {
        Some((gang, size)) => json!({ GROUP_LABEL: gang, GROUP_SIZE_LABEL: size.to_string() }),
        None => json!({}),
    };
    let gates = if kind.is_gated { json!([{ "name": GATE }]) } else { json!([]) };
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default", "labels": labels },
        "spec": {
            "schedulingGates": gates,
            "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": kind.template }],
        },
    }))
    .context("a pod")
}
