//! `cargo xtask demo`: the main use case on a real cluster with emulated cards.

mod elsewhere;
mod gangs;
mod kubectl;
mod manifests;
mod say;
mod screen;
mod stand_in;
mod steering;
mod teams;
mod view;

use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};
use serde::Serialize;
use tessera_harness::{
    CUDA_SAMPLE_IMAGE, Cluster, TEST_IMAGE, Tier, Timings,
    installation::{Installation, InstallationOptions},
    workspace,
};
use tokio::time::sleep;

use crate::cluster::{self, KubernetesArguments};

use self::{
    kubectl::Kubectl,
    manifests::{JOB, Manifest, PODS, SHARES},
    say::say,
    screen::{Screen, container_views},
    stand_in::StandIn,
    view::{ClaimUse, ContainerView, Memory, claim_uses, device_count, settled},
};

const NAMESPACE: &str = "demo";
/// Chart values.
const VALUES: [&str; 2] = ["extendedResourceNames.enabled=true", "sharing.mps.enabled=true"];
/// The pool on offer, including shares by MPS.
const POOL: &str = include_str!("../../../examples/mps-shares/pool.yaml");
/// Timeout: several times the slowest step's duration on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Arguments of `cargo xtask demo`.
#[derive(Args)]
#[command(after_help = "Examples:
  cargo xtask demo                           eight emulated H100, nine kinds of pods, then everything is removed
  cargo xtask demo --keep                    leave it up and say how to use kubectl on it
  cargo xtask demo --kubernetes 1.35         on an older Kubernetes: what it leaves out waits (docs/installing.md)
  cargo xtask demo --hardware dgx-1v         another machine (gpu-emulator hardware lists them)
  cargo xtask demo --kubeconfig ~/.kube/config   on a cluster of yours without GPUs, as kind makes one (docs/trying.md)
  cargo xtask demo --steering                two notebooks and a job with four cards on two nodes, with and without
  cargo xtask demo --gangs                   a training over two nodes waits as a whole, runs as a whole, and is preempted
  cargo xtask demo --teams                   a team lends its idle cards, and has them back
  cargo xtask demo --output json | tail -1   one line of JSON for programs")]
pub struct DemoArguments {
    /// Leave the cluster running, and print how to use kubectl on it and how to end it.
    #[arg(long)]
    keep: bool,
    /// The emulated machine.
    #[arg(long, default_value = "hgx-h100-80gb", value_name = "NAME")]
    hardware: String,
    /// Show steering instead: two nodes with four cards each, two notebooks and a job with four cards, first as
    /// kube-scheduler places them alone, then steered. Needs root.
    #[arg(long, conflicts_with_all = ["hardware", "keep", "kubernetes", "feature_gates"])]
    steering: bool,
    /// Play on the cluster that this file gives access to instead, with the kubectl and helm of the PATH: its nodes become emulated
    /// machines until the demo ends. Nodes with real cards refuse that.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steering", "gangs", "teams", "kubernetes", "feature_gates"])]
    kubeconfig: Option<PathBuf>,
    /// Prefix of the images' names in that cluster, as of `cargo xtask image`.
    #[arg(long, value_name = "NAME", default_value = "tessera", requires = "kubeconfig")]
    repository: String,
    /// Tag of the images.
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"), requires = "kubeconfig")]
    tag: String,
    /// Show a gang and a preemption instead: two nodes with four cards each, and a training of two pods with four cards each,
    /// which start together or not at all; a pod of higher priority then takes their place for a while. Needs root.
    #[arg(long, conflicts_with_all = ["hardware", "keep", "steering", "kubernetes", "feature_gates"])]
    gangs: bool,
    /// Show two teams instead: two nodes with four cards each, half of them guaranteed to each team. One borrows all, and the other
    /// takes its cards back, once no disruption budget forbids it. Needs root.
    #[arg(long, conflicts_with_all = ["hardware", "keep", "steering", "gangs", "kubernetes", "feature_gates"])]
    teams: bool,
    #[command(flatten)]
    kubernetes: KubernetesArguments,
    /// `text` for people; with `json` standard output is one line of JSON.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// The summary of `--output json`.
#[derive(Serialize)]
struct Summary {
    nodes: usize,
    devices: usize,
    claims: Vec<ClaimUse>,
}

/// The images of the demo's pods.
struct Images<'a> {
    /// With the commands of the test image.
    commands: &'a str,
    /// With `cuda-sample`.
    cuda_sample: &'a str,
    pull_policy: &'a str,
}

/// The end of each step of the demo, counted from the start of the command.
struct Clock {
    started: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Clock {
    fn reached(&mut self, step: &'static str) {
        self.steps.push((step, self.started.elapsed()));
        say!("[{:5.1} s] {step}", self.started.elapsed().as_secs_f64());
    }

    /// Adds the phases of something begun at the end of the last step.
    fn add(&mut self, timings: &Timings) {
        let begin = self.steps.last().map_or(Duration::ZERO, |(_, after)| *after);
        for (phase, after) in timings.phases() {
            self.steps.push((phase, begin + *after));
            say!("[{:5.1} s] {phase}", (begin + *after).as_secs_f64());
        }
    }
}

/// Runs the demo.
///
/// # Errors
/// When something does not work.
pub async fn run(arguments: DemoArguments) -> Result<ExitCode> {
    if arguments.output == Output::Json {
        say::beside_json();
    }
    let mut clock = Clock { started: Instant::now(), steps: Vec::new() };
    if let Some(kubeconfig) = arguments.kubeconfig.clone() {
        return elsewhere::run(clock, &arguments, &kubeconfig).await;
    }
    if arguments.steering {
        return steering::run(clock, arguments.output).await;
    }
    if arguments.gangs {
        return gangs::run(clock, arguments.output).await;
    }
    if arguments.teams {
        return teams::run(clock, arguments.output).await;
    }
    if arguments.keep {
        cluster::refuse_second().await?;
        workspace::build_packages(&workspace::TESTED_AND_CLI)?;
    } else {
        workspace::build_programs()?;
    }
    let node_tier = Cluster::node_tier_available();
    if let Err(reason) = &node_tier {
        if env::var("CI").as_deref() == Ok("true") {
            bail!("{reason}");
        }
        say!(
            "{reason}\nSo the scheduler tier it is: the control plane and the plugin are real, but no container runs;"
        );
        say!(
            "a stand-in for the kubelet calls the plugin, and shows what it would hand to the container runtime.\n"
        );
    }
    clock.reached("Tessera's own programs are built");
    let tier = if node_tier.is_ok() { Tier::Node } else { Tier::Scheduler };
    let cluster = Cluster::start(arguments.kubernetes.cluster(tier, 1)).await?;
    clock.add(cluster.timings());

    let installation = InstallationOptions {
        hardware: arguments.hardware.clone(),
        emulated_by_chart: tier == Tier::Node,
        values: VALUES.map(str::to_owned).to_vec(),
        pools: vec![POOL.to_owned()],
        ..InstallationOptions::default()
    };
    let tessera =
        Installation::install(&cluster, &installation).await.context("Tessera was not installed")?;
    clock.add(tessera.timings());
    let stand_in = match node_tier {
        Ok(()) => None,
        Err(_) => Some(stand_in::start(&cluster, &tessera, &arguments.hardware).await?),
    };
    let client = cluster.client().await?;
    let devices = published(&client).await?;
    clock.reached("Tessera runs: the node's cards are published");

    let kubectl = Kubectl::of(&cluster)?;
    let images = Images { commands: TEST_IMAGE, cuda_sample: CUDA_SAMPLE_IMAGE, pull_policy: "Never" };
    let submitted = submit(&kubectl, &client, &mut clock, stand_in.as_ref(), &images).await;
    let uses = submitted.with_context(|| match &stand_in {
        None => "the demo's pods".to_owned(),
        Some(stand_in) => format!("the demo's pods; of their claims failed: {:?}", stand_in.failures()),
    })?;
    let summary = Summary { nodes: 1, devices, claims: uses };

    if arguments.keep {
        let usage = cluster::usage(&cluster).await;
        cluster::leave(cluster)?;
        let exit = conclude(&clock, arguments.output, &summary)?;
        say!("{}", usage.trim_end());
        return Ok(exit);
    }
    cluster.shutdown().await.context("the cluster did not end cleanly")?;
    clock.reached("everything is removed");
    conclude(&clock, arguments.output, &summary)
}

fn conclude(clock: &Clock, output: Output, summary: &Summary) -> Result<ExitCode> {
    where_time_went(clock);
    if output == Output::Json {
        println!("{}", serde_json::to_string(summary)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the node's devices, and counts them.
async fn published(client: &Client) -> Result<usize> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let published = slices.list(&ListParams::default()).await?.items;
        // The node has only one pool.
        let is_complete = |slice: &ResourceSlice| {
            usize::try_from(slice.spec.pool.resource_slice_count) == Ok(published.len())
        };
        let count = device_count(&published);
        if count > 0 && published.iter().all(is_complete) {
            return Ok(count);
        }
        sleep(Duration::from_millis(20)).await;
    }
    bail!("no devices were published within {} s", PATIENCE.as_secs())
}

async fn submit(
    kubectl: &Kubectl,
    client: &Client,
    clock: &mut Clock,
    stand_in: Option<&StandIn>,
    images: &Images<'_>,
) -> Result<Vec<ClaimUse>> {
    kubectl.run(&["create", "namespace", NAMESPACE]).await?;
    let mut watch = Watch { client, screen: Screen::default(), memory: Memory::default() };
    apply(kubectl, &JOB, images).await?;
    let uses = watch.until("the job to end", async |uses| job_over(client, uses).await).await?;
    clock.reached(if uses.iter().any(waits) {
        "the job with four cards waits: this machine cannot give it four"
    } else {
        "the job with four cards has ended, its cards are free again"
    });

    let shares = stand_in.is_none().then_some(&SHARES);
    let manifests: Vec<&Manifest> = PODS.iter().chain(shares).collect();
    for manifest in &manifests {
        apply(kubectl, manifest, images).await?;
    }
    watch.screen = Screen::default();
    let all = 1 + manifests.iter().map(|manifest| manifest.pods()).sum::<usize>();
    let uses = watch
        .until("the pods to run or to wait for good", async |uses| {
            Ok(uses.len() >= all && uses.iter().all(settled))
        })
        .await?;
    clock.reached("every pod that can run does");

    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut views = Vec::new();
    for claim_use in uses.iter().filter(|claim_use| claim_use.node.is_some()) {
        let view = match stand_in {
            Some(stand_in) => stand_in.view(&claim_use.pod),
            None => pods
                .logs(&claim_use.pod, &LogParams::default())
                .await
                .ok()
                .and_then(|log| ContainerView::from_log(&log)),
        };
        views.push((claim_use.pod.clone(), view));
    }
    if shares.is_none() {
        say!("\n{} is left out: shares by MPS need a node on which pods run.", SHARES.file);
    }
    say!("\nWhat the containers see:\n{}\n", container_views(&views));
    Ok(uses)
}

async fn apply(kubectl: &Kubectl, manifest: &Manifest, images: &Images<'_>) -> Result<()> {
    say!("kubectl apply --namespace {NAMESPACE} -f {}   # {}", manifest.file, manifest.purpose);
    let text = manifest.with_images(images);
    let arguments = ["apply", "--server-side", "--namespace", NAMESPACE, "-f", "-"];
    kubectl.run_with_input(&arguments, &text).await?;
    Ok(())
}

/// Polls the demo's pods and shows them.
struct Watch<'a> {
    client: &'a Client,
    screen: Screen,
    memory: Memory,
}

impl Watch<'_> {
    async fn until(
        &mut self,
        what: &str,
        over: impl AsyncFn(&[ClaimUse]) -> Result<bool>,
    ) -> Result<Vec<ClaimUse>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let uses = self.memory.recall(observe(self.client).await?);
            self.screen.show(&uses);
            if over(&uses).await? {
                return Ok(uses);
            }
            if Instant::now() > end {
                bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn observe(client: &Client) -> Result<Vec<ClaimUse>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let everything = ListParams::default();
    let (pods, claims) = tokio::try_join!(pods.list(&everything), claims.list(&everything))?;
    Ok(claim_uses(&pods.items, &claims.items))
}

/// Whether the job is complete, or refused for lack of cards on a smaller machine.
async fn job_over(client: &Client, uses: &[ClaimUse]) -> Result<bool> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let job = jobs.get("training").await?;
    let status = job.status.unwrap_or_default();
    if status.failed.is_some_and(|failed| failed > 0) {
        bail!("the job failed: kubectl -n {NAMESPACE} describe job training");
    }
    Ok(status.completion_time.is_some() || uses.iter().any(waits))
}

/// Whether the pod waits with no progress possible: no suitable device is free.
fn waits(claim_use: &ClaimUse) -> bool {
    settled(claim_use) && claim_use.node.is_none()
}

fn where_time_went(clock: &Clock) {
    say!("\nWhere the time went:");
    let mut before = Duration::ZERO;
    for (step, after) in &clock.steps {
        say!("  {:5.1} s  {step}", (*after - before).as_secs_f64());
        before = *after;
    }
}
