//! `cargo xtask bench controller`: what steering adds to a pod's start beside kube-scheduler alone, what a decision takes
//! on a large fleet, and what the program takes of memory there.

mod fleet;
mod memory;
mod objects;
mod pods;
mod process;
mod stand_in;

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use serde::Serialize;
use serde_json::Value;
use tessera_harness::{Cluster, ClusterOptions, workspace};

use super::quantiles::Quantiles;
use memory::Memory;
use pods::Started;
use process::Controller;

/// Arguments of `cargo xtask bench controller`.
#[derive(Args)]
pub struct ControllerArguments {
    /// Nodes of the real control plane, with 8 cards each; 0 leaves that part out.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Pods of each kind, steered and native in turn.
    #[arg(long, default_value_t = 200)]
    pods: usize,
    /// Milliseconds between two pods.
    #[arg(long, default_value_t = 50)]
    pause: u64,
    /// Nodes of the fleet without an API server, with 208 devices each; 0 leaves that part out.
    #[arg(long, default_value_t = 5_000)]
    fleet: usize,
    /// Nodes with 208 devices each that a stand-in for the API server has, for the memory of the controller's program; 0
    /// leaves that part out.
    #[arg(long, default_value_t = 5_000)]
    stand_in: usize,
    /// `json` prints one line of JSON instead of a table.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Live>,
    /// What the example `measure` of `crates/decide` prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
}

/// On the real control plane.
#[derive(Serialize)]
struct Live {
    nodes: usize,
    client_limits: String,
    /// From the pod's creation to the removal of our gate, its only one.
    gated: Quantiles,
    /// From the pod's creation to its binding.
    steered: Quantiles,
    native: Quantiles,
    /// Of the controller, for each steered pod.
    processor_ms_per_pod: f64,
    resident_mib: f64,
}

/// Queries a second, and at once, of kube-scheduler and kube-controller-manager: their defaults of 50 and 20 would be all
/// that is measured.
const QPS: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &ControllerArguments) -> Result<ExitCode> {
    let live = if arguments.nodes > 0 { Some(live(arguments).await?) } else { None };
    let fleet = if arguments.fleet > 0 { Some(measure(arguments.fleet)?) } else { None };
    let memory = if arguments.stand_in > 0 { Some(memory::measure(arguments.stand_in).await?) } else { None };
    let report = Report { live, fleet, memory };
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string(&report)?),
        Output::Table => print(&report),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(nodes: usize) -> Result<Value> {
    workspace::build(&["--profile", "dist", "-p", "tessera-decide", "--example", "measure"])?;
    let program = workspace::target()?.join("dist/examples/measure");
    let output = Command::new(&program)
        .arg(nodes.to_string())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    anyhow::ensure!(output.status.success(), "{} failed", program.display());
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn live(arguments: &ControllerArguments) -> Result<Live> {
    Controller::build()?;
    let mut options = ClusterOptions::scheduler_tier(0);
    options.extra.scheduler = QPS.map(str::to_owned).to_vec();
    options.extra.controller_manager = QPS.map(str::to_owned).to_vec();
    let cluster = Cluster::start(options).await?;
    eprintln!("publishing {} nodes with 8 cards each", arguments.nodes);
    fleet::publish(&cluster, arguments.nodes).await?;
    let controller = Controller::start(&cluster.kubeconfig())?;
    let pause = Duration::from_millis(arguments.pause);
    // The first pods wait until the controller has seen everything.
    pods::start(&cluster, "warm", 5, pause).await?;
    let before = controller.processor_ms()?;
    let started = pods::start(&cluster, "measured", arguments.pods, pause).await?;
    let processor = controller.processor_ms()? - before;
    let resident_mib = controller.resident_mib()?;
    drop(controller);
    cluster.shutdown().await?;
    let of =
        |select: fn(&Started) -> Option<Duration>| Quantiles::of(started.iter().filter_map(select).collect());
    Ok(Live {
        nodes: arguments.nodes,
        client_limits: QPS.join(" "),
        gated: of(|pod| pod.lifted),
        steered: of(|pod| pod.lifted.and(Some(pod.bound))),
        native: of(|pod| pod.lifted.is_none().then_some(pod.bound)),
        processor_ms_per_pod: processor / arguments.pods as f64,
        resident_mib,
    })
}

fn print(report: &Report) {
    if let Some(live) = &report.live {
        println!(
            "{} nodes with 8 cards, real control plane, {} for scheduler and controllers:",
            live.nodes, live.client_limits
        );
        let mut table = Table::new();
        table.set_header(["from the pod's creation to", "pods", "p50", "p99"]);
        let rows = [
            ("our gate is lifted", &live.gated),
            ("bound, steered", &live.steered),
            ("bound, native", &live.native),
        ];
        for (what, times) in rows {
            table.add_row([
                what.to_owned(),
                times.samples.to_string(),
                format!("{:.1} ms", times.p50_ms),
                format!("{:.1} ms", times.p99_ms),
            ]);
        }
        println!("{table}");
        println!(
            "controller: {:.1} ms of processor time a steered pod, {:.1} MiB resident; steered / native: {:.2} (p50)",
            live.processor_ms_per_pod,
            live.resident_mib,
            live.steered.p50_ms / live.native.p50_ms.max(0.001),
        );
    }
    if let Some(fleet) = &report.fleet {
        let number = |name: &str| fleet[name].as_f64().unwrap_or_default();
        println!(
            "{} nodes, {} devices, half full, no API server: a decision p50 {:.3} ms, p99 {:.3} ms, longest {:.1} ms; \
             resident {:.0} MiB with devices only, {:.0} MiB with pods and claims",
            fleet["nodes"],
            fleet["devices"],
            number("decide_p50_ms"),
            number("decide_p99_ms"),
            number("decide_max_ms"),
            number("resident_mib_of_fleet"),
            number("resident_mib_at_end"),
        );
    }
    if let Some(memory) = &report.memory {
        println!(
            "{} nodes, {} devices, {} pods with a card, a stand-in for the API server (etcd cannot hold it here): the program \
             reads {:.0} MiB, proposes nodes for {} pods {:.1} s after its start ({:.1} s of processor time); resident \
             {:.0} MiB, at most {:.0} MiB",
            memory.nodes,
            memory.devices,
            memory.running,
            memory.listed_mib,
            memory.waiting,
            memory.all_proposed_s,
            memory.processor_s,
            memory.resident_mib,
            memory.most_resident_mib,
        );
    }
}
