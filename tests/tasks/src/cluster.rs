//! `cargo xtask cluster up|status|down`: a long-running test cluster for development.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{Table, presets};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use tessera_harness::{
    Cluster, ClusterOptions, ExtraFlags, KubernetesVersion, Tier,
    cache::cache_directory,
    installation::{Installation, InstallationOptions, NAMESPACE},
    workspace,
};
use tokio::time::timeout;

/// The plugin's DaemonSet, and the container of the emulated machine in its pods.
const PLUGIN: &str = "tessera-kubelet-plugin";
const MACHINE: &str = "emulated-machine";
/// Longest wait for the API server, which may be down.
const PATIENCE: Duration = Duration::from_secs(5);

/// Environment variable with another path of the file that remembers the running cluster. A test sets it, and leaves a
/// developer's cluster alone.
const RECORD_VARIABLE: &str = "TESSERA_DEVELOPMENT_CLUSTER";

/// Starts, shows or ends a cluster for development.
#[derive(Args)]
pub struct ClusterArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts a cluster that runs until `down`, and prints how to use kubectl on it.
    Up(UpArguments),
    /// Shows the processes of the running cluster.
    Status,
    /// Ends the cluster and removes everything of it.
    Down,
}

#[derive(Args)]
struct UpArguments {
    /// How much of it is real: with `scheduler`, nodes are API objects and pods do not run, but no root is needed.
    /// [default: node, where it can run]
    #[arg(long)]
    tier: Option<TierName>,
    /// Number of nodes.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Makes each node an emulated machine with this hardware (`gpu-emulator hardware` lists the names) and installs
    /// Tessera.
    #[arg(long)]
    hardware: Option<String>,
    #[command(flatten)]
    kubernetes: KubernetesArguments,
}

/// Which Kubernetes.
#[derive(Args)]
pub struct KubernetesArguments {
    /// Minor version of Kubernetes: 1.37, 1.36 or 1.35. The first time its programs are built, which takes minutes.
    #[arg(long, value_name = "VERSION", default_value_t)]
    kubernetes: KubernetesVersion,
    /// Feature gates of the control plane and the kubelets, as `DRADeviceTaints=true,…`.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', value_parser = feature_gate)]
    feature_gates: Vec<(String, bool)>,
}

impl KubernetesArguments {
    /// A cluster with helm, of this Kubernetes.
    pub fn cluster(&self, tier: Tier, nodes: usize) -> ClusterOptions {
        let gates: Vec<String> =
            self.feature_gates.iter().map(|(gate, enabled)| format!("{gate}={enabled}")).collect();
        let kubelet = (!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(",")));
        ClusterOptions {
            tier,
            kubernetes: self.kubernetes,
            nodes,
            helm: true,
            extra: ExtraFlags {
                feature_gates: self.feature_gates.iter().cloned().collect(),
                kubelet: kubelet.into_iter().collect(),
                ..ExtraFlags::default()
            },
            ..ClusterOptions::default()
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum TierName {
    Scheduler,
    Node,
}

/// Runs the command.
pub async fn run(arguments: ClusterArguments) -> Result<ExitCode> {
    match arguments.action {
        Action::Up(arguments) => up(arguments).await?,
        Action::Status => status().await?,
        Action::Down => down().await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(arguments: UpArguments) -> Result<()> {
    refuse_second().await?;
    workspace::build_packages(&workspace::TESTED_AND_CLI)?;
    let tier = match arguments.tier {
        Some(TierName::Scheduler) => Tier::Scheduler,
        Some(TierName::Node) => Tier::Node,
        None => match Cluster::node_tier_available() {
            Ok(()) => Tier::Node,
            Err(reason) => {
                println!("{reason}\nso it is the scheduler tier: nodes are API objects, and no pod runs");
                Tier::Scheduler
            }
        },
    };
    let cluster = Cluster::start(arguments.kubernetes.cluster(tier, arguments.nodes)).await?;
    if let Some(hardware) = arguments.hardware {
        // In the plugin's pods one can then let things happen to the machines (docs/trying.md).
        let emulated_by_chart = tier == Tier::Node;
        let options = InstallationOptions { hardware, emulated_by_chart, ..InstallationOptions::default() };
        Installation::install(&cluster, &options).await.context("Tessera was not installed")?;
    }
    let text = format!("{}{}", cluster.timings(), usage(&cluster).await);
    // Before anything is printed: if the reader is gone, the cluster must still be kept.
    leave(cluster)?;
    show(&text)
}

fn feature_gate(text: &str) -> Result<(String, bool), String> {
    let (gate, value) = text.split_once('=').ok_or("write GATE=true or GATE=false")?;
    Ok((gate.to_owned(), value.parse().map_err(|_| format!("{value} is neither true nor false"))?))
}

/// Fails when a cluster is running already: `down` knows only one.
pub async fn refuse_second() -> Result<()> {
    if let Some(state) = recorded()?
        && Cluster::attach(&state).await.is_ok()
    {
        bail!("a cluster is up already in {}: end it by `cargo xtask cluster down`", state.display());
    }
    Ok(())
}

/// Lets the cluster outlive this process, until `cargo xtask cluster down`.
pub fn leave(cluster: Cluster) -> Result<()> {
    // Written before the release: an unrecorded cluster could not be ended.
    let record = record_path()?;
    fs::write(&record, cluster.state().as_os_str().as_encoded_bytes())
        .with_context(|| format!("cannot write {}", record.display()))?;
    cluster.release()?;
    Ok(())
}

/// How to use the cluster, how to let something happen to its emulated cards, and how to end it: commands to be typed as
/// they are. Unavailable parts are left out with a line about the reason: a cluster without its API server can still be shown and ended.
pub async fn usage(cluster: &Cluster) -> String {
    let mut text = format!(
        "\nA cluster of the {} tier is up. To use it with kubectl, kubectl gpu, helm and gpu-emulator:\n\n",
        cluster.tier()
    );
    let _ = writeln!(text, "  export KUBECONFIG=\"{}\"", cluster.kubeconfig().display());
    match programs(cluster) {
        Ok(folder) => {
            let _ = writeln!(text, "  export PATH=\"{}:$PATH\"", folder.display());
        }
        Err(error) => {
            let _ = writeln!(text, "\nThere is no folder of these programs: {error:#}");
        }
    }
    let plugin = timeout(PATIENCE, plugin(cluster)).await;
    let plugin = plugin.context("no answer in time").flatten().unwrap_or_else(|error| {
        let _ = writeln!(text, "\nThe API server could not be asked for Tessera's plugin: {error:#}");
        None
    });
    if plugin.is_some() {
        let _ = writeln!(text, "\n  kubectl gpu doctor");
        let _ = writeln!(text, "  kubectl get resourceslices,resourceclaims,pods --all-namespaces");
    }
    let has_machine = plugin.and_then(|plugin| plugin.spec.template.spec).is_some_and(|pod| {
        pod.containers.iter().chain(pod.init_containers.iter().flatten()).any(|one| one.name == MACHINE)
    });
    if has_machine {
        let _ = writeln!(
            text,
            "\nLet something happen to the emulated cards, here a fault and its end (docs/trying.md):\n"
        );
        for what in ["xid /driver-root --card 2 79", "restore /driver-root"] {
            let _ = writeln!(
                text,
                "  kubectl --namespace {NAMESPACE} exec daemonset/{PLUGIN} -c {MACHINE} -- gpu-emulator {what}"
            );
        }
    }
    for node in cluster.nodes() {
        let (kubelet, cdi) = (node.kubelet_directory(), node.cdi_directory());
        let (kubelet, cdi) = (kubelet.display(), cdi.display());
        let _ = writeln!(text, "\n{}: kubelet in {kubelet}, CDI specs in {cdi}", node.name());
    }
    let logs = cluster.logs();
    let _ = writeln!(text, "\nLogs are in {}. To end it:\n\n  cargo xtask cluster down", logs.display());
    text
}

/// The plugin's DaemonSet, where Tessera is installed.
async fn plugin(cluster: &Cluster) -> Result<Option<DaemonSet>> {
    let plugins: Api<DaemonSet> = Api::namespaced(cluster.client().await?, NAMESPACE);
    Ok(plugins.get_opt(PLUGIN).await?)
}

/// A folder with the programs for the cluster, for the PATH: kubectl finds `kubectl-gpu` there as its `gpu`.
fn programs(cluster: &Cluster) -> Result<PathBuf> {
    let folder = cluster.state().join("bin");
    if folder.exists() {
        return Ok(folder);
    }
    let ours = workspace::build_packages(&workspace::TESTED_AND_CLI)?;
    link(
        &folder,
        &[
            ("kubectl", cluster.program("kubectl")?),
            ("helm", cluster.program("helm")?),
            ("kubectl-gpu", ours.join("kubectl-gpu")),
            ("gpu-emulator", ours.join("gpu-emulator")),
        ],
    )?;
    Ok(folder)
}

/// Makes a folder with links to programs, complete or not at all.
fn link(folder: &Path, programs: &[(&str, PathBuf)]) -> Result<()> {
    let made = || format!("cannot make {}", folder.display());
    let beside = tempfile::tempdir_in(folder.parent().unwrap_or(folder)).with_context(made)?;
    let new = beside.path().join("bin");
    fs::create_dir(&new).with_context(made)?;
    for (name, program) in programs {
        symlink(program, new.join(name)).with_context(|| format!("cannot link {}", program.display()))?;
    }
    fs::rename(&new, folder).with_context(made)
}

/// Prints; a closed reader is no error.
fn show(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}

async fn status() -> Result<()> {
    let Some(state) = recorded()? else { bail!("no cluster is up: start one by `cargo xtask cluster up`") };
    let cluster = Cluster::attach(&state).await.with_context(|| {
        format!("the cluster in {} is gone: `cargo xtask cluster down` forgets it", state.display())
    })?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["MACHINE", "PROCESS", "STATE", "MEMORY"]);
    for (machine, process) in cluster.processes().await? {
        let state = process
            .exit
            .map_or_else(|| format!("runs as {}", process.process), |exit| format!("ended: {exit}"));
        let memory = process.resident_kib.map(|kib| format!("{} MiB", kib / 1024)).unwrap_or_default();
        table.add_row([machine, process.name, state, memory]);
    }
    // First of all: the rest takes a while if the API server is down.
    show(&format!("{table}\n"))?;
    show(&usage(&cluster).await)
}

async fn down() -> Result<()> {
    let Some(state) = recorded()? else {
        println!("no cluster is up");
        return Ok(());
    };
    match Cluster::attach(&state).await {
        Ok(cluster) => cluster.shutdown().await?,
        Err(error) => println!("the cluster in {} had ended already ({error})", state.display()),
    }
    let record = record_path()?;
    fs::remove_file(&record).with_context(|| format!("cannot remove {}", record.display()))?;
    println!("the cluster is gone");
    Ok(())
}

/// Path of the file with the running cluster's directory.
fn record_path() -> Result<PathBuf> {
    match env::var_os(RECORD_VARIABLE) {
        Some(path) => Ok(path.into()),
        None => Ok(cache_directory()?.join("development-cluster")),
    }
}

fn recorded() -> Result<Option<PathBuf>> {
    let path = record_path()?;
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(PathBuf::from(text.trim()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_links_is_complete_or_not_there() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("bin");
        let program = PathBuf::from("/usr/bin/true");
        assert!(link(&folder, &[("one", program.clone()), ("one", program.clone())]).is_err());
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
        link(&folder, &[("one", program.clone()), ("two", program)]).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }
}
