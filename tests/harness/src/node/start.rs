use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use super::{Node, configuration};
use crate::{
    cluster::{ClusterError, ClusterRecord, log_end},
    host::{
        Address, CommandLine, Host, Link, MachineConfiguration, NetworkConfiguration, Route, host_executable,
    },
    tools::Module,
};

/// Timeout of a step on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts a node's machine, its network and containerd; after [`stop_machine`], this is a reboot.
pub(crate) async fn boot(
    record: &ClusterRecord,
    node: &Node,
    control_plane: &Host,
) -> Result<(), ClusterError> {
    prepare_directory(record, node)?;
    let configuration = MachineConfiguration {
        name: node.name().to_owned(),
        directory: node.directory().to_owned(),
        state: record.state.clone(),
        node: true,
        visible: record.visible.clone(),
    };
    let argument = serde_json::to_string(&configuration)
        .map_err(|error| ClusterError::Configuration(error.to_string()))?;
    let command = CommandLine::new(host_executable()?).argument("machine").argument(argument);
    control_plane.spawn(&machine_process(node), command, record.log(node.name())).await?;
    let host = node.host();
    let machine = machine_process(node);
    tokio::select! {
        ready = host.wait(LIMIT) => ready?,
        ended = control_plane.wait_for_exit(&machine) => {
            return Err(died(record, node.name(), &ended?.to_string(), node.name()));
        }
    }

    let text = node.directory().join("init.pid");
    let process = fs::read_to_string(&text)
        .map_err(ClusterError::io(&text))?
        .trim()
        .parse()
        .map_err(|error| ClusterError::Configuration(format!("{}: {error}", text.display())))?;
    connect(node, control_plane, &host, process).await?;

    start_containerd(record, node).await
}

/// Starts containerd.
pub(crate) async fn start_containerd(record: &ClusterRecord, node: &Node) -> Result<(), ClusterError> {
    let path = record.tools.path(Module::Containerd, "containerd")?;
    let folder = path.parent().unwrap_or(Path::new("/")).display().to_string();
    let command = CommandLine::new(&path)
        .argument("--config")
        .argument(node.directory().join("etc/containerd.toml").display().to_string())
        // containerd finds its shim there.
        .variable("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()));
    node.host().spawn("containerd", command, record.log(&format!("{}-containerd", node.name()))).await?;
    Ok(())
}

/// Kills everything on the node at once, like a power failure. The disk stays.
pub(crate) async fn stop_machine(node: &Node, control_plane: &Host) -> Result<(), ClusterError> {
    let path = node.directory().join("init.pid");
    let text = fs::read_to_string(&path).map_err(ClusterError::io(&path))?;
    let process = text
        .trim()
        .parse()
        .map_err(|error| ClusterError::Configuration(format!("{}: {error}", path.display())))?;
    control_plane.signal_process(process, Signal::SIGKILL).await?;
    control_plane.wait_for_exit(&machine_process(node)).await?;
    Ok(())
}

/// Waits until containerd serves.
pub(crate) async fn wait_for_containerd(record: &ClusterRecord, node: &Node) -> Result<(), ClusterError> {
    let host = node.host();
    let ctr = record.tools.path(Module::Containerd, "ctr")?;
    let end = Instant::now() + LIMIT;
    loop {
        let output = host.run(CommandLine::new(&ctr).argument("version"), None, LIMIT).await?;
        if output.success() {
            return Ok(());
        }
        alive(record, node).await?;
        if Instant::now() > end {
            return Err(ClusterError::NotReady {
                what: format!("containerd on {}", node.name()),
                last: output.stderr,
            });
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Starts the kubelet.
pub(crate) async fn start_kubelet(record: &ClusterRecord, node: &Node) -> Result<(), ClusterError> {
    let own = |name: &str| node.directory().join(name).display().to_string();
    let command = CommandLine::new(record.tools.path(Module::Kubernetes, "kubelet")?)
        .flag("kubeconfig", own("etc/kubelet.kubeconfig"))
        .flag("config", own("etc/kubelet.yaml"))
        .flag("root-dir", Node::KUBELET_DIRECTORY)
        .flag("cert-dir", format!("{}/pki", Node::KUBELET_DIRECTORY))
        .flag("hostname-override", node.name())
        // Otherwise the kubelet looks up the node's name by DNS, with a timeout of 30 s without a server.
        .flag("node-ip", node.address())
        .arguments(record.extra.kubelet.iter().cloned());
    node.host().spawn("kubelet", command, record.log(&format!("{}-kubelet", node.name()))).await?;
    Ok(())
}

/// Fails when a process of the node has ended.
pub(crate) async fn alive(record: &ClusterRecord, node: &Node) -> Result<(), ClusterError> {
    for process in node.host().processes().await? {
        if let Some(exit) = process.exit {
            let log = format!("{}-{}", node.name(), process.name);
            return Err(died(
                record,
                &format!("{} on {}", process.name, node.name()),
                &exit.to_string(),
                &log,
            ));
        }
    }
    Ok(())
}

fn died(record: &ClusterRecord, component: &str, exit: &str, log: &str) -> ClusterError {
    let log = log_end(record, log);
    ClusterError::Died { component: component.to_owned(), exit: exit.to_owned(), log }
}

fn machine_process(node: &Node) -> String {
    format!("machine-{}", node.name())
}

/// Writes the configuration of containerd and kubelet, and empties directories emptied by a reboot.
fn prepare_directory(record: &ClusterRecord, node: &Node) -> Result<(), ClusterError> {
    let directory = node.directory();
    let run = directory.join("run");
    match fs::remove_dir_all(&run) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(ClusterError::io(&run)(error)),
        _ => {}
    }
    for name in ["run/cdi", "etc/cni", "bin", "var-lib/kubelet", "var-lib/cni", "var-log/pods"] {
        let path = directory.join(name);
        fs::create_dir_all(&path).map_err(ClusterError::io(&path))?;
    }
    // containerd calls this link to cluster-host, and cluster-host runs the real runc (see its module `runc`).
    link(&host_executable()?, &directory.join("bin/runc"))?;
    link(&record.tools.path(Module::Runc, "runc")?, &directory.join("bin/runc.real"))?;

    let cni = record.tools.directory(Module::Cni).unwrap_or(Path::new("/"));
    let files = [
        ("etc/containerd.toml", configuration::containerd(node, cni)),
        ("etc/cni/10-pods.conflist", configuration::cni(node).to_string()),
        ("etc/kubelet.yaml", configuration::kubelet().to_string()),
    ];
    for (name, text) in files {
        let path = directory.join(name);
        fs::write(&path, text).map_err(ClusterError::io(&path))?;
    }
    Ok(())
}

fn link(target: &Path, place: &PathBuf) -> Result<(), ClusterError> {
    match symlink(target, place) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(ClusterError::io(place)(error)),
        _ => Ok(()),
    }
}

/// A link between the control plane and the node, and its routes.
async fn connect(node: &Node, control_plane: &Host, host: &Host, process: u32) -> Result<(), ClusterError> {
    let card = format!("to-{}", node.name());
    let end = |address| Address { address, prefix: 30 };
    control_plane
        .network(NetworkConfiguration {
            links: vec![Link { name: card.clone(), peer: "eth0".to_owned(), process }],
            addresses: vec![(card, end(node.gateway()))],
            routes: Vec::new(),
            forwarding: true,
        })
        .await?;
    host.network(NetworkConfiguration {
        links: Vec::new(),
        addresses: vec![("eth0".to_owned(), end(node.address()))],
        routes: vec![Route { destination: None, gateway: node.gateway() }],
        forwarding: true,
    })
    .await?;
    let pods = Address { address: node.pod_network(), prefix: 24 };
    control_plane
        .network(NetworkConfiguration {
            routes: vec![Route { destination: Some(pods), gateway: node.address() }],
            ..NetworkConfiguration::default()
        })
        .await?;
    Ok(())
}

/// Imports an image archive into the node's containerd.
pub(crate) async fn import_image(
    record: &ClusterRecord,
    node: &Node,
    archive: &Path,
) -> Result<(), ClusterError> {
    let arguments =
        ["-n", "k8s.io", "images", "import", "--snapshotter", "overlayfs", &archive.display().to_string()]
            .map(str::to_owned);
    let command = CommandLine::new(record.tools.path(Module::Containerd, "ctr")?).arguments(arguments);
    let output = node.host().run(command, None, LIMIT).await?;
    if output.success() {
        return Ok(());
    }
    Err(ClusterError::Command {
        command: format!("ctr images import {} on {}", archive.display(), node.name()),
        exit: output.exit.map_or_else(|| "time limit".to_owned(), |exit| exit.to_string()),
        output: output.stderr,
    })
}
