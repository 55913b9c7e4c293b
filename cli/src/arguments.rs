//! The command line.

mod defrag;
mod get;
mod help;
mod kueue;
mod migrate;
mod namespaces;
mod report;
mod run;
mod simulate;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::SignedDuration;
use tessera_api::kubernetes::KubernetesVersion;

pub use defrag::DefragArguments;
pub use get::{GetArguments, Listed};
pub use kueue::KueueArguments;
pub use migrate::{MigrateArguments, Origin, PlanFormat};
pub use namespaces::NamespaceArguments;
pub use report::{Price, ReportArguments, ReportFormat};
pub use run::{CancelArguments, RunArguments};
pub use simulate::SimulateArguments;

/// Allocation of GPUs in Kubernetes: dry runs, reasons for waiting, usage, problems, simulations.
#[derive(Debug, Parser)]
#[command(name = "kubectl gpu", bin_name = "kubectl gpu", version, after_help = help::AFTER_HELP)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Dry run: the devices a pod or claim would get on each node
    Allocate(AllocateArguments),
    /// Why a pod or claim waits, with remedies; or why it got its devices
    Explain(ExplainArguments),
    /// The devices matching a CEL selector; for one device, the value of each part
    Cel(CelArguments),
    /// GpuPools: their cards, allocation, waiting pods and problems
    Pools(PoolsArguments),
    /// GpuQuotas: guaranteed, used, borrowed and lent amounts, GPU hours, waiting pods and problems
    Quota(QuotaArguments),
    /// GPU hours of teams by day, week or month
    Report(ReportArguments),
    /// Connections between the cards of a node, their groups, and their holders
    Topology(TopologyArguments),
    /// Allocation and usage by node, card, pod or namespace
    Top(TopArguments),
    /// Smaller devices for claims, by their peak usage, and the savings
    Advise(AdviseArguments),
    /// The pods to move so that another, a partition or whole cards fit, with their new places
    Defrag(DefragArguments),
    /// Pods waiting for cards, in queue order, with their reasons
    Queue(QueueArguments),
    /// The fleet page on a local port
    Fleet(FleetArguments),
    /// Problems of the installation, with remedies
    Doctor(DoctorArguments),
    /// Simulate a workload on a fleet or the cluster, with Tessera and with other schedulers
    Simulate(Box<SimulateArguments>),
    /// List devices or claims, with holders
    Get(GetArguments),
    /// Kueue's objects and settings for the cards of managed pools
    Kueue(KueueArguments),
    /// Migrate from NVIDIA's drivers: helm values, GpuPools, DeviceClasses, and the steps for each node
    Migrate(MigrateArguments),
    /// Remove the controller's scheduling gate from pods, to start them without a controller
    Ungate(UngateArguments),
    /// Let pods go on that were made in place of idle ones, which made room for others
    Resume(ResumeArguments),
    /// Run a batch script or a command, with the options of sbatch
    Run(Box<RunArguments>),
    /// Cancel jobs of `run`
    Cancel(CancelArguments),
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// The output format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// The table with more columns
    Wide,
}

impl ListFormat {
    /// The format, if not a table.
    pub fn structured(self) -> Option<Format> {
        match self {
            ListFormat::Json => Some(Format::Json),
            ListFormat::Yaml => Some(Format::Yaml),
            ListFormat::Wide => None,
        }
    }
}

/// Where the objects come from.
#[derive(Debug, Args)]
pub struct SourceArguments {
    /// File or folder with Kubernetes objects in YAML or JSON (several documents per file), or - for standard input;
    /// may be repeated. Default: the objects in the cluster
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Also read subfolders of folders given with -f
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Namespace of the named pod or claim, and of objects in files without a namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// The cluster, as kubectl's arguments name it.
#[derive(Debug, Args)]
pub struct ConnectionArguments {
    /// The kubeconfig file of the cluster
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
    /// The kubeconfig's cluster to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub cluster: Option<String>,
    /// The kubeconfig's user to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub user: Option<String>,
    /// Timeout for the API server's answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "Cluster")]
    pub request_timeout: u64,
}

/// The Kubernetes whose answers are told.
#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// Answer for this release of Kubernetes, for example 1.37 or 1.36.3. Default: the API server's release; for objects
    /// from files, the newest known one
    #[arg(long, value_name = "VERSION")]
    pub kubernetes: Option<KubernetesVersion>,
}

/// `kubectl gpu allocate`
#[derive(Debug, Args)]
#[command(after_help = help::ALLOCATE_HELP)]
pub struct AllocateArguments {
    /// pod/NAME or claim/NAME. Default: all waiting pods (without any pods: all waiting claims)
    #[arg(value_name = "pod/NAME|claim/NAME")]
    pub subject: Option<String>,
    /// Show all nodes
    #[arg(short, long)]
    pub verbose: bool,
    /// Answer JSON requests on standard input, one per line (docs/allocate-protocol.md)
    #[arg(long, conflicts_with_all = ["subject", "files", "output", "verbose"])]
    pub lines: bool,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// As which release.
    #[command(flatten)]
    pub release: ReleaseArguments,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu explain`
#[derive(Debug, Args)]
#[command(after_help = help::EXPLAIN_HELP)]
pub struct ExplainArguments {
    /// pod/NAME or claim/NAME
    #[arg(value_name = "pod/NAME|claim/NAME")]
    pub subject: String,
    /// Show up to 50 entries of each list instead of 4, with the reason for each device
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON or YAML instead of text
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// As which release.
    #[command(flatten)]
    pub release: ReleaseArguments,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu cel`
#[derive(Debug, Args)]
#[command(after_help = help::CEL_HELP)]
pub struct CelArguments {
    /// The selector, as in a DeviceClass or ResourceClaim
    #[arg(required_unless_present = "lines")]
    pub expression: Option<String>,
    /// Show the value of each part of the expression for this device: DEVICE, NODE/DEVICE, POOL/DEVICE or
    /// DRIVER/POOL/DEVICE
    #[arg(long, value_name = "NAME", conflicts_with = "lines")]
    pub device: Option<String>,
    /// Also list devices that do not match
    #[arg(short, long)]
    pub verbose: bool,
    /// Answer JSON requests on standard input, one per line (docs/allocate-protocol.md)
    #[arg(long, conflicts_with_all = ["expression", "files", "output", "verbose"])]
    pub lines: bool,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the devices come from.
    #[command(flatten)]
    pub source: SourceArguments,
    /// As which release.
    #[command(flatten)]
    pub release: ReleaseArguments,
}

/// `kubectl gpu pools`
#[derive(Debug, Args)]
#[command(after_help = help::POOLS_HELP)]
pub struct PoolsArguments {
    /// The pool to describe. Default: list all pools
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON, YAML or a wider table
    #[arg(short, long, value_enum)]
    pub output: Option<ListFormat>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu quota`
#[derive(Debug, Args)]
#[command(after_help = help::QUOTA_HELP)]
pub struct QuotaArguments {
    /// The quota to describe. Default: list all quotas
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print the nearest ResourceQuota, for namespaces whose claims kube-scheduler allocates
    #[arg(long, conflicts_with = "output")]
    pub native: bool,
    /// Print JSON, YAML or a wider table
    #[arg(short, long, value_enum)]
    pub output: Option<ListFormat>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu topology`
#[derive(Debug, Args)]
#[command(after_help = help::TOPOLOGY_HELP)]
pub struct TopologyArguments {
    /// The node. Default: list the nodes with cards
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// Print JSON or YAML instead of text
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu doctor`
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR_HELP)]
pub struct DoctorArguments {
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Name of the DRA driver, if several of Tessera's are installed. Default: found in the cluster or the files
    #[arg(long, value_name = "NAME")]
    pub driver: Option<String>,
    /// Print JSON or YAML instead of text
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// What rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// Nodes
    Nodes,
    /// Cards
    Cards,
    /// Pods
    Pods,
    /// Namespaces
    Namespaces,
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// The name
    Name,
    /// Allocated, highest first
    Allocated,
    /// Busy, highest first
    Busy,
    /// Allocated and idle, highest first
    Idle,
    /// Memory in use, highest first
    Memory,
}

/// `kubectl gpu top`
#[derive(Debug, Args)]
#[command(after_help = help::TOP_HELP)]
pub struct TopArguments {
    /// The rows
    #[arg(value_enum, default_value = "nodes")]
    pub rows: Rows,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// The namespace, for pods and namespaces.
    #[command(flatten)]
    pub namespaces: NamespaceArguments,
    /// Claims whose pods do not use their devices, where GpuPools ask (spec.idle), with the cost since
    #[arg(long, conflicts_with_all = ["rows", "sort_by"])]
    pub idle: bool,
    /// Sort by this column. Default: name for nodes and cards, idle for pods and namespaces
    #[arg(long, value_enum, value_name = "COLUMN")]
    pub sort_by: Option<SortBy>,
    /// Print once instead of every five seconds
    #[arg(long)]
    pub once: bool,
    /// Print JSON or YAML instead of a table, once
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// A fleet.json saved from the fleet page, instead of the cluster
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu advise`
#[derive(Debug, Args)]
#[command(after_help = help::ADVISE_HELP)]
pub struct AdviseArguments {
    /// Leave out claims observed for less time, for example 30m, 1h or 48h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub min_observed: Duration,
    /// A fleet.json saved from the fleet page, instead of the controller's answer
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,
    /// Name of the DRA driver, if several of Tessera's are installed. Default: found in the cluster or the files
    #[arg(long, value_name = "NAME")]
    pub driver: Option<String>,
    /// Print JSON, or the manifests to apply as YAML, instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// A time as `30m` or `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration =
        text.parse().map_err(|_| "must be a number with a unit, as 30m, 1h or 48h".to_owned())?;
    Duration::try_from(duration).map_err(|_| "a time cannot be negative".to_owned())
}

/// `kubectl gpu queue`
#[derive(Debug, Args)]
#[command(after_help = help::QUEUE_HELP)]
pub struct QueueArguments {
    /// The namespace.
    #[command(flatten)]
    pub namespaces: NamespaceArguments,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// A fleet.json saved from the fleet page, instead of the cluster
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu fleet`
#[derive(Debug, Args)]
#[command(after_help = help::FLEET_HELP)]
pub struct FleetArguments {
    /// Local port; 0 for any free port
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub port: u16,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu resume`
#[derive(Debug, Args)]
#[command(after_help = help::RESUME_HELP)]
pub struct ResumeArguments {
    /// The pods, as NAME or pod/NAME; of a gang one is enough
    #[arg(value_name = "POD", required = true)]
    pub pods: Vec<String>,
    /// The pods' namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu ungate`
#[derive(Debug, Args)]
#[command(after_help = help::UNGATE_HELP)]
pub struct UngateArguments {
    /// The pods, as NAME or pod/NAME
    #[arg(value_name = "POD", required_unless_present = "all", conflicts_with = "all")]
    pub pods: Vec<String>,
    /// All pods with the gate in the namespace
    #[arg(long)]
    pub all: bool,
    /// With --all: in all namespaces
    #[arg(short = 'A', long, requires = "all", conflicts_with_all = ["namespace", "pods"])]
    pub all_namespaces: bool,
    /// The pods' namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Change nothing; the API server only checks the request
    #[arg(long)]
    pub dry_run: bool,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
