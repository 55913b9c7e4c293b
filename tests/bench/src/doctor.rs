//! `cargo xtask bench doctor`: how long `kubectl gpu doctor` takes on a large cluster.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use tessera_harness::workspace;
use tokio::process::Command;

use super::controller::objects::Objects;
use super::controller::stand_in::StandIn;

/// Time limit of the program.
const PATIENCE: Duration = Duration::from_secs(600);

/// Between two looks at the program's memory.
const LOOK: Duration = Duration::from_millis(20);

/// Arguments of `cargo xtask bench doctor`.
#[derive(Args)]
pub struct DoctorArguments {
    /// Nodes, with 8 cards and 208 devices each.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// How often it is run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Measures the program as tests build it, which takes no minutes: an upper bound.
    #[arg(long)]
    unoptimised: bool,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &DoctorArguments) -> Result<ExitCode> {
    let profile = if arguments.unoptimised { "dev" } else { "dist" };
    workspace::build(&["--profile", profile, "-p", "kubectl-gpu", "--bin", "kubectl-gpu"])?;
    let folder = if arguments.unoptimised { "debug" } else { "dist" };
    let program = workspace::target()?.join(folder).join("kubectl-gpu");
    let objects = Objects::new(arguments.nodes as usize, 0)?;
    let (devices, claims) = (objects.devices(), objects.running());
    let stand_in = StandIn::start(objects).await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{}", stand_in.address) } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": {} }],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    let (mut took, mut most_mib) = (Vec::new(), 0.0_f64);
    let mut findings = 0;
    let processor_before = of_children()?;
    for _ in 0..arguments.rounds {
        let begun = Instant::now();
        // The chart's classes, two of them without a match here: each device is tried.
        let running = Command::new(&program)
            .args(["doctor", "-o", "json", "-f", "deviceclasses", "--kubeconfig"])
            .arg(&kubeconfig)
            .current_dir(workspace::root())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let process = running.id().context("it has ended")?;
        let mut waiting = std::pin::pin!(tokio::time::timeout(PATIENCE, running.wait_with_output()));
        let output = loop {
            tokio::select! {
                output = &mut waiting => break output.context("doctor does not end")??,
                () = tokio::time::sleep(LOOK) => most_mib = most_mib.max(most_resident_mib(process).unwrap_or_default()),
            }
        };
        took.push(begun.elapsed().as_secs_f64());
        let found: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).context("doctor's findings")?;
        findings = found.len();
    }
    took.sort_by(f64::total_cmp);
    println!(
        "{} nodes, {devices} devices, {claims} pods and claims, a stand-in for the API server that sends {:.0} MiB:",
        arguments.nodes,
        stand_in.listed_mib() / f64::from(arguments.rounds)
    );
    let processor = (of_children()? - processor_before).as_secs_f64() / f64::from(arguments.rounds);
    println!(
        "doctor takes {:.1} s, at most {:.1} s of {} runs, {processor:.1} s of processor time each, {most_mib:.0} MiB, and finds {findings}",
        took[took.len() / 2],
        took[took.len() - 1],
        took.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Peak of a process's resident memory, in MiB; `None` after its end.
fn most_resident_mib(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib / 1024.0)
}

/// Processor time of ended children, user and system.
fn of_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/self/stat")?;
    let times = fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok());
    // USER_HZ is 100 on every Linux with Rust.
    Ok(Duration::from_millis(times.sum::<u64>() * 10))
}
