//! `cargo xtask demo --kubeconfig FILE`: the same pods on an existing cluster, whose nodes become emulated machines.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use tessera_api::gpu_pool::GpuPool;
use tessera_harness::workspace;
use tokio::time::sleep;

use super::kubectl::Kubectl;
use super::say::say;
use super::view::device_count;
use super::{Clock, DemoArguments, Images, NAMESPACE, PATIENCE, POOL, Summary, VALUES, conclude, submit};

const RELEASE: &str = "tessera";
const RELEASE_NAMESPACE: &str = "tessera-demo";
const PLUGIN: &str = "app.kubernetes.io/name=tessera,app.kubernetes.io/component=kubelet-plugin";
/// The pool of [`POOL`].
const POOL_NAME: &str = "shared";
const POOL_KIND: &str = "gpupools.gpu.tessera.dev";
const QUOTA_KIND: &str = "gpuquotas.gpu.tessera.dev";
/// Oldest minor version of Kubernetes with allocation of partitions and shares.
const OLDEST: u32 = 36;

/// Runs the demo on an existing cluster, and leaves the cluster as before.
///
/// # Errors
/// When the cluster is unsuitable, or something does not work.
pub async fn run(mut clock: Clock, arguments: &DemoArguments, kubeconfig: &Path) -> Result<ExitCode> {
    let kubectl = Kubectl::with(kubeconfig);
    kubectl.run(&["version", "--client"]).await?;
    kubectl.helm(&["version"]).await?;
    let client = connect(kubeconfig).await?;
    let missing_kinds = examine(&client).await?;
    clock.reached("the cluster is there, and has no Tessera");

    let cleanup = Cleanup { kubectl: &kubectl, missing_kinds };
    match play(&mut clock, arguments, &kubectl, &client).await {
        Ok(summary) if arguments.keep => {
            say!("\nTessera stays in the cluster. Remove it with:\n{}", cleanup.commands());
            conclude(&clock, arguments.output, &summary)
        }
        Ok(summary) => {
            cleanup.run().await?;
            clock.reached(
                "everything is removed but the machines' directories on the nodes (/var/lib/emulated-gpus)",
            );
            conclude(&clock, arguments.output, &summary)
        }
        Err(error) => {
            eprintln!(
                "\nWhat was installed is left to be looked at. Remove it with:\n{}\n",
                cleanup.commands()
            );
            Err(error)
        }
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Refuses clusters unsuitable for the demo, or disturbed by the demo. Returns the kinds of the chart that it lacks.
async fn examine(client: &Client) -> Result<Vec<&'static str>> {
    let version = client.apiserver_version().await.context("the API server does not answer")?;
    let minor = version.minor.trim_end_matches('+').parse::<u32>().unwrap_or_default();
    ensure!(
        minor >= OLDEST,
        "the cluster is Kubernetes {}: the demo needs 1.{OLDEST} or newer, which allocates partitions and shares",
        version.git_version
    );
    let daemon_sets: Api<DaemonSet> = Api::all(client.clone());
    let installed = daemon_sets.list(&ListParams::default().labels(PLUGIN)).await?.items;
    if let Some(daemon_set) = installed.first() {
        bail!(
            "Tessera is installed in namespace {} already, and the demo would be in its way: choose another cluster",
            daemon_set.namespace().unwrap_or_default()
        );
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in [NAMESPACE, RELEASE_NAMESPACE] {
        ensure!(
            namespaces.get_opt(namespace).await?.is_none(),
            "the cluster has a namespace {namespace}, which the demo would make and remove: if it is left of an earlier demo, kubectl \
             delete namespace {namespace}"
        );
    }
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut missing = Vec::new();
    for kind in [POOL_KIND, QUOTA_KIND] {
        if kinds.get_opt(kind).await?.is_none() {
            missing.push(kind);
        }
    }
    if !missing.contains(&POOL_KIND) {
        let pools: Api<GpuPool> = Api::all(client.clone());
        ensure!(
            pools.get_opt(POOL_NAME).await?.is_none(),
            "the cluster has a GpuPool {POOL_NAME}, which the demo would overwrite and remove: if it is left of an earlier demo, \
             kubectl delete gpupool {POOL_NAME}"
        );
    }
    Ok(missing)
}

async fn play(
    clock: &mut Clock,
    arguments: &DemoArguments,
    kubectl: &Kubectl,
    client: &Client,
) -> Result<Summary> {
    kubectl.run(&["create", "namespace", RELEASE_NAMESPACE]).await?;
    let privileged = "pod-security.kubernetes.io/enforce=privileged";
    kubectl.run(&["label", "namespace", RELEASE_NAMESPACE, privileged]).await?;
    let chart = workspace::root().join("charts/tessera").display().to_string();
    let hardware = format!("emulated.hardware={}", arguments.hardware);
    let image = format!("image.repository={},image.tag={}", arguments.repository, arguments.tag);
    let mut install = vec!["install", RELEASE, &chart, "--namespace", RELEASE_NAMESPACE];
    for value in VALUES.into_iter().chain([hardware.as_str(), &image]) {
        install.extend(["--set", value]);
    }
    kubectl.helm(&install).await?;
    clock.reached("helm has installed the chart");
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], POOL).await?;
    let nodes = every_node_is_ready(client).await?;
    clock.reached("Tessera runs: the nodes' cards are published");
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let devices = device_count(&slices.list(&ListParams::default()).await?.items);

    let image = format!("{}/gpu-emulator:{}", arguments.repository, arguments.tag);
    let images = Images { commands: &image, cuda_sample: &image, pull_policy: "IfNotPresent" };
    let claims = submit(kubectl, client, clock, None, &images).await.context("the demo's pods")?;
    Ok(Summary { nodes, devices, claims })
}

/// Waits for the plugins, and counts their nodes.
async fn every_node_is_ready(client: &Client) -> Result<usize> {
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), RELEASE_NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), RELEASE_NAMESPACE);
    let plugins = ListParams::default().labels(PLUGIN);
    let end = Instant::now() + PATIENCE;
    loop {
        let found = daemon_sets.list(&plugins).await?.items;
        let status = found.first().and_then(|daemon_set| daemon_set.status.as_ref());
        if let Some(status) = status.filter(|status| status.desired_number_scheduled > 0)
            && status.number_ready == status.desired_number_scheduled
        {
            return Ok(usize::try_from(status.number_ready).unwrap_or_default());
        }
        if let Some(trouble) = pods.list(&plugins).await?.items.iter().find_map(trouble) {
            bail!("{trouble}");
        }
        if Instant::now() > end {
            bail!(
                "the plugins were not ready within {} s: kubectl --namespace {RELEASE_NAMESPACE} describe pods",
                PATIENCE.as_secs()
            );
        }
        sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// Why a plugin's pod will not start, if so.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    containers.into_iter().find_map(|container: &ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        match waiting.reason.as_deref()? {
            "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => Some(format!(
                "node {node} does not have the image {}: make the images with `cargo xtask image`, and load target/images.tar \
                 into the cluster (kind load image-archive, minikube image load, ctr --namespace k8s.io images import), or \
                 push them and name --repository and --tag",
                container.image
            )),
            "CrashLoopBackOff" => {
                let last = container.last_state.as_ref()?.terminated.as_ref()?;
                let said = last.message.as_deref().unwrap_or("it said nothing");
                Some(format!("{} of node {node} ends: {}", container.name, said.trim()))
            }
            _ => None,
        }
    })
}

/// Removes everything installed by the demo.
struct Cleanup<'a> {
    kubectl: &'a Kubectl,
    /// Kinds that came with the demo.
    missing_kinds: Vec<&'static str>,
}

impl Cleanup<'_> {
    fn steps(&self) -> Vec<Vec<&'static str>> {
        let mut steps = vec![
            vec!["kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found"],
            vec!["kubectl", "delete", "gpupool", POOL_NAME, "--ignore-not-found"],
            vec!["helm", "uninstall", RELEASE, "--namespace", RELEASE_NAMESPACE, "--wait", "--no-hooks"],
            vec!["kubectl", "delete", "namespace", RELEASE_NAMESPACE],
        ];
        steps.extend(self.missing_kinds.iter().map(|kind| vec!["kubectl", "delete", "crd", *kind]));
        steps
    }

    fn commands(&self) -> String {
        self.steps().iter().map(|step| format!("  {}", step.join(" "))).collect::<Vec<_>>().join("\n")
    }

    async fn run(&self) -> Result<()> {
        for step in self.steps() {
            match step.as_slice() {
                ["helm", arguments @ ..] => self.kubectl.helm(arguments).await?,
                step => self.kubectl.run(&step[1..]).await?,
            };
        }
        Ok(())
    }
}
