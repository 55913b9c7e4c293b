//! Objects of a running cluster, from its API server.

mod doctor;
mod error;
mod foreign;
mod forward;
mod leader;
mod own_kinds;
mod reader;
mod steering;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tessera_api::gpu_pool::GpuPool;
use tessera_api::gpu_quota::GpuQuota;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::{Key, Objects};

use crate::arguments::{ConnectionArguments, SourceArguments};
use crate::foreign::Foreign;

pub use doctor::live;
pub use error::ServerError;
pub use forward::{FleetPort, ForwardError};
use reader::Reader;
pub use reader::fold_slices;
pub use steering::{Controller, ControllerEvent, News, news};

/// Why the cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig could not be read, or lacks something.
    #[error("kubeconfig: {}; name one with --kubeconfig or KUBECONFIG", of_kubeconfig(.0))]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The kubeconfig does not lead to a connection.
    #[error("the cluster cannot be reached: {0}")]
    Client(ServerError),
    /// The API server refused or failed.
    #[error("{what}: {source}")]
    Request {
        /// The requested operation.
        what: &'static str,
        /// The error.
        source: ServerError,
    },
    /// Without this right no answer is possible.
    #[error(
        "you may not list {resource} in the whole cluster, and this command needs them; the chart's ClusterRoles \
         …-user and …-viewer grant the rights for kubectl gpu (docs/kubectl-gpu.md; the API server: {message})"
    )]
    Right {
        /// For example `nodes` or `resourceslices.resource.k8s.io`.
        resource: &'static str,
        /// The API server's message.
        message: String,
    },
    /// Another thread cannot be started.
    #[error("{0}")]
    Runtime(#[from] std::io::Error),
}

fn of_kubeconfig(error: &kube::config::KubeconfigError) -> String {
    match error {
        kube::config::KubeconfigError::ReadConfig(error, path) => format!("{}: {error}", path.display()),
        other => other.to_string(),
    }
}

/// Objects needed by a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The devices alone.
    Devices,
    /// The devices, and the claims with devices.
    Holders {
        /// Of this node alone.
        node: Option<String>,
    },
    /// GpuPools.
    Pools {
        /// Also the devices.
        devices: bool,
    },
    /// GpuQuotas.
    Quotas,
    /// GpuPools, GpuQuotas, devices and classes.
    Kueue,
    /// Objects of Tessera's installation: its pods, all nodes, classes, claims and GpuPools. ResourceSlices are excluded: see
    /// [`fold_slices`].
    Installation,
    /// All objects relevant to a pod's allocation.
    All {
        /// Volumes even if no waiting pod of the cluster has any.
        volumes: bool,
        /// GpuPools, too.
        pools: bool,
    },
    /// As [`Self::All`] with volumes, and what decides on whether pods may move: PodDisruptionBudgets and Jobs.
    Moves,
    /// Objects needed for a migration from another driver.
    Migration,
    /// All objects relevant to allocation, besides volumes.
    Simulation,
}

/// Objects read from the cluster.
#[derive(Debug)]
pub struct Loaded {
    /// The objects.
    pub objects: Objects,
    /// GpuPools; `None` where the API server has no such kind.
    pub pools: Option<BTreeMap<Key, GpuPool>>,
    /// GpuQuotas; `None` where the API server has no such kind.
    pub quotas: Option<BTreeMap<Key, GpuQuota>>,
    /// Objects of other drivers, if they are wanted.
    pub foreign: Foreign,
    /// The default namespace.
    pub namespace: String,
    /// Missing read permissions and their effect on the answer.
    pub warnings: Vec<String>,
    /// Release of the API server; `None` if unknown.
    pub kubernetes: Option<KubernetesVersion>,
}

/// Reads the cluster, as far as the user may.
///
/// # Errors
/// See [`ClusterError`].
pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<Loaded, ClusterError> {
    block_on(async {
        let (client, namespace) = connect(&arguments.connection, arguments.namespace.as_deref()).await?;
        let kubernetes = client.apiserver_version().await.ok();
        let kubernetes = kubernetes.and_then(|version| KubernetesVersion::of(&version.git_version).ok());
        let mut reader = Reader::new(client, namespace);
        let pools = match wanted {
            Wanted::Pools { .. } | Wanted::Kueue | Wanted::Installation | Wanted::All { pools: true, .. } => {
                let (resource, what) = ("gpupools.gpu.tessera.dev", "list of GpuPools");
                own_kinds::list(&reader.client, resource, what, &mut reader.warnings).await?
            }
            _ => Some(BTreeMap::new()),
        };
        let quotas = match wanted {
            Wanted::Quotas | Wanted::Kueue => {
                let (resource, what) = ("gpuquotas.gpu.tessera.dev", "list of GpuQuotas");
                own_kinds::list(&reader.client, resource, what, &mut reader.warnings).await?
            }
            _ => Some(BTreeMap::new()),
        };
        let foreign = match wanted {
            Wanted::Migration => foreign::read(&reader.client, &mut reader.warnings).await?,
            _ => Foreign::default(),
        };
        let objects = reader.read(wanted).await?;
        let Reader { namespace, warnings, .. } = reader;
        Ok(Loaded { objects, pools, quotas, foreign, namespace, warnings, kubernetes })
    })
}

/// Runs a future of API server requests.
///
/// # Errors
/// The future's own, or no runtime can be created.
pub fn block_on<T, E: From<ClusterError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ClusterError::from)?.block_on(work)
}

/// A client of the cluster, and the namespace to use: the given one, or the kubeconfig's.
///
/// # Errors
/// The kubeconfig does not lead to a connection.
pub async fn connect(
    arguments: &ConnectionArguments,
    namespace: Option<&str>,
) -> Result<(Client, String), ClusterError> {
    client(config(arguments).await?, namespace)
}

/// As [`connect`], with as much time as the API server takes between parts of an answer: output of a program.
///
/// # Errors
/// As of [`connect`].
pub async fn connect_patiently(arguments: &ConnectionArguments) -> Result<(Client, String), ClusterError> {
    let mut config = config(arguments).await?;
    config.read_timeout = None;
    client(config, None)
}

fn client(config: Config, namespace: Option<&str>) -> Result<(Client, String), ClusterError> {
    let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
    Ok((Client::try_from(config).map_err(|error| ClusterError::Client(error.into()))?, namespace))
}

async fn config(arguments: &ConnectionArguments) -> Result<Config, ClusterError> {
    let options = KubeConfigOptions {
        context: arguments.context.clone(),
        cluster: arguments.cluster.clone(),
        user: arguments.user.clone(),
    };
    let kubeconfig = match &arguments.kubeconfig {
        Some(path) => Kubeconfig::read_from(path)?,
        None => Kubeconfig::read()?,
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let timeout = Some(Duration::from_secs(arguments.request_timeout));
    config.connect_timeout = timeout;
    config.read_timeout = timeout;
    Ok(config)
}

/// Whether the pod has no node yet and may have volumes bound to one.
pub fn waits_with_volumes(pod: &Pod) -> bool {
    let Some(spec) = pod.spec.as_ref().filter(|spec| spec.node_name.is_none()) else { return false };
    let mut volumes = spec.volumes.iter().flatten();
    volumes.any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
}

/// An error of a request.
pub fn failed(what: &'static str) -> impl Fn(kube::Error) -> ClusterError {
    move |source| ClusterError::Request { what, source: source.into() }
}
