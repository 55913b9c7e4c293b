//! `cargo xtask demo --steering`: two notebooks and a job with four cards on two nodes, first as placed by
//! kube-scheduler alone, then on nodes proposed by the controller.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::Serialize;
use tessera_harness::installation::{Installation, InstallationOptions};
use tessera_harness::{Cluster, ClusterOptions, workspace};
use tokio::time::sleep;

use super::say::say;
use super::{Clock, Output, PATIENCE, where_time_went};

/// Each file of `examples/steering`, in the order of submission: the path in the repository and the content.
const POOL: &str = include_str!("../../../../examples/steering/pool.yaml");
const NAMESPACE: &str = include_str!("../../../../examples/steering/namespace.yaml");
pub(super) const NOTEBOOKS: (&str, &str) =
    ("examples/steering/notebooks.yaml", include_str!("../../../../examples/steering/notebooks.yaml"));
const JOB: (&str, &str) =
    ("examples/steering/job.yaml", include_str!("../../../../examples/steering/job.yaml"));

/// A node of four cards.
const HARDWARE: &str = "gb200-tray";

/// The same pods, placed one way.
#[derive(Serialize)]
struct Placed {
    namespace: String,
    steered: bool,
    /// Node by pod; `None` for a waiting pod.
    pods: BTreeMap<String, Option<String>>,
    /// Why the job waits, as kube-scheduler says.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
}

/// Runs the demo of steering.
///
/// # Errors
/// When something does not work, or the steered job does not get its cards.
pub async fn run(mut clock: Clock, output: Output) -> Result<ExitCode> {
    let (cluster, _tessera) = start(&mut clock, POOL, &[]).await?;
    say!("\nkubectl apply -f examples/steering/pool.yaml        # all cards, steered");

    cluster.kubectl(&["create", "namespace", "native"]).await?;
    let native = place(&cluster, "native", false).await?;
    clock.reached("without steering: the notebooks run, and the job runs or waits");
    cluster.kubectl(&["delete", "namespace", "native", "--wait"]).await?;

    cluster.apply(NAMESPACE).await?;
    say!("\nkubectl apply -f examples/steering/namespace.yaml   # gpu.tessera.dev/steering: enabled");
    let steered = place(&cluster, "steered", true).await?;
    clock.reached("with steering: the notebooks run, and the job has its cards");
    let pools = cluster.kubectl(&["get", "gpupools"]).await?;

    for placed in [&native, &steered] {
        show(placed);
    }
    say!("\nkubectl get gpupools\n{pools}");
    cluster.shutdown().await.context("the cluster did not end cleanly")?;
    clock.reached("everything is removed");
    where_time_went(&clock);
    if output == Output::Json {
        println!("{}", serde_json::to_string(&[&native, &steered])?);
    }
    if steered.waits.is_some() {
        bail!("the steered job did not get its cards");
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a cluster of two nodes with four cards each, and installs Tessera on it with this pool and these values.
///
/// # Errors
/// When this machine cannot run nodes, or a step fails.
pub(super) async fn start(clock: &mut Clock, pool: &str, values: &[&str]) -> Result<(Cluster, Installation)> {
    if let Err(reason) = Cluster::node_tier_available() {
        bail!("{reason}; this demo needs two nodes on which pods run");
    }
    workspace::build_programs()?;
    clock.reached("Tessera's own programs are built");
    let cluster = Cluster::start(ClusterOptions { helm: true, ..ClusterOptions::node_tier(2) }).await?;
    clock.add(cluster.timings());
    let options = InstallationOptions {
        hardware: HARDWARE.to_owned(),
        pools: vec![pool.to_owned()],
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        ..InstallationOptions::default()
    };
    let tessera = Installation::install(&cluster, &options).await.context("Tessera was not installed")?;
    clock.add(tessera.timings());
    Ok((cluster, tessera))
}

/// Submits notebooks and job, and waits until each pod runs, has run, or is refused.
async fn place(cluster: &Cluster, namespace: &str, steered: bool) -> Result<Placed> {
    submit(cluster, namespace, NOTEBOOKS).await?;
    let all = settle(cluster, namespace, 2).await?;
    submit(cluster, namespace, JOB).await?;
    let all = {
        drop(all);
        settle(cluster, namespace, 3).await?
    };
    let pods = all.iter().map(|pod| (pod.name_any(), node(pod)));
    let waits = all.iter().find(|pod| node(pod).is_none()).and_then(refusal);
    Ok(Placed { namespace: namespace.to_owned(), steered, pods: pods.collect(), waits })
}

/// Applies a file of `examples/`: its path in the repository, and its content.
pub(super) async fn submit(cluster: &Cluster, namespace: &str, (file, text): (&str, &str)) -> Result<()> {
    say!("kubectl apply -n {namespace} -f {file}");
    cluster
        .kubectl_with_input(&["apply", "--server-side", "--namespace", namespace, "-f", "-"], text)
        .await?;
    Ok(())
}

/// Waits until there are so many pods, and each has a node or was refused by kube-scheduler.
async fn settle(cluster: &Cluster, namespace: &str, count: usize) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, namespace);
    let end = Instant::now() + PATIENCE;
    loop {
        let all = pods.list(&ListParams::default()).await?.items;
        if all.len() >= count && all.iter().all(|pod| is_started(pod) || refusal(pod).is_some()) {
            return Ok(all);
        }
        if Instant::now() > end {
            let states: Vec<String> =
                all.iter().map(|pod| format!("{} {:?}", pod.name_any(), pod.status)).collect();
            bail!("waited {} s in vain for the pods: {states:?}", PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

pub(super) fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

pub(super) fn is_started(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Running" | "Succeeded"))
}

/// kube-scheduler's message about an unschedulable pod.
fn refusal(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let refused = conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    refused.message.clone()
}

fn show(placed: &Placed) {
    say!("\n{}:", if placed.steered { "With steering" } else { "Without steering" });
    for (pod, node) in &placed.pods {
        say!("  {pod:<16} {}", node.as_deref().unwrap_or("waits"));
    }
    if let Some(waits) = &placed.waits {
        say!("  kube-scheduler: {waits}");
    }
}
