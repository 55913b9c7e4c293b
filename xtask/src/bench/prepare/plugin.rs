//! The plugin as the benchmark runs it: release build, emulated machine, no kubelet.

use std::{
    collections::BTreeMap,
    fmt, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde::Serialize;
use tessera_tests::{
    Cluster,
    host::CommandLine,
    installation::DRIVER,
    kubelet_stand_in::{KubeletStandIn, Plugin},
    workspace,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

/// The node the plugin runs for.
pub const NODE: &str = "bench";
const PROCESS: &str = "kubelet-plugin";

/// A running plugin, registered with the stand-in.
pub struct RunningPlugin {
    /// The kubelet's side of its socket.
    pub kubelet: Plugin,
    /// The published devices, in order.
    pub devices: Vec<String>,
    /// From the start of the process to all slices visible.
    pub start_to_slices: Duration,
    programs: PathBuf,
    machine: PathBuf,
    address: String,
    process: u32,
}

/// Mean time of each phase of Prepare by name, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct PhaseMeans(BTreeMap<String, f64>);

/// Seconds and number of observations of each phase so far.
pub struct PhaseSums(BTreeMap<String, (f64, f64)>);

/// Builds the release binaries and gives their folder.
pub fn build_release() -> Result<PathBuf> {
    eprintln!("building the release binaries (the first time takes minutes)");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "-p", "tessera-kubelet-plugin", "-p", "tessera-emulator"])
        .current_dir(workspace::root())
        .status()?;
    ensure!(status.success(), "cargo build --release failed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(target.unwrap_or_else(|| workspace::root().join("target")).join("release"))
}

impl RunningPlugin {
    /// Starts the plugin on a new machine of `cards` cards and waits for all slices.
    pub async fn start(cluster: &Cluster, programs: &Path, name: &str, cards: usize) -> Result<Self> {
        let directory = cluster.state().join(name);
        let machine = directory.join("gpus");
        emulator(
            programs,
            &machine,
            "create",
            &["--hardware", "hgx-h100-80gb", "--cards", &cards.to_string()],
        )?;
        let address = format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let path = |name: &str| directory.join(name).display().to_string();
        let root = machine.display().to_string();
        let command = CommandLine::new(programs.join("kubelet-plugin"))
            .flag("node-name", NODE)
            .flag("kubeconfig", cluster.kubeconfig().display())
            .flag("kubelet-directory", path("k"))
            .flag("cdi-directory", path("cdi"))
            .flag("driver-root", &root)
            .flag("sysfs-root", format!("{root}/sys"))
            .flag("proc-root", format!("{root}/proc"))
            .flag("http-address", &address);
        let slices: Api<ResourceSlice> = Api::all(cluster.client().await?);
        let log = cluster.logs().join(format!("{PROCESS}-{name}.log"));
        let since = Instant::now();
        let process = cluster.control_plane().spawn(PROCESS, command, log.clone()).await?;
        let devices = loop {
            let found = slices.list(&ListParams::default()).await?.items;
            let devices: Vec<String> = found
                .iter()
                .flat_map(|slice| slice.spec.devices.iter().flatten())
                .map(|d| d.name.clone())
                .collect();
            if devices.len() == cards {
                break devices;
            }
            if since.elapsed() > Duration::from_secs(30) {
                bail!("{} of {cards} devices published within 30 s: see {}", devices.len(), log.display());
            }
            sleep(Duration::from_millis(1)).await;
        };
        let start_to_slices = since.elapsed();
        let kubelet =
            KubeletStandIn::new(&directory.join("k")).register(DRIVER, Duration::from_secs(10)).await?;
        let programs = programs.to_owned();
        Ok(Self { kubelet, devices, start_to_slices, programs, machine, address, process })
    }

    /// From now on each look at a card takes this long.
    pub fn delay_cards(&self, milliseconds: u64) -> Result<()> {
        if milliseconds == 0 {
            return Ok(());
        }
        let delay = milliseconds.to_string();
        emulator(
            &self.programs,
            &self.machine,
            "fault",
            &["--call", "nvmlDeviceGetUUID", "--delay-ms", &delay],
        )
    }

    /// The plugin's resident memory.
    pub fn resident_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    /// What the plugin's metrics say of the phases of Prepare.
    pub async fn phases(&self) -> Result<PhaseSums> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let mut sums = BTreeMap::<String, (f64, f64)>::new();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("tessera_claim_phase_duration_seconds_") else { continue };
            let Some((labels, value)) = rest.rsplit_once(' ') else { continue };
            if !labels.contains("operation=\"prepare\"") {
                continue;
            }
            let phase = labels.split("phase=\"").nth(1).and_then(|rest| rest.split('"').next());
            let entry = sums.entry(phase.context("a phase without name")?.to_owned()).or_default();
            match labels.split('{').next() {
                Some("sum") => entry.0 += value.parse::<f64>()?,
                Some("count") => entry.1 += value.parse::<f64>()?,
                _ => {}
            }
        }
        ensure!(!sums.is_empty(), "the plugin has no metrics of phases");
        Ok(PhaseSums(sums))
    }

    /// Ends the plugin and removes what it published.
    pub async fn stop(self, cluster: &Cluster) -> Result<()> {
        cluster.control_plane().stop(PROCESS, Duration::from_secs(10)).await?;
        let slices: Api<ResourceSlice> = Api::all(cluster.client().await?);
        slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }
}

impl PhaseSums {
    /// Means of what was observed after `before`.
    pub fn since(&self, before: &Self) -> PhaseMeans {
        let mean = |(phase, (sum, count)): (&String, &(f64, f64))| {
            let (old_sum, old_count) = before.0.get(phase).copied().unwrap_or_default();
            let observed = count - old_count;
            (observed > 0.0).then(|| (phase.clone(), (sum - old_sum) / observed * 1e3))
        };
        PhaseMeans(self.0.iter().filter_map(mean).collect())
    }
}

impl fmt::Display for PhaseMeans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(|(phase, mean)| format!("{phase} {mean:.2}")).collect();
        f.write_str(&texts.join(", "))
    }
}

fn emulator(programs: &Path, machine: &Path, verb: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new(programs.join("gpu-emulator")).arg(verb).arg(machine).args(arguments).output()?;
    ensure!(output.status.success(), "gpu-emulator {verb}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
