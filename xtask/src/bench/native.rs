//! `cargo xtask bench native`: the time of kube-scheduler for pods on a fleet, by published devices, beside a driver with whole
//! cards alone.

mod fleet;
mod measure;
mod pods;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde::Serialize;
use tessera_harness::KubernetesVersion;

use super::quantiles::Quantiles;
use fleet::Published;
use measure::OnCluster;

const EXAMPLES: &str = "\
Examples:
  A fleet of 200 nodes with eight H100:
    cargo xtask bench native
  Two versions of Kubernetes, whole cards alone:
    cargo xtask bench native --kubernetes 1.37,1.36 --nodes 100 --published cards
  Where kube-scheduler spends its time:
    cargo xtask bench native --published partitions --cpu-profiles /tmp && go tool pprof -top /tmp/*.pprof";

/// Arguments of `cargo xtask bench native`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct NativeArguments {
    /// Minor versions of Kubernetes. The first time the programs of each are built, which takes minutes.
    #[arg(long, value_delimiter = ',', default_values = ["1.37"])]
    kubernetes: Vec<KubernetesVersion>,
    /// Number of nodes (API objects).
    #[arg(long, default_value_t = 200)]
    nodes: usize,
    /// Machines, by the names of `kubectl gpu simulate --nodes`; a fleet for each.
    #[arg(long, value_delimiter = ',', default_values = ["hgx-h100-80gb"])]
    hardware: Vec<String>,
    /// Published devices; a fleet for each.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["cards", "partitions", "shares"])]
    published: Vec<Published>,
    /// Percent of the cards held by others, ascending.
    #[arg(long, value_delimiter = ',', default_values = ["0", "90"])]
    full: Vec<usize>,
    /// Pods of each kind, one after the other.
    #[arg(long, default_value_t = 20)]
    pods: usize,
    /// Pods of each kind at once; fewer where not so many cards are free.
    #[arg(long, default_value_t = 200)]
    at_once: usize,
    /// A folder for CPU profiles of kube-scheduler, 20 s of each kind of pod.
    #[arg(long, value_name = "FOLDER")]
    cpu_profiles: Option<PathBuf>,
    /// `json` prints one line of JSON instead of tables.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Everything measured.
#[derive(Serialize)]
struct Report {
    nodes: usize,
    clusters: Vec<OnCluster>,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &NativeArguments) -> Result<ExitCode> {
    ensure!(
        arguments.full.is_sorted() && arguments.full.iter().all(|full| *full <= 100),
        "--full: ascending, up to 100"
    );
    let mut clusters = Vec::new();
    for kubernetes in arguments.kubernetes.iter().copied() {
        for hardware in &arguments.hardware {
            let mut plain = Vec::new();
            let others =
                arguments.published.iter().copied().filter(|published| *published != Published::Plain);
            for published in std::iter::once(Published::Plain).chain(others) {
                let mut measured = measure::measure(arguments, kubernetes, hardware, published).await?;
                if published == Published::Plain {
                    plain.clone_from(&measured.pods);
                }
                measured.pods.iter_mut().for_each(|pods| pods.compare(&plain));
                clusters.push(measured);
            }
        }
    }
    let report = Report { nodes: arguments.nodes, clusters };
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string(&report)?),
        Output::Table => print(&report),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    println!(
        "{} nodes; ratios are to whole cards alone, as published by a driver without counters",
        report.nodes
    );
    let (mut times, mut sizes) = (Table::new(), Table::new());
    times.load_style(presets::ASCII_MARKDOWN);
    sizes.load_style(presets::ASCII_MARKDOWN);
    times.set_header([
        "fleet",
        "full",
        "a pod with",
        "bound after, p50",
        "p99",
        "ratio",
        "at once",
        "bound a second",
        "ratio",
    ]);
    sizes.set_header([
        "fleet",
        "slices a node",
        "devices",
        "KB as JSON",
        "kube-scheduler, MiB",
        "etcd",
        "kube-apiserver",
    ]);
    for cluster in &report.clusters {
        let fleet = format!("{}, {}, {}", cluster.kubernetes, cluster.hardware, cluster.published.name());
        for pods in &cluster.pods {
            let Quantiles { p50_ms, p99_ms, .. } = pods.one_by_one;
            let at_once = match pods.at_once - pods.bound {
                0 => pods.at_once.to_string(),
                left => format!("{}, {left} not bound", pods.at_once),
            };
            times.add_row([
                fleet.clone(),
                format!("{} %", pods.full),
                pods.asked.words().to_owned(),
                format!("{p50_ms:.0} ms"),
                format!("{p99_ms:.0} ms"),
                ratio(pods.one_by_one_ratio),
                at_once,
                format!("{:.1}", pods.per_second),
                ratio(pods.per_second_ratio),
            ]);
        }
        sizes.add_row([
            fleet,
            cluster.slices.to_string(),
            cluster.devices.to_string(),
            format!("{:.0}", cluster.bytes as f64 / 1e3),
            format!("{:.0}", cluster.scheduler_mib),
            format!("{:.0}", cluster.etcd_mib),
            format!("{:.0}", cluster.api_server_mib),
        ]);
    }
    println!("{times}\n\n{sizes}");
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}
