//! Tessera on a cluster of the node tier, as an admin installs it: emulated cards on each node, the plugin's image, and
//! the chart through helm.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceSlice};
use kube::{Api, api::ListParams};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::{
    Cluster, ClusterError, Image, ImageError, Node, Tier,
    image::{CUDA_SAMPLE_IMAGE, gpu_emulator_image, write_archive, write_cuda_sample_image},
    progress::Progress,
    timings::{Stopwatch, Timings},
    tools::{Module, Tools},
    workspace::{self, WorkspaceError},
};

/// The namespace Tessera is installed in.
pub const NAMESPACE: &str = "tessera-system";
/// The driver's name, the chart's default.
pub const DRIVER: &str = "gpu.tessera.dev";
/// Label of the plugin's pods.
pub const PLUGIN_SELECTOR: &str = "app.kubernetes.io/component=kubelet-plugin";
/// Path of the emulated machine on each node.
pub const MACHINE: &str = "/var/lib/emulated-gpus";
/// Prefix of the names of images with this repository's programs.
const IMAGE_REPOSITORY: &str = "tessera.test";

/// The extent of the installation.
#[derive(Clone, Debug)]
pub struct InstallationOptions {
    /// Hardware of the emulated machine on each node (`gpu-emulator hardware` lists the names).
    pub hardware: String,
    /// More arguments of `gpu-emulator create`.
    pub machine: Vec<String>,
    /// The chart makes the machines (`emulated.hardware`). Otherwise they exist before the installation.
    pub emulated_by_chart: bool,
    /// The plugin's image has NVIDIA's program for CDI hooks, as in images of `cargo xtask image`, and the driver an `ldconfig`:
    /// containers start with the hooks of a node without `nvidia-ctk`. Not with `emulated_by_chart`.
    pub hooks: bool,
    /// Files of values, as `helm --values` takes them.
    pub values_files: Vec<PathBuf>,
    /// More `helm --set` values, `name=value`.
    pub values: Vec<String>,
    /// Manifests of GpuPools created before the chart is installed. Without any, the chart brings
    /// their kind.
    pub pools: Vec<String>,
    /// Receives each phase.
    pub progress: Progress,
}

impl Default for InstallationOptions {
    fn default() -> Self {
        Self {
            hardware: "hgx-h100-80gb".to_owned(),
            machine: Vec::new(),
            emulated_by_chart: false,
            hooks: false,
            values_files: Vec::new(),
            values: Vec::new(),
            pools: Vec::new(),
            progress: Progress::default(),
        }
    }
}

/// Why Tessera could not be installed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InstallationError {
    /// An error of the cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A program of this repository is missing.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// An image cannot be made.
    #[error("cannot make an image of Tessera's own programs: {0}")]
    Image(#[from] ImageError),
    /// An error of the API.
    #[error("the Kubernetes API: {0}")]
    Api(#[from] kube::Error),
    /// A program failed.
    #[error("{command} failed: {output}")]
    Command {
        /// The command.
        command: String,
        /// Its output.
        output: String,
    },
    /// A time limit has passed.
    #[error("{what} within {} s; last seen: {last}", limit.as_secs())]
    NotReady {
        /// The awaited condition.
        what: String,
        /// The time limit.
        limit: Duration,
        /// The last state seen.
        last: String,
    },
}

/// The chart's CustomResourceDefinitions, as they are without helm.
///
/// # Errors
/// The chart's file cannot be read.
pub fn definitions() -> std::io::Result<String> {
    let text = std::fs::read_to_string(workspace::root().join("charts/tessera/templates/crds.yaml"))?;
    Ok(text.lines().filter(|line| !line.starts_with("{{")).collect::<Vec<_>>().join("\n"))
}

/// Makes the kind GpuPool, and these pools.
///
/// # Errors
/// kubectl's error, or [`InstallationError::NotReady`].
pub async fn make_pools(cluster: &Cluster, pools: &[String]) -> Result<(), InstallationError> {
    let limit = Duration::from_secs(60);
    let definitions = definitions().map_err(|error| InstallationError::NotReady {
        what: "the chart's definitions are not there".to_owned(),
        limit: Duration::ZERO,
        last: error.to_string(),
    })?;
    cluster.apply(&definitions).await?;
    let end = Instant::now() + limit;
    for pool in pools {
        // The API server takes a moment to serve a new kind.
        while let Err(error) = cluster.apply(pool).await {
            if Instant::now() > end {
                let what = "the GpuPools cannot be made".to_owned();
                return Err(InstallationError::NotReady { what, limit, last: error.to_string() });
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Tessera, installed on every node of a cluster.
pub struct Installation {
    programs: PathBuf,
    timings: Timings,
}

impl Installation {
    /// Makes the emulated machines, imports the images of the plugin and of `cuda-sample`, and installs the chart.
    /// Returns once each node's slices are published. In the scheduler tier, whose nodes run nothing, only the chart's
    /// objects are created.
    ///
    /// # Errors
    /// See [`InstallationError`].
    pub async fn install(
        cluster: &Cluster,
        options: &InstallationOptions,
    ) -> Result<Self, InstallationError> {
        let programs = workspace::build_programs()?;
        let stopwatch = Stopwatch::start(options.progress.clone());
        let mut installation = Self { programs, timings: Timings::default() };
        if !options.emulated_by_chart {
            for (index, node) in cluster.nodes().iter().enumerate() {
                installation.create_machine(node, index, options)?;
            }
        }
        if cluster.tier() == Tier::Node {
            installation.import_images(cluster, "v1", options).await?;
            stopwatch.reached("the chart's images are made and imported");
            installation.import_cuda_sample(cluster).await?;
            stopwatch.reached(CUDA_SAMPLE_IMAGE);
        }
        if !options.pools.is_empty() {
            make_pools(cluster, &options.pools).await?;
        }
        installation.helm(cluster, "install", "v1", options).await?;
        stopwatch.reached("helm has installed the chart");
        installation.wait_until_published(cluster).await?;
        stopwatch.reached("each node's cards are published");
        installation.timings = stopwatch.finish();
        Ok(installation)
    }

    /// Duration of each phase of the installation.
    #[must_use]
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Upgrades to another tag of the same image, so the DaemonSet replaces its pods.
    ///
    /// # Errors
    /// See [`InstallationError`].
    pub async fn upgrade(
        &self,
        cluster: &Cluster,
        tag: &str,
        options: &InstallationOptions,
    ) -> Result<(), InstallationError> {
        self.import_images(cluster, tag, options).await?;
        self.helm(cluster, "upgrade", tag, options).await
    }

    /// Runs `gpu-emulator` and returns its output.
    ///
    /// # Errors
    /// [`InstallationError::Command`] with its output.
    pub fn emulator(&self, arguments: &[&str]) -> Result<String, InstallationError> {
        run(&self.programs.join("gpu-emulator"), arguments)
    }

    /// Path of a program of this repository.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// The plugin's pods on all nodes.
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn all_plugin_pods(&self, cluster: &Cluster) -> Result<Vec<Pod>, InstallationError> {
        let pods: Api<Pod> = Api::namespaced(cluster.client().await?, NAMESPACE);
        Ok(pods.list(&ListParams::default().labels(PLUGIN_SELECTOR)).await?.items)
    }

    /// The plugin's pods on one node.
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn plugin_pods(&self, cluster: &Cluster, node: &str) -> Result<Vec<Pod>, InstallationError> {
        let pods: Api<Pod> = Api::namespaced(cluster.client().await?, NAMESPACE);
        let fields = format!("spec.nodeName={node}");
        Ok(pods.list(&ListParams::default().labels(PLUGIN_SELECTOR).fields(&fields)).await?.items)
    }

    fn create_machine(
        &self,
        node: &Node,
        index: usize,
        options: &InstallationOptions,
    ) -> Result<(), InstallationError> {
        let (directory, seed) = (machine(node).display().to_string(), index.to_string());
        let mut arguments = vec!["create", &directory, "--hardware", &options.hardware, "--seed", &seed];
        arguments.extend(options.machine.iter().map(String::as_str));
        self.emulator(&arguments)?;
        if options.hooks {
            let ldconfig = machine(node).join("sbin/ldconfig");
            std::fs::create_dir_all(machine(node).join("sbin"))
                .and_then(|()| std::fs::copy("/sbin/ldconfig", &ldconfig))
                .map_err(ClusterError::io(&ldconfig))?;
        }
        Ok(())
    }

    async fn import_images(
        &self,
        cluster: &Cluster,
        tag: &str,
        options: &InstallationOptions,
    ) -> Result<(), InstallationError> {
        let reference = |program: &str| format!("{IMAGE_REPOSITORY}/{program}:{tag}");
        let mut images = Vec::new();
        if options.emulated_by_chart {
            let commands =
                cluster.tools().path(Module::Testimage, "testimage").map_err(ClusterError::from)?;
            images.push(gpu_emulator_image(&reference("gpu-emulator"), &self.programs, Some(&commands))?);
        }
        for program in ["kubelet-plugin", "mps-host", "controller"] {
            let mut image = Image::from_binary(reference(program), &self.programs.join(program))?;
            if options.hooks && program == "kubelet-plugin" {
                let module = Module::NvidiaContainerToolkit;
                let tools = Tools::build_in_background(&[module], &options.progress).await;
                let hook = tools.and_then(|tools| tools.path(module, "nvidia-cdi-hook"));
                image = image.binary("/usr/bin/nvidia-cdi-hook", &hook.map_err(ClusterError::from)?)?;
            }
            images.push(image);
        }
        let archive = cluster.state().join(format!("images-{tag}.tar"));
        write_archive(&images, &archive)?;
        cluster.import_image(&archive).await?;
        Ok(())
    }

    async fn import_cuda_sample(&self, cluster: &Cluster) -> Result<(), InstallationError> {
        let archive = cluster.state().join("cuda-sample.tar");
        let commands = cluster.tools().path(Module::Testimage, "testimage").map_err(ClusterError::from)?;
        write_cuda_sample_image(&self.programs.join("cuda-sample"), &commands, &archive)?;
        cluster.import_image(&archive).await?;
        Ok(())
    }

    async fn helm(
        &self,
        cluster: &Cluster,
        verb: &str,
        tag: &str,
        options: &InstallationOptions,
    ) -> Result<(), InstallationError> {
        let chart = workspace::root().join("charts/tessera").display().to_string();
        let mut values = vec![
            format!("image.repository={IMAGE_REPOSITORY}"),
            format!("image.tag={tag}"),
            "image.pullPolicy=Never".to_owned(),
        ];
        if options.emulated_by_chart {
            values.push(format!("emulated.hardware={}", options.hardware));
            // To helm {} is a list with an empty text.
            if !options.machine.is_empty() {
                values.push(format!("emulated.arguments={{{}}}", options.machine.join(",")));
            }
        } else {
            values.push(format!("driverRoot={MACHINE}"));
            values.push("sysfsRoot=/driver-root/sys".to_owned());
            values.push("procRoot=/driver-root/proc".to_owned());
        }
        if !options.pools.is_empty() {
            // Helm takes over no objects of others.
            values.push("crds.install=false".to_owned());
        }
        values.extend(options.values.iter().cloned());
        let mut arguments = vec![verb, "tessera", &chart, "--namespace", NAMESPACE, "--create-namespace"];
        let files: Vec<String> = options.values_files.iter().map(|file| file.display().to_string()).collect();
        for file in &files {
            arguments.extend(["--values", file]);
        }
        for value in &values {
            arguments.extend(["--set", value]);
        }
        cluster.helm(&arguments).await?;
        Ok(())
    }

    async fn wait_until_published(&self, cluster: &Cluster) -> Result<(), InstallationError> {
        let limit = Duration::from_secs(180);
        let slices: Api<ResourceSlice> = Api::all(cluster.client().await?);
        let end = Instant::now() + limit;
        loop {
            let published = slices.list(&ListParams::default()).await?.items;
            let missing = cluster.nodes().iter().find(|node| !is_published(node.name(), &published));
            let Some(missing) = missing else { return Ok(()) };
            if Instant::now() > end {
                let last = match self.plugin_pods(cluster, missing.name()).await?.first() {
                    None => "the DaemonSet has made no pod for it".to_owned(),
                    Some(pod) => {
                        let name = pod.metadata.name.as_deref().unwrap_or_default();
                        let logs = cluster.logs_of(NAMESPACE, name, None).await;
                        let status = serde_json::to_string(&pod.status).unwrap_or_default();
                        format!("{status}\n{}", logs.unwrap_or_else(|error| error.to_string()))
                    }
                };
                let what = format!("node {} has not all of its ResourceSlices", missing.name());
                return Err(InstallationError::NotReady { what, limit, last });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The emulated machine of `node` from the test process: the directory for `gpu-emulator`.
#[must_use]
pub fn machine(node: &Node) -> PathBuf {
    node.directory().join("var-lib/emulated-gpus")
}

/// Whether a node's devices are published, with all slices of its pools.
fn is_published(node: &str, slices: &[ResourceSlice]) -> bool {
    let of_node = || slices.iter().filter(|slice| slice.spec.node_name.as_deref() == Some(node));
    let is_complete = |slice: &ResourceSlice| {
        let pool = &slice.spec.pool;
        let of_pool = of_node().filter(|other| {
            (&other.spec.pool.name, other.spec.pool.generation) == (&pool.name, pool.generation)
        });
        usize::try_from(pool.resource_slice_count) == Ok(of_pool.count())
    };
    of_node().any(|slice| slice.spec.devices.is_some()) && of_node().all(is_complete)
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, InstallationError> {
    let command = format!("{} {}", program.display(), arguments.join(" "));
    let output = Command::new(program).args(arguments).output().map_err(|error| {
        InstallationError::Command { command: command.clone(), output: error.to_string() }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stderr, output.stdout].concat();
    Err(InstallationError::Command { command, output: String::from_utf8_lossy(&text).trim().to_owned() })
}
