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
    /// Nodes of the fleet, as COUNTxMACHINE, with settings behind commas: cards=N, mig=on, cpu=CORES, memory=BYTES, label:KEY=VALUE;
    /// may be repeated. Without it, the fleet is that of the files, or of the cluster, with what runs and waits there
    #[arg(long, value_name = "GROUP", help_heading = "A fleet and a workload")]
    pub nodes: Vec<NodeGroup>,
    /// What arrives: a list in CSV, or openb's list of pods with their times (docs/simulate.md)
    #[arg(long, value_name = "FILE", help_heading = "A fleet and a workload")]
    pub workload: Option<PathBuf>,
    /// Beside the fleet as it is, the same with these nodes more
    #[arg(long, value_name = "GROUP", help_heading = "A fleet and a workload")]
    pub add: Vec<NodeGroup>,
    /// Beside the fleet as it is, with its cards offered as the GpuPools of this file or folder say; may be repeated
    #[arg(long = "pool", value_name = "FILE", help_heading = "A fleet and a workload")]
    pub pools: Vec<PathBuf>,
    /// The MIG layouts that these GpuPools name, as the plugin's --mig-layout-file: in the format of NVIDIA's mig-parted
    #[arg(
        long = "mig-layouts",
        value_name = "FILE",
        requires = "pools",
        help_heading = "A fleet and a workload"
    )]
    pub mig_layouts: Option<PathBuf>,
    /// Name of the DRA driver: with gpu.nvidia.com the DeviceClasses are NVIDIA's, so that manifests written for it can be simulated.
    /// Without it gpu.tessera.dev, or of a cluster that which publishes devices
    #[arg(long, value_name = "NAME", value_parser = driver_name, help_heading = "A fleet and a workload")]
    pub driver: Option<String>,
    /// Say how many more of these would fit, one at a time: 4xgpu, 1g.10gb, 15%
    #[arg(
        long = "wish",
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "A fleet and a workload"
    )]
    pub wishes: Vec<Wish>,
    /// Draw the map, and ask for wishes, at this time (90s, 1h30m, 2d) and not at the end
    #[arg(long, value_name = "TIME", value_parser = at, help_heading = "A fleet and a workload")]
    pub at: Option<Duration>,
    /// What a card of a model costs a month, for what the cards in use cost; may be repeated
    #[arg(long = "price", value_name = "MODEL=NUMBER", value_parser = price, help_heading = "A fleet and a workload")]
    pub prices: Vec<(String, f64)>,
    /// A trace in the form of openb (Alibaba's cluster-trace-gpu-v2023): its files with nodes and with pods
    #[arg(long, num_args = 2, conflicts_with_all = ["nodes", "workload", "add", "pools", "wishes", "at", "prices", "driver", "files"], value_names = ["NODES.csv", "PODS.csv"], help_heading = "A trace")]
    pub openb: Vec<PathBuf>,
    /// Runs with other random numbers: of a trace in another order, of a fleet where a policy breaks ties by chance
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: u64,
    /// Seed of the first run; those of the others follow
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Only these, in this order. On a fleet tessera, kube-scheduler, hami-binpack, kai-binpack, best-fit, first-fit, random (the
    /// default), fgd, fgd-best-fit, fgd-learning, packing, clustering and dot-product; with a trace (where all are the default) also
    /// tessera-bare and tessera-kube-scheduler
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
    let price: f64 = price.parse().map_err(|_| format!("{price:?} is no number"))?;
    if !(0.0..1e9).contains(&price) {
        return Err("a price is from 0 to 1e9".to_owned());
    }
    Ok((model.to_owned(), price))
}
