//! `cargo xtask bench native`: the time of kube-scheduler for pods on a fleet, by published devices, beside a driver with whole
//! cards alone.

mod fleet;
mod measure;
mod pods;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;
use tessera_harness::KubernetesVersion;

use super::output::Output;
use super::quantiles::Quantiles;
use fleet::Published;
use measure::OnCluster;

const EXAMPLES: &str = "\
Examples:
  A fleet of 200 nodes with eight H100:
    cargo xtask bench native
  Two versions of Kubernetes, whole cards alone:
    cargo xtask bench native --kubernetes 1.37,1.36 --nodes 100 --published cards
  What fleets take of the control plane's memory, without pods:
    cargo xtask bench native --nodes 100,1000,5000 --pods 0 --at-once 0
  Where kube-scheduler spends its time:
    cargo xtask bench native --published partitions --cpu-profiles /tmp && go tool pprof -top /tmp/*.pprof";

/// Arguments of `cargo xtask bench native`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct NativeArguments {
    /// Minor versions of Kubernetes. The first time the programs of each are built, which takes minutes.
    #[arg(long, value_delimiter = ',', default_values = ["1.37"])]
    kubernetes: Vec<KubernetesVersion>,
    /// Numbers of nodes (API objects); a fleet for each.
    #[arg(long, value_delimiter = ',', default_values = ["200"])]
    nodes: Vec<usize>,
    /// Machines, by the names of `kubectl gpu simulate --nodes`; a fleet for each.
    #[arg(long, value_delimiter = ',', default_values = ["hgx-h100-80gb"])]
    hardware: Vec<String>,
    /// Published devices; a fleet for each.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["cards", "partitions", "shares"])]
    published: Vec<Published>,
    /// Percent of the cards held by others, ascending.
    #[arg(long, value_delimiter = ',', default_values = ["0", "90"])]
    full: Vec<usize>,
    /// Pods of each kind, one after the other. With 0 here and of `--at-once` only sizes and memory are measured, of fleets of which
    /// no card is held.
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

/// Everything measured.
#[derive(Serialize)]
struct Report {
    clusters: Vec<OnCluster>,
}

/// A fleet of equal nodes.
#[derive(Clone, Copy)]
pub struct Kind<'a> {
    kubernetes: KubernetesVersion,
    hardware: &'a str,
    nodes: usize,
    published: Published,
}

impl NativeArguments {
    /// All fleets, grouped by nodes, the plain one first.
    fn kinds(&self) -> Vec<Kind<'_>> {
        let mut kinds = Vec::new();
        for kubernetes in self.kubernetes.iter().copied() {
            for hardware in &self.hardware {
                for nodes in self.nodes.iter().copied() {
                    let others =
                        self.published.iter().copied().filter(|published| *published != Published::Plain);
                    for published in std::iter::once(Published::Plain).chain(others) {
                        kinds.push(Kind { kubernetes, hardware, nodes, published });
                    }
                }
            }
        }
        kinds
    }

    /// Whether pods are measured, or sizes and memory alone.
    fn has_pods(&self) -> bool {
        self.pods > 0 || self.at_once > 0
    }
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
    let mut plain = Vec::new();
    for kind in arguments.kinds() {
        let mut measured = measure::measure(arguments, kind).await?;
        if kind.published == Published::Plain {
            plain.clone_from(&measured.pods);
        }
        measured.pods.iter_mut().for_each(|pods| pods.compare(&plain));
        clusters.push(measured);
    }
    let report = Report { clusters };
    arguments.output.print(&report, print)?;
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    if report.clusters.iter().any(|cluster| !cluster.pods.is_empty()) {
        println!(
            "Ratios are to whole cards alone, as published by a driver without counters\n{}\n",
            times(report)
        );
    }
    println!("{}", sizes(report));
}

/// How long pods take.
fn times(report: &Report) -> Table {
    let mut times = Table::new();
    times.load_style(presets::ASCII_MARKDOWN);
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
    for cluster in &report.clusters {
        let OnCluster { kubernetes, hardware, nodes, published, .. } = cluster;
        let fleet = format!("{kubernetes}, {nodes} {hardware}, {}", published.name());
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
    }
    times
}

/// The table of docs/benchmarks/kube-scheduler.md.
fn sizes(report: &Report) -> Table {
    let mut sizes = Table::new();
    sizes.load_style(presets::ASCII_MARKDOWN);
    sizes.set_header([
        "Kubernetes",
        "machine",
        "nodes",
        "a node publishes",
        "slices",
        "devices",
        "as JSON",
        "kube-scheduler",
        "etcd",
        "kube-apiserver",
    ]);
    for cluster in &report.clusters {
        sizes.add_row([
            cluster.kubernetes.clone(),
            cluster.hardware.clone(),
            cluster.nodes.to_string(),
            cluster.published.words().to_owned(),
            cluster.slices.to_string(),
            cluster.devices.to_string(),
            format!("{:.0} KB", cluster.bytes as f64 / 1e3),
            format!("{:.0} MiB", cluster.scheduler_mib),
            format!("{:.0} MiB", cluster.etcd_mib),
            format!("{:.0} MiB", cluster.api_server_mib),
        ]);
    }
    sizes
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}
