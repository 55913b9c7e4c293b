//! The controllers of JobSet and LeaderWorkerSet, as their projects publish them: programs, kinds and webhooks. Kueue and KubeRay
//! have a type of their own.
//!
//! They run beside a control plane of the scheduler tier, whose API server calls their webhooks by an address on the loopback.

mod kube_ray;
mod kueue;

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{net::TcpStream, time::sleep};

use crate::{
    Cluster, ClusterError,
    host::{CommandLine, Host, HostError},
    progress::Progress,
    tools::{Module, ToolError, Tools},
};

pub use kube_ray::KubeRay;
pub use kueue::Kueue;

/// How long one may take to listen for webhooks, and a kind to be served.
const LIMIT: Duration = Duration::from_secs(60);

/// A controller of others.
struct Controller {
    /// Name of its process.
    name: &'static str,
    /// Its program in the cache, and the files beside the program.
    program: &'static str,
    kind: &'static str,
    kinds_file: &'static str,
    webhooks_file: &'static str,
    /// `apiVersion` of its configuration.
    configuration: &'static str,
}

const CONTROLLERS: [Controller; 2] = [
    Controller {
        name: "jobset",
        program: "jobset",
        kind: "jobsets.jobset.x-k8s.io",
        kinds_file: "jobset-crd.yaml",
        webhooks_file: "jobset-webhooks.yaml",
        configuration: "config.jobset.x-k8s.io/v1alpha1",
    },
    Controller {
        name: "lws",
        program: "cmd",
        kind: "leaderworkersets.leaderworkerset.x-k8s.io",
        kinds_file: "lws-crd.yaml",
        webhooks_file: "lws-webhooks.yaml",
        configuration: "config.lws.x-k8s.io/v1alpha1",
    },
];

/// Why they do not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadControllersError {
    /// A program cannot be built.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// An error of the cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A program cannot be started or ended.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A certificate cannot be made.
    #[error("cannot make the webhooks' certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Manifests are no JSON.
    #[error("the webhooks' manifests: {0}")]
    Manifests(#[from] serde_json::Error),
    /// A program does not listen.
    #[error("{name} takes no webhook calls; its log is {log}", log = log.display())]
    Silent {
        /// The program.
        name: &'static str,
        /// Its log.
        log: PathBuf,
    },
}

/// Both controllers, running.
#[derive(Debug)]
pub struct WorkloadControllers {
    host: Host,
}

impl WorkloadControllers {
    /// Adds their kinds, starts them and has the API server call their webhooks. From then on every new pod goes through them:
    /// see [`Self::stop`].
    ///
    /// # Errors
    /// See [`WorkloadControllersError`].
    pub async fn start(cluster: &Cluster) -> Result<Self, WorkloadControllersError> {
        let tools = Tools::build_in_background(&[Module::WorkloadControllers], &Progress::default()).await?;
        let host = cluster.control_plane();
        for controller in &CONTROLLERS {
            let file = |name| tools.path(Module::WorkloadControllers, name);
            let kinds = file(controller.kinds_file)?.display().to_string();
            cluster.kubectl(&["apply", "--server-side", "-f", &kinds]).await?;
            let webhooks = run(cluster, &host, controller, &file(controller.program)?).await?;
            let kind = format!("crd/{}", controller.kind);
            let established = ["wait", "--for=condition=Established", &kind, "--timeout=60s"];
            let end = Instant::now() + LIMIT;
            // kubectl fails at once where a kind has no conditions yet.
            while let Err(error) = cluster.kubectl(&established).await {
                if Instant::now() > end {
                    return Err(error.into());
                }
                sleep(Duration::from_millis(20)).await;
            }
            let authority = serde_json::to_value(ByteString(webhooks.certificate.into_bytes()))?;
            let client = |path: &str| {
                let url = format!("https://127.0.0.1:{}{path}", webhooks.port);
                json!({ "url": url, "caBundle": authority })
            };
            let name = |_: &str| controller.name.to_owned();
            apply_webhooks(cluster, &file(controller.webhooks_file)?, name, client).await?;
        }
        Ok(WorkloadControllers { host })
    }

    /// Ends them, with their kinds and webhooks. Where this was not done, nobody can create pods.
    ///
    /// # Errors
    /// See [`WorkloadControllersError`].
    pub async fn stop(self, cluster: &Cluster) -> Result<(), WorkloadControllersError> {
        for Controller { name, kind, .. } in &CONTROLLERS {
            let webhooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
            cluster.kubectl(&["delete", webhooks, name]).await?;
            cluster.kubectl(&["delete", "crd", kind]).await?;
            self.host.stop(name, Duration::from_secs(5)).await?;
        }
        Ok(())
    }
}

/// Starts a controller and waits until its webhook listens. Returns its port and certificate.
async fn run(
    cluster: &Cluster,
    host: &Host,
    controller: &Controller,
    program: &Path,
) -> Result<Webhooks, WorkloadControllersError> {
    let name = controller.name;
    let directory = cluster.state().join(name);
    fs::create_dir_all(&directory).map_err(|source| file_error(&directory, source))?;
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let port = free_port().map_err(|source| file_error(&directory, source))?;
    let configuration = json!({
        "apiVersion": controller.configuration,
        "kind": "Configuration",
        "health": { "healthProbeBindAddress": "0" },
        "metrics": { "bindAddress": "0" },
        "leaderElection": { "leaderElect": false },
        "internalCertManagement": { "enable": false },
        "webhook": { "host": "127.0.0.1", "port": port, "certDir": directory },
    });
    let files = [
        ("tls.crt", certificate.cert.pem()),
        ("tls.key", certificate.signing_key.serialize_pem()),
        ("configuration.yaml", configuration.to_string()),
    ];
    for (file, text) in files {
        let path = directory.join(file);
        fs::write(&path, text).map_err(|source| file_error(&path, source))?;
    }
    let command = CommandLine::new(program)
        .flag("config", directory.join("configuration.yaml").display())
        .flag("kubeconfig", cluster.kubeconfig().display());
    let log = spawn(cluster, host, name, command).await?;
    until_listening(name, port, log).await?;
    Ok(Webhooks { port, certificate: certificate.cert.pem() })
}

/// Starts a program. Returns the path of its log.
async fn spawn(
    cluster: &Cluster,
    host: &Host,
    name: &'static str,
    command: CommandLine,
) -> Result<PathBuf, WorkloadControllersError> {
    let log = cluster.logs().join(format!("{name}.log"));
    host.spawn(name, command, log.clone()).await?;
    Ok(log)
}

/// Waits until a program takes calls on the port.
async fn until_listening(
    name: &'static str,
    port: u16,
    log: PathBuf,
) -> Result<(), WorkloadControllersError> {
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if Instant::now() > end {
            return Err(WorkloadControllersError::Silent { name, log });
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Where a controller answers webhook calls.
struct Webhooks {
    port: u16,
    certificate: String,
}

/// Has the API server call webhooks, whose manifests name a Service of a cluster: by `name` of a configuration's own name, and by
/// `client` of a webhook's path.
async fn apply_webhooks(
    cluster: &Cluster,
    manifests: &Path,
    name: impl Fn(&str) -> String,
    client: impl Fn(&str) -> Value,
) -> Result<(), WorkloadControllersError> {
    let manifests = manifests.display().to_string();
    let read = ["create", "--dry-run=client", "-o", "json", "-f", &manifests];
    let text = cluster.kubectl(&read).await?;
    for configuration in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let mut configuration = configuration?;
        let own = configuration["metadata"]["name"].as_str().unwrap_or_default();
        configuration["metadata"] = json!({ "name": name(own) });
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
            webhook["clientConfig"] = client(path);
        }
        cluster.apply(&configuration.to_string()).await?;
    }
    Ok(())
}

/// A free port.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn file_error(path: &Path, source: std::io::Error) -> WorkloadControllersError {
    WorkloadControllersError::File { path: path.to_owned(), source }
}
