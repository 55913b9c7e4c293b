//! Pods with all cards of a node, started together, beside as many started one by one by kube-scheduler as soon as they fit.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use tessera_harness::Cluster;

use super::pods::{self, PodKind, Started};
use crate::quantiles::Quantiles;

/// Pods of a gang.
pub const SIZE: usize = 4;

const GANG: PodKind = PodKind { name: "gang", is_gated: true, template: "managed-node", is_gang: true };
const NATIVE: PodKind = PodKind { name: "native", is_gated: false, template: "native-node", is_gang: false };

/// The longest wait until the pods' claims are gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counted from the request to create the last pod.
#[derive(Serialize)]
pub struct Gangs {
    /// Until the last gate is lifted.
    pub lifted: Quantiles,
    /// Until the last pod is bound.
    pub bound: Quantiles,
    /// Until the last pod left to kube-scheduler is bound.
    pub native_bound: Quantiles,
}

/// Starts so many gangs and, in turn, as many native pods.
pub async fn measure(cluster: &Cluster, count: usize) -> Result<Gangs> {
    eprintln!("starting {count} gangs, one after the other");
    let (mut lifted, mut bound, mut native_bound) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        let gang = started(cluster, &format!("gang{number}"), &GANG).await?;
        lifted.push(since_last(&gang, |pod| pod.ungated)?);
        bound.push(since_last(&gang, |pod| Some(pod.bound))?);
        let native = started(cluster, &format!("native{number}"), &NATIVE).await?;
        native_bound.push(since_last(&native, |pod| Some(pod.bound))?);
    }
    Ok(Gangs {
        lifted: Quantiles::of(lifted),
        bound: Quantiles::of(bound),
        native_bound: Quantiles::of(native_bound),
    })
}

/// Starts pods of the kind, and removes them when all are bound.
async fn started(cluster: &Cluster, prefix: &str, kind: &PodKind) -> Result<Vec<Started>> {
    let all = pods::start(cluster, prefix, std::slice::from_ref(kind), SIZE, Duration::ZERO).await?;
    let client = cluster.client().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for pod in &all {
        pods.delete(&pod.name, &DeleteParams::default().grace_period(0)).await?;
    }
    let claims: Api<ResourceClaim> = Api::namespaced(client, "default");
    let end = Instant::now() + PATIENCE;
    loop {
        let left = claims.list_metadata(&ListParams::default()).await?.items;
        if !left.iter().any(|claim| claim.name_any().starts_with(&format!("{prefix}-"))) {
            return Ok(all);
        }
        if Instant::now() > end {
            bail!("the claims of {prefix} stay");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How long after the creation of the last pod the last of them got so far.
fn since_last(pods: &[Started], so_far: impl Fn(&Started) -> Option<Duration>) -> Result<Duration> {
    let created = pods.iter().map(|pod| pod.created).max().context("no pods")?;
    let reached = pods.iter().map(|pod| Some(pod.created + so_far(pod)?));
    let reached = reached.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
    Ok(reached.context("a pod without a gate")?.saturating_duration_since(created))
}
