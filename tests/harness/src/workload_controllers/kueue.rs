//! Kueue, as its project publishes it: program, kinds and webhooks, with its own certificates. Its roles are left out, and its server
//! for pending workloads: the program runs beside the cluster, as administrator.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::Api;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{LIMIT, WorkloadControllersError, apply_webhooks, file_error, free_port, spawn, until_listening};
use crate::{
    Cluster,
    host::{CommandLine, Host},
    progress::Progress,
    tools::{Module, Tools},
};

const NAME: &str = "kueue";
const NAMESPACE: &str = "kueue-system";
const SERVICE: &str = "kueue-webhook-service";
const SECRET: &str = "kueue-webhook-server-cert";
const WEBHOOKS: [&str; 2] = [
    "mutatingwebhookconfiguration/kueue-mutating-webhook-configuration",
    "validatingwebhookconfiguration/kueue-validating-webhook-configuration",
];
/// Kinds with versions of different shapes, as `config/components/crd/kustomization.yaml` lists them.
const CONVERTED: [&str; 5] = ["localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters"];

/// Kueue, running.
#[derive(Debug)]
pub struct Kueue {
    host: Host,
    kinds: String,
}

impl Kueue {
    /// Adds its kinds, starts it with these fields of its Configuration (`featureGates`, `resources`, …), and has the API server call
    /// its webhooks. From then on every new pod goes through them: see [`Self::stop`].
    ///
    /// # Errors
    /// See [`WorkloadControllersError`].
    pub async fn start(cluster: &Cluster, fields: &Value) -> Result<Self, WorkloadControllersError> {
        let tools = Tools::build_in_background(&[Module::Kueue], &Progress::default()).await?;
        let file = |name| tools.path(Module::Kueue, name);
        let kinds = file("kinds")?.display().to_string();
        cluster.kubectl(&["apply", "--server-side", "-f", &kinds]).await?;
        let directory = cluster.state().join(NAME);
        fs::create_dir_all(&directory).map_err(|source| file_error(&directory, source))?;
        let port = free_port().map_err(|source| file_error(&directory, source))?;
        let path = directory.join("configuration.yaml");
        fs::write(&path, configuration(fields, port, &directory).to_string())
            .map_err(|source| file_error(&path, source))?;

        let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        let objects = [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            // Kueue fills it.
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(SECRET) }),
            // The certificate is for the Service; the program listens beside the cluster.
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata(SERVICE),
                "spec": { "type": "ExternalName", "externalName": "localhost" } }),
        ];
        cluster.apply(&objects.map(|object| object.to_string()).join("\n---\n")).await?;
        let client = |path: &str| json!({ "service": { "namespace": NAMESPACE, "name": SERVICE, "path": path, "port": port } });
        let webhook = json!({ "clientConfig": client("/convert"), "conversionReviewVersions": ["v1"] });
        let patch =
            json!({ "spec": { "conversion": { "strategy": "Webhook", "webhook": webhook } } }).to_string();
        for kind in CONVERTED {
            let kind = format!("{kind}.kueue.x-k8s.io");
            cluster.kubectl(&["patch", "crd", &kind, "--type=merge", "-p", &patch]).await?;
        }
        cluster.kubectl(&["wait", "--for=condition=Established", "-f", &kinds, "--timeout=60s"]).await?;
        let prefixed = |name: &str| format!("{NAME}-{name}");
        apply_webhooks(cluster, &file("webhooks.yaml")?, prefixed, client).await?;

        let host = cluster.control_plane();
        let command = CommandLine::new(file(NAME)?)
            .flag("config", path.display())
            .flag("kubeconfig", cluster.kubeconfig().display());
        let log = spawn(cluster, &host, NAME, command).await?;
        mount_certificate(cluster, &directory).await?;
        until_listening(NAME, port, log).await?;
        Ok(Kueue { host, kinds })
    }

    /// Ends it, with its webhooks and kinds. Where this was not done, nobody can create pods. Its workloads must be gone.
    ///
    /// # Errors
    /// See [`WorkloadControllersError`].
    pub async fn stop(self, cluster: &Cluster) -> Result<(), WorkloadControllersError> {
        for kind in
            ["workloads", "localqueues", "clusterqueues", "cohorts", "resourceflavors", "admissionchecks"]
        {
            // Kueue removes its finalizers.
            let kind = format!("{kind}.kueue.x-k8s.io");
            cluster.kubectl(&["delete", &kind, "--all", "--all-namespaces", "--timeout=60s"]).await?;
        }
        cluster.kubectl(&[&["delete"], &WEBHOOKS[..]].concat()).await?;
        cluster.kubectl(&["delete", "-f", &self.kinds]).await?;
        self.host.stop(NAME, Duration::from_secs(5)).await?;
        cluster.kubectl(&["delete", "namespace", NAMESPACE]).await?;
        Ok(())
    }
}

fn configuration(fields: &Value, port: u16, certificates: &Path) -> Value {
    let mut configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": { "healthProbeBindAddress": "0" },
        "metrics": { "bindAddress": "0" },
        "leaderElection": { "leaderElect": false },
        "internalCertManagement": { "enable": true, "webhookServiceName": SERVICE, "webhookSecretName": SECRET },
        "webhook": { "host": "127.0.0.1", "port": port, "certDir": certificates },
        "clientConnection": { "qps": 50, "burst": 100 },
        "integrations": { "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"] },
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        configuration[field] = value.clone();
    }
    configuration["featureGates"]["VisibilityOnDemand"] = json!(false);
    configuration
}

/// Writes the certificate that Kueue made where a kubelet would mount it.
async fn mount_certificate(cluster: &Cluster, directory: &Path) -> Result<(), WorkloadControllersError> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, NAMESPACE);
    let end = Instant::now() + LIMIT;
    loop {
        let data = secrets.get(SECRET).await.ok().and_then(|secret| secret.data).unwrap_or_default();
        if let (Some(key), Some(certificate)) = (data.get("tls.key"), data.get("tls.crt")) {
            // Kueue looks for the certificate.
            for (name, ByteString(bytes)) in [("tls.key", key), ("tls.crt", certificate)] {
                let path = directory.join(name);
                fs::write(&path, bytes).map_err(|source| file_error(&path, source))?;
            }
            return Ok(());
        }
        if Instant::now() > end {
            return Err(WorkloadControllersError::Silent {
                name: NAME,
                log: cluster.logs().join("kueue.log"),
            });
        }
        sleep(Duration::from_millis(100)).await;
    }
}
