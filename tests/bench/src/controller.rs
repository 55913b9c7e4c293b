//! `cargo xtask bench controller`: time added by steering, or allocating, to a pod's start beside kube-scheduler alone,
//! time of a decision on a large fleet, and the program's memory there.

mod fleet;
mod gangs;
mod live;
mod memory;
pub(super) mod objects;
mod pods;
mod process;
pub(super) mod stand_in;
mod writes;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::Table;
use serde::Serialize;
use serde_json::Value;
use tessera_harness::workspace;

use super::output::Output;
use super::quantiles::Quantiles;
use live::Live;
use memory::Memory;

const EXAMPLES: &str = "\
Examples:
  All of it:
    cargo xtask bench controller
  Steered beside native pods:
    cargo xtask bench controller --fleet 0 --stand-in 0 --nodes 200 --pods 60 --pause 400
  Managed beside native pods:
    cargo xtask bench controller --managed --nodes 200 --pods 60 --pause 400
  Gangs of four whole nodes:
    cargo xtask bench controller --managed --nodes 40 --pods 5 --gangs 20
  The decision loop on a fleet:
    cargo xtask bench controller --nodes 0 --stand-in 0";

/// Arguments of `cargo xtask bench controller`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ControllerArguments {
    /// Nodes of the real control plane, with 8 cards each; 0 leaves that part out.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Half of the nodes in a managed pool, half in a native one: pods whose cards the controller allocates, with the gate
    /// and without, beside pods that kube-scheduler allocates for. Leaves the parts without a control plane out.
    #[arg(long)]
    managed: bool,
    /// With `--managed`: gangs of four pods with all cards of a node, one after the other, beside as many pods that
    /// kube-scheduler is left alone with. Needs at least 20 nodes.
    #[arg(long, default_value_t = 10)]
    gangs: usize,
    /// Pods of each kind, in turn.
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
    /// Measures the controller's program as tests build it, which takes no minutes: an upper bound.
    #[arg(long)]
    unoptimised: bool,
    /// `json` prints one line of JSON instead of a table.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Everything measured.
#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Live>,
    /// The output of the example `decisions` of `crates/scheduling/decide`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
}

/// Measures and prints.
///
/// # Errors
/// When something does not work; a slow result is not an error.
pub async fn run(arguments: &ControllerArguments) -> Result<ExitCode> {
    let live = if arguments.nodes > 0 { Some(live::measure(arguments).await?) } else { None };
    // The rest is the same for pods of managed and of other pools.
    let has_rest = !arguments.managed;
    let fleet = if arguments.fleet > 0 && has_rest { Some(measure(arguments.fleet)?) } else { None };
    let memory = if arguments.stand_in > 0 && has_rest {
        Some(memory::measure(arguments.stand_in, arguments.unoptimised).await?)
    } else {
        None
    };
    let report = Report { live, fleet, memory };
    arguments.output.print(&report, print)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(nodes: usize) -> Result<Value> {
    workspace::build(&["--profile", "dist", "-p", "tessera-decide", "--example", "decisions"])?;
    let program = workspace::target()?.join("dist/examples/decisions");
    let output = Command::new(&program)
        .arg(nodes.to_string())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    anyhow::ensure!(output.status.success(), "{} failed", program.display());
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn print(report: &Report) {
    if let Some(live) = &report.live {
        print_live(live);
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
        println!(
            "the fleet page's view of them: made in {:.0} ms, of which decisions wait for {:.2} ms at a time at most \
             (the loop makes several such steps, up to 2 ms); {:.1} MiB of JSON in {:.0} ms",
            number("view_ms"),
            number("view_step_max_ms"),
            number("view_mib"),
            number("view_json_ms"),
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
        println!(
            "with the plugins of all nodes asked every 15 s: {:.2} % of a core at rest, {:.0} MiB; /metrics {}; the fleet page {}, as \
             JSON {}; decisions wait for a view of the fleet for less than {:.1} ms at a time",
            memory.at_rest * 100.0,
            memory.resident_told_mib,
            memory.metrics,
            memory.page,
            memory.json,
            memory.view_step_ms,
        );
    }
}

fn print_live(live: &Live) {
    println!(
        "{} nodes with 8 cards, real control plane, {} for scheduler and controllers:",
        live.nodes, live.client_limits
    );
    let mut table = Table::new();
    table.set_header(["from the pod's creation to", "pods", "p50", "p99"]);
    let mut row = |what: String, times: &Quantiles| {
        let times = [times.samples.to_string(), ms(times.p50_ms), ms(times.p99_ms)];
        table.add_row([what].into_iter().chain(times));
    };
    for pods in &live.pods {
        if let Some(ungated) = &pods.ungated {
            row(format!("our gate is lifted, {}", pods.kind), ungated);
        }
        row(format!("bound, {}", pods.kind), &pods.bound);
    }
    println!("{table}");
    if let Some(gangs) = &live.gangs {
        let times = |times: &Quantiles| format!("p50 {}, p99 {}", ms(times.p50_ms), ms(times.p99_ms));
        println!(
            "{} gangs of {} pods with all {} cards of a node, from the creation of the last: all gates lifted {}; all bound {}; \
             as many native pods without a gate: all bound {}",
            gangs.lifted.samples,
            gangs::SIZE,
            fleet::CARDS,
            times(&gangs.lifted),
            times(&gangs.bound),
            times(&gangs.native_bound),
        );
    }
    let Some((native, ours)) = live.pods.split_last() else { return };
    for pods in ours {
        let Quantiles { p50_ms, p99_ms, .. } = pods.bound;
        println!(
            "{}: bound after {:+.1} ms (p99 {:+.1} ms) beside {}, {:.2} times as long (p99 {:.2}); the controller writes {:.2} \
             times a pod before the binding without Events, {:.2} times in all: {}",
            pods.kind,
            p50_ms - native.bound.p50_ms,
            p99_ms - native.bound.p99_ms,
            native.kind,
            p50_ms / native.bound.p50_ms.max(0.001),
            p99_ms / native.bound.p99_ms.max(0.001),
            pods.writes.of_objects(),
            pods.writes.all,
            each(&pods.writes.before_binding),
        );
    }
    println!(
        "controller: {:.1} ms of processor time for each of these pods, {:.1} MiB resident",
        live.processor_ms_per_pod, live.resident_mib,
    );
}

fn ms(time: f64) -> String {
    format!("{time:.1} ms")
}

fn each(writes: &BTreeMap<String, f64>) -> String {
    let each: Vec<String> = writes.iter().map(|(what, number)| format!("{what} {number:.2}")).collect();
    each.join(", ")
}
