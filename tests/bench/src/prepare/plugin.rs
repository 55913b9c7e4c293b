//! Runs the plugin for the benchmark: the node image's build, an emulated machine, no kubelet.

use std::{
    fs,
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
use tempfile::TempDir;
use tessera_harness::{
    Cluster,
    host::CommandLine,
    installation::DRIVER,
    kubelet_stand_in::{Claim, KubeletStandIn, Plugin},
    workspace,
};

use tokio::time::sleep;

use super::metrics::Metrics;
use crate::http::{self, Scrapes};

/// The node the plugin runs for.
pub const NODE: &str = "bench";
const PROCESS: &str = "kubelet-plugin";

/// A running plugin, registered with the stand-in.
pub struct RunningPlugin {
    /// The kubelet's side of its socket.
    pub kubelet: Plugin,
    /// The published whole cards, in order.
    pub devices: Vec<String>,
    /// From the start of the process to all slices visible.
    pub start_to_slices: Duration,
    programs: Programs,
    machine: PathBuf,
    address: String,
    process: u32,
    _cdi: TempDir,
}

/// The programs of the benchmark.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The plugin as built for the node image.
    pub plugin: PathBuf,
    /// mps-host, in the same way.
    pub mps_host: PathBuf,
    /// The emulator.
    pub emulator: PathBuf,
}

/// Builds the plugin and mps-host as for the node image, and the emulator.
pub fn build() -> Result<Programs> {
    eprintln!("building the plugin with the profile `node` (the first time takes minutes)");
    workspace::build(&["--profile", "node", "-p", "tessera-kubelet-plugin", "-p", "tessera-mps-host"])?;
    workspace::build(&["--release", "-p", "tessera-emulator"])?;
    let target = workspace::target()?;
    Ok(Programs {
        plugin: target.join("node/kubelet-plugin"),
        mps_host: target.join("node/mps-host"),
        emulator: target.join("release/gpu-emulator"),
    })
}

/// The same, as tests build them.
pub fn build_unoptimised() -> Result<Programs> {
    workspace::build(&["-p", "tessera-kubelet-plugin", "-p", "tessera-mps-host", "-p", "tessera-emulator"])?;
    let program = |name: &str| Ok::<_, anyhow::Error>(workspace::target()?.join("debug").join(name));
    Ok(Programs {
        plugin: program("kubelet-plugin")?,
        mps_host: program("mps-host")?,
        emulator: program("gpu-emulator")?,
    })
}

impl RunningPlugin {
    /// Starts the plugin on a new machine of `cards` cards and waits for all slices.
    pub async fn start(cluster: &Cluster, programs: &Programs, name: &str, cards: usize) -> Result<Self> {
        Self::start_with(cluster, programs, name, cards, &[]).await
    }

    /// The same, with more flags and their values.
    pub async fn start_with(
        cluster: &Cluster,
        programs: &Programs,
        name: &str,
        cards: usize,
        flags: &[(&str, String)],
    ) -> Result<Self> {
        let directory = cluster.state().join(name);
        let machine = directory.join("gpus");
        emulator(
            programs,
            &machine,
            "create",
            &["--hardware", "hgx-h100-80gb", "--cards", &cards.to_string()],
        )?;
        let address = format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        // In memory, like /var/run on a node.
        let memory = Path::new("/dev/shm");
        let cdi = tempfile::tempdir_in(if memory.is_dir() { memory } else { &directory })?;
        let path = |name: &str| directory.join(name).display().to_string();
        let root = machine.display().to_string();
        let command = CommandLine::new(&programs.plugin)
            // As in the chart.
            .variable("MALLOC_ARENA_MAX", "2")
            .flag("node-name", NODE)
            .flag("kubeconfig", cluster.kubeconfig().display())
            .flag("kubelet-directory", path("k"))
            .flag("cdi-directory", cdi.path().display())
            .flag("driver-root", &root)
            .flag("sysfs-root", format!("{root}/sys"))
            .flag("proc-root", format!("{root}/proc"))
            .flag("http-address", &address);
        let command = flags.iter().fold(command, |command, (name, value)| command.flag(name, value));
        let slices: Api<ResourceSlice> = Api::all(cluster.client().await?);
        let log = cluster.logs().join(format!("{PROCESS}-{name}.log"));
        let since = Instant::now();
        let process = cluster.control_plane().spawn(PROCESS, command, log.clone()).await?;
        // The first publication waits for the registration.
        let kubelet =
            KubeletStandIn::new(&directory.join("k")).register(DRIVER, Duration::from_secs(10)).await?;
        let devices = loop {
            let found = slices.list(&ListParams::default()).await?.items;
            let devices: Vec<String> = found
                .iter()
                .flat_map(|slice| slice.spec.devices.iter().flatten())
                .map(|d| d.name.clone())
                .collect();
            let devices: Vec<String> = devices.into_iter().filter(|name| !name.contains("-mig-")).collect();
            if devices.len() == cards {
                break devices;
            }
            if since.elapsed() > Duration::from_secs(30) {
                bail!("{} of {cards} devices published within 30 s: see {}", devices.len(), log.display());
            }
            sleep(Duration::from_millis(1)).await;
        };
        let start_to_slices = since.elapsed();
        let programs = programs.clone();
        Ok(Self { kubelet, devices, start_to_slices, programs, machine, address, process, _cdi: cdi })
    }

    /// Prepares a claim of one device by a call of its own, and returns the duration.
    pub async fn prepare(&self, claim: &Claim) -> Result<Duration> {
        let since = Instant::now();
        let answers = self.kubelet.prepare(std::slice::from_ref(claim)).await?;
        let took = since.elapsed();
        let devices = answers.into_values().next().context("no answer for the claim")?;
        ensure!(devices.map_err(anyhow::Error::msg)?.len() == 1, "not one device");
        Ok(took)
    }

    /// Unprepares a claim by a call of its own, and returns the duration.
    pub async fn unprepare(&self, claim: &Claim) -> Result<Duration> {
        let since = Instant::now();
        let answers = self.kubelet.unprepare(std::slice::from_ref(claim)).await?;
        let took = since.elapsed();
        answers.into_values().next().context("no answer for the claim")?.map_err(anyhow::Error::msg)?;
        Ok(took)
    }

    /// Directory of the emulated machine.
    pub fn machine(&self) -> &Path {
        &self.machine
    }

    /// Sets the duration of each look at a card.
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

    /// Sets the duration of making and of destroying a partition.
    pub fn delay_partitions(&self, milliseconds: u64) -> Result<()> {
        let delay = milliseconds.to_string();
        emulator(
            &self.programs,
            &self.machine,
            "partition-time",
            &["--create-ms", &delay, "--destroy-ms", &delay],
        )
    }

    /// The plugin's resident memory, program pages included, in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    /// Processor time of all its threads so far.
    pub fn processor_time(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process))?;
        // The fields from the third on (proc_pid_stat(5)), after the program's name, an arbitrary text.
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks =
            |field: usize| fields.get(field - 3).context("stat is short")?.parse::<u64>().context("stat");
        // Linux counts for programs in hundredths of a second on every machine (USER_HZ).
        Ok(Duration::from_millis((ticks(14)? + ticks(15)?) * 10))
    }

    /// The plugin's metrics.
    pub async fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&http::get(&self.address, "/metrics").await?)
    }

    /// Asks for this path several times.
    pub async fn scrapes(&self, path: &str) -> Result<Scrapes> {
        http::scrapes(&self.address, path).await
    }

    /// Ends the plugin and deletes its slices.
    pub async fn stop(self, cluster: &Cluster) -> Result<()> {
        cluster.control_plane().stop(PROCESS, Duration::from_secs(10)).await?;
        let slices: Api<ResourceSlice> = Api::all(cluster.client().await?);
        slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }
}

fn emulator(programs: &Programs, machine: &Path, verb: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(&programs.emulator).arg(verb).arg(machine).args(arguments).output()?;
    ensure!(output.status.success(), "gpu-emulator {verb}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
