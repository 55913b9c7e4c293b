//! `cargo xtask bench mps`: MPS shares as the kubelet requests them, and mps-host alone, with the emulator's MPS
//! programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use tessera_harness::{Cluster, ClusterOptions, kubelet_stand_in::Claim};

use super::{
    prepare::{
        self, claims,
        plugin::{self, Programs, RunningPlugin},
    },
    quantiles::Quantiles,
};

/// Concurrent shares: the largest number of clients of a card.
const AT_ONCE: usize = 48;

/// Arguments of `cargo xtask bench mps`.
#[derive(Args)]
pub struct MpsArguments {
    /// Number of repetitions.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
}

/// Runs the benchmark.
///
/// # Errors
/// When a program fails.
pub async fn run(arguments: &MpsArguments) -> Result<ExitCode> {
    if cfg!(debug_assertions) {
        return prepare::again_optimised();
    }
    let programs = prepare::programs()?;
    let mut rows = alone(&programs, arguments.rounds).await?;
    rows.extend(through_the_plugin(&programs, arguments.rounds).await?);
    let bare = rows[0].quantiles.p50_ms;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "p50 ms", "p99 ms", "p50 against the bare start"]);
    for Row { what, quantiles: Quantiles { p50_ms, p99_ms, .. } } in rows {
        table.add_row([
            what,
            format!("{p50_ms:.1}"),
            format!("{p99_ms:.1}"),
            format!("{:.2}", p50_ms / bare),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// One measurement.
struct Row {
    what: String,
    quantiles: Quantiles,
}

impl Row {
    fn new(what: impl Into<String>, samples: Vec<Duration>) -> Self {
        Self { what: what.into(), quantiles: Quantiles::of(samples) }
    }
}

/// Measures mps-host alone, and daemons started by hand for comparison.
async fn alone(programs: &Programs, rounds: usize) -> Result<Vec<Row>> {
    let directory = tempfile::Builder::new().prefix("b").rand_bytes(5).tempdir_in("/tmp")?;
    let machine = directory.path().join("m");
    let made = Command::new(&programs.emulator)
        .arg("create")
        .arg(&machine)
        .args(["--hardware", "hgx-h100-80gb"])
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let host = Host::start(&programs.mps_host, &machine, directory).await?;
    let facts: Value = serde_json::from_slice(&fs::read(machine.join("state/machine.json"))?)?;
    let card = &facts["cards"][0];

    let ensure_one = json!({"ensure": {
        "device": card["uuid"], "card": card["pci"],
        "settings": {"memoryLimitMib": 20_000, "activeThreadPercentage": 25},
    }});
    let release = json!({"release": {"device": card["uuid"], "graceSeconds": 0}});
    let (mut bare, mut first, mut next, mut last) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        bare.push(bare_start(&machine, card["uuid"].as_str().unwrap_or_default())?);
        first.push(host.ask(&ensure_one).await?);
        next.push(host.ask(&ensure_one).await?);
        last.push(host.ask(&release).await?);
    }
    let since = Instant::now();
    try_join_all((0..AT_ONCE).map(|_| host.ask(&ensure_one))).await?;
    println!(
        "mps-host, {AT_ONCE} shares of one card at once, the first among them: {:.1} ms",
        ms(since.elapsed())
    );
    for (name, kib) in host.memory()? {
        println!("resident memory of {name}: {:.1} MiB", kib as f64 / 1024.0);
    }
    host.ask(&release).await?;
    Ok(vec![
        Row::new("a daemon and its server started by a script (the peer)", bare),
        Row::new("mps-host: first share of a card", first),
        Row::new("mps-host: next share", next),
        Row::new("mps-host: end of the last share", last),
    ])
}

/// Measures the plugin's Prepare and Unprepare, called like by the kubelet, with claims in a real API server.
async fn through_the_plugin(programs: &Programs, rounds: usize) -> Result<Vec<Row>> {
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(0)).await?;
    cluster.add_node_object(plugin::NODE).await?;
    let directory = tempfile::Builder::new().prefix("b").rand_bytes(5).tempdir_in("/tmp")?;
    let flags = [("mps-directory", directory.path().display().to_string())];
    let plugin = RunningPlugin::start_with(&cluster, programs, "mps", 8, &flags).await?;
    let _host = Host::start(&programs.mps_host, plugin.machine(), directory).await?;
    let device = format!("{}-mps", plugin.devices.first().context("no device")?);
    let claims = claims::allocate_shares(&cluster, &device, AT_ONCE).await?;
    let one = std::slice::from_ref(&claims[0]);
    let other = std::slice::from_ref(&claims[1]);

    let (mut first, mut next, mut end, mut last) = (vec![], vec![], vec![], vec![]);
    // The first round is not measured: files of the driver are found and connections opened then.
    for round in 0..=rounds {
        let times = [
            prepare_all(&plugin, one).await?,
            prepare_all(&plugin, other).await?,
            unprepare_all(&plugin, other).await?,
            unprepare_all(&plugin, one).await?,
        ];
        if round > 0 {
            for (samples, times) in [&mut first, &mut next, &mut end, &mut last].into_iter().zip(times) {
                samples.extend(times);
            }
        }
    }
    let (mut at_once, mut ends_at_once, mut together) = (vec![], vec![], vec![]);
    for _ in 0..rounds.div_ceil(10) {
        let since = Instant::now();
        at_once.extend(prepare_all(&plugin, &claims).await?);
        together.push(since.elapsed());
        ends_at_once.extend(unprepare_all(&plugin, &claims).await?);
    }
    plugin.stop(&cluster).await?;
    Ok(vec![
        Row::new("Prepare: first share of a card", first),
        Row::new("Prepare: next share", next),
        Row::new("Unprepare: a share that is not the last", end),
        Row::new("Unprepare: the last share", last),
        Row::new(format!("Prepare: each of {AT_ONCE} first shares at once"), at_once),
        Row::new(format!("Prepare: all of {AT_ONCE} at once"), together),
        Row::new(format!("Unprepare: each of {AT_ONCE} at once"), ends_at_once),
    ])
}

async fn prepare_all(plugin: &RunningPlugin, claims: &[Claim]) -> Result<Vec<Duration>> {
    try_join_all(claims.iter().map(async |claim| {
        let since = Instant::now();
        let answers = plugin.kubelet.prepare(std::slice::from_ref(claim)).await?;
        let took = since.elapsed();
        let devices = answers.into_values().next().context("no answer for the claim")?;
        ensure!(devices.map_err(anyhow::Error::msg)?.len() == 1, "not one device");
        Ok(took)
    }))
    .await
}

async fn unprepare_all(plugin: &RunningPlugin, claims: &[Claim]) -> Result<Vec<Duration>> {
    try_join_all(claims.iter().map(async |claim| {
        let since = Instant::now();
        let answers = plugin.kubelet.unprepare(std::slice::from_ref(claim)).await?;
        let took = since.elapsed();
        answers.into_values().next().context("no answer for the claim")?.map_err(anyhow::Error::msg)?;
        Ok(took)
    }))
    .await
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Time of the daemon itself: start, one line of orders, its server, and its end, as in a script.
fn bare_start(machine: &Path, uuid: &str) -> Result<Duration> {
    let directory = tempfile::Builder::new().prefix("d").rand_bytes(5).tempdir_in("/tmp")?;
    let program = |arguments: &[&str]| {
        let mut command = Command::new(machine.join("bin/nvidia-cuda-mps-control"));
        command
            .args(arguments)
            .env_clear()
            .env("CUDA_VISIBLE_DEVICES", uuid)
            .env("CUDA_MPS_PIPE_DIRECTORY", directory.path().join("p"))
            .env("CUDA_MPS_LOG_DIRECTORY", directory.path().join("l"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        command
    };
    let since = Instant::now();
    ensure!(program(&["-d", "-M"]).status()?.success(), "the daemon does not start");
    order(program(&[]), "start_server -uid 0")?;
    let elapsed = since.elapsed();
    order(program(&[]), "quit -t 0")?;
    Ok(elapsed)
}

fn order(mut command: Command, line: &str) -> Result<()> {
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes())?;
    }
    ensure!(child.wait()?.success(), "{line} failed");
    Ok(())
}

struct Host {
    child: Child,
    socket: PathBuf,
    _directory: TempDir,
}

impl Host {
    async fn start(program: &Path, machine: &Path, directory: TempDir) -> Result<Self> {
        let log = fs::File::create(directory.path().join("log"))?;
        let child = Command::new(program)
            .arg("--directory")
            .arg(directory.path())
            .arg("--driver-root")
            .arg(machine)
            .args(["--shared-memory", "none"])
            .env_clear()
            .stderr(log)
            .spawn()
            .context("mps-host does not start")?;
        let host = Self { child, socket: directory.path().join("host.sock"), _directory: directory };
        let since = Instant::now();
        while host.ask(&json!("list")).await.is_err() {
            ensure!(since.elapsed() < Duration::from_secs(30), "mps-host does not answer");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(host)
    }

    /// Time until the answer.
    async fn ask(&self, operation: &Value) -> Result<Duration> {
        let since = Instant::now();
        let mut stream = UnixStream::connect(&self.socket).await?;
        let request = json!({"version": 1, "operation": operation}).to_string() + "\n";
        stream.write_all(request.as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        ensure!(!line.is_empty() && !line.contains("\"error\""), "{operation}: {line}");
        Ok(since.elapsed())
    }

    /// Resident memory of reaper and supervisor, KiB.
    fn memory(&self) -> Result<Vec<(&'static str, u64)>> {
        let reaper = self.child.id();
        let children = fs::read_to_string(format!("/proc/{reaper}/task/{reaper}/children"))?;
        let is_supervisor = |pid: &&str| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("supervisor")
        };
        let supervisor = children.split_whitespace().find(is_supervisor).context("no supervisor")?;
        let resident = |pid: &str| -> Result<u64> {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        let reaper = resident(&reaper.to_string())?;
        Ok(vec![("mps-host (pid 1)", reaper), ("its supervisor", resident(supervisor)?)])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // mps-host ends its daemons, which have no clients, and then itself.
        let pid = i32::try_from(self.child.id()).map(nix::unistd::Pid::from_raw);
        if let Ok(pid) = pid {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}
