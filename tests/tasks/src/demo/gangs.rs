//! `cargo xtask demo --gangs`: a training of two pods with four cards each waits as a whole, runs as a whole over two nodes, and
//! makes room as a whole for a pod of higher priority.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde::Serialize;
use serde_json::Value;
use tessera_harness::{Cluster, workspace};
use tokio::process::Command;
use tokio::time::sleep;

use super::say::say;
use super::steering::{self, NOTEBOOKS, is_started, node};
use super::{Clock, Output, PATIENCE, where_time_went};

/// Each file of `examples/gangs`: the path in the repository and the content.
pub(super) const POOL: &str = include_str!("../../../../examples/gangs/pool.yaml");
const TRAINING: (&str, &str) =
    ("examples/gangs/training.yaml", include_str!("../../../../examples/gangs/training.yaml"));
const URGENT: (&str, &str) =
    ("examples/gangs/urgent.yaml", include_str!("../../../../examples/gangs/urgent.yaml"));

const NAMESPACE: &str = "gangs";
const GANG: &str = "gangs/training";

/// Chart values: kube-scheduler was never given these cards, so no writes of its own can be outstanding.
pub(super) const VALUES: [&str; 1] = ["managed.handoverSeconds=1"];

/// The events, for programs.
#[derive(Serialize)]
struct Story {
    /// The output of `kubectl gpu queue` while there is room for one of the two pods.
    waits: Vec<Value>,
    /// Claims of the gang with cards meanwhile.
    held: usize,
    /// Node by pod of the running gang.
    runs: BTreeMap<String, String>,
    /// The node of the pod of higher priority.
    urgent: String,
    /// The output of `kubectl gpu queue` while the preempting pod runs.
    preempted: Vec<Value>,
    /// Node by pod of the gang, when the other has ended.
    back: BTreeMap<String, String>,
}

/// Runs the demo of gangs.
///
/// # Errors
/// When something does not work, or the gang starts in parts.
pub async fn run(mut clock: Clock, output: Output) -> Result<ExitCode> {
    let program = workspace::build_packages(&workspace::TESTED_AND_CLI)?.join("kubectl-gpu");
    let (cluster, _tessera) = steering::start(&mut clock, POOL, &VALUES).await?;
    say!("\nkubectl apply -f examples/gangs/pool.yaml   # all cards, allocated by the controller");
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let client = cluster.client().await?;
    let stage = Stage { cluster: &cluster, client, program: &program, namespace: NAMESPACE };

    steering::submit(&cluster, NAMESPACE, NOTEBOOKS).await?;
    stage.started("the notebooks", "notebook-", 2).await?;
    steering::submit(&cluster, NAMESPACE, TRAINING).await?;
    let waits = stage.queued(GANG).await?;
    let held = stage.held("training-").await?;
    ensure!(held == 0, "the training holds cards although it cannot start");
    clock.reached("the training waits: one of its two pods would fit, and it holds no card");
    stage.show("queue").await?;

    stage.delete(&["pod", "notebook-1", "notebook-2"]).await?;
    let runs = stage.started("the training", "training-", 2).await?;
    ensure!(runs.values().next() != runs.values().nth(1), "two pods with all cards of a node share one");
    clock.reached("the notebooks are gone, and both pods of the training run");
    show(&runs);

    steering::submit(&cluster, NAMESPACE, URGENT).await?;
    let urgent = stage.started("the urgent pod", "urgent", 1).await?;
    let preempted = stage.queued(GANG).await?;
    stage.none_held("training-").await?;
    clock.reached("the urgent pod runs: both pods of the training were evicted for it, and wait again");
    show(&urgent);
    stage.show("queue").await?;

    stage.delete(&["pod", "urgent"]).await?;
    let back = stage.started("the training", "training-", 2).await?;
    clock.reached("the urgent pod has ended, and both pods of the training run again");
    show(&back);

    cluster.shutdown().await.context("the cluster did not end cleanly")?;
    clock.reached("everything is removed");
    where_time_went(&clock);
    if output == Output::Json {
        let urgent = urgent.into_values().next().unwrap_or_default();
        let story = Story { waits, held, runs, urgent, preempted, back };
        println!("{}", serde_json::to_string(&story)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// A namespace of the cluster, with the tools to observe it.
pub(super) struct Stage<'a> {
    pub cluster: &'a Cluster,
    pub client: Client,
    /// `kubectl-gpu`.
    pub program: &'a Path,
    pub namespace: &'static str,
}

impl Stage<'_> {
    /// Waits until so many pods with names of this beginning run and none waits, and gives their nodes.
    pub(super) async fn started(
        &self,
        what: &str,
        prefix: &str,
        count: usize,
    ) -> Result<BTreeMap<String, String>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let end = Instant::now() + PATIENCE;
        loop {
            let mut all = pods.list(&ListParams::default()).await?.items;
            all.retain(|pod| pod.name_any().starts_with(prefix));
            let is_up = |pod: &Pod| is_started(pod) && pod.metadata.deletion_timestamp.is_none();
            if all.len() == count && all.iter().all(is_up) {
                let nodes = all.iter().map(|pod| (pod.name_any(), node(pod).unwrap_or_default()));
                return Ok(nodes.collect());
            }
            if Instant::now() > end {
                let states: Vec<String> =
                    all.iter().map(|pod| format!("{} {:?}", pod.name_any(), pod.status)).collect();
                bail!("waited {} s in vain for {what}: {states:?}", PATIENCE.as_secs());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until both pods of the gang are in the queue with a reason, and gives the queue.
    async fn queued(&self, gang: &str) -> Result<Vec<Value>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let rows: Vec<Value> = self.json("queue").await?;
            let is_there = |row: &Value| {
                row["name"] == gang
                    && row["pods"] == 2
                    && row["why"].as_str().is_some_and(|why| !why.is_empty())
            };
            if rows.iter().any(is_there) {
                return Ok(rows);
            }
            if Instant::now() > end {
                bail!("waited {} s in vain for {gang} in the queue: {rows:?}", PATIENCE.as_secs());
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// The rows that this command of `kubectl gpu` prints.
    pub(super) async fn json(&self, command: &str) -> Result<Vec<Value>> {
        Ok(serde_json::from_str(&self.gpu(&[command, "--output", "json"]).await?)?)
    }

    /// The output of `kubectl gpu`. A verdict, such as a GpuQuota that is not ready yet, is no failure.
    async fn gpu(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.program)
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig())
            .output()
            .await
            .with_context(|| format!("start {}", self.program.display()))?;
        let is_answer = output.status.success() || !output.stdout.is_empty();
        ensure!(is_answer, "kubectl gpu {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(super) async fn show(&self, command: &str) -> Result<()> {
        say!("\nkubectl gpu {command}\n{}", self.gpu(&[command]).await?);
        Ok(())
    }

    /// Number of allocated claims whose names begin with `prefix`.
    async fn held(&self, prefix: &str) -> Result<usize> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), self.namespace);
        let all = claims.list(&ListParams::default()).await?.items;
        let has_cards = |claim: &&ResourceClaim| {
            claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
                && claim.name_any().starts_with(prefix)
        };
        Ok(all.iter().filter(has_cards).count())
    }

    /// Waits until no claim with this name prefix has cards: claims of evicted pods lose their cards after the pods' end.
    async fn none_held(&self, prefix: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.held(prefix).await? > 0 {
            ensure!(Instant::now() < end, "a part of {prefix} still holds cards");
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, what: &[&str]) -> Result<()> {
        let arguments = [&["delete", "--namespace", self.namespace], what].concat();
        say!("kubectl {}", arguments.join(" "));
        self.cluster.kubectl(&arguments).await?;
        Ok(())
    }
}

fn show(nodes: &BTreeMap<String, String>) {
    for (pod, node) in nodes {
        say!("  {pod:<16} {node}");
    }
}
