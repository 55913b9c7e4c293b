//! The command line of `kubectl gpu simulate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tessera_kube_util::arguments::driver_name;
use tessera_simulate::fleet::{NodeGroup, Wish};

use super::{Format, ReleaseArguments, SourceArguments, help};

/// `kubectl gpu simulate`
#[derive(Debug, Args)]
#[command(after_help = help::SIMULATE_HELP)]
pub struct SimulateArguments {
    /// Nodes of the fleet, as COUNTxMACHINE, with settings after commas: cards=N, mig=on, cpu=CORES, memory=BYTES, label:KEY=VALUE;
    /// may be repeated. Default: the nodes in the files, else in the cluster, with their running and waiting pods
    #[arg(long, value_name = "GROUP", help_heading = "A fleet and a workload")]
    pub nodes: Vec<NodeGroup>,
    /// Arriving pods: a list in CSV, or openb's list of pods with times (docs/simulate.md)
    #[arg(long, value_name = "FILE", help_heading = "A fleet and a workload")]
    pub workload: Option<PathBuf>,
    /// Also simulate the fleet with these additional nodes
    #[arg(long, value_name = "GROUP", help_heading = "A fleet and a workload")]
    pub add: Vec<NodeGroup>,
    /// Also simulate the fleet with its cards offered by the GpuPools in this file or folder; may be repeated
    #[arg(long = "pool", value_name = "FILE", help_heading = "A fleet and a workload")]
    pub pools: Vec<PathBuf>,
    /// Also simulate tessera with the GpuQuotas in this file or folder, which may have the Namespaces of its selectors; may be repeated
    #[arg(long = "quota", value_name = "FILE", help_heading = "A fleet and a workload")]
    pub quotas: Vec<PathBuf>,
    /// MIG layouts named by the GpuPools, in the format of NVIDIA's mig-parted (the plugin's --mig-layout-file)
    #[arg(
        long = "mig-layouts",
        value_name = "FILE",
        requires = "pools",
        help_heading = "A fleet and a workload"
    )]
    pub mig_layouts: Option<PathBuf>,
    /// Name of the DRA driver; with gpu.nvidia.com the DeviceClasses are NVIDIA's. Default: found in the cluster or the files, by
    /// plugins' pods, node reports, names of devices, or the DeviceClasses asked for; with --nodes by these alone
    #[arg(long, value_name = "NAME", value_parser = driver_name, help_heading = "A fleet and a workload")]
    pub driver: Option<String>,
    /// Print how many more of each would fit by itself: 4xgpu, 1g.10gb, 15%
    #[arg(
        long = "wish",
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "A fleet and a workload"
    )]
    pub wishes: Vec<Wish>,
    /// Time of the map and the wishes (90s, 1h30m, 2d). Default: the end
    #[arg(long, value_name = "TIME", value_parser = at, help_heading = "A fleet and a workload")]
    pub at: Option<Duration>,
    /// Price of a card of this model a month, for the cost of the cards in use; may be repeated
    #[arg(long = "price", value_name = "MODEL=NUMBER", value_parser = price, help_heading = "A fleet and a workload")]
    pub prices: Vec<(String, f64)>,
    /// A trace in the format of openb (Alibaba's cluster-trace-gpu-v2023): its files with nodes and with pods
    #[arg(long, num_args = 2, conflicts_with_all = ["nodes", "workload", "add", "pools", "quotas", "wishes", "at", "prices", "driver", "files"], value_names = ["NODES.csv", "PODS.csv"], help_heading = "A trace")]
    pub openb: Vec<PathBuf>,
    /// Number of runs with different seeds: for a trace the order of arrival differs, for a fleet only random choices of policies
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: u64,
    /// Seed of the first run, counting up
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Only these policies, in this order. For a fleet: tessera, kube-scheduler, hami-binpack, kai-binpack, best-fit, first-fit,
    /// random (these are the default), fgd, fgd-best-fit, fgd-learning, packing, clustering, dot-product. For a trace (default: all)
    /// also tessera-bare and tessera-kube-scheduler
    #[arg(long = "policy", value_name = "NAMES", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Print JSON or YAML instead of tables
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Of kube-scheduler.
    #[command(flatten)]
    pub release: ReleaseArguments,
    /// Nodes, slices, and what makes pods.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// A time of a simulation.
fn at(text: &str) -> Result<Duration, String> {
    tessera_simulate::fleet::time(text)
}

/// `A100-SXM4-80GB=1500`.
fn price(text: &str) -> Result<(String, f64), String> {
    let (model, price) = text.rsplit_once('=').ok_or("a price is MODEL=NUMBER, as in A100-SXM4-80GB=1500")?;
    let price: f64 = price.parse().map_err(|_| format!("{price:?} is not a number"))?;
    if !(0.0..1e9).contains(&price) {
        return Err("a price must be from 0 to 1e9".to_owned());
    }
    Ok((model.to_owned(), price))
}
