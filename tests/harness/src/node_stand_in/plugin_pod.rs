//! Applies the DaemonSet's settings for the plugin on a node to a program without a container.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use kube::Api;
use tokio::time::{Instant, sleep};

use super::{NodeStandInError, cdi_directory, kubelet_directory};
use crate::{
    Cluster,
    host::CommandLine,
    installation::{Installation, NAMESPACE},
};

/// Timeout for the DaemonSet's controller on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The DaemonSet's pod on a node. The service account's token needs the pod: a token bound to the pod names the node.
pub(super) async fn wait(
    cluster: &Cluster,
    tessera: &Installation,
    node: &str,
) -> Result<Pod, NodeStandInError> {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(pod) = tessera.plugin_pods(cluster, node).await?.into_iter().next() {
            return Ok(pod);
        }
        if Instant::now() > end {
            let what = format!("the DaemonSet has made none within {} s", LIMIT.as_secs());
            return Err(NodeStandInError::Pod { node: node.to_owned(), what });
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The command line of the pod's container, with `directory` in place of the node's paths and `machine` of the
/// driver's.
pub(super) async fn command(
    cluster: &Cluster,
    tessera: &Installation,
    pod: &Pod,
    directory: &Path,
    machine: &Path,
) -> Result<CommandLine, NodeStandInError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let node = spec.node_name.clone().unwrap_or_default();
    let missing =
        |what: &str| NodeStandInError::Pod { node: node.clone(), what: format!("it has no {what}") };
    let container = spec.containers.first().ok_or_else(|| missing("container"))?;
    let files = config_maps(cluster, &spec, container, directory).await?;

    let kubeconfig = directory.join("kubeconfig");
    write(&kubeconfig, &credentials(cluster, pod, &spec).await?)?;
    let path = |path: &Path| path.display().to_string();
    let own = [
        ("kubeconfig", path(&kubeconfig)),
        ("kubelet-directory", path(&kubelet_directory(directory))),
        ("cdi-directory", path(&cdi_directory(directory))),
        ("driver-root", path(machine)),
        ("host-driver-root", path(machine)),
        ("sysfs-root", path(&machine.join("sys"))),
        ("proc-root", path(&machine.join("proc"))),
        ("http-address", "127.0.0.1:0".to_owned()),
        ("probe-socket", path(&directory.join("probe.sock"))),
    ];
    let name =
        |argument: &str| argument.trim_start_matches("--").split('=').next().unwrap_or_default().to_owned();
    let of_chart = container.args.iter().flatten();
    let kept = of_chart.filter(|argument| !own.iter().any(|(option, _)| *option == name(argument)));
    let mut command = CommandLine::new(tessera.program("kubelet-plugin")).arguments(kept.cloned());
    for (option, value) in &own {
        command = command.flag(option, value);
    }
    for variable in container.env.iter().flatten() {
        let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        let value = match field.map(|field| field.field_path.as_str()) {
            Some("spec.nodeName") => node.clone(),
            Some("metadata.uid") => pod.metadata.uid.clone().unwrap_or_default(),
            Some(other) => return Err(missing(&format!("stand-in for {other}"))),
            None => variable.value.clone().unwrap_or_default(),
        };
        let mounted = files.iter().find_map(|(inside, outside)| {
            Path::new(&value).strip_prefix(inside).ok().map(|rest| path(&outside.join(rest)))
        });
        command = command.variable(&variable.name, mounted.unwrap_or(value));
    }
    Ok(command)
}

/// Writes the mounted ConfigMaps; returns the path of each in the container, and here.
async fn config_maps(
    cluster: &Cluster,
    spec: &PodSpec,
    container: &Container,
    directory: &Path,
) -> Result<Vec<(String, PathBuf)>, NodeStandInError> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await?, NAMESPACE);
    let mut files = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        let Some(source) = &volume.config_map else { continue };
        let mounts = container.volume_mounts.iter().flatten().filter(|mount| mount.name == volume.name);
        for mount in mounts {
            let here = directory.join(&volume.name);
            for (name, text) in maps.get(&source.name).await?.data.unwrap_or_default() {
                write(&here.join(name), &text)?;
            }
            files.push((mount.mount_path.clone(), here));
        }
    }
    Ok(files)
}

/// A kubeconfig with the rights of the pod's token.
async fn credentials(cluster: &Cluster, pod: &Pod, spec: &PodSpec) -> Result<String, NodeStandInError> {
    let account = spec.service_account_name.clone().unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let config = cluster.service_account_config(NAMESPACE, &account, Some((&name, &uid))).await?;
    serde_json::to_string(&config)
        .map_err(|error| NodeStandInError::File { path: PathBuf::from("kubeconfig"), source: error.into() })
}

fn write(path: &Path, text: &str) -> Result<(), NodeStandInError> {
    let failed = |source| NodeStandInError::File { path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}
