//! What `cargo xtask bench packing` runs: policies on openb's traces, one JSON line for each result. The only argument is a JSON
//! object with the fields of `Options`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use tessera_placement::packing::Node;
use tessera_simulate::{Arrivals, Filling, LOADS, PolicyName, Random, Steady, Trace};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// With the files of openb.
    directory: PathBuf,
    traces: Vec<String>,
    policies: Vec<String>,
    seeds: Vec<u64>,
    /// Of these, so many are run through the decision loop, on the first trace only.
    loop_seeds: usize,
    /// Offered loads of runs with departures, in percent.
    steady_loads: Vec<f64>,
    steady_policies: Vec<String>,
    steady_seeds: Vec<u64>,
    /// Nodes of the fleet on which decisions are timed; 0 for none.
    decision_nodes: usize,
    /// Decisions of the loop to time: it takes longer than the policy alone.
    loop_decisions: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options: Options = serde_json::from_str(&std::env::args().nth(1).ok_or("options are missing")?)?;
    let named =
        |names: &[String]| names.iter().map(|name| name.parse::<PolicyName>()).collect::<Result<Vec<_>, _>>();
    let (policies, steady_policies) = (named(&options.policies)?, named(&options.steady_policies)?);
    for name in &options.traces {
        let trace = read(&options, name)?;
        for (run, seed) in options.seeds.iter().enumerate() {
            let arrivals = Arrivals::up_to(&trace, *seed, LOADS[LOADS.len() - 1])?;
            let with_loop = run < options.loop_seeds && *name == options.traces[0];
            for policy in policies.iter().filter(|policy| with_loop || !policy.is_loop()) {
                let start = Instant::now();
                let filling = Filling::run(&trace, &arrivals, *policy, *seed);
                let line = json!({
                    "kind": "filling", "trace": name, "policy": policy.name(), "seed": seed, "allocated": filling.allocated,
                    "fragmentation": filling.fragmentation, "seconds": start.elapsed().as_secs_f64(),
                });
                println!("{line}");
            }
        }
    }
    for name in &options.traces {
        let trace = read(&options, name)?;
        for load in &options.steady_loads {
            for seed in &options.steady_seeds {
                for policy in &steady_policies {
                    let steady = Steady::run(&trace, *policy, *load, *seed)?;
                    let line = json!({
                        "kind": "steady", "trace": name, "policy": policy.name(), "load": load, "seed": seed,
                        "allocated": steady.allocated, "refused": steady.refused,
                    });
                    println!("{line}");
                }
            }
        }
    }
    if let Some(name) = options.traces.first().filter(|_| options.decision_nodes > 0) {
        let trace = read(&options, name)?;
        for (policy, most) in
            [(PolicyName::TesseraBare, usize::MAX), (PolicyName::Tessera, options.loop_decisions)]
        {
            let mut took = decisions(&trace, options.decision_nodes, policy, most)?;
            took.sort_unstable();
            let at =
                |thousandth: usize| took[(took.len().max(1) - 1) * thousandth / 1000].as_secs_f64() * 1e6;
            let line = json!({
                "kind": "decisions", "policy": policy.name(), "nodes": options.decision_nodes, "decisions": took.len(),
                "p50_us": at(500), "p99_us": at(990), "max_us": at(1000),
            });
            println!("{line}");
        }
    }
    Ok(())
}

fn read(options: &Options, name: &str) -> Result<Trace, Box<dyn Error>> {
    let text = |file: String| {
        let path = options.directory.join(file);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let nodes = text("openb_node_list_gpu_node.csv".to_owned())?;
    Ok(Trace::parse(&nodes, &text(format!("openb_pod_list_{name}.csv"))?)?)
}

/// How long each choice takes, with what has to be brought up to date after it, while a fleet of the trace's nodes, repeated,
/// fills up with its pods, repeated; at most so many.
fn decisions(
    trace: &Trace,
    nodes: usize,
    policy: PolicyName,
    most: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let arrivals = Arrivals::up_to(trace, 1, LOADS[2])?;
    let mut nodes: Vec<Node> = arrivals.nodes.iter().cycle().take(nodes).cloned().collect();
    let count = (arrivals.pods.len() * nodes.len() / trace.nodes().len()).min(most);
    let mut policy = policy.start(trace, &nodes);
    let mut random = Random::new(1);
    let mut took = Vec::with_capacity(count);
    for pod in arrivals.pods.iter().cycle().take(count) {
        let demand = trace.demand(*pod);
        let start = Instant::now();
        if let Some(place) = policy.choose(&nodes, demand, &mut random) {
            if !nodes[place.node].take(demand, place.cards) {
                return Err("it chose what is not free".into());
            }
            policy.placed(&nodes, &place, demand);
        }
        took.push(start.elapsed());
    }
    Ok(took)
}
