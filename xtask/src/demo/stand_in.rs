//! The demo without root: no kubelet and no containers. The real plugin runs beside the real control plane, and a
//! stand-in does for bound pods what the kubelet does: it calls the plugin, and says how the pods are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tessera_tests::{
    Cluster,
    host::CommandLine,
    installation::{self, Installation},
    kubelet_stand_in::{Claim, Device, KubeletStandIn, Plugin},
};
use tokio::{task::JoinHandle, time::sleep};

use super::view::ContainerView;

/// What containers would see, by pod.
pub type Views = Arc<Mutex<BTreeMap<String, ContainerView>>>;

/// The stand-in for the kubelet of the only node.
pub struct StandIn {
    plugin: Plugin,
    client: Client,
    namespace: &'static str,
    cdi_directory: PathBuf,
    done: BTreeSet<String>,
    views: Views,
}

/// Starts the plugin on an emulated machine, with the rights of the chart's service account on this node, and the
/// stand-in that calls it for the pods of `namespace`.
///
/// # Errors
/// When the plugin does not start or does not register.
pub async fn start(
    cluster: &Cluster,
    tessera: &Installation,
    hardware: &str,
    namespace: &'static str,
) -> Result<(Views, JoinHandle<Result<()>>)> {
    let state = cluster.state();
    let path = |name: &str| state.join(name).display().to_string();
    let (machine, kubelet, cdi) = (path("gpus"), path("k"), path("cdi"));
    tessera.emulator(&["create", &machine, "--hardware", hardware])?;
    let kubeconfig = state.join("kubelet-plugin.kubeconfig");
    let (node, config, uid) = credentials(cluster, tessera).await?;
    fs::write(&kubeconfig, config).with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let command = CommandLine::new(tessera.program("kubelet-plugin"))
        .flag("node-name", &node)
        .flag("pod-uid", uid)
        .flag("kubeconfig", kubeconfig.display())
        .flag("kubelet-directory", &kubelet)
        .flag("cdi-directory", &cdi)
        .flag("driver-root", &machine)
        .flag("sysfs-root", format!("{machine}/sys"))
        .flag("proc-root", format!("{machine}/proc"))
        .flag("http-address", "127.0.0.1:0");
    cluster
        .control_plane()
        .spawn("kubelet-plugin", command, cluster.logs().join("kubelet-plugin.log"))
        .await?;
    let plugin = KubeletStandIn::new(&state.join("k"))
        .register(installation::DRIVER, Duration::from_secs(30))
        .await
        .with_context(|| format!("see {}", cluster.logs().join("kubelet-plugin.log").display()))?;
    let views = Views::default();
    let stand_in = StandIn {
        plugin,
        client: cluster.client().await?,
        namespace,
        cdi_directory: state.join("cdi"),
        done: BTreeSet::new(),
        views: Arc::clone(&views),
    };
    Ok((views, tokio::spawn(stand_in.run())))
}

/// The node, and a kubeconfig as the plugin's pod on it has: the DaemonSet makes that pod though no kubelet starts it.
async fn credentials(cluster: &Cluster, tessera: &Installation) -> Result<(String, String, String)> {
    for _ in 0..600 {
        let pods = tessera.all_plugin_pods(cluster).await?;
        let bound = pods.into_iter().find_map(|pod| {
            let spec = pod.spec?;
            Some((pod.metadata.name?, pod.metadata.uid?, spec.node_name?, spec.service_account_name?))
        });
        if let Some((pod, uid, node, account)) = bound {
            let bound = Some((pod.as_str(), uid.as_str()));
            let config = cluster.service_account_config(installation::NAMESPACE, &account, bound).await?;
            return Ok((node, serde_json::to_string(&config)?, uid));
        }
        sleep(Duration::from_millis(50)).await;
    }
    bail!("the DaemonSet has made no pod of the kubelet plugin within 30 s")
}

impl StandIn {
    async fn run(mut self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        loop {
            for pod in pods.list(&ListParams::default()).await?.items {
                let name = pod.metadata.name.clone().unwrap_or_default();
                let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                if bound && !self.done.contains(&name) {
                    self.start_pod(&pods, &pod, &name).await.with_context(|| format!("pod {name}"))?;
                    self.done.insert(name);
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn start_pod(&self, pods: &Api<Pod>, pod: &Pod, name: &str) -> Result<()> {
        let claims = self.claims_of(pod).await?;
        let mut devices = Vec::new();
        for (uid, answer) in self.plugin.prepare(&claims).await? {
            devices.extend(answer.map_err(|why| anyhow::anyhow!("claim {uid}: {why}"))?);
        }
        let view = self.view(&devices)?;
        self.views.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), view);
        // A pod of a job ends by itself.
        let ends = pod.metadata.labels.iter().flatten().any(|(key, _)| key == "batch.kubernetes.io/job-name");
        set_phase(pods, name, "Running").await?;
        if ends {
            self.plugin.unprepare(&claims).await?;
            set_phase(pods, name, "Succeeded").await?;
        }
        Ok(())
    }

    async fn claims_of(&self, pod: &Pod) -> Result<Vec<Claim>> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), self.namespace);
        let status = pod.status.clone().unwrap_or_default();
        let templates =
            status.resource_claim_statuses.into_iter().flatten().filter_map(|one| one.resource_claim_name);
        let extended = status.extended_resource_claim_status.map(|one| one.resource_claim_name);
        let mut found = Vec::new();
        for name in templates.chain(extended) {
            let uid = claims.get(&name).await?.metadata.uid.unwrap_or_default();
            found.push(Claim { namespace: self.namespace.to_owned(), name, uid });
        }
        Ok(found)
    }

    /// What the container runtime would make of the CDI devices, read from the specs as it does.
    fn view(&self, devices: &[Device]) -> Result<ContainerView> {
        let mut environment = BTreeMap::new();
        let mut nodes = BTreeSet::new();
        for entry in fs::read_dir(&self.cdi_directory)? {
            let spec: Value = serde_json::from_slice(&fs::read(entry?.path())?)?;
            let kind = spec["kind"].as_str().unwrap_or_default();
            let injected = spec["devices"].as_array().into_iter().flatten().filter(|device| {
                let id = format!("{kind}={}", device["name"].as_str().unwrap_or_default());
                devices.iter().any(|prepared| prepared.cdi_device_ids.contains(&id))
            });
            let edits: Vec<&Value> = injected.map(|device| &device["containerEdits"]).collect();
            let common = (!edits.is_empty()).then_some(&spec["containerEdits"]);
            for edit in edits.into_iter().chain(common) {
                let texts = |key: &str| edit[key].as_array().cloned().unwrap_or_default();
                for variable in texts("env") {
                    if let Some((name, value)) = variable.as_str().and_then(|text| text.split_once('=')) {
                        environment.insert(name.to_owned(), value.to_owned());
                    }
                }
                nodes.extend(
                    texts("deviceNodes").iter().filter_map(|node| node["path"].as_str().map(str::to_owned)),
                );
            }
        }
        Ok(ContainerView::new(environment, nodes))
    }
}

async fn set_phase(pods: &Api<Pod>, name: &str, phase: &str) -> Result<()> {
    let status = json!({"status": {"phase": phase}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}
