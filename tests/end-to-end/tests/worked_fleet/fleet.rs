//! The fleet: a cluster, the chart with the page's values, three nodes.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use tessera_harness::installation::{Installation, InstallationOptions};
use tessera_harness::node_stand_in::{Machine, NodeStandIn, PodsOfNode};
use tessera_harness::{Cluster, ClusterOptions, workspace};
use tokio::time::{Instant, sleep};

use crate::expect::Grant;

/// Several times what the slowest step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const NAMESPACE: &str = "default";

pub struct Fleet {
    pub nodes: Vec<NodeStandIn>,
    pods: Vec<PodsOfNode>,
    cluster: Cluster,
}

/// The submitted manifests, and the pools.
pub const MANIFESTS: [&str; 3] =
    ["examples/fleet/training.yaml", "examples/fleet/inference.yaml", "examples/fleet/notebooks.yaml"];
const TRAINING: &str = MANIFESTS[0];
pub const POOLS: &str = "examples/fleet/pools.yaml";

impl Fleet {
    pub async fn start() -> Self {
        let cluster = ClusterOptions { helm: true, ..ClusterOptions::scheduler_tier(3) };
        let cluster = Cluster::start(cluster).await.unwrap();
        let roles = [("node-a", "training", 4), ("node-b", "inference", 3), ("node-c", "notebooks", 3)];
        for (node, role, _) in roles {
            let label = format!("example.com/pool={role}");
            cluster.kubectl(&["label", "node", node, &label]).await.unwrap();
        }
        let options = InstallationOptions {
            pools: vec![fs::read_to_string(workspace::root().join(POOLS)).unwrap()],
            ..InstallationOptions::default()
        };
        let tessera = Installation::install(&cluster, &options).await.unwrap();
        let mut fleet = Self { nodes: Vec::new(), pods: Vec::new(), cluster };
        for (node, role, cards) in roles {
            let machine = Machine {
                hardware: "hgx-a100-80gb".to_owned(),
                cards: Some(cards),
                mig_mode: role == "inference",
            };
            let node = NodeStandIn::start(&fleet.cluster, &tessera, node, &machine).await.unwrap();
            fleet.pods.push(node.serve(fleet.cluster.client().await.unwrap(), |_| false));
            fleet.nodes.push(node);
        }
        fleet
    }

    fn node(&self, name: &str) -> (&NodeStandIn, &PodsOfNode) {
        self.nodes.iter().zip(&self.pods).find(|(node, _)| node.name() == name).unwrap()
    }

    pub fn pods_of(&self, name: &str) -> &PodsOfNode {
        self.node(name).1
    }

    /// The state of a node's cards, from its driver.
    pub fn cards(&self, name: &str) -> Vec<Value> {
        self.node(name).0.show().unwrap()["state"]["cards"].as_array().unwrap().clone()
    }

    /// The part of each card's state that must be restored: all but the number of instances ever made.
    pub fn states(&self) -> Vec<Value> {
        let mut cards: Vec<Value> = self.nodes.iter().flat_map(|node| self.cards(node.name())).collect();
        for card in &mut cards {
            card["mig"].as_object_mut().unwrap().remove("lastSerial").unwrap();
        }
        cards
    }

    /// Number of devices that a node publishes, once it publishes any.
    pub async fn published(&self, node: &str) -> usize {
        let slices: Api<ResourceSlice> = Api::all(self.cluster.client().await.unwrap());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut count = 0;
        self.until(&format!("slices of {node}"), async || {
            let slices = slices.list(&of_node).await.unwrap().items;
            count = slices.iter().flat_map(|slice| &slice.spec.devices).map(Vec::len).sum();
            let complete = slices
                .first()
                .is_some_and(|slice| slice.spec.pool.resource_slice_count == slices.len() as i64);
            (complete && count > 0).then_some(()).ok_or_else(|| format!("{count} devices"))
        })
        .await;
        count
    }

    /// Submits one of the page's files.
    pub async fn apply(&self, file: &str) {
        let manifests = fs::read_to_string(workspace::root().join(file)).unwrap();
        self.cluster.apply(&manifests).await.unwrap();
    }

    pub async fn scale(&self, what: &str, replicas: usize) {
        let replicas = format!("--replicas={replicas}");
        self.cluster.kubectl(&["scale", what, &replicas]).await.unwrap();
    }

    /// Creates another pod like those of the training job.
    pub async fn one_more_training_pod(&self) {
        let manifests = fs::read_to_string(workspace::root().join(TRAINING)).unwrap();
        let job = manifests.split("\n---\n").nth(1).unwrap().replace("name: training\n", "name: more\n");
        self.cluster.apply(&job.replace(": 4\n", ": 1\n")).await.unwrap();
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await.unwrap(), NAMESPACE);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until this many pods run, which means that their claims are prepared, and this many wait.
    pub async fn until_running(&self, expected: usize, waiting: usize) {
        self.until(&format!("{expected} running and {waiting} waiting pods"), async || {
            let pods = self.pods().await;
            let going = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
            let is_running = |pod: &&Pod| {
                pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
            };
            let running = pods.iter().filter(is_running).count();
            if running == expected && pods.len() == expected + waiting && going == 0 {
                return Ok(());
            }
            let failures: Vec<String> = self.pods.iter().flat_map(PodsOfNode::failures).take(3).collect();
            Err(format!("{running} of {} run, {going} are going; {failures:?}", pods.len()))
        })
        .await;
    }

    /// Waits until the scheduler has found no place for this many pods.
    pub async fn until_unschedulable(&self, expected: usize) {
        self.until(&format!("{expected} pods that fit nowhere"), async || {
            let pods = self.pods().await;
            let refused = pods.iter().filter(|pod| {
                let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.any(|condition| {
                    condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
                })
            });
            let refused = refused.count();
            (refused == expected).then_some(()).ok_or_else(|| format!("{refused} wait"))
        })
        .await;
    }

    /// The claims' allocations, by the pods that they are reserved for. Waits for claims that outlive their pods for a
    /// while.
    pub async fn grants(&self) -> Vec<Grant> {
        let mut grants = Vec::new();
        self.until("allocated claims with a pod each", async || {
            grants = self.grants_now().await?;
            Ok(())
        })
        .await;
        grants
    }

    async fn grants_now(&self) -> Result<Vec<Grant>, String> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.cluster.client().await.unwrap(), NAMESPACE);
        let claims = claims.list(&ListParams::default()).await.unwrap().items;
        let pods = self.pods().await;
        let mut grants = Vec::new();
        for claim in claims {
            let status = claim.status.clone().unwrap_or_default();
            let Some(allocation) = status.allocation else { continue };
            let consumers = status.reserved_for.as_deref().unwrap_or_default();
            assert!(consumers.len() < 2, "{claim:?}");
            let of_pod = |pod: &&Pod| {
                consumers.iter().any(|consumer| pod.metadata.uid.as_deref() == Some(&consumer.uid))
            };
            let Some(pod) = pods.iter().find(of_pod) else { return Err(format!("{claim:?}")) };
            let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
            let devices = allocation.devices.unwrap().results.unwrap();
            let [result] = devices.as_slice() else { panic!("{devices:?}") };
            assert_eq!(result.pool, format!("{}/{node}", result.driver), "a device of the pod's own node");
            grants.push(Grant {
                pod: pod.metadata.name.clone().unwrap(),
                node,
                claim_uid: claim.metadata.uid.clone().unwrap(),
                device: result.device.clone(),
                share: result.share_id.clone(),
                consumed: result
                    .consumed_capacity
                    .iter()
                    .flatten()
                    .map(|(name, quantity)| (name.clone(), quantity.0.clone()))
                    .collect(),
            });
        }
        Ok(grants)
    }

    /// Deletes everything that was submitted, and waits until all pods and claims are gone.
    pub async fn delete_all(&self) {
        for kinds in ["deployments,statefulsets,jobs", "resourceclaimtemplates"] {
            self.cluster.kubectl(&["delete", kinds, "--all", "--wait=false"]).await.unwrap();
        }
        let claims: Api<ResourceClaim> = Api::namespaced(self.cluster.client().await.unwrap(), NAMESPACE);
        self.until("the end of all pods and claims", async || {
            let claims = claims.list(&ListParams::default()).await.unwrap().items.len();
            let pods = self.pods().await.len();
            (claims + pods == 0).then_some(()).ok_or_else(|| format!("{pods} pods, {claims} claims"))
        })
        .await;
    }

    /// Ends the plugins and the cluster.
    pub async fn end(self) {
        drop(self.pods);
        for node in &self.nodes {
            node.stop().await.unwrap();
        }
        self.cluster.shutdown().await.unwrap();
    }

    async fn until(&self, what: &str, mut done: impl AsyncFnMut() -> Result<(), String>) {
        let end = Instant::now() + PATIENCE;
        loop {
            match done().await {
                Ok(()) => return,
                Err(last) => assert!(Instant::now() < end, "never {what}: {last}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}
