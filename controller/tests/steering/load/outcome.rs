//! What became of all pods.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tessera_api::steering::GATE;
use tessera_api::waiting::WAITING_ANNOTATION;
use tessera_harness::Cluster;

use super::workloads::{OTHER_GATE, has_gate};
use crate::{fleet, plugins, pods};

/// Pods by what became of them, and the cards that claims hold.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub bound: usize,
    /// With our gate, and the reason in an annotation.
    pub waiting: usize,
    /// Without a gate: kube-scheduler has told why not.
    pub refused: usize,
    /// With somebody else's gate.
    pub queued: usize,
    pub cards: usize,
    /// What is not as it should be at rest.
    unrest: Vec<String>,
}

impl Outcome {
    /// Waits until every pod is bound or told why it is not, and until none could be.
    pub async fn at_rest(cluster: &Cluster) -> Self {
        let end = Instant::now() + pods::LIMIT;
        loop {
            let outcome = Self::now(cluster).await;
            if outcome.unrest.is_empty() {
                return outcome;
            }
            assert!(Instant::now() < end, "{outcome:#?}");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    async fn now(cluster: &Cluster) -> Self {
        let client = cluster.client().await.unwrap();
        let held = held(&Api::namespaced(client.clone(), "default")).await;
        let free = |used: Option<&usize>| plugins::CARDS - used.copied().unwrap_or(0);
        let most = (0..super::NODES).map(|number| free(held.get(&format!("n{number:02}")))).max().unwrap();
        let mut outcome = Outcome { cards: held.values().sum(), ..Outcome::default() };
        for pod in Api::<Pod>::namespaced(client, "default").list(&ListParams::default()).await.unwrap() {
            let name = pod.name_any();
            let mut unrest = |what: &str| outcome.unrest.push(format!("{name} {what}"));
            if pod.metadata.deletion_timestamp.is_some() {
                unrest("is being deleted");
            } else if pod.spec.as_ref().unwrap().node_name.is_some() {
                outcome.bound += 1;
            } else if has_gate(&pod, OTHER_GATE) {
                assert!(has_gate(&pod, GATE), "{name}: ours is lifted first");
                outcome.queued += 1;
            } else if cards(&pod) <= most {
                unrest("waits for what is free");
            } else if has_gate(&pod, GATE) {
                outcome.waiting += 1;
                // Not the Event, which may be lost where many pods wait.
                if !pod.annotations().contains_key(WAITING_ANNOTATION) {
                    outcome.unrest.push(format!("{name} is gated, and not told why"));
                }
            } else if is_refused(&pod) {
                outcome.refused += 1;
            } else {
                unrest("is on its way");
            }
        }
        outcome
    }
}

/// The cards of each node that claims hold.
async fn held(claims: &Api<ResourceClaim>) -> BTreeMap<String, usize> {
    let mut held = BTreeMap::new();
    for claim in claims.list(&ListParams::default()).await.unwrap() {
        let allocation = claim.status.and_then(|status| status.allocation);
        for result in allocation.and_then(|all| all.devices?.results).into_iter().flatten() {
            let node = result.pool.strip_prefix(fleet::DRIVER).unwrap().trim_start_matches('/');
            *held.entry(node.to_owned()).or_default() += 1;
        }
    }
    held
}

/// How many cards a pod of [`pods::spec`] asks for.
fn cards(pod: &Pod) -> usize {
    let claims = pod.spec.as_ref().unwrap().resource_claims.as_ref().unwrap();
    claims[0].resource_claim_template_name.as_ref().unwrap().strip_prefix("gpus-").unwrap().parse().unwrap()
}

fn is_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable"))
}
